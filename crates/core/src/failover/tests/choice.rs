//! Whom a round names (F6, F7, F9, F10).

use super::*;

/// Each row lets some members leave; whom the round names.
#[test]
fn the_newest_is_named_once_every_recorded_set_has_lost_its_quorum() {
    type Change = fn(&mut World);
    let table: [(&str, Change, Option<&str>); 20] = [
        ("nobody has left", |_| (), None),
        (
            "one of two with everything: the release of the old primary satisfies its set, but nobody could follow yet",
            |w| {
                w.leaves("2", 2, 1_000, &[]);
            },
            None,
        ),
        (
            "both have left, the newer is named",
            |w| {
                w.leaves("2", 2, 990, &[]);
                w.leaves("3", 2, 1_000, &[]);
            },
            Some("orders-3"),
        ),
        (
            "both short of the release, which no client was told of: a quorum has left",
            |w| {
                w.leaves("2", 2, 990, &[]);
                w.leaves("3", 2, 980, &[]);
            },
            Some("orders-2"),
        ),
        (
            "the old primary first, while members whose servers run have not left yet",
            |w| {
                w.leaves("1", 2, 1_000, &[]);
                w.leaves("2", 2, 990, &[]);
                w.lease_mut().epoch_since = Monotonic(NOW - 900);
            },
            None,
        ),
        (
            "after a stop of everything, while the old primary has not reported yet",
            |w| {
                for member in ["2", "3"] {
                    w.leaves(member, 2, 990, &[]);
                    w.report_mut(member).state = MemberState::Stopped;
                }
                w.lease_mut().epoch_since = Monotonic(NOW - 900);
            },
            None,
        ),
        (
            "the same when its pod has not even started, as hosts start at their own pace",
            |w| {
                for member in ["2", "3"] {
                    w.leaves(member, 2, 990, &[]);
                    w.report_mut(member).state = MemberState::Stopped;
                }
                w.pod_mut("1").running = false;
                w.lease_mut().epoch_since = Monotonic(NOW - 9_900);
            },
            None,
        ),
        (
            "the same when it has not come for too long",
            |w| {
                for member in ["2", "3"] {
                    w.leaves(member, 2, 990, &[]);
                    w.report_mut(member).state = MemberState::Stopped;
                }
                w.pod_mut("1").running = false;
                w.lease_mut().epoch_since = Monotonic(NOW - 10_000);
            },
            Some("orders-2"),
        ),
        (
            "the same when its host is NotReady",
            |w| {
                for member in ["2", "3"] {
                    w.leaves(member, 2, 990, &[]);
                    w.report_mut(member).state = MemberState::Stopped;
                }
                w.pod_mut("1").node_ready = false;
            },
            Some("orders-2"),
        ),
        (
            "after a stop of everything no server runs: the old primary, the newest, goes on",
            |w| {
                for (member, lsn) in [("1", 1_000), ("2", 990), ("3", 990)] {
                    w.leaves(member, 2, lsn, &[]);
                    w.report_mut(member).state = MemberState::Stopped;
                }
            },
            Some("orders-1"),
        ),
        (
            "the same with the old primary back: a running server goes before one that must recover first",
            |w| {
                w.leaves("1", 2, 1_000, &[]);
                w.leaves("2", 2, 990, &[]);
                w.leaves("3", 2, 980, &[]);
            },
            Some("orders-2"),
        ),
        (
            "one of two, short of the release: it may lack an acknowledged row that C has",
            |w| {
                w.leaves("2", 2, 990, &[]);
                w.lost("3");
                w.lost("1");
            },
            None,
        ),
        (
            "the same, and A is back: A holds everything and B can follow",
            |w| {
                w.leaves("2", 2, 990, &[]);
                w.lost("3");
                w.leaves("1", 2, 1_000, &[]);
            },
            Some("orders-1"),
        ),
        (
            "one of two with everything, C gone, A stopped and running: A can follow",
            |w| {
                w.leaves("2", 2, 1_000, &[]);
                w.lost("3");
                w.leaves("1", 2, 1_000, &[]);
            },
            Some("orders-2"),
        ),
        (
            "positions of an older round do not count",
            |w| {
                w.leaves("2", 1, 1_000, &[]);
                w.leaves("3", 1, 1_000, &[]);
            },
            None,
        ),
        (
            "a report without a position does not count",
            |w| {
                w.leaves("2", 2, 1_000, &[]);
                w.leaves("3", 2, 1_000, &[]);
                w.report_mut("2").position = None;
                w.report_mut("3").position = None;
            },
            None,
        ),
        (
            "data of another system does not count",
            |w| {
                w.leaves("2", 2, 2_000, &[]);
                w.report_mut("2").system_id = Some("8".into());
                w.leaves("3", 2, 1_000, &[]);
                w.leaves("1", 2, 1_000, &[]);
            },
            Some("orders-3"),
        ),
        (
            "a member that left and died fences, and is not named",
            |w| {
                w.leaves("2", 2, 1_000, &[]);
                w.leaves("3", 2, 900, &[]);
                w.leaves("1", 2, 1_000, &[]);
                w.lost("2");
            },
            Some("orders-1"),
        ),
        (
            "equals: not the old primary, whose engine must recover first",
            |w| {
                w.leaves("1", 2, 1_000, &[]);
                w.leaves("2", 2, 1_000, &[]);
                w.leaves("3", 2, 1_000, &[]);
            },
            Some("orders-2"),
        ),
        (
            "equals: not the one that was tried in vain",
            |w| {
                w.leaves("2", 2, 1_000, &[]);
                w.leaves("3", 2, 1_000, &[]);
                let active = w.memory.operations.active.as_mut().unwrap();
                active.attempt = 2;
                active.subject = Some("orders-2".into());
            },
            Some("orders-3"),
        ),
    ];
    for (what, change, expected) in table {
        let mut world = raised();
        change(&mut world);
        assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), expected, "{what}");
    }
}

