//! What a member never decides, whatever it sees.

use super::member::{KINDS, world};
use super::{cases, read_by};
use coregent_core::fence::{Fence, SyncSet};
use coregent_core::lsn::Timeline;
use coregent_core::member::{
    Action, Data, Decision, Engine, Job, JobKind, LeaseWrite, Mode, Names, Purpose, Source, WhenTooFew, World, decide,
};
use coregent_core::names::{Epoch, HolderIdentity};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{TestCaseError, TestRunner};

type Held = Result<(), TestCaseError>;

fn job(decision: &Decision) -> Option<&Job> {
    decision.actions.iter().find_map(|action| match action {
        Action::Engine(job) => Some(job),
        _ => None,
    })
}

fn write(decision: &Decision) -> Option<&LeaseWrite> {
    decision.actions.iter().find_map(|action| match action {
        Action::Lease(write) => Some(&**write),
        _ => None,
    })
}

fn set_of(fence: &Fence, epoch: Epoch) -> Option<&SyncSet> {
    fence.sync_sets.iter().find(|set| set.epoch == epoch)
}

/// F5, F11, F14: only this very process as the unexpired holder that is named starts a server writable, promotes, makes a
/// cluster or lets writers in.
fn only_the_holder_becomes_writable(world: &World, decision: &Decision) -> Held {
    let Some(job) = job(decision) else { return Ok(()) };
    let opens = matches!(job, Job::Open) && matches!(world.engine, Engine::Writable(_));
    let writes = matches!(job, Job::Promote { .. } | Job::Start { writable: true, .. } | Job::InitDb | Job::SetUp);
    prop_assert!(!(writes || opens) || world.holding(), "{job:?}");
    if let (Engine::Writable(writable), true) = (&world.engine, opens) {
        prop_assert!(world.held.is_some_and(|held| held.sent >= writable.since));
        let unrecorded = world.fence().is_some_and(|fence| {
            fence.history.last().is_some_and(|last| {
                !last.won && last.promotion.member == world.me.member && Some(last.promotion.epoch) == world.epoch()
            })
        });
        prop_assert!(!unrecorded, "clients are let in before the win is recorded");
    }
    if let Job::InitDb = job {
        let fence = world.fence();
        let nothing = fence.is_some_and(|fence| fence.system_id.is_none() && fence.history.is_empty());
        prop_assert!(nothing && world.bootstrap_grant && world.volume.data == Data::Absent);
    }
    Ok(())
}

/// F9, F11: what is promoted is the newest attempt of the record, this member's in this epoch and not won yet, on a server
/// that streams from nobody, with time enough left.
fn a_promotion_is_allotted_before(world: &World, decision: &Decision) -> Held {
    let Some(Job::Promote { attempt, chain, names, .. }) = job(decision) else { return Ok(()) };
    let Some(fence) = world.fence() else { return Err(TestCaseError::fail("no record")) };
    let last = fence.history.last();
    prop_assert!(last.is_some_and(|last| last.promotion == *attempt && !last.won));
    prop_assert!(attempt.member == world.me.member && Some(attempt.epoch) == world.epoch());
    prop_assert_eq!(chain, &fence.chain);
    let Engine::Standby(standby) = &world.engine else { return Err(TestCaseError::fail("no standby")) };
    prop_assert!(standby.settled && standby.source.is_none());
    prop_assert!(world.deadline().is_some_and(|deadline| deadline.since(world.now) > 1_000));
    names_are_recorded(world, names)
}

/// F7, F8: never fewer names than the record says: nobody only in async mode or under a degraded record, and an empty set is
/// the placeholder.
fn names_are_recorded(world: &World, names: &Names) -> Held {
    let set = world.epoch().and_then(|epoch| world.fence().and_then(|fence| set_of(fence, epoch)));
    match names {
        Names::Placeholder => {}
        Names::Nobody => {
            prop_assert!(world.settings.mode == Mode::Async || set.is_some_and(|set| set.degraded));
        }
        Names::Any { k, members } => {
            prop_assert!(!members.is_empty() && *k > 0);
            prop_assert!(set.is_some_and(|set| *k >= set.k && members.is_subset(&set.members)));
        }
    }
    Ok(())
}

