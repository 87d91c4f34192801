//! What an RSM reports of itself: a pure function of what was seen (rsm.md 2.2 no. 4, 4.5, 4.6).

use coregent_api::conditions::{self, State, set_condition};
use coregent_api::rsm::{MemberLayout, MemberStatus, ReplicatedStateMachineStatus};
use coregent_api::{ReplicatedStateMachine, labels};
use coregent_core::rsm::roles;
use coregent_core::rsm::update::Next;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::names;
use crate::order::{compose_role_priority_map, role_of};
use crate::ready::{is_rsm_ready, members_of};
use crate::update;
use crate::world::World;

/// Reason of Ready while members are of an older revision.
const MEMBERS_OUTDATED: &str = "MembersOutdated";

/// The status that follows from what was seen, given the one before.
#[must_use]
pub fn observed(world: &World, before: &ReplicatedStateMachineStatus) -> ReplicatedStateMachineStatus {
    let rsm = &world.rsm;
    let mut status = before.clone();
    copy_counts(world, &mut status);
    status.members_status = members(world);
    status.selector = rsm.spec.selector.match_labels.as_ref().map(names::selector_text);
    bring_up(rsm, &mut status);
    let mut with_status = rsm.clone();
    with_status.status = Some(status.clone());
    let (state, reason, mut message) = readiness(&with_status, &status);
    if let (MEMBERS_OUTDATED, Some(Next::Wait(waiting))) = (reason, update::next(world)) {
        message = format!("{message}; the others wait: {waiting}");
    }
    let generation = rsm.metadata.generation;
    set_condition(&mut status.conditions, conditions::READY, state, reason, &message, generation, &world.now);
    // A set that never was paused does not need to say that it is not.
    if conditions::find(&status.conditions, conditions::PAUSED).is_some() {
        set_condition(&mut status.conditions, conditions::PAUSED, State::False, "Running", "", generation, &world.now);
    }
    set_condition(&mut status.conditions, conditions::SPEC_VALID, State::True, "Valid", "", generation, &world.now);
    status
}

/// Counts of all StatefulSets together. The counts of one that its controller has not looked at since it was changed
/// speak of an older spec: none of its pods counts as updated.
fn copy_counts(world: &World, status: &mut ReplicatedStateMachineStatus) {
    let sets = &world.stateful_sets;
    let of = |set: &StatefulSet| set.status.clone().unwrap_or_default();
    let looked_at = |set: &&StatefulSet| of(set).observed_generation >= set.metadata.generation;
    let sum = |count: fn(&k8s_openapi::api::apps::v1::StatefulSetStatus) -> Option<i32>| {
        sets.iter().map(|set| count(&of(set)).unwrap_or_default()).sum::<i32>()
    };
    status.replicas = sum(|set| Some(set.replicas));
    status.ready_replicas = Some(sum(|set| set.ready_replicas));
    status.available_replicas = Some(sum(|set| set.available_replicas));
    status.current_replicas = Some(sum(|set| set.current_replicas));
    status.updated_replicas =
        Some(sets.iter().filter(looked_at).map(|set| of(set).updated_replicas.unwrap_or_default()).sum());
    (status.current_revision, status.update_revision, status.collision_count) =
        match (world.rsm.spec.member_layout, sets.as_slice()) {
            (MemberLayout::StatefulSet, [set]) => {
                let seen = of(set);
                (seen.current_revision, seen.update_revision, seen.collision_count)
            }
            // Every member has its own.
            _ => (None, None, None),
        };
    if let Some(generation) = rendered_generation(world) {
        status.current_generation = Some(generation);
    }
}

