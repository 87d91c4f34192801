//! Switchover: one operation with an undo (F12).

use super::*;
use crate::fence::{Handover, Preparation};
use crate::operation::Outcome;

fn requested(to: Option<&str>) -> World {
    let mut world = healthy();
    world.cluster.switchover = Some(SwitchoverRequest { id: "r1".into(), to: to.map(name) });
    world
}

#[test]
fn a_request_is_written_ahead_and_then_raises_with_the_hand_over() {
    let mut world = requested(None);
    let decision = decide(&world);
    let active = decision.memory.operations.active.clone().unwrap();
    assert_eq!(
        (active.step_id, active.id.as_str(), active.subject.as_deref()),
        (StepId::PrimaryDbSwitchingOver, "r1", Some("orders-2"))
    );
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["announce in epoch 1 (if version 90) that orders-1 hands over to orders-2"]);
    announced(&mut world, "2");
    assert_eq!(steps(&world), [""; 0], "its dirty pages are written out while it accepts writes");
    world.report_mut("1").prepared = Some("r1".into());
    world.wall = Timestamp(world.wall.0 + 9_000);
    assert_eq!(
        steps(&world),
        ["write status: OperationAdvanced", "raise to epoch 2 (if version 90), hand over from orders-1 to orders-2"]
    );
    let decision = decide(&world);
    let begun = decision.memory.operations.active.unwrap().started_at;
    assert_eq!(begun, world.wall.to_string(), "the time to take over counts from the raise");
}

/// The hand-over from the primary to `to` stands in the Lease.
fn announced(world: &mut World, to: &str) {
    world.lease_mut().fence.preparing = Some(Preparation { id: "r1".into(), from: name("1"), to: name(to) });
}

#[test]
fn a_primary_that_does_not_say_that_it_has_prepared_is_not_waited_for_without_end() {
    type Change = fn(&mut World);
    let table: [(&str, Change, bool); 5] = [
        ("it writes out", |_| (), false),
        ("for as long as that may take", |w| w.wall = Timestamp(w.wall.0 + 20_000), true),
        ("its Lease is not renewed", |w| w.lease_mut().unchanged_since = Monotonic(NOW - 3_200), true),
        ("it prepared for an older operation", |w| w.report_mut("1").prepared = Some("r0".into()), false),
        ("it has prepared", |w| w.report_mut("1").prepared = Some("r1".into()), true),
    ];
    for (what, change, raises) in table {
        let mut world = requested(Some("2"));
        world.memory = decide(&world).memory;
        announced(&mut world, "2");
        change(&mut world);
        assert_eq!(steps(&world).iter().any(|step| step.starts_with("raise")), raises, "{what}");
    }
}

#[test]
fn a_primary_that_dies_while_it_prepares_is_failed_over() {
    let mut world = requested(Some("2"));
    world.memory = decide(&world).memory;
    announced(&mut world, "2");
    world.lease_mut().holder = Holder::Nobody;
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.active, None, "the switchover is given up");
    world.memory = decision.memory;
    let decision = decide(&world);
    let reason = decision.memory.operations.active.and_then(|active| active.reason);
    assert_eq!(reason.as_deref(), Some("PrimaryReleased"));
}

#[test]
fn a_request_that_cannot_be_met_is_refused_with_the_reason_and_handled_once() {
    type Change = fn(&mut World);
    let table: [(&str, Option<&str>, Change, &str); 5] = [
        ("to the primary", Some("1"), |_| (), "is the primary already"),
        ("to nobody known", Some("9"), |_| (), "is no member of orders"),
        (
            "to one that does not stream",
            Some("3"),
            |w| w.report_mut("3").state = MemberState::Copying,
            "does not stream",
        ),
        ("to one that lags", Some("2"), |w| w.report_mut("1").standbys[0].lag_bytes = Some(2 << 20), "bytes behind"),
        (
            "to anybody, and nobody streams closely",
            None,
            |w| {
                w.report_mut("2").state = MemberState::Copying;
                w.report_mut("3").state = MemberState::Copying;
            },
            "no member streams closely enough",
        ),
    ];
    for (what, to, change, reason) in table {
        let mut world = requested(to);
        change(&mut world);
        let decision = decide(&world);
        let handled = decision.memory.handled_request.clone().unwrap_or_default();
        assert!(handled.starts_with("r1: ") && handled.contains(reason), "{what}: {handled}");
        assert_eq!(decision.memory.operations.active, None, "{what}");
        world.memory = decision.memory;
        assert!(decide(&world).memory == world.memory, "{what}: answered twice");
    }
}

