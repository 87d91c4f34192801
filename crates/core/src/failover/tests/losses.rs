//! What raises the epoch and what does not (F1, F2, F4, F7).

use super::*;

#[test]
fn a_healthy_cluster_needs_no_write() {
    let decision = decide(&healthy());
    assert_eq!(decision.steps, []);
    assert_eq!(decision.memory, healthy().memory);
}

/// Each row makes the primary look lost in another way; the reason that is written ahead, if any.
#[test]
fn every_way_of_losing_a_primary_is_written_ahead_before_the_epoch_is_raised() {
    type Change = fn(&mut World);
    let table: [(&str, Change, Option<&str>); 12] = [
        (
            "the engine died and its agent released",
            |w| {
                let release = Release { member: name("1"), epoch: Epoch(1), timeline: Timeline(1), end_lsn: Lsn(9) };
                w.lease_mut().holder = Holder::Nobody;
                w.lease_mut().fence.release = Some(release);
            },
            Some("PrimaryReleased"),
        ),
        ("released by a holder that was no winner", |w| w.lease_mut().holder = Holder::Nobody, Some("PrimaryReleased")),
        (
            "the container ended",
            |w| {
                w.terminated
                    .insert("u1".into(), Termination { container_id: "c".into(), how: String::new(), version: 5 });
            },
            Some("PrimaryTerminated"),
        ),
        (
            "a new agent process, which inherits nothing (F5)",
            |w| w.report_mut("1").nonce = "m".into(),
            Some("PrimaryTerminated"),
        ),
        ("the pod is another one", |w| w.pod_mut("1").uid = "other".into(), Some("PrimaryPodGone")),
        (
            "nobody renewed for the whole duration",
            |w| w.lease_mut().unchanged_since = Monotonic(NOW - 6_000),
            Some("PrimaryLeaseExpired"),
        ),
        ("renewed a moment before", |w| w.lease_mut().unchanged_since = Monotonic(NOW - 5_999), None),
        (
            "silent and nobody streams",
            |w| {
                w.lease_mut().unchanged_since = Monotonic(NOW - 3_200);
                w.report_mut("2").state = MemberState::Standby;
                w.report_mut("3").state = MemberState::Standby;
            },
            Some("PrimarySilent"),
        ),
        (
            "nobody streams, and it renews",
            |w| {
                w.report_mut("2").state = MemberState::Standby;
                w.report_mut("3").state = MemberState::Standby;
            },
            None,
        ),
        ("its node is NotReady, which proves nothing while it renews", |w| w.pod_mut("1").node_ready = false, None),
        (
            "lost, and nobody could take over",
            |w| {
                w.terminated
                    .insert("u1".into(), Termination { container_id: "c".into(), how: String::new(), version: 5 });
                w.lost("2");
                w.lost("3");
            },
            None,
        ),
        (
            "lost, and failover is switched off: it starts in place",
            |w| {
                w.terminated
                    .insert("u1".into(), Termination { container_id: "c".into(), how: String::new(), version: 5 });
                w.cluster.failover_disabled = true;
            },
            None,
        ),
    ];
    for (what, change, expected) in table {
        let mut world = healthy();
        change(&mut world);
        let decision = decide(&world);
        let reason = decision.memory.operations.active.as_ref().and_then(|active| active.reason.clone());
        assert_eq!(reason.as_deref(), expected, "{what}");
        let raises = decision.steps.iter().any(|step| matches!(step, Step::Raise { .. }));
        assert!(!raises, "{what}: raised before the operation was written");
        if expected.is_some() {
            world.memory = decision.memory;
            assert_eq!(steps(&world), ["raise to epoch 2 (if version 90)"], "{what}");
        }
    }
}

/// F7, model X8: A keeps the API and the Lease while its links to B and C are cut.
#[test]
fn a_holder_short_of_acknowledgements_is_deposed_once_enough_of_its_set_can_leave() {
    let mut world = healthy();
    world.report_mut("2").state = MemberState::Standby;
    world.report_mut("3").state = MemberState::Standby;
    let decision = decide(&world);
    assert!(decision.steps.is_empty());
    assert!(decision.holding.contains(super::loss::FACT_SHORT));
    world.held.insert(super::loss::FACT_SHORT.into(), Monotonic(NOW - 5_000));
    let active = decide(&world).memory.operations.active.unwrap();
    assert_eq!(active.reason.as_deref(), Some("PrimaryShortOfAcknowledgements"));
    // With one of them gone nobody else could collect acknowledgements either.
    world.lost("3");
    assert!(decide(&world).steps.is_empty());
}