/// Generation that all StatefulSets were rendered from at least; `None` while one is missing or says nothing.
fn rendered_generation(world: &World) -> Option<i64> {
    let wanted = match world.rsm.spec.member_layout {
        MemberLayout::StatefulSet => 1,
        MemberLayout::Instances => members_of(&world.rsm).len(),
    };
    if world.stateful_sets.len() < wanted {
        return None;
    }
    let label = |set: &StatefulSet| set.labels().get(labels::CONTROLLER_GENERATION)?.parse::<i64>().ok();
    let generations: Option<Vec<i64>> = world.stateful_sets.iter().map(label).collect();
    // A set that is to have no member at all was rendered as soon as it was looked at.
    generations.and_then(|all| all.into_iter().min().or(world.rsm.metadata.generation))
}

/// Members by role: ready, staying, with a declared role; the leader first. Rebuilt from scratch each time.
pub(crate) fn members(world: &World) -> Vec<MemberStatus> {
    let declared = &world.rsm.spec.roles;
    let priorities = compose_role_priority_map(declared);
    let mut listed: Vec<((i32, i64), MemberStatus)> = world
        .pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod))
        .filter_map(|pod| {
            let name = role_of(pod);
            let role =
                declared.iter().find(|role| !name.is_empty() && role.name.to_lowercase() == name.to_lowercase())?;
            let key = (roles::priority_of(&priorities, name), world.number(pod));
            let ready_without_primary = pod.labels().get(labels::READY_WITHOUT_PRIMARY).is_some_and(|is| is == "true");
            Some((key, MemberStatus { pod_name: pod.name_any(), role: role.clone(), ready_without_primary }))
        })
        .collect();
    listed.sort_by(|(a, _), (b, _)| roles::compare(*a, *b, true));
    listed.into_iter().map(|(_, member)| member).collect()
}

/// Whether the condition Ready of a pod is true.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The first start of a set whose roles are probed. Clamped: a set that was scaled out before it was up would otherwise
/// never count as started (rsm.md 4.6).
fn bring_up(rsm: &ReplicatedStateMachine, status: &mut ReplicatedStateMachineStatus) {
    if rsm.spec.roles.is_empty() || rsm.spec.role_probe.is_none() {
        return;
    }
    if status.init_replicas == 0 {
        status.init_replicas = rsm.spec.desired_replicas();
    }
    let ready = status.ready_init_replicas.unwrap_or_default();
    if ready < status.init_replicas {
        let with_role = i32::try_from(status.members_status.len()).unwrap_or(i32::MAX);
        status.ready_init_replicas = Some(with_role.min(status.init_replicas));
    }
}

