//! What the controller never decides, whatever it sees.

use super::controller::world;
use super::{cases, read_by};
use coregent_core::failover::{Decision, Holder, Lease, Mode, Role, Step, World, decide};
use coregent_core::fence::{Fence, Proof, SyncSet};
use coregent_core::lsn::Timeline;
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Promotion;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{TestCaseError, TestRunner};
use std::collections::BTreeSet;

type Held = Result<(), TestCaseError>;

/// The Lease as a step leaves it, with the version that the write is conditional on.
fn lease_write(step: &Step) -> Option<(&str, Epoch, &Fence)> {
    match step {
        Step::Raise { version, epoch, fence }
        | Step::Name { version, epoch, fence }
        | Step::Prepare { version, epoch, fence }
        | Step::Enrol { version, epoch, fence } => Some((version, *epoch, fence)),
        _ => None,
    }
}

/// The newest epoch that anybody says that he knows.
fn known(world: &World) -> Epoch {
    let reports = world.members.values().filter_map(|member| member.report.as_ref());
    let of_reports = reports.flat_map(|report| {
        let chain = report.position.iter().flat_map(|position| position.chain.iter().map(|beneath| beneath.epoch));
        chain.chain([report.epoch]).chain(report.left)
    });
    let of_lease = world.lease().map(|lease| lease.epoch);
    of_reports.chain(of_lease).chain([world.memory.primary.epoch]).max().unwrap_or_default()
}

fn same(a: &Promotion, b: &Promotion) -> bool {
    (a.epoch, &a.member, a.timeline) == (b.epoch, &b.member, b.timeline)
}

/// Everything that `before` says of attempts and wins is in `after` (F9).
fn forgets_nothing(before: &Fence, after: &Fence) -> Held {
    for attempt in &before.history {
        let kept =
            after.history.iter().any(|kept| same(&kept.promotion, &attempt.promotion) && kept.won >= attempt.won);
        prop_assert!(kept, "{attempt:?} is gone");
    }
    Ok(())
}

/// F1: at most one write of the Lease in a decision, on the version that was seen. What a member writes (sets, attempts,
/// wins, release, chain) is left as it is; a repair only adds to the history what the members' folders know (F14).
fn writes_of_the_lease_are_conditional_and_few(world: &World, decision: &Decision) -> Held {
    let writes: Vec<_> = decision.steps.iter().filter_map(lease_write).collect();
    prop_assert!(writes.len() <= 1, "two writes of one version");
    let Some(lease) = world.lease() else {
        prop_assert!(writes.is_empty());
        return Ok(());
    };
    for (version, _, after) in writes {
        prop_assert_eq!(version, &lease.version);
        let before = &lease.fence;
        prop_assert_eq!(&after.sync_sets, &before.sync_sets);
        prop_assert_eq!(&after.release, &before.release);
        prop_assert_eq!(&after.chain, &before.chain);
        prop_assert_eq!(after.version, before.version);
        prop_assert!(before.system_id.is_none() || after.system_id == before.system_id);
        prop_assert!(after.members.is_superset(&before.members));
        forgets_nothing(before, after)?;
    }
    Ok(())
}

/// F1, F5, F14: an epoch is raised to one more than anybody knows, target and proof empty, only for an operation that was
/// written ahead in this very epoch, and never to one that the API cannot hold.
fn a_raise_is_written_ahead_and_by_one(world: &World, decision: &Decision) -> Held {
    for step in &decision.steps {
        let Step::Raise { epoch, fence, .. } = step else { continue };
        let Some(lease) = world.lease() else { return Err(TestCaseError::fail("no Lease to raise")) };
        prop_assert_eq!(epoch.0, known(world).0 + 1);
        prop_assert!(*epoch > lease.epoch && i32::try_from(epoch.0).is_ok());
        prop_assert!(fence.target.is_none() && fence.preparing.is_none() && !fence.restored);
        let active = world.operations().active.as_ref();
        prop_assert!(active.is_some_and(|active| active.epoch == lease.epoch.0));
    }
    Ok(())
}

