//! The old holder before another is named: proof of death, and kill first where somebody can (F4, F15).

use super::*;

/// B and C have left with everything; A still stands in the Lease.
fn fenced() -> World {
    let mut world = raised();
    world.lease_mut().holder = Holder::Member(holder("1"));
    world.lease_mut().fence.release = None;
    world.leaves("2", 2, 1_000, &[]);
    world.leaves("3", 2, 1_000, &[]);
    world.pod_mut("1").stamp = None;
    world
}

#[test]
fn while_the_old_holder_answers_it_is_left_to_stop_then_stopped_and_nobody_is_named_before() {
    let mut world = fenced();
    assert_eq!(steps(&world), [""; 0], "it has 500 ms to release by itself");
    world.lease_mut().epoch_since = Monotonic(NOW - 500);
    assert_eq!(steps(&world), ["delete pod orders-1-0 (if uid u1 and version 50) as a fence for epoch 2"]);
    world.pod_mut("1").deleting = true;
    assert_eq!(steps(&world), [""; 0]);
    world.terminated.insert("u1".into(), Termination { container_id: "c1".into(), how: String::new(), version: 95 });
    assert_eq!(
        named(&world).map(|(member, proof, _)| (member, proof)),
        Some(("orders-2".into(), Proof::Terminated { container_id: "c1".into() }))
    );
}

/// The cable of its node was pulled: the node is called Ready for another 50 s and carries no delete out.
#[test]
fn in_quorum_mode_a_pod_whose_delete_is_not_carried_out_is_waited_for_no_longer_than_a_node_that_answers_needs() {
    let mut world = fenced();
    world.pod_mut("1").deleting = true;
    world.lease_mut().epoch_since = Monotonic(NOW - 1_999);
    assert_eq!(named(&world), None);
    assert_eq!(decide(&world).requeue_after, Some(1));
    world.lease_mut().epoch_since = Monotonic(NOW - 2_000);
    assert_eq!(named(&world).map(|(_, proof, _)| proof), Some(Proof::QuorumFence));
    world.cluster.mode = Mode::Async;
    world.lease_mut().fence.sync_sets.clear();
    assert_eq!(named(&world), None, "without the fence it is waited for");
}

/// Nobody could stop it either: its node is called Ready for another 50 s. A live one stops by itself meanwhile.
#[test]
fn in_quorum_mode_a_holder_that_none_of_those_who_left_can_reach_is_not_waited_for() {
    use crate::report::Reach::{Answers, Refuses, Silent};
    for (reaches, raised_for, expected) in [
        ([Refuses, Refuses], loss::TERMINATED, Some(Proof::QuorumFence)),
        ([Silent, Silent], loss::UNREACHABLE, Some(Proof::QuorumFence)),
        ([Silent, Refuses], loss::SILENT, Some(Proof::QuorumFence)),
        ([Silent, Silent], loss::SHORT_OF_ACKNOWLEDGEMENTS, None),
        ([Silent, Answers], loss::UNREACHABLE, None),
    ] {
        let mut world = fenced();
        // The raise itself has only just changed the Lease.
        world.lease_mut().unchanged_since = Monotonic(NOW);
        world.memory.operations.active = Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 1, raised_for, "1"));
        for (member, reach) in ["2", "3"].into_iter().zip(reaches) {
            world.report_mut(member).source = Some(report::SourceReached { member: name("1"), reach });
        }
        assert_eq!(named(&world).map(|(_, proof, _)| proof), expected, "{reaches:?}, {raised_for}");
        world.cluster.mode = Mode::Async;
        world.lease_mut().fence.sync_sets.clear();
        assert_eq!(named(&world), None, "without the fence the Lease must run out");
    }
}

/// Each row: what is known of the holder, and the proof by which B is named.
#[test]
fn death_is_proved_by_a_release_a_later_status_the_fence_or_the_whole_duration() {
    type Change = fn(&mut World);
    let table: [(&str, Change, Option<Proof>); 8] = [
        ("it released", |w| w.lease_mut().holder = Holder::Nobody, Some(Proof::Released)),
        (
            "its node said that the container ended, after the raise",
            |w| {
                w.terminated
                    .insert("u1".into(), Termination { container_id: "c".into(), how: String::new(), version: 91 });
            },
            Some(Proof::Terminated { container_id: "c".into() }),
        ),
        (
            "its node said so before the raise: the fence is the proof",
            |w| {
                w.terminated
                    .insert("u1".into(), Termination { container_id: "c".into(), how: String::new(), version: 89 });
            },
            Some(Proof::QuorumFence),
        ),
        ("its node does not answer: the fence is the proof", |w| w.lost("1"), Some(Proof::QuorumFence)),
        (
            "it says itself that it has stopped: the fence is the proof",
            |w| w.leaves("1", 2, 1_000, &[]),
            Some(Proof::QuorumFence),
        ),
        (
            "async, its node does not answer: the Lease must run out",
            |w| {
                w.cluster.mode = Mode::Async;
                w.lease_mut().fence.sync_sets.clear();
                w.lease_mut().epoch_since = Monotonic(NOW - 40_000);
                w.lost("1");
            },
            None,
        ),
        (
            "async, its node does not answer, the Lease has run out",
            |w| {
                w.cluster.mode = Mode::Async;
                w.lease_mut().fence.sync_sets.clear();
                w.lease_mut().epoch_since = Monotonic(NOW - 40_000);
                w.lease_mut().unchanged_since = Monotonic(NOW - 6_000);
                w.lost("1");
            },
            Some(Proof::Expired),
        ),
        ("a stranger holds it", |w| w.lease_mut().holder = Holder::Stranger("who".into()), None),
    ];
    for (what, change, expected) in table {
        let mut world = fenced();
        change(&mut world);
        assert_eq!(named(&world).map(|(_, proof, _)| proof), expected, "{what}");
    }
}