fn readiness(rsm: &ReplicatedStateMachine, status: &ReplicatedStateMachineStatus) -> (State, &'static str, String) {
    let leaders: Vec<&str> = status
        .members_status
        .iter()
        .filter(|member| member.role.is_leader)
        .map(|member| member.pod_name.as_str())
        .collect();
    if leaders.len() > 1 {
        return (State::False, "TooManyLeaders", format!("several members lead: {}", leaders.join(", ")));
    }
    if is_rsm_ready(Some(rsm)) {
        return (State::True, "AllMembersReady", String::new());
    }
    let wanted = rsm.spec.desired_replicas();
    let ready = status.ready_replicas.unwrap_or_default();
    let updated = status.updated_replicas.unwrap_or_default();
    if wanted == 0 {
        (State::False, "NoMembers", "spec.replicas is 0".to_owned())
    } else if ready < wanted {
        (State::False, "MembersNotReady", format!("{ready} of {wanted} members are ready"))
    } else if updated < wanted {
        (State::False, MEMBERS_OUTDATED, format!("{updated} of {wanted} members are at the newest revision"))
    } else if leaders.is_empty() && !rsm.spec.roles.is_empty() && rsm.spec.role_probe.is_some() {
        (State::False, "NoLeader", "no ready member leads".to_owned())
    } else {
        (State::False, "Settling", "waits for the newest spec to be observed".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coregent_api::ReplicatedStateMachineSpec;
    use coregent_api::rsm::{AccessMode, ReplicaRole, RoleProbe};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn world(spec: ReplicatedStateMachineSpec, pods: Vec<Pod>) -> World {
        let role = |name: &str, access_mode, can_vote, is_leader| ReplicaRole {
            name: name.into(),
            access_mode,
            can_vote,
            is_leader,
            is_exclusive: false,
        };
        let roles = vec![
            role("Leader", AccessMode::ReadWrite, true, true),
            role("follower", AccessMode::Readonly, true, false),
            role("logger", AccessMode::None, true, false),
            role("learner", AccessMode::Readonly, false, false),
        ];
        let mut rsm = ReplicatedStateMachine::new("bar", ReplicatedStateMachineSpec { roles, ..spec });
        rsm.metadata.generation = Some(1);
        rsm.metadata.uid = Some("u".into());
        World::of(rsm, Vec::new(), pods, Time(Timestamp::UNIX_EPOCH))
    }

    fn pod(name: &str, role: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {labels::ROLE: role}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn names(status: &ReplicatedStateMachineStatus) -> Vec<&str> {
        status.members_status.iter().map(|member| member.pod_name.as_str()).collect()
    }

    /// The member sort of rsm.md 10.1, with a role whose name is not lower-case (rsm.md 4.5).
    #[test]
    fn members_are_listed_leader_first_then_by_priority_and_falling_number() {
        let pods = [
            ("bar-0", "follower"),
            ("bar-1", "learner"),
            ("bar-2", "learner"),
            ("bar-3", "LEADER"),
            ("bar-4", "logger"),
        ];
        let world = world(Default::default(), pods.iter().map(|(name, role)| pod(name, role)).collect());
        assert_eq!(names(&observed(&world, &Default::default())), ["bar-3", "bar-0", "bar-4", "bar-2", "bar-1"]);
    }

    #[test]
    fn pods_of_other_sets_are_not_members() {
        let others = ["bar-x-0", "foo-0", "bar", "bar-0-0"].map(|name| pod(name, "follower"));
        let world = world(Default::default(), others.into());
        assert_eq!(names(&observed(&world, &Default::default())), Vec::<&str>::new());
    }

    #[test]
    fn a_set_scaled_out_during_its_first_start_still_counts_as_started() {
        let spec =
            ReplicatedStateMachineSpec { replicas: 2, role_probe: Some(RoleProbe::default()), ..Default::default() };
        let mut at = world(spec, vec![pod("bar-0", "leader")]);
        let first = observed(&at, &Default::default());
        assert_eq!((first.init_replicas, first.ready_init_replicas), (2, Some(1)));
        at.pods = vec![pod("bar-0", "leader"), pod("bar-1", "follower"), pod("bar-2", "follower")];
        at.rsm.spec.replicas = 3;
        let second = observed(&at, &first);
        assert_eq!((second.init_replicas, second.ready_init_replicas), (2, Some(2)));
        at.pods.clear();
        assert_eq!(observed(&at, &second).ready_init_replicas, Some(2), "frozen");
    }

    #[test]
    fn without_a_probe_there_is_no_first_start_to_wait_for() {
        let status = observed(&world(Default::default(), vec![pod("bar-0", "leader")]), &Default::default());
        assert_eq!((status.init_replicas, status.ready_init_replicas, names(&status)), (0, None, vec!["bar-0"]));
    }

    #[test]
    fn counts_that_speak_of_an_older_spec_do_not_make_a_set_ready() {
        let mut at = world(ReplicatedStateMachineSpec { replicas: 1, ..Default::default() }, vec![]);
        let set = |observed: i64| -> StatefulSet {
            serde_json::from_value(json!({
                "metadata": {"name": "bar", "generation": 2, "labels": {labels::CONTROLLER_GENERATION: "1"}},
                "status": {"observedGeneration": observed, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1},
            }))
            .unwrap()
        };
        let before = ReplicatedStateMachineStatus { observed_generation: Some(1), ..Default::default() };
        let ready = |at: &World| conditions::is_true(&observed(at, &before).conditions, conditions::READY);
        at.stateful_sets = vec![set(1)];
        assert!(!ready(&at));
        at.stateful_sets = vec![set(2)];
        assert!(ready(&at));
    }
}