fn names_in_force_are_recorded_before(world: &World, decision: &Decision) -> Held {
    match job(decision) {
        Some(Job::SetNames(names) | Job::Strengthen(names) | Job::Start { names, writable: true, .. }) => {
            names_are_recorded(world, names)
        }
        Some(Job::Start { names, .. }) => {
            prop_assert!(world.settings.mode == Mode::Async || *names == Names::Placeholder);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// F1, F14: a member changes neither epoch nor target, but for where it is reached, and forgets nothing of the record.
fn a_write_keeps_what_is_not_the_members(world: &World, decision: &Decision) -> Held {
    let Some(write) = write(decision) else { return Ok(()) };
    let Some(before) = world.fence() else { return Err(TestCaseError::fail("no record to write over")) };
    let after = &write.fence;
    let mut target = after.target.clone();
    if let (Some(target), Some(before), Purpose::Take) = (&mut target, &before.target, write.purpose) {
        target.address.clone_from(&before.address);
    }
    prop_assert_eq!(&target, &before.target);
    prop_assert_eq!(&after.handover, &before.handover);
    prop_assert_eq!(&after.preparing, &before.preparing);
    prop_assert_eq!(&after.members, &before.members);
    prop_assert_eq!((after.restored, after.version), (before.restored, before.version));
    prop_assert!(before.system_id.is_none() || after.system_id == before.system_id);
    for (old, new) in before.history.iter().zip(&after.history) {
        let same = (old.promotion.epoch, &old.promotion.member, old.promotion.timeline)
            == (new.promotion.epoch, &new.promotion.member, new.promotion.timeline);
        prop_assert!(same && new.won >= old.won);
    }
    prop_assert!(after.history.len() >= before.history.len());
    prop_assert!(world.volume.epoch <= world.epoch().unwrap_or_default() || write.purpose == Purpose::Release);
    Ok(())
}

/// F1, F4, F9: the Lease is taken only by the one that is named, once an epoch for a process that gave it up, with data (or
/// the grant), and the timeline that is allotted is one that nobody has used: neither the record nor this folder.
fn a_take_is_permitted_and_allots_a_new_timeline(world: &World, decision: &Decision) -> Held {
    let Some(write) = write(decision).filter(|write| write.purpose == Purpose::Take) else { return Ok(()) };
    let (Some(before), Some(lease)) = (world.fence(), &world.lease) else { return Ok(()) };
    prop_assert!(world.is_target() && !before.restored && world.released != Some(lease.epoch));
    prop_assert!(!matches!(world.engine, Engine::Writable(_)));
    prop_assert!(!matches!(world.volume.data, Data::Broken(_) | Data::Unusable(_)));
    if world.settings.mode == Mode::Quorum {
        prop_assert!(set_of(&write.fence, lease.epoch).is_some(), "the initial set is recorded");
    }
    let position = match &world.engine {
        Engine::Stopped { position } => position.as_ref(),
        Engine::Standby(standby) => Some(&standby.position),
        _ => None,
    };
    for attempt in write.fence.history.iter().skip(before.history.len()) {
        let promotion = &attempt.promotion;
        prop_assert!(!attempt.won && promotion.member == world.me.member && promotion.epoch == lease.epoch);
        let recorded = before.history.iter().map(|attempt| attempt.promotion.timeline);
        let own = position
            .iter()
            .flat_map(|position| position.chain.iter().map(|beneath| beneath.timeline).chain([position.timeline]));
        let tried = world.volume.attempt.iter().map(|attempt| attempt.timeline);
        let used: Vec<Timeline> = recorded.chain(own).chain(tried).collect();
        prop_assert!(used.iter().all(|used| *used < promotion.timeline), "{used:?} {}", promotion.timeline);
        prop_assert_eq!(write.fence.chain.last(), Some(promotion));
    }
    Ok(())
}

/// F3, F5: the Lease is given back only when no process of the engine is left, by whoever holds it or by the successor on
/// the same volume; it is renewed only by the holder.
fn only_a_holder_renews_and_only_the_dead_release(world: &World, decision: &Decision) -> Held {
    let Some(write) = write(decision) else { return Ok(()) };
    match write.purpose {
        Purpose::Release => {
            let dead = matches!(world.engine, Engine::Stopped { .. });
            prop_assert!(dead && world.job.is_none());
            let holder = world.lease.as_ref().and_then(|lease| lease.holder.as_deref()).unwrap_or_default();
            let predecessor = holder.parse::<HolderIdentity>().is_ok_and(|holder| holder.member == world.me.member);
            prop_assert!(holder == world.me.to_string() || predecessor, "{holder} is a stranger's");
        }
        Purpose::Renew => prop_assert!(world.holding()),
        Purpose::Take => {}
    }
    prop_assert!(!world.writing);
    Ok(())
}

/// F7, F8: the set of this epoch is never recorded stronger than what runs and is proved, never complete without a proof,
/// degraded only where that is allowed, and the sets of other epochs stay until this one is complete.
fn a_set_is_never_recorded_stronger_than_it_runs(world: &World, decision: &Decision) -> Held {
    let (Some(write), Some(before), Some(epoch)) = (write(decision), world.fence(), world.epoch()) else {
        return Ok(());
    };
    let complete = set_of(&write.fence, epoch).is_some_and(|set| set.complete);
    for old in before.sync_sets.iter().filter(|set| set.epoch != epoch) {
        let kept = write.fence.sync_sets.contains(old);
        prop_assert!(kept || (complete && old.epoch < epoch), "{old:?} is gone");
    }
    let (Some(old), Some(new)) = (set_of(before, epoch), set_of(&write.fence, epoch)) else { return Ok(()) };
    let proved = match &world.engine {
        Engine::Writable(writable) => writable.proved.then_some(&writable.names),
        _ => None,
    };
    let stronger = !old.members.is_subset(&new.members) || (old.degraded && !new.degraded) || new.k > old.k;
    if stronger {
        prop_assert_eq!(proved, Some(&Names::Any { k: new.k, members: new.members.clone() }));
    }
    prop_assert!(old.complete || !new.complete || proved.is_some());
    prop_assert!(old.degraded || !new.degraded || world.settings.when_too_few == WhenTooFew::Degrade);
    prop_assert!(new.k >= old.k && new.primary == old.primary);
    Ok(())
}

/// F1, F2: a server that accepts writes without the Lease, and any server of a holder whose time is up, is stopped first of
/// all.
fn whatever_writes_without_the_lease_is_stopped(world: &World, decision: &Decision) -> Held {
    let late = world.deadline().is_some_and(|deadline| world.now >= deadline);
    let runs = !matches!(world.engine, Engine::Stopped { .. });
    let writes = matches!(world.engine, Engine::Writable(_)) && !world.holding();
    let failed = world.retry.is_some_and(|(kind, at)| kind == JobKind::Stop && at > world.now);
    if ((late && runs) || writes) && world.job != Some(JobKind::Stop) && !failed {
        prop_assert!(matches!(job(decision), Some(Job::Stop { .. })), "{:?}", decision.actions);
    }
    Ok(())
}

/// F1, F6, F9, F12: a member streams from nobody but the granted holder of the Lease's epoch, and a folder with an attempt
/// that nobody recorded goes on only as a fresh copy.
fn only_the_granted_holder_is_followed(world: &World, decision: &Decision) -> Held {
    let followed: Option<(&Source, bool)> = match job(decision) {
        Some(
            Job::Follow { source, .. } | Job::Rewind { source, .. } | Job::Start { follow: Some((source, _)), .. },
        ) => Some((source, true)),
        Some(Job::Clone { source, .. }) => Some((source, false)),
        _ => None,
    };
    let Some((source, keeps_data)) = followed else { return Ok(()) };
    prop_assert_eq!(Some(&source.member), world.granted());
    prop_assert_eq!(Some(source.epoch), world.epoch());
    prop_assert!(source.member != world.me.member && world.volume.epoch <= source.epoch);
    prop_assert!(!keeps_data || world.unrecorded_attempt().is_none());
    prop_assert!(!matches!(world.volume.data, Data::Broken(_)));
    Ok(())
}

/// F6: it says that it has left only for the epoch that is durable, while nobody streams to it and it is no holder.
fn it_has_left_only_when_nothing_can_reach_it(world: &World, decision: &Decision) -> Held {
    let Some(left) = decision.left else { return Ok(()) };
    prop_assert_eq!(left, world.volume.epoch);
    prop_assert!(!world.holding() && !world.volume.inconsistent);
    match &world.engine {
        Engine::Stopped { position } => prop_assert!(position.is_some()),
        Engine::Standby(standby) => prop_assert!(standby.settled && standby.source.is_none() && !standby.receiver),
        Engine::Starting | Engine::Writable(_) => return Err(TestCaseError::fail("it is not stopped")),
    }
    Ok(())
}

/// One job, one write; epochs only grow; nobody is woken for what has passed.
fn one_thing_at_a_time(world: &World, decision: &Decision) -> Held {
    let jobs = decision.actions.iter().filter(|action| matches!(action, Action::Engine(_))).count();
    let writes = decision.actions.iter().filter(|action| matches!(action, Action::Lease(_))).count();
    prop_assert!(jobs <= 1 && writes <= 1);
    if let (Some(running), Some(job)) = (world.job, job(decision)) {
        let leaves = job.kind() == JobKind::Leave && running.gives_way();
        // A follow gives way to one towards somebody, or somewhere, else.
        let turns = running == JobKind::Follow
            && matches!(job, Job::Follow { source, .. } if world.towards.as_ref() != Some(source));
        prop_assert!(leaves || turns || (job.kind() == JobKind::Stop && running != JobKind::Stop));
    }
    for action in &decision.actions {
        if let Action::PersistEpoch(epoch) = action {
            prop_assert!(*epoch > world.volume.epoch && Some(*epoch) == world.epoch());
        }
    }
    prop_assert!(decision.wake.is_none_or(|at| at > world.now));
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_member_never_takes_a_step_that_a_rule_forbids(world in read_by(world)) {
        let decision = decide(&world);
        prop_assert_eq!(format!("{decision:?}"), format!("{:?}", decide(&world.clone())));
        for rule in [
            only_the_holder_becomes_writable,
            a_promotion_is_allotted_before,
            names_in_force_are_recorded_before,
            a_write_keeps_what_is_not_the_members,
            a_take_is_permitted_and_allots_a_new_timeline,
            only_a_holder_renews_and_only_the_dead_release,
            a_set_is_never_recorded_stronger_than_it_runs,
            whatever_writes_without_the_lease_is_stopped,
            only_the_granted_holder_is_followed,
            it_has_left_only_when_nothing_can_reach_it,
            one_thing_at_a_time,
        ] {
            rule(&world, &decision)?;
        }
    }
}

/// A fuzz that never gets past the first refusal proves nothing.
#[test]
fn the_worlds_lead_to_every_job_and_every_write_there_is() {
    let mut runner = TestRunner::deterministic();
    let mut jobs: Vec<JobKind> = KINDS.to_vec();
    let mut purposes = vec![Purpose::Take, Purpose::Renew, Purpose::Release];
    for _ in 0..40_000 {
        let Ok(tree) = read_by(world).new_tree(&mut runner) else { continue };
        let decision = decide(&tree.current());
        jobs.retain(|kind| job(&decision).is_none_or(|job| job.kind() != *kind));
        purposes.retain(|purpose| write(&decision).is_none_or(|write| write.purpose != *purpose));
        if jobs.is_empty() && purposes.is_empty() {
            return;
        }
    }
    panic!("no world leads to {jobs:?} {purposes:?}");
}
