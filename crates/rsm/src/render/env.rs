//! The ConfigMap that tells every container who the members are (rsm.md 3.6).

use std::collections::BTreeMap;

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::MemberStatus;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use super::meta;
use crate::annotation::{AnnotationScope, parse_annotations_of_scope};
use crate::names;

/// Label on the RSM whose value becomes the third prefix.
const COMPONENT: &str = "app.kubernetes.io/component";
/// Annotation on the RSM that stands in for its uid.
const CLUSTER_UID: &str = "KB_CLUSTER_UID";

pub(super) fn render(rsm: &ReplicatedStateMachine, numbers: &[i32]) -> ConfigMap {
    let name = rsm.name_any();
    let mut metadata = meta(rsm, names::env_config_map(&name));
    metadata.annotations = parse_annotations_of_scope(AnnotationScope::ConfigMap, rsm.metadata.annotations.as_ref())
        .filter(|a| !a.is_empty());
    ConfigMap { metadata, data: Some(data(rsm, &name, numbers)), ..ConfigMap::default() }
}

fn data(rsm: &ReplicatedStateMachine, name: &str, numbers: &[i32]) -> BTreeMap<String, String> {
    // Without a component label there is no third set of names; the origin then wrote `KB__…`, which nobody can want.
    let component = rsm.labels().get(COMPONENT).filter(|component| !component.is_empty());
    let component = component.map(|component| format!("KB_{}_", component.to_uppercase().replace('-', "_")));
    let mut data = BTreeMap::new();
    let count = numbers.len().to_string();
    data.insert("KB_RSM_N".to_owned(), count.clone());
    data.insert("KB_REPLICA_COUNT".to_owned(), count.clone());
    if let Some(prefix) = &component {
        data.insert(format!("{prefix}N"), count);
    }
    for prefix in ["KB_RSM_", "KB_"].into_iter().chain(component.as_deref()) {
        for number in numbers {
            let pod = names::pod(name, rsm.spec.member_layout, *number);
            data.insert(format!("{prefix}{number}_HOSTNAME"), format!("{pod}.{}", names::headless_service(name)));
        }
        roles(rsm, prefix, &mut data);
    }
    if let Some(count) = founders(rsm) {
        data.insert("COREGENT_BOOTSTRAP_REPLICAS".to_owned(), count.to_string());
    }
    let uid = rsm.uid().unwrap_or_default();
    data.insert("KB_RSM_OWNER_UID".to_owned(), uid.clone());
    // Four characters although the name says eight: programs of the origin's time build names from it.
    let suffix = uid.get(uid.len().saturating_sub(4)..).unwrap_or(&uid).to_owned();
    data.insert("KB_RSM_OWNER_UID_SUFFIX8".to_owned(), suffix);
    let cluster_uid = rsm.annotations().get(CLUSTER_UID).cloned().unwrap_or(uid);
    for prefix in std::iter::once("KB_").chain(component.as_deref()) {
        data.insert(format!("{prefix}CLUSTER_UID"), cluster_uid.clone());
    }
    data
}

/// How many members found the cluster together, while they do. A member that comes later finds none in its environment: it
/// must wait to be let in, and must never found another cluster because it hears nobody.
fn founders(rsm: &ReplicatedStateMachine) -> Option<i32> {
    let status = rsm.status.clone().unwrap_or_default();
    let probed = !rsm.spec.roles.is_empty() && rsm.spec.role_probe.is_some();
    match status.init_replicas {
        _ if !probed => None,
        0 => Some(rsm.spec.desired_replicas()),
        wanted => (status.ready_init_replicas.unwrap_or_default() < wanted).then_some(wanted),
    }
}

/// The leader and its voting followers, as the status lists them.
fn roles(rsm: &ReplicatedStateMachine, prefix: &str, data: &mut BTreeMap<String, String>) {
    let members = rsm.status.iter().flat_map(|status| &status.members_status);
    let known: Vec<&MemberStatus> =
        members.filter(|member| !member.pod_name.is_empty() && member.pod_name != "Unknown").collect();
    // The list has the leader with the greatest claim first; a second one is a fault that must not win.
    if let Some(leader) = known.iter().find(|member| member.role.is_leader) {
        data.insert(format!("{prefix}LEADER"), leader.pod_name.clone());
    }
    let followers: Vec<&str> = known
        .iter()
        .filter(|member| !member.role.is_leader && member.role.can_vote)
        .map(|member| member.pod_name.as_str())
        .collect();
    if !followers.is_empty() {
        data.insert(format!("{prefix}FOLLOWERS"), followers.join(","));
    }
}