/// The same, once it was named again because nobody else had left in time: nothing was ever acknowledged in that epoch.
#[test]
fn a_holder_whom_nobody_has_ever_streamed_from_is_deposed_as_well_once_it_is_open() {
    type Change = fn(&mut World);
    let table: [(&str, Change, u64, bool); 5] = [
        ("it is open, and the first stream may take its time", |_| (), 19_999, false),
        ("it is open", |_| (), 20_000, true),
        ("it recovers", |w| w.report_mut("1").state = MemberState::Recovering, 60_000, false),
        ("one of the others streams", |w| w.report_mut("2").state = MemberState::Streaming, 60_000, false),
        ("one of the others is not up", |w| w.report_mut("3").state = MemberState::Rewinding, 60_000, false),
    ];
    for (what, change, held, deposed) in table {
        let mut world = healthy();
        world.report_mut("2").state = MemberState::Standby;
        world.report_mut("3").state = MemberState::Standby;
        world.lease_mut().fence.sync_sets = vec![set(1, "1", &[], false)];
        change(&mut world);
        world.held.insert(super::loss::FACT_SHORT.into(), Monotonic(NOW - held));
        let active = decide(&world).memory.operations.active;
        assert_eq!(active.and_then(|active| active.reason).is_some(), deposed, "{what}");
    }
}

#[test]
fn a_primary_that_came_back_before_it_was_deposed_stays() {
    let mut world = healthy();
    world.memory.operations.active =
        Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 1, super::loss::SILENT, "1"));
    world.memory.primary.current = None;
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.active, None);
    assert_eq!(decision.memory.primary.current, Some(name("1")));
}

#[test]
fn a_record_that_cannot_be_read_promotes_nobody_and_says_so() {
    let mut world = healthy();
    world.lease = LeaseView::Invalid { why: "format 2".into() };
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
    assert_eq!(decision.diagnostics.len(), 1);
}

#[test]
fn a_member_that_was_named_and_does_not_take_over_is_followed_by_another_round() {
    let mut world = raised();
    world.lease_mut().fence.target = Some(target("2", Proof::Released));
    world.memory.operations.active = Some(operation(StepId::PrimaryDbFailingOver, 2, super::loss::RELEASED, "2"));
    assert_eq!(steps(&world), [""; 0]);
    world.held.insert("named-and-not-taken".into(), Monotonic(NOW - 5_000));
    let decision = decide(&world);
    let active = decision.memory.operations.active.clone().unwrap();
    assert_eq!((active.step_id, active.epoch, active.attempt), (StepId::PrimaryDbWaitingBeforeFailingOver, 2, 2));
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["raise to epoch 3 (if version 90)"]);
}

/// On a host that was short of processor time for everybody, rounds followed each other faster than any could end.
#[test]
fn each_round_without_a_promotion_waits_twice_as_long_for_the_named_member() {
    for (attempt, wait) in [(1, 5_000), (2, 10_000), (3, 20_000), (4, 40_000), (90, 40_000)] {
        let mut world = raised();
        world.lease_mut().fence.target = Some(target("2", Proof::Released));
        let mut active = operation(StepId::PrimaryDbFailingOver, 2, super::loss::RELEASED, "2");
        active.attempt = attempt;
        world.memory.operations.active = Some(active);
        let mut gives_up_after = |waited: u64| {
            world.held.insert("named-and-not-taken".into(), Monotonic(NOW - waited));
            decide(&world).memory.operations.step() == Some(StepId::PrimaryDbWaitingBeforeFailingOver)
        };
        assert_eq!((gives_up_after(wait - 1), gives_up_after(wait)), (false, true), "attempt {attempt}");
    }
}

/// F1: a raise leaves everything that later choices rest on.
#[test]
fn a_raise_empties_target_and_hand_over_and_nothing_else() {
    let mut world = healthy();
    world.lease_mut().fence.history = vec![win(1, "1", 2, 10)];
    world.lease_mut().fence.chain = vec![promotion(1, "1", 2, Some(10))];
    world.lease_mut().unchanged_since = Monotonic(1);
    world.memory.operations.active =
        Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 1, super::loss::EXPIRED, "1"));
    let before = world.lease_mut().fence.clone();
    let Some(Step::Raise { fence, .. }) = decide(&world).steps.pop() else { panic!("no raise") };
    assert_eq!(fence, Fence { target: None, handover: None, ..before });
}

