//! Order of pods by role.

use std::collections::BTreeMap;

use coregent_api::labels;
use coregent_api::rsm::{AccessMode, ReplicaRole};
use coregent_core::rsm::roles::{self, parent_and_ordinal};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// A declared role in the terms of `core`.
#[must_use]
pub fn role(role: &ReplicaRole) -> roles::Role {
    roles::Role {
        name: role.name.clone(),
        access_mode: match role.access_mode {
            AccessMode::None => roles::AccessMode::None,
            AccessMode::Readonly => roles::AccessMode::Readonly,
            AccessMode::ReadWrite => roles::AccessMode::ReadWrite,
        },
        can_vote: role.can_vote,
        is_leader: role.is_leader,
        is_exclusive: role.is_exclusive,
    }
}

/// Priority of every declared role by lower-case name, and of the empty one.
#[must_use]
pub fn compose_role_priority_map(declared: &[ReplicaRole]) -> BTreeMap<String, i32> {
    roles::priority_map(&declared.iter().map(role).collect::<Vec<_>>())
}

/// Sorts pods by the priority of their role, then by their ordinal: unknown, none, learner, followers, leader.
/// `reverse` turns both round.
pub fn sort_pods(pods: &mut [Pod], priorities: &BTreeMap<String, i32>, reverse: bool) {
    let key = |pod: &Pod| (roles::priority_of(priorities, role_of(pod)), ordinal_of(pod));
    pods.sort_by(|a, b| roles::compare(key(a), key(b), reverse));
}

/// The role label of a pod, empty when it has none.
#[must_use]
pub fn role_of(pod: &Pod) -> &str {
    pod.labels().get(labels::ROLE).map_or("", String::as_str)
}

/// `a-3` is 3, and so is `a-3-0`, the only pod of member 3, as long as the member's name is on the pod.
fn ordinal_of(pod: &Pod) -> i64 {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match (parent_and_ordinal(name), pod.labels().get(labels::INSTANCE)) {
        ((parent, 0), Some(instance)) if parent == instance && parent_and_ordinal(parent).1 >= 0 => {
            parent_and_ordinal(parent).1
        }
        ((_, ordinal), _) => ordinal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, role: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        if !role.is_empty() {
            pod.metadata.labels = Some([(labels::ROLE.to_owned(), role.to_owned())].into());
        }
        pod
    }

    fn declared(name: &str, access_mode: AccessMode, can_vote: bool, is_leader: bool) -> ReplicaRole {
        ReplicaRole { name: name.to_owned(), access_mode, can_vote, is_leader, is_exclusive: false }
    }

    #[test]
    fn upstream_vector() {
        let priorities = compose_role_priority_map(&[
            declared("leader", AccessMode::ReadWrite, true, true),
            declared("follower", AccessMode::Readonly, true, false),
            declared("logger", AccessMode::None, true, false),
            declared("learner", AccessMode::Readonly, false, false),
        ]);
        let roles = ["follower", "logger", "", "learner", "candidate", "leader", "learner"];
        let mut pods: Vec<Pod> = roles.iter().enumerate().map(|(i, role)| pod(&format!("pod-{i}"), role)).collect();
        sort_pods(&mut pods, &priorities, false);
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["pod-4", "pod-2", "pod-3", "pod-6", "pod-1", "pod-0", "pod-5"]);
    }
}
