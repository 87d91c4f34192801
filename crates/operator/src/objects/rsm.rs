//! The ReplicatedStateMachine under a DatabaseCluster: it renders, labels and reports; it decides nothing (F15).

use super::{object_labels, owner, pod};
use coregent_api::rsm::{
    AccessMode, MemberLayout, PodManagementPolicy, ReplicaRole, ReplicatedStateMachineSpec, UpdateStrategy,
};
use coregent_api::{DatabaseCluster, ReplicatedStateMachine, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation with the digest of what was rendered, so that an unchanged spec writes nothing.
pub const RENDERED: &str = "coregent.io/rendered";

/// The RSM of `cluster` with the members of these numbers, whose agents come from `image`.
#[must_use]
pub fn rsm(cluster: &DatabaseCluster, instances: &[u32], image: &str) -> ReplicatedStateMachine {
    let name = cluster.name_any();
    let selector = BTreeMap::from([(labels::CLUSTER.to_owned(), name.clone())]);
    let port = json!([{"name": "postgresql", "port": cluster.spec.port, "targetPort": "postgresql"}]);
    let spec = ReplicatedStateMachineSpec {
        replicas: i32::try_from(instances.len()).unwrap_or(i32::MAX),
        selector: LabelSelector { match_labels: Some(selector.clone()), ..LabelSelector::default() },
        // The role label says who accepts writes, and it is set only once clients are let in: to wait for the next
        // readiness probe as well would lengthen every failover by up to its period.
        service: Some(json!({
            "metadata": {"labels": selector},
            "spec": {"ports": port, "publishNotReadyAddresses": true},
        })),
        alternative_services: vec![json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": format!("{name}-replica"), "labels": selector},
            "spec": {
                "selector": {labels::CLUSTER: name, labels::ROLE: labels::ROLE_REPLICA},
                "ports": port,
            },
        })],
        template: pod::template(cluster, super::members(cluster, instances), image),
        volume_claim_templates: claims(cluster),
        pod_management_policy: Some(PodManagementPolicy::Parallel),
        // Only the database controller deletes its pods (F15).
        update_strategy: Some(UpdateStrategy::on_delete()),
        roles: vec![
            role(labels::ROLE_PRIMARY, AccessMode::ReadWrite, true),
            role(labels::ROLE_REPLICA, AccessMode::Readonly, false),
        ],
        member_layout: MemberLayout::Instances,
        instances: Some(instances.iter().filter_map(|index| i32::try_from(*index).ok()).collect()),
        ..ReplicatedStateMachineSpec::default()
    };
    let mut rsm = ReplicatedStateMachine::new(&name, spec);
    rsm.metadata.namespace = cluster.namespace();
    rsm.metadata.labels = Some(object_labels(&name));
    rsm.metadata.owner_references = Some(owner(cluster));
    rsm
}

fn role(name: &str, access_mode: AccessMode, is_leader: bool) -> ReplicaRole {
    ReplicaRole { name: name.to_owned(), access_mode, can_vote: true, is_leader, is_exclusive: false }
}

fn claims(cluster: &DatabaseCluster) -> Vec<Value> {
    let storage = &cluster.spec.storage;
    let mut data = json!({
        "metadata": {"name": "data", "labels": {labels::CLUSTER: cluster.name_any()}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage.size}},
        },
    });
    if let (Some(class), Some(spec)) = (&storage.storage_class_name, data.pointer_mut("/spec")) {
        spec["storageClassName"] = json!(class);
    }
    let extra = cluster.spec.volume.iter().flat_map(|volume| volume.volume_claim_templates.iter());
    let extra = extra.map(|claim| json!({"metadata": {"name": claim["name"]}, "spec": claim["spec"]}));
    std::iter::once(data).chain(extra).collect()
}