/// A member took the Lease, renews it, and its server is not on its way to a promotion: each row is what it says it does,
/// for how long, whether the promotion is recorded, and what follows.
#[test]
fn a_holder_that_stands_there_unpromoted_is_deposed_and_one_that_recovers_is_left_alone() {
    let table = [
        (MemberState::Standby, 20_000, false, Some("PrimaryNotPromoted")),
        (MemberState::Standby, 19_999, false, None),
        (MemberState::Promoting, 20_000, false, Some("PrimaryNotPromoted")),
        (MemberState::Stopped, 20_000, false, Some("PrimaryNotPromoted")),
        (MemberState::Recovering, 90_000, false, None),
        (MemberState::Promoting, 90_000, true, None),
    ];
    for (state, held, won, expected) in table {
        let mut world = healthy();
        let mut attempt = win(1, "1", 2, 900);
        attempt.won = won;
        world.lease_mut().fence.history = vec![attempt];
        world.report_mut("1").state = state;
        world.held.insert(loss::FACT_UNPROMOTED.into(), Monotonic(NOW - held));
        let decision = decide(&world);
        let reason = decision.memory.operations.active.as_ref().and_then(|active| active.reason.clone());
        assert_eq!(reason.as_deref(), expected, "{state:?} for {held} ms, won: {won}");
        assert_eq!(decision.holding.contains(loss::FACT_UNPROMOTED), !won && state != MemberState::Recovering);
    }
}

/// A holder that cannot even begin its promotion (it stands before the end of its own log), while the others have stopped and
/// wait to be rewound from it: nobody follows, and it was left alone for ever. Each row is for how long, what the others do,
/// how the holder was proved, and what follows.
#[test]
fn a_holder_that_cannot_begin_its_promotion_is_deposed_for_members_that_have_stopped() {
    use crate::fence::Proof;
    let table = [
        (20_000, MemberState::Stopped, Proof::Released, Some("PrimaryNotPromoted")),
        (19_999, MemberState::Stopped, Proof::Released, None),
        (20_000, MemberState::Streaming, Proof::Released, Some("PrimaryNotPromoted")),
        (20_000, MemberState::WaitingForSource, Proof::Released, None),
        (90_000, MemberState::Stopped, Proof::Bootstrap, None),
    ];
    for (held, others, proof, expected) in table {
        let mut world = healthy();
        world.lease_mut().fence.history.clear();
        world.lease_mut().fence.target.as_mut().unwrap().proof = proof.clone();
        world.report_mut("1").state = MemberState::Standby;
        for other in ["2", "3"] {
            let report = world.report_mut(other);
            report.state = others;
            if others == MemberState::WaitingForSource {
                report.position = None;
                report.system_id = None;
            }
        }
        world.held.insert(loss::FACT_UNPROMOTED.into(), Monotonic(NOW - held));
        let decision = decide(&world);
        let reason = decision.memory.operations.active.as_ref().and_then(|active| active.reason.clone());
        assert_eq!(reason.as_deref(), expected, "others {others:?}, proof {proof:?}, for {held} ms");
    }
}