/// F1: a target is named once an epoch, in the epoch that was seen, among the members that run; nothing else changes
/// epoch or target.
fn a_target_is_named_once_and_is_a_member(world: &World, decision: &Decision) -> Held {
    for step in &decision.steps {
        let Some((_, epoch, fence)) = lease_write(step) else { continue };
        let Some(lease) = world.lease() else { continue };
        match step {
            Step::Raise { .. } => {}
            Step::Name { .. } => {
                prop_assert!(lease.fence.target.is_none() && epoch == lease.epoch);
                let Some(target) = &fence.target else { return Err(TestCaseError::fail("nobody is named")) };
                let known = world.members.get(&target.member);
                prop_assert!(known.is_some_and(|member| world.is_live(member)), "{} does not run", target.member);
                prop_assert!(!target.address.is_empty());
            }
            _ => prop_assert!(epoch == lease.epoch && fence.target == lease.fence.target),
        }
        let announces = matches!(step, Step::Prepare { .. } | Step::Raise { .. });
        prop_assert!(announces || fence.preparing == lease.fence.preparing);
    }
    Ok(())
}

/// F6, F7: whoever is named has left for this very epoch with data of this system, and in quorum mode every set that counts
/// has lost its quorum to it and to those who hold no more. F4: the proof is what was seen.
fn whoever_is_named_holds_all_that_was_acknowledged(world: &World, decision: &Decision) -> Held {
    for step in &decision.steps {
        let Step::Name { fence, .. } = step else { continue };
        let (Some(lease), Some(target)) = (world.lease(), &fence.target) else { continue };
        proof_holds(world, lease, &target.proof)?;
        if target.proof == Proof::Bootstrap {
            prop_assert!(fence.history.is_empty() && fence.system_id.is_none());
            prop_assert_eq!(Some(&target.member), world.grant.as_ref());
            let others = world.members.iter().filter(|(name, _)| **name != target.member);
            prop_assert!(others.clone().all(|(_, member)| !member.has_data()));
            continue;
        }
        let report = world.members[&target.member].report.as_ref();
        prop_assert!(report.is_some_and(|report| report.left == Some(lease.epoch) && report.position.is_some()));
        prop_assert!(!target.initial_sync.contains(&target.member));
        let left = |name: &MemberName| {
            let report = world.members.get(name).and_then(|member| member.report.as_ref());
            report.is_some_and(|report| report.left == Some(lease.epoch) && report.position.is_some())
        };
        prop_assert!(target.initial_sync.iter().all(left), "the initial set is of those who left");
        prop_assert!(world.cluster.mode == Mode::Quorum || target.initial_sync.is_empty());
        let released = |name: &MemberName| lease.fence.release.as_ref().is_some_and(|release| release.member == *name);
        for set in counting(fence, lease.epoch).filter(|set| !set.degraded) {
            let primary = set.primary.clone().or_else(|| attempt_of(fence, set.epoch));
            let by_primary = primary.is_some_and(|primary| left(&primary) || released(&primary));
            let heard = set.members.iter().filter(|name| left(name) || released(name)).count();
            prop_assert!(by_primary || heard + set.k as usize > set.members.len(), "{set:?} can still acknowledge");
        }
    }
    Ok(())
}

fn attempt_of(fence: &Fence, epoch: Epoch) -> Option<MemberName> {
    let attempt = fence.history.iter().find(|attempt| attempt.promotion.epoch == epoch);
    attempt.map(|attempt| attempt.promotion.member.clone())
}

/// The sets from the newest complete epoch on.
fn counting(fence: &Fence, epoch: Epoch) -> impl Iterator<Item = &SyncSet> {
    let earlier = || fence.sync_sets.iter().filter(move |set| set.epoch < epoch);
    let from = earlier().filter(|set| set.complete).map(|set| set.epoch).max().unwrap_or_default();
    earlier().filter(move |set| set.epoch >= from)
}

fn proof_holds(world: &World, lease: &Lease, proof: &Proof) -> Held {
    match proof {
        Proof::Released | Proof::Bootstrap => prop_assert_eq!(&lease.holder, &Holder::Nobody),
        Proof::Expired => prop_assert!(lease.is_expired(world)),
        Proof::Terminated { .. } => {
            let Holder::Member(holder) = &lease.holder else { return Err(TestCaseError::fail("whose container?")) };
            let gone = world.terminated.get(&holder.pod_uid);
            prop_assert!(gone.is_some_and(|gone| gone.version > lease.raised_at));
        }
        Proof::QuorumFence => {
            prop_assert!(world.cluster.mode == Mode::Quorum && matches!(lease.holder, Holder::Member(_)));
            prop_assert!(counting(&lease.fence, lease.epoch).all(|set| !set.degraded));
        }
        Proof::PoweredOff => return Err(TestCaseError::fail("only a person says so")),
    }
    Ok(())
}