/// F7, first schedule: B and C left, B dies before promoting.
#[test]
fn c_alone_is_not_promotable_while_a_which_is_complete_has_stopped() {
    let mut world = raised();
    world.lease_mut().epoch = Epoch(3);
    world.lease_mut().fence.release = None;
    world.lost("2");
    world.leaves("3", 3, 950, &[]);
    world.report_mut("2").left = Some(Epoch(2));
    assert_eq!(named(&world), None);
    world.leaves("1", 3, 1_000, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-1"));
}

/// F7, second schedule, model X5: B wins epoch 2 with S={C} and dies before C streams.
#[test]
fn a_win_is_not_completion_so_the_set_before_it_counts_as_well() {
    let mut world = raised();
    world.lease_mut().epoch = Epoch(3);
    world.lease_mut().fence.release = None;
    world.lease_mut().fence.history = vec![win(2, "2", 2, 1_000)];
    world.lease_mut().fence.sync_sets = vec![set(1, "1", &["2", "3"], true), set(2, "2", &["3"], false)];
    world.memory.operations.active = Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 2, "x", "2"));
    world.lost("1");
    world.lost("2");
    world.leaves("3", 3, 900, &[]);
    assert_eq!(named(&world), None, "C satisfies {{C}} alone, and lacks what A and B have");
    // Once the marker of epoch 2 was acknowledged, C has everything by construction.
    world.lease_mut().fence.sync_sets = vec![set(2, "2", &["3"], true)];
    world.lease_mut().epoch_since = Monotonic(NOW - 10_000);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-3"));
}