/// The epoch is raised with a hand-over to orders-2, orders-1 has released.
fn handing_over() -> World {
    let mut world = raised();
    world.cluster.switchover = Some(SwitchoverRequest { id: "r1".into(), to: Some(name("2")) });
    let mut active = operation(StepId::PrimaryDbSwitchingOver, 1, "SwitchoverRequested", "2");
    active.id = "r1".into();
    world.memory.operations.active = Some(active);
    world.lease_mut().fence.handover = Some(Handover { from: name("1"), to: name("2") });
    world.memory.primary.current = Some(name("1"));
    world
}

#[test]
fn the_member_that_it_hands_over_to_is_waited_for_although_others_have_left() {
    let mut world = handing_over();
    world.leaves("1", 2, 1_000, &[]);
    world.leaves("3", 2, 1_000, &[]);
    assert_eq!(named(&world), None);
    world.leaves("2", 2, 1_000, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-2"));
}

#[test]
fn a_target_that_dies_is_undone_at_once_and_one_that_dawdles_within_five_seconds() {
    let mut slow = handing_over();
    slow.leaves("1", 2, 1_000, &[]);
    slow.leaves("3", 2, 1_000, &[]);
    let mut dead = slow.clone();
    slow.step_seen = Monotonic(NOW - 4_500);
    dead.terminated.insert("u2".into(), Termination { container_id: "c".into(), how: String::new(), version: 95 });
    dead.pod_mut("2").running = false;
    for mut world in [slow, dead] {
        let decision = decide(&world);
        let active = decision.memory.operations.active.clone().unwrap();
        assert_eq!((active.reason.as_deref(), active.subject.as_deref()), (Some("SwitchoverUndone"), Some("orders-1")));
        world.memory = decision.memory;
        world.step_seen = world.now;
        assert_eq!(steps(&world), ["raise to epoch 3 (if version 90)"]);
        world.lease_mut().epoch = Epoch(3);
        world.lease_mut().fence.handover = None;
        world.leaves("1", 3, 1_000, &[]);
        world.leaves("3", 3, 1_000, &[]);
        assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-1"));
        // And it is given time to take over, although the status has called it primary before.
        world.memory = decide(&world).memory;
        world.lease_mut().fence.target = Some(target("1", Proof::Released));
        assert_eq!(steps(&world), [""; 0]);
    }
}

#[test]
fn the_end_of_a_switchover_answers_its_request() {
    for (reason, outcome, handled) in
        [("SwitchoverRequested", Outcome::Completed, "r1"), ("SwitchoverUndone", Outcome::Undone, "r1: ")]
    {
        let mut world = requested(Some("1"));
        let mut active = operation(StepId::PrimaryDbSwitchingOver, 0, reason, "1");
        active.id = "r1".into();
        world.memory.operations.active = Some(active);
        let memory = decide(&world).memory;
        assert_eq!(memory.operations.previous.unwrap().outcome, Some(outcome));
        assert!(memory.handled_request.unwrap().starts_with(handled));
        assert_eq!(memory.operations.active, None);
    }
}

#[test]
fn a_switchover_whose_controller_died_before_the_raise_looks_again() {
    let mut world = requested(Some("2"));
    world.memory = decide(&world).memory;
    world.report_mut("2").state = MemberState::Copying;
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.active, None);
    assert!(decision.memory.handled_request.unwrap().starts_with("r1: "));
}