/// F4, F5, F15: a pod is deleted only as a fence of the old holder in a raised epoch without a target, by the uid and the
/// version that were seen, and never one that was stamped for it. F15: who is stamped was never the old holder's pod,
/// unless it is the one that is named in the same breath.
fn only_the_old_holders_pod_is_ever_deleted(world: &World, decision: &Decision) -> Held {
    for step in &decision.steps {
        let Step::FencingDelete { pod, uid, version, epoch } = step else { continue };
        let Some(lease) = world.lease() else { return Err(TestCaseError::fail("no Lease")) };
        let Holder::Member(holder) = &lease.holder else { return Err(TestCaseError::fail("nobody to fence")) };
        prop_assert!(lease.fence.target.is_none() && *epoch == lease.epoch && *uid == holder.pod_uid);
        let seen = world.members.get(&holder.member).and_then(|member| member.pod.as_ref());
        let Some(seen) = seen else { return Err(TestCaseError::fail("no such pod")) };
        prop_assert_eq!((pod, uid, version), (&seen.name, &seen.uid, &seen.version));
        prop_assert!(seen.stamp.is_none_or(|stamp| stamp < *epoch) && !seen.deleting);
        let writes = decision.steps.iter().any(|step| lease_write(step).is_some());
        prop_assert!(!writes, "deleted and named in one breath");
    }
    Ok(())
}

