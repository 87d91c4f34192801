//! Which members an eviction may take.

use super::{object_labels, owner};
use coregent_api::{DatabaseCluster, labels};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;

/// The disruption budgets of a cluster with so many members. Two, since a pod that falls under more than one cannot be evicted
/// at all: the primary is evicted only once it is none any more, which its node being cordoned sees to, and replicas go one
/// at a time. A cluster of one member has nobody to hand over to: its pod may be evicted, and writes stop until it is back.
#[must_use]
pub fn budgets(cluster: &DatabaseCluster, members: i32) -> Vec<PodDisruptionBudget> {
    let primary = i32::from(members > 1);
    let replicas = (members - 2).max(0);
    vec![budget(cluster, labels::ROLE_PRIMARY, primary), budget(cluster, labels::ROLE_REPLICA, replicas)]
}

fn budget(cluster: &DatabaseCluster, role: &str, at_least: i32) -> PodDisruptionBudget {
    let name = cluster.name_any();
    let selected = [(labels::CLUSTER, name.as_str()), (labels::ROLE, role)];
    let selected: BTreeMap<String, String> = selected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    PodDisruptionBudget {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{role}")),
            namespace: cluster.namespace(),
            labels: Some(object_labels(&name)),
            owner_references: Some(owner(cluster)),
            ..ObjectMeta::default()
        },
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(at_least)),
            selector: Some(LabelSelector { match_labels: Some(selected), ..LabelSelector::default() }),
            // A pod that is not ready serves nobody: a drain need not wait for it.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
