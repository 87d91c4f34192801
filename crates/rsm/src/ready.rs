//! When an RSM is ready (rsm.md 7.3).

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::MemberLayout;
use kube::ResourceExt;

use crate::names;

/// Whether all members exist at the newest revision and, where roles are probed, each has one and one leads.
///
/// `availableReplicas` is not compared: Kubernetes before 1.22 does not count it (rsm.md 9, 3).
#[must_use]
pub fn is_rsm_ready(rsm: Option<&ReplicatedStateMachine>) -> bool {
    let Some((rsm, status)) = rsm.and_then(|rsm| Some((rsm, rsm.status.as_ref()?))) else { return false };
    let generation = rsm.metadata.generation;
    let wanted = rsm.spec.desired_replicas();
    let counted = [Some(status.replicas), status.ready_replicas, status.updated_replicas]
        .into_iter()
        .all(|count| count.unwrap_or_default() == wanted);
    if generation.is_none()
        || status.observed_generation != generation
        || status.current_generation != generation
        || status.ready_init_replicas.unwrap_or_default() != status.init_replicas
        || !counted
    {
        return false;
    }
    if rsm.spec.roles.is_empty() || rsm.spec.role_probe.is_none() {
        return true;
    }
    let members = &status.members_status;
    let numbers = members_of(rsm);
    let listed = |number: &i32| {
        let pod = names::pod(&rsm.name_any(), rsm.spec.member_layout, *number);
        members.iter().any(|member| member.pod_name == pod)
    };
    members.len() == numbers.len()
        && numbers.iter().all(listed)
        && members.iter().any(|member| member.role.is_leader || member.ready_without_primary)
}

/// Numbers of the members that should exist, as far as spec and status tell.
#[must_use]
pub fn members_of(rsm: &ReplicatedStateMachine) -> Vec<i32> {
    match (rsm.spec.member_layout, &rsm.spec.instances) {
        (MemberLayout::StatefulSet, _) => (0..rsm.spec.replicas).collect(),
        (MemberLayout::Instances, Some(given)) => given.clone(),
        (MemberLayout::Instances, None) => {
            rsm.status.as_ref().map(|status| status.instances.clone()).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coregent_api::ReplicatedStateMachineSpec;
    use coregent_api::rsm::{MemberStatus, ReplicaRole, ReplicatedStateMachineStatus, RoleProbe};

    fn role(name: &str, is_leader: bool) -> ReplicaRole {
        ReplicaRole { name: name.into(), is_leader, ..ReplicaRole::default() }
    }

    fn good() -> ReplicatedStateMachine {
        let spec = ReplicatedStateMachineSpec {
            replicas: 3,
            roles: vec![role("leader", true), role("follower", false)],
            role_probe: Some(RoleProbe::default()),
            ..Default::default()
        };
        let mut rsm = ReplicatedStateMachine::new("bar", spec);
        rsm.metadata.generation = Some(2);
        let member = |n: i32, role| MemberStatus { pod_name: format!("bar-{n}"), role, ready_without_primary: false };
        rsm.status = Some(ReplicatedStateMachineStatus {
            observed_generation: Some(2),
            current_generation: Some(2),
            replicas: 3,
            ready_replicas: Some(3),
            updated_replicas: Some(3),
            init_replicas: 3,
            ready_init_replicas: Some(3),
            members_status: vec![
                member(1, role("leader", true)),
                member(0, role("follower", false)),
                member(2, role("follower", false)),
            ],
            ..Default::default()
        });
        rsm
    }

    /// Each entry spoils a good RSM in one way.
    #[test]
    fn every_single_condition_counts() {
        type Spoil = fn(&mut ReplicatedStateMachine, &mut ReplicatedStateMachineStatus);
        let spoilt: [(&str, Spoil); 8] = [
            ("init", |_, status| status.ready_init_replicas = Some(2)),
            ("generation", |rsm, _| rsm.metadata.generation = Some(3)),
            ("current generation", |_, status| status.current_generation = Some(1)),
            ("replicas", |_, status| status.replicas = 2),
            ("ready", |_, status| status.ready_replicas = None),
            ("updated", |_, status| status.updated_replicas = Some(1)),
            ("members", |_, status| status.members_status.truncate(2)),
            ("leader", |_, status| status.members_status.iter_mut().for_each(|member| member.role.is_leader = false)),
        ];
        assert!(is_rsm_ready(Some(&good())));
        assert!(!is_rsm_ready(None));
        for (name, spoil) in spoilt {
            let mut rsm = good();
            let mut status = rsm.status.take().unwrap();
            spoil(&mut rsm, &mut status);
            rsm.status = Some(status);
            assert!(!is_rsm_ready(Some(&rsm)), "{name}");
        }
    }

    #[test]
    fn roles_do_not_count_when_nobody_probes_them() {
        let mut rsm = good();
        rsm.spec.role_probe = None;
        rsm.status.as_mut().unwrap().members_status.clear();
        assert!(is_rsm_ready(Some(&rsm)));
    }

    /// Issue 5123: a set without roles never left Updating.
    #[test]
    fn a_set_without_roles_is_ready_when_its_members_are() {
        let mut rsm = good();
        rsm.spec.roles.clear();
        let status = rsm.status.as_mut().unwrap();
        status.members_status.clear();
        (status.init_replicas, status.ready_init_replicas) = (0, None);
        assert!(is_rsm_ready(Some(&rsm)));
    }

    #[test]
    fn a_member_that_serves_without_a_leader_makes_a_set_ready() {
        let mut rsm = good();
        let members = &mut rsm.status.as_mut().unwrap().members_status;
        members.iter_mut().for_each(|member| member.role.is_leader = false);
        members[2].ready_without_primary = true;
        assert!(is_rsm_ready(Some(&rsm)));
    }

    #[test]
    fn the_numbers_of_members_are_told_apart() {
        let mut rsm = good();
        rsm.status.as_mut().unwrap().members_status[2].pod_name = "bar-3".into();
        assert!(!is_rsm_ready(Some(&rsm)), "three members, but not those of the set");
    }

    #[test]
    fn available_replicas_are_not_compared() {
        let mut rsm = good();
        rsm.status.as_mut().unwrap().available_replicas = Some(0);
        assert!(is_rsm_ready(Some(&rsm)));
    }
}