/// Model X1: B, holding the only copy, dies before its win is recorded.
#[test]
fn a_member_with_an_unrecorded_attempt_is_a_candidate_with_what_it_had_before() {
    let mut world = raised();
    world.lease_mut().epoch = Epoch(3);
    world.lease_mut().fence.release = None;
    let attempt = promotion(2, "2", 2, Some(1_000));
    world.lease_mut().fence.history = vec![Attempt { promotion: attempt.clone(), won: false }];
    world.memory.operations.active = Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 2, "x", "2"));
    world.leaves("2", 3, 5_000, std::slice::from_ref(&attempt));
    world.report_mut("2").unrecorded_attempt = Some(attempt);
    world.leaves("3", 3, 950, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-2"));
    // What it wrote after the attempt does not make it newer than one that has more of the common history.
    world.leaves("3", 3, 1_001, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-3"));
}

/// F7, model X8: A is deposed because nobody can stream from it, and after the raise satisfies its set alone.
#[test]
fn a_primary_that_was_deposed_for_want_of_acknowledgements_is_not_named_again_while_another_can_collect_them() {
    let mut world = raised();
    let short = super::loss::SHORT_OF_ACKNOWLEDGEMENTS;
    world.memory.operations.active = Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 1, short, "1"));
    world.lease_mut().fence.release.as_mut().unwrap().end_lsn = Lsn(1_200);
    world.leaves("1", 2, 1_200, &[]);
    world.leaves("2", 2, 1_000, &[]);
    assert_eq!(named(&world), None, "C runs and has not left yet");
    world.leaves("3", 2, 1_000, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-2"));
}

/// F8, model X11: a degraded record waives its own set only.
#[test]
fn a_degraded_record_waives_its_own_set_and_no_other() {
    let mut world = raised();
    let mut degraded = set(1, "1", &["2", "3"], true);
    degraded.degraded = true;
    world.lease_mut().epoch = Epoch(3);
    world.lease_mut().fence.release = None;
    world.lease_mut().fence.history = vec![win(2, "2", 2, 1_000)];
    world.lease_mut().fence.sync_sets = vec![degraded, set(2, "2", &["1", "3"], false)];
    world.memory.operations.active = Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 2, "x", "2"));
    world.lost("2");
    world.lost("3");
    world.leaves("1", 3, 1_500, &[]);
    world.lease_mut().epoch_since = Monotonic(NOW - 60_000);
    assert_eq!(named(&world), None, "C may hold what B acknowledged in epoch 2");
}

/// F7: the initial set is exactly those that left, less the target; a late one is added by the primary itself.
#[test]
fn the_initial_set_is_exactly_the_members_that_left_for_the_epoch() {
    let mut world = raised();
    world.leaves("2", 2, 1_000, &[]);
    world.leaves("3", 2, 990, &[]);
    assert_eq!(named(&world), Some(("orders-2".into(), Proof::Released, names(&["3"]))));
    world.leaves("1", 2, 1_000, &[]);
    assert_eq!(named(&world), Some(("orders-2".into(), Proof::Released, names(&["1", "3"]))));
}

/// F10 in async mode; each row: the release, the positions, how long the round has gone on, whom it names.
#[test]
fn in_async_mode_a_loss_waits_for_the_delay_and_a_lossless_change_does_not() {
    type Row = (&'static str, Option<u64>, u64, bool, u64, Option<&'static str>);
    let table: [Row; 7] = [
        ("B holds all that A released: at once", Some(1_000), 1_000, true, 1, Some("orders-2")),
        ("B is short and A runs: A is waited for", Some(1_000), 990, true, 5_000, None),
        ("B is short and A is gone: not before the delay", Some(1_000), 990, false, 29_999, None),
        ("B is short and A is gone: after the delay", Some(1_000), 990, false, 30_000, Some("orders-2")),
        ("nothing is known of A: not before the delay", None, 1_000, false, 29_999, None),
        ("nothing is known of A: after the delay", None, 1_000, false, 30_000, Some("orders-2")),
        ("more than maxLag is lost: never", Some(1_000_000), 990, false, 90_000, None),
    ];
    for (what, release, lsn, a_runs, elapsed, expected) in table {
        let mut world = raised();
        world.cluster.mode = Mode::Async;
        world.cluster.k = 0;
        world.cluster.max_lag = Some(100_000);
        world.lease_mut().fence.sync_sets.clear();
        world.lease_mut().fence.release =
            release.map(|end| Release { member: name("1"), epoch: Epoch(1), timeline: Timeline(1), end_lsn: Lsn(end) });
        world.lease_mut().epoch_since = Monotonic(NOW - elapsed);
        world.leaves("2", 2, lsn, &[]);
        world.leaves("3", 2, lsn - 10, &[]);
        if !a_runs {
            world.lost("1");
        }
        assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), expected, "{what}");
    }
}