/// Both others have lost the stream and tried to reach the holder, as the row says; then what is missed of renewals, what else
/// is the case, and whether the holder is deposed.
#[test]
fn in_quorum_mode_a_holder_that_nobody_streams_from_or_reaches_is_deposed_at_once() {
    use crate::report::Reach::{self, Answers, Refuses, Silent};
    type Change = fn(&mut World);
    type Row = (&'static str, [Option<Reach>; 2], u64, Change, bool);
    let table: [Row; 13] = [
        ("its agent is gone", [Some(Refuses), Some(Refuses)], 0, |_| (), true),
        ("one of them has not tried yet", [Some(Refuses), None], 0, |_| (), false),
        ("one of them reaches it", [Some(Refuses), Some(Answers)], 3_000, |_| (), false),
        ("its server starts anew, or it is frozen", [Some(Answers), Some(Answers)], 3_000, |_| (), false),
        ("its cable is pulled", [Some(Silent), Some(Silent)], 1_700, |_| (), true),
        ("and a renewal is not overdue yet", [Some(Silent), Some(Silent)], 1_699, |_| (), false),
        ("one link refuses, the other is silent", [Some(Refuses), Some(Silent)], 1_700, |_| (), true),
        ("the same with renewals", [Some(Refuses), Some(Silent)], 100, |_| (), false),
        (
            "what they tried was another member",
            [Some(Refuses), Some(Refuses)],
            0,
            |w| w.report_mut("3").source.as_mut().unwrap().member = name("2"),
            false,
        ),
        (
            "somebody streams still",
            [Some(Refuses), Some(Refuses)],
            0,
            |w| w.report_mut("3").state = MemberState::Streaming,
            false,
        ),
        ("too few are there to fence it", [Some(Refuses), Some(Refuses)], 0, |w| w.lost("3"), false),
        (
            "it acknowledges alone, as recorded",
            [Some(Refuses), Some(Refuses)],
            0,
            |w| w.lease_mut().fence.sync_sets[0].degraded = true,
            false,
        ),
        (
            "async: it acknowledges alone",
            [Some(Refuses), Some(Refuses)],
            0,
            |w| {
                w.cluster.mode = Mode::Async;
                w.lease_mut().fence.sync_sets.clear();
            },
            false,
        ),
    ];
    for (what, reached, silent, change, deposed) in table {
        let mut world = healthy();
        world.lease_mut().unchanged_since = Monotonic(NOW - silent);
        for (member, reach) in ["2", "3"].into_iter().zip(reached) {
            let report = world.report_mut(member);
            report.state = MemberState::Standby;
            report.source = reach.map(|reach| report::SourceReached { member: name("1"), reach });
        }
        change(&mut world);
        let active = decide(&world).memory.operations.active;
        let reason = active.and_then(|active| active.reason);
        assert_eq!(reason.as_deref() == Some("PrimaryUnreachable"), deposed, "{what}: {reason:?}");
    }
}

/// A renewal that is overdue is looked for when it is, not with the next change.
#[test]
fn a_silent_holder_is_looked_at_again_when_its_renewal_is_overdue() {
    let mut world = healthy();
    world.lease_mut().unchanged_since = Monotonic(NOW - 1_000);
    assert_eq!(decide(&world).requeue_after, Some(700));
}

/// Found by the simulator: the one that could still be named had stopped and waited to be rewound from the dead holder.
#[test]
fn a_holder_that_is_gone_for_good_does_not_keep_out_a_member_that_waits_to_be_rewound_from_it() {
    type Change = fn(&mut World);
    let table: [(&str, Change, bool); 5] = [
        ("its host is gone", |w| w.lost("1"), true),
        (
            "its volume is empty",
            |w| {
                w.report_mut("1").position = None;
                w.report_mut("1").system_id = None;
            },
            true,
        ),
        ("it runs and recovers", |_| {}, false),
        (
            "its Lease has not run out",
            |w| {
                w.lost("1");
                w.lease_mut().unchanged_since = Monotonic(NOW - 5_999);
            },
            false,
        ),
        (
            "a person has switched failover off",
            |w| {
                w.lost("1");
                w.cluster.failover_disabled = true;
            },
            false,
        ),
    ];
    for (what, change, raises) in table {
        let mut world = healthy();
        world.lease_mut().unchanged_since = Monotonic(NOW - 6_000);
        world.report_mut("2").state = MemberState::Stopped;
        world.lost("3");
        change(&mut world);
        let begun = steps(&world).contains(&"write status: OperationStarted".to_owned());
        assert_eq!(begun, raises, "{what}");
    }
}

/// A day of the simulator: the last of the others came back while the Lease of a lost volume's holder still ran, and nothing
/// happened any more that would have let anybody look at it again.
#[test]
fn while_nobody_could_take_over_the_lease_is_looked_at_when_it_runs_out() {
    let table = [(NOW - 2_000, Some(4_000)), (NOW - 5_999, Some(1)), (NOW - 6_000, None)];
    for (renewed, expected) in table {
        let mut world = healthy();
        world.lease_mut().unchanged_since = Monotonic(renewed);
        for member in ["2", "3"] {
            world.report_mut(member).state = MemberState::Stopped;
        }
        assert_eq!(super::loss::of_holder(&world, world.lease().unwrap(), &holder("1")).again, expected, "{renewed}");
    }
}