/// F4 (X3): whoever is named over an old holder is stamped before.
fn a_named_pod_is_stamped_before(world: &World, decision: &Decision) -> Held {
    let mut stamped: BTreeSet<&str> = BTreeSet::new();
    for step in &decision.steps {
        match step {
            Step::Stamp { uid, epoch, .. } => {
                prop_assert_eq!(Some(*epoch), world.lease().map(|lease| lease.epoch));
                stamped.insert(uid);
            }
            Step::Name { fence, epoch, .. } => {
                let Some(target) = fence.target.as_ref().filter(|target| target.proof != Proof::Bootstrap) else {
                    continue;
                };
                let Some(pod) = &world.members[&target.member].pod else { return Err(TestCaseError::fail("no pod")) };
                prop_assert!(pod.stamp.is_some_and(|at| at >= *epoch) || stamped.contains(pod.uid.as_str()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// F14: a grant or a Lease is made only where there is none, a grant only where nothing hints at data; a Lease that is
/// made anew stands above every epoch and knows every timeline that any folder has used (F9).
fn nothing_is_bootstrapped_over_data(world: &World, decision: &Decision) -> Held {
    for step in &decision.steps {
        match step {
            Step::CreateGrant { .. } => {
                prop_assert!(
                    matches!(world.lease, coregent_core::failover::LeaseView::Absent) && world.grant.is_none()
                );
                prop_assert!(world.members.values().all(|member| !member.has_data() && !member.claim));
            }
            Step::CreateLease { epoch, fence } => {
                prop_assert!(matches!(world.lease, coregent_core::failover::LeaseView::Absent));
                prop_assert!(fence.target.is_none() && i32::try_from(epoch.0).is_ok());
                let any = world.members.values().any(coregent_core::failover::Member::has_data);
                prop_assert!(!any || *epoch > known(world));
                knows_every_timeline(world, fence)?;
            }
            Step::Raise { fence, .. } if is_repair(world) => knows_every_timeline(world, fence)?,
            _ => {}
        }
    }
    Ok(())
}

fn is_repair(world: &World) -> bool {
    let reason = world.operations().active.as_ref().and_then(|active| active.reason.as_deref());
    matches!(reason, Some("StoreOlderThanMembers" | "LeaseLost"))
}

fn knows_every_timeline(world: &World, fence: &Fence) -> Held {
    let used: BTreeSet<Timeline> = fence.history.iter().map(|attempt| attempt.promotion.timeline).collect();
    let reports = world.members.values().filter_map(|member| member.report.as_ref());
    for position in reports.filter_map(|report| report.position.as_ref()) {
        for beneath in &position.chain {
            prop_assert!(used.contains(&beneath.timeline), "timeline {} would be used again", beneath.timeline);
        }
    }
    Ok(())
}

/// F15: however far the steps get, no second pod carries the leader's label, and nobody is named beside one.
fn there_is_never_a_second_leader_label(world: &World, decision: &Decision) -> Held {
    let pods = || world.members.values().filter_map(|member| member.pod.as_ref());
    let uids: BTreeSet<&str> = pods().map(|pod| pod.uid.as_str()).collect();
    if uids.len() < pods().count() {
        return Ok(()); // two pods of one uid: nobody can tell them apart
    }
    let leads = |role: Option<&str>| role == Some(Role::Primary.as_str());
    let mut labelled: BTreeSet<&str> =
        pods().filter(|pod| leads(pod.role.as_deref())).map(|pod| pod.uid.as_str()).collect();
    for step in &decision.steps {
        match step {
            Step::Label { uid, role: Some(Role::Primary), .. } => {
                labelled.insert(uid);
                prop_assert!(labelled.len() == 1);
                let holder = world.lease().map(|lease| &lease.holder);
                prop_assert!(matches!(holder, Some(Holder::Member(holder)) if holder.pod_uid == *uid));
            }
            Step::Label { uid, .. } => {
                labelled.remove(uid.as_str());
            }
            Step::Name { fence, .. }
                if fence.target.as_ref().is_some_and(|target| target.proof != Proof::Bootstrap) =>
            {
                prop_assert!(labelled.is_empty());
            }
            _ => {}
        }
    }
    Ok(())
}

/// No member is ever taken away, and no number given twice (kubegres.md 3.4, F14).
fn members_only_come(world: &World, decision: &Decision) -> Held {
    prop_assert!(decision.memory.last_created_index >= world.memory.last_created_index);
    for step in &decision.steps {
        let Step::SetInstances { instances } = step else { continue };
        let had: BTreeSet<u32> = world.instances.iter().flatten().copied().collect();
        let has: BTreeSet<u32> = instances.iter().copied().collect();
        prop_assert!(has.is_superset(&had) && has.len() == instances.len(), "{had:?} -> {instances:?}");
        let enrolled = |index: &u32| {
            let member = MemberName::of(&world.cluster.name, *index);
            world.lease().is_some_and(|lease| lease.fence.members.contains(&member))
        };
        prop_assert!(instances.iter().all(enrolled), "a member is made before it is enrolled");
    }
    Ok(())
}

/// Nothing is done to a cluster that is paused or going, nor under a record that cannot be read (F1).
fn hands_off(world: &World, decision: &Decision) -> Held {
    let writes = decision.steps.iter().any(|step| !matches!(step, Step::Remember { .. }));
    if world.cluster.paused || world.cluster.deleting {
        prop_assert!(decision.steps.is_empty());
    }
    if matches!(world.lease, coregent_core::failover::LeaseView::Invalid { .. }) {
        prop_assert!(!writes);
    }
    // Else a controller would look again and again without a pause.
    prop_assert!(decision.requeue_after != Some(0));
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_controller_never_takes_a_step_that_a_rule_forbids(world in read_by(world)) {
        let decision = decide(&world);
        prop_assert_eq!(format!("{decision:?}"), format!("{:?}", decide(&world.clone())));
        for step in &decision.steps {
            prop_assert!(Step::IDS.contains(&step.id()) && !step.to_string().is_empty());
        }
        for rule in [
            writes_of_the_lease_are_conditional_and_few,
            a_raise_is_written_ahead_and_by_one,
            a_target_is_named_once_and_is_a_member,
            whoever_is_named_holds_all_that_was_acknowledged,
            only_the_old_holders_pod_is_ever_deleted,
            a_named_pod_is_stamped_before,
            nothing_is_bootstrapped_over_data,
            there_is_never_a_second_leader_label,
            members_only_come,
            hands_off,
        ] {
            rule(&world, &decision)?;
        }
    }
}

/// A fuzz that never gets past the first refusal proves nothing.
#[test]
fn the_worlds_lead_to_every_step_there_is() {
    let mut runner = TestRunner::deterministic();
    let mut missing: BTreeSet<&str> = Step::IDS.into_iter().collect();
    for _ in 0..40_000 {
        let Ok(tree) = read_by(world).new_tree(&mut runner) else { continue };
        let decision = decide(&tree.current());
        decision.steps.iter().for_each(|step| {
            missing.remove(step.id());
        });
        if missing.is_empty() {
            return;
        }
    }
    panic!("no world leads to {missing:?}");
}