/// A target, what it must have replayed, and the agent from which it fetches up to where.
type Fetching = (String, Option<Lsn>, Option<(String, Lsn)>);

/// The target of the round with where it fetches from.
fn fetching(world: &World) -> Option<Fetching> {
    decide(world).steps.into_iter().find_map(|step| match step {
        Step::Name { fence, .. } => fence.target.map(|target| {
            let rest = target.rest_of_log.map(|rest| (rest.agent, rest.end_lsn));
            (target.member.to_string(), target.must_reach_lsn, rest)
        }),
        _ => None,
    })
}

/// F10: the agent of the old primary runs and reads out what only it has; in async mode nobody is promoted without.
#[test]
fn what_only_the_stopped_old_primary_has_is_fetched_from_its_agent() {
    type Change = fn(&mut World);
    let fetched = |must: bool| {
        let end = Lsn(1_000);
        Some(("orders-2".to_owned(), must.then_some(end), Some(("127.64.0.1:8008".to_owned(), end))))
    };
    let table: [(&str, Mode, Change, Option<Fetching>); 6] = [
        ("async: required", Mode::Async, |_| (), fetched(true)),
        ("quorum: a courtesy", Mode::Quorum, |_| (), fetched(false)),
        (
            "a target that has everything fetches nothing",
            Mode::Async,
            |w| w.leaves("2", 2, 1_000, &[]),
            Some(("orders-2".to_owned(), None, None)),
        ),
        ("its agent is gone: async waits for failover.delay", Mode::Async, |w| w.lost("1"), None),
        (
            "its log ends on another timeline: it goes on itself",
            Mode::Async,
            |w| {
                w.lease_mut().fence.release = None;
                w.leaves("1", 2, 1_000, &[promotion(1, "1", 2, Some(10))]);
                w.lease_mut().fence.history = vec![win(1, "1", 2, 10)];
            },
            Some(("orders-1".to_owned(), None, None)),
        ),
        (
            "the round before ended with nobody taking the Lease: no fetch again",
            Mode::Async,
            |w| {
                w.leaves("1", 2, 1_000, &[]);
                let active = w.memory.operations.active.as_mut().unwrap();
                active.attempt = 2;
                active.subject = Some("orders-2".into());
            },
            Some(("orders-1".to_owned(), None, None)),
        ),
    ];
    for (what, mode, change, expected) in table {
        let mut world = raised();
        if mode == Mode::Async {
            world.cluster.mode = Mode::Async;
            world.cluster.k = 0;
            world.lease_mut().fence.sync_sets.clear();
        }
        world.report_mut("1").agent = "127.64.0.1:8008".into();
        world.leaves("2", 2, 990, &[]);
        world.leaves("3", 2, 980, &[]);
        change(&mut world);
        assert_eq!(fetching(&world), expected, "{what}");
    }
}

#[test]
fn in_async_mode_the_old_primary_goes_on_itself_when_it_alone_holds_everything() {
    let mut world = raised();
    world.cluster.mode = Mode::Async;
    world.cluster.k = 0;
    world.lease_mut().fence.sync_sets.clear();
    world.leaves("1", 2, 1_000, &[]);
    world.leaves("2", 2, 990, &[]);
    world.leaves("3", 2, 980, &[]);
    assert_eq!(named(&world), Some(("orders-1".into(), Proof::Released, BTreeSet::new())));
    let last = decide(&world).memory.last_failover.unwrap();
    assert_eq!(last.data_loss.lossless, Lossless::Yes);
}