/// F4: an absent pod, a deletionTimestamp, NotReady prove nothing.
#[test]
fn an_absent_pod_proves_nothing() {
    let mut world = fenced();
    world.cluster.mode = Mode::Async;
    world.lease_mut().fence.sync_sets.clear();
    world.lease_mut().epoch_since = Monotonic(NOW - 40_000);
    world.member_mut("1").pod = None;
    assert_eq!(named(&world), None);
    assert!(decide(&world).requeue_after.is_some_and(|again| again <= 5_000));
}

/// F4, model X3: a delete decided at epoch e must not kill a member that is named again at e.
#[test]
fn a_pod_that_is_stamped_for_the_epoch_is_not_deleted_in_it() {
    let mut world = fenced();
    world.lease_mut().epoch_since = Monotonic(NOW - 2_000);
    world.pod_mut("1").stamp = Some(Epoch(2));
    assert!(steps(&world).iter().all(|step| !step.contains("delete")));
    // And waiting for reports stamps everybody but the pod that may yet be deleted.
    let mut world = fenced();
    for member in ["1", "2", "3"] {
        world.pod_mut(member).stamp = None;
    }
    let stamped: Vec<String> = steps(&world).into_iter().filter(|step| step.starts_with("stamp")).collect();
    assert_eq!(stamped, ["stamp pod orders-2-0 with epoch 2", "stamp pod orders-3-0 with epoch 2"]);
}

/// A frozen member in async mode: killed before another is promoted, however long its data is waited for.
#[test]
fn a_frozen_holder_is_killed_while_its_data_is_still_waited_for() {
    let mut world = fenced();
    world.cluster.mode = Mode::Async;
    world.lease_mut().fence.sync_sets.clear();
    world.lease_mut().unchanged_since = Monotonic(NOW - 6_000);
    assert!(steps(&world).iter().any(|step| step.starts_with("delete pod orders-1-0")));
}

#[test]
fn in_a_hand_over_the_holder_is_given_time_to_stop_cleanly() {
    let mut world = fenced();
    world.lease_mut().fence.handover = Some(crate::fence::Handover { from: name("1"), to: name("2") });
    world.memory.operations.active = Some(operation(StepId::PrimaryDbSwitchingOver, 1, "SwitchoverRequested", "2"));
    world.lease_mut().epoch_since = Monotonic(NOW - 2_500);
    assert_eq!(steps(&world), [""; 0]);
}

/// F15: never two, and never a pod whose uid is not in the Lease.
#[test]
fn the_leaders_label_follows_the_holder_and_goes_before_it_comes() {
    let mut world = healthy();
    world.lease_mut().epoch = Epoch(2);
    world.lease_mut().holder = Holder::Member(holder("2"));
    world.lease_mut().fence.target = Some(target("2", Proof::Released));
    world.report_mut("2").state = MemberState::Primary;
    world.report_mut("1").state = MemberState::Streaming;
    world.memory.operations.active = Some(operation(StepId::PrimaryDbFailingOver, 2, "x", "2"));
    assert_eq!(
        steps(&world),
        ["label pod orders-1-0 as replica", "label pod orders-2-0 as primary", "write status: OperationEnded"]
    );
    for change in [
        (|w: &mut World| w.report_mut("2").ready = false) as fn(&mut World),
        |w| w.report_mut("2").nonce = "other".into(),
        |w| w.report_mut("2").state = MemberState::Promoting,
        |w| w.lease_mut().holder = Holder::Nobody,
    ] {
        let mut world = world.clone();
        change(&mut world);
        assert!(steps(&world).iter().all(|step| !step.contains("as primary")));
        assert!(steps(&world).iter().any(|step| step.contains("orders-1-0") || step.contains("status")));
    }
}