/// F15: each row is for how long the node of the primary has been NotReady, what else is so, and to whom it hands over.
#[test]
fn a_primary_whose_node_is_not_ready_while_its_agent_lives_hands_over() {
    type Change = fn(&mut World);
    let table: [(&str, u64, Change, Option<&str>); 8] = [
        ("for long enough", 10_000, |_| (), Some("orders-2")),
        ("not for long yet", 9_999, |_| (), None),
        (
            "its Lease is not renewed: that is a failover's affair",
            10_000,
            |w| w.lease_mut().unchanged_since = Monotonic(NOW - 3_200),
            None,
        ),
        ("failover is switched off", 10_000, |w| w.cluster.failover_disabled = true, None),
        (
            "the others' nodes are NotReady as well",
            10_000,
            |w| {
                w.pod_mut("2").node_ready = false;
                w.pod_mut("3").node_ready = false;
            },
            None,
        ),
        ("the best is on a NotReady node too", 10_000, |w| w.pod_mut("2").node_ready = false, Some("orders-3")),
        (
            "the others' nodes are NotReady as well, and their agents speak: nothing is won there",
            10_000,
            |w| {
                for member in ["2", "3"] {
                    w.pod_mut(member).node_ready = false;
                    w.member_mut(member).report_moved = Some(Monotonic(NOW - 500));
                }
            },
            None,
        ),
        (
            "the best is on a NotReady node and its agent speaks",
            10_000,
            |w| {
                w.pod_mut("2").node_ready = false;
                w.member_mut("2").report_moved = Some(Monotonic(NOW - 500));
            },
            Some("orders-3"),
        ),
    ];
    for (what, held, change, expected) in table {
        let mut world = healthy();
        world.memory.handled_request = Some("r0".into());
        world.cluster.switchover = Some(SwitchoverRequest { id: "r0".into(), to: Some(name("3")) });
        world.pod_mut("1").node_ready = false;
        world.held.insert(switchover::FACT_NOT_READY.into(), Monotonic(NOW - held));
        change(&mut world);
        let decision = decide(&world);
        let active = decision.memory.operations.active.clone();
        assert_eq!(active.as_ref().and_then(|active| active.subject.as_deref()), expected, "{what}");
        let Some(to) = expected else { continue };
        assert_eq!(active.and_then(|active| active.reason).as_deref(), Some("PrimaryNodeNotReady"));
        assert!(decision.events.iter().any(|event| event.warning && event.note.contains("NotReady")), "{what}");
        world.memory = decision.memory;
        let announce = format!("announce in epoch 1 (if version 90) that orders-1 hands over to {to}");
        assert_eq!(steps(&world).last(), Some(&announce), "{what}");
        assert_eq!(
            world.memory.handled_request.as_deref(),
            Some("r0"),
            "an older request is not carried out once more"
        );
    }
}

/// What `kubectl drain` does first. Each row changes a world whose primary's node was cordoned; whom it is handed over to.
#[test]
fn a_primary_on_a_cordoned_node_is_handed_over_at_once_to_one_that_stays() {
    type Change = fn(&mut World);
    let undone = |w: &mut World| {
        let mut previous = operation(StepId::PrimaryDbSwitchingOver, 1, "SwitchoverUndone", "1");
        previous.outcome = Some(Outcome::Undone);
        w.memory.operations.previous = Some(previous);
    };
    let table: [(&str, Change, Option<&str>); 8] = [
        ("nothing else", |_| (), Some("orders-2")),
        ("the other's node as well", |w| w.pod_mut("2").node_leaving = true, Some("orders-3")),
        (
            "every node",
            |w| {
                w.pod_mut("2").node_leaving = true;
                w.pod_mut("3").node_leaving = true;
            },
            None,
        ),
        ("failovers are for a person: who drains is one", |w| w.cluster.failover_disabled = true, Some("orders-2")),
        ("its pod is being deleted: its agent releases", |w| w.pod_mut("1").deleting = true, None),
        ("it does not renew", |w| w.lease_mut().unchanged_since = Monotonic(NOW - 3_200), None),
        ("one was undone a moment ago", undone, None),
        (
            "one was undone a minute ago",
            |w| {
                let mut previous = operation(StepId::PrimaryDbSwitchingOver, 1, "SwitchoverUndone", "1");
                previous.outcome = Some(Outcome::Undone);
                w.memory.operations.previous = Some(previous);
                w.held.insert(switchover::FACT_LEFT_IN_VAIN.into(), Monotonic(NOW - 60_000));
            },
            Some("orders-2"),
        ),
    ];
    for (what, change, expected) in table {
        let mut world = healthy();
        world.pod_mut("1").node_leaving = true;
        change(&mut world);
        let active = decide(&world).memory.operations.active;
        let to = active.as_ref().and_then(|active| active.subject.as_deref());
        assert_eq!(to, expected, "{what}");
    }
}