/// F17: `unknown` where F10 gives an answer is a fault.
#[test]
fn what_a_failover_may_have_lost_is_recorded_with_the_naming() {
    let mut world = raised();
    world.leaves("2", 2, 1_000, &[]);
    world.leaves("3", 2, 990, &[]);
    let last = decide(&world).memory.last_failover.unwrap();
    assert_eq!((last.from, last.to, last.epoch), (Some(name("1")), name("2"), Epoch(2)));
    assert_eq!(last.data_loss.lossless, Lossless::Yes);
    assert_eq!(last.data_loss.from_lsn, Some(Lsn(1_000)));
    assert_eq!(last.data_loss.last_seen_primary_lsn, Some(Lsn(1_000)));
}

/// Found by the simulator: the one that was promoted had gone further on an older history, and its end was called the place
/// from which writes were lost.
#[test]
fn what_is_lost_begins_where_the_histories_part_however_far_the_other_goes() {
    for (theirs, from) in [(800, 500), (400, 400)] {
        let mut world = raised();
        world.cluster.mode = Mode::Async;
        world.cluster.delay = 0;
        let fence = &mut world.lease_mut().fence;
        fence.sync_sets.clear();
        fence.release = None;
        fence.history = vec![win(1, "1", 2, 500)];
        fence.chain = vec![promotion(1, "1", 2, Some(500))];
        world.lease_mut().epoch_since = Monotonic(NOW - 20_000);
        world.lost("1");
        world.lost("3");
        world.leaves("2", 2, theirs, &[]);
        let loss = decide(&world).memory.last_failover.unwrap().data_loss;
        assert_eq!((loss.from_lsn, loss.lossless), (Some(Lsn(from)), Lossless::Unknown));
        // The chain in the record is that of an attempt in vain, which had missed the win.
        world.lease_mut().fence.history.push(Attempt { promotion: promotion(2, "2", 3, None), won: false });
        world.lease_mut().fence.chain = vec![promotion(2, "2", 3, None)];
        world.lease_mut().epoch = Epoch(3);
        world.leaves("2", 3, theirs, &[]);
        let loss = decide(&world).memory.last_failover.unwrap().data_loss;
        assert_eq!((loss.from_lsn, loss.lossless), (Some(Lsn(from)), Lossless::Unknown));
    }
}

/// Found by the simulator: the second round lost nothing, and its word stood over the loss of the first.
#[test]
fn what_a_round_lost_is_not_forgotten_when_its_winner_is_lost_before_it_let_anybody_in() {
    let before = LastFailover {
        from: Some(name("1")),
        to: name("3"),
        reason: "PrimaryReleased".into(),
        epoch: Epoch(2),
        detected_at: Timestamp(1_795_999_000_000),
        completed_at: None,
        data_loss: DataLoss {
            from_lsn: Some(Lsn(900)),
            last_seen_primary_lsn: Some(Lsn(990)),
            unseen_for: Some(5),
            lossless: Lossless::No,
        },
    };
    // Whether the first round was won, whether it had ended, and what is said then.
    let table = [
        (true, false, Lossless::No, "orders-1"),
        (false, false, Lossless::Yes, "orders-3"),
        (true, true, Lossless::Yes, "orders-3"),
    ];
    for (won, ended, lossless, from) in table {
        let mut world = raised();
        world.cluster.mode = Mode::Async;
        world.lease_mut().fence.sync_sets.clear();
        world.lease_mut().epoch = Epoch(3);
        let attempt = Attempt { won, ..win(2, "3", 2, 900) };
        world.lease_mut().fence.history = vec![win(1, "3", 2, 900), attempt];
        let release = Release { member: name("3"), epoch: Epoch(2), timeline: Timeline(2), end_lsn: Lsn(950) };
        world.lease_mut().fence.release = won.then_some(release);
        let completed_at = ended.then_some(Timestamp(1));
        world.memory.last_failover = Some(LastFailover { completed_at, ..before.clone() });
        let chain = [promotion(1, "3", 2, Some(900)), promotion(2, "3", 2, Some(900))];
        for member in ["1", "2", "3"] {
            world.leaves(member, 3, 950, &chain);
            world.pod_mut(member).stamp = Some(Epoch(3));
        }
        let last = decide(&world).memory.last_failover.unwrap();
        assert_eq!((last.data_loss.lossless, last.from), (lossless, Some(MemberName::from(from))), "{won} {ended}");
        // Clients were without a primary since the first round, unless that one let them in.
        assert_eq!(last.detected_at == before.detected_at, !ended, "{won} {ended}");
    }
}

#[test]
fn with_failover_switched_off_only_the_old_primary_is_named() {
    let mut world = raised();
    world.cluster.failover_disabled = true;
    world.leaves("2", 2, 1_000, &[]);
    world.leaves("3", 2, 1_000, &[]);
    assert_eq!(named(&world), None);
    world.leaves("1", 2, 1_000, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-1"));
}

/// F6: the step that the naming is written ahead by, the stamp and the label come before the name.
#[test]
fn a_name_is_written_last_after_strip_stamp_and_the_operation() {
    let mut world = raised();
    world.pod_mut("1").role = Some("primary".into());
    world.pod_mut("2").stamp = Some(Epoch(1));
    world.leaves("2", 2, 1_000, &[]);
    world.leaves("3", 2, 990, &[]);
    assert_eq!(
        steps(&world),
        [
            "strip the role label of pod orders-1-0",
            "stamp pod orders-2-0 with epoch 2",
            "write status: OperationAdvanced",
            "name in epoch 2 (if version 90): orders-2 at 127.64.0.2:5432, proof Released, initial set {orders-3}",
        ]
    );
    let active = decide(&world).memory.operations.active.unwrap();
    assert_eq!((active.step_id, active.epoch), (StepId::PrimaryDbFailingOver, 2));
}

/// Days of the simulator: the primary lost its volume while others were being rewound to it or copied from it.
#[test]
fn a_person_is_asked_only_where_nobody_can_be_waited_for() {
    type Change = fn(&mut World);
    let table: [(&str, Change, bool); 6] = [
        ("one is empty, one given up to it", |_| {}, true),
        ("one is empty, the folder of one cannot be used", |w| w.report_mut("2").state = MemberState::Failed, true),
        ("one still recovers", |w| w.report_mut("2").state = MemberState::Recovering, false),
        ("one has not heard of the round", |w| w.report_mut("2").epoch = Epoch(1), false),
        ("the host of one is away", |w| w.pod_mut("2").running = false, false),
        ("the one that is left is enough", |w| w.lease_mut().fence.sync_sets = vec![set(1, "1", &["3"], true)], false),
    ];
    for (what, change, expected) in table {
        let mut world = raised();
        world.lease_mut().fence.release = None;
        world.lease_mut().epoch_since = Monotonic(NOW - 10_000);
        world.leaves("3", 2, 900, &[]);
        for member in ["1", "2"] {
            let report = world.report_mut(member);
            (report.epoch, report.position, report.left) = (Epoch(2), None, None);
        }
        world.report_mut("1").state = MemberState::WaitingForSource;
        world.report_mut("2").state = MemberState::Stopped;
        world.report_mut("2").inconsistent = true;
        change(&mut world);
        let condition = &decide(&world).picture.conditions["DecisionNeeded"];
        assert_eq!(condition.holds, expected, "{what}: {}", condition.message);
        assert_eq!(condition.message.contains("orders-1: its volume is empty"), expected, "{what}");
    }
}
