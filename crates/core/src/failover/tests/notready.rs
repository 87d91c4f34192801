//! Nodes that are called NotReady while the agents on them go on (after the API server was away every node is).

use super::*;

type Change = fn(&mut World);

/// Each row changes a world in which every node is NotReady and the report of orders-2 changed a moment ago; whether that
/// member counts as live.
#[test]
fn a_report_of_the_current_epoch_that_changed_lately_is_a_sign_of_life_whatever_its_node_is_called() {
    let table: [(&str, Change, bool); 9] = [
        ("nothing else", |_| (), true),
        ("it was found and has not changed since", |w| w.member_mut("2").report_moved = None, false),
        ("it changed long ago", |w| w.member_mut("2").report_moved = Some(Monotonic(NOW - 15_000)), false),
        ("it is of an older epoch", |w| w.lease_mut().epoch = Epoch(2), false),
        ("it is another pod's", |w| w.report_mut("2").pod_uid = "old".into(), false),
        ("its container has ended", |w| w.pod_mut("2").running = false, false),
        ("its pod is being deleted", |w| w.pod_mut("2").deleting = true, false),
        ("there is no Lease to judge the epoch by", |w| w.lease = LeaseView::Absent, false),
        (
            "its node is Ready: then it need not have changed",
            |w| {
                w.pod_mut("2").node_ready = true;
                w.member_mut("2").report_moved = None;
            },
            true,
        ),
    ];
    for (what, change, expected) in table {
        let mut world = all_not_ready(healthy());
        world.member_mut("2").report_moved = Some(Monotonic(NOW - 14_999));
        change(&mut world);
        assert_eq!(world.live_report(&name("2")).is_some(), expected, "{what}");
    }
}

/// The holder renews every 1.5 s, and that is word enough.
#[test]
fn a_holder_that_renews_is_shown_as_the_primary_it_is_on_a_node_that_is_called_not_ready() {
    let mut world = all_not_ready(healthy());
    let is_ready =
        |world: &World| decide(world).picture.members.iter().any(|line| line.name == name("1") && line.ready);
    assert!(is_ready(&world));
    world.lease_mut().unchanged_since = Monotonic(NOW - 3_200);
    assert!(!is_ready(&world));
}

/// The API server was away until a moment ago: the holder has stopped, everybody else lost the stream and said so, and every
/// node is NotReady. What is to be done must not wait for the nodes.
#[test]
fn after_the_api_was_away_those_that_report_are_chosen_among_although_no_node_is_ready() {
    let mut world = all_not_ready(healthy());
    world.lease_mut().unchanged_since = Monotonic(NOW - 6_000);
    for member in ["2", "3"] {
        world.report_mut(member).state = MemberState::Standby;
        world.member_mut(member).report_moved = Some(Monotonic(NOW - 2_000));
    }
    let active = decide(&world).memory.operations.active;
    assert_eq!(active.and_then(|active| active.reason).as_deref(), Some("PrimaryLeaseExpired"));

    let mut round = all_not_ready(raised());
    for member in ["2", "3"] {
        round.leaves(member, 2, 1_000, &[]);
        round.member_mut(member).report_moved = Some(Monotonic(NOW - 10));
    }
    assert_eq!(named(&round).map(|(member, ..)| member).as_deref(), Some("orders-2"));
    // Of equals one whose node is Ready goes first: no Service reaches the other (F15).
    round.pod_mut("3").node_ready = true;
    assert_eq!(named(&round).map(|(member, ..)| member).as_deref(), Some("orders-3"));
}

fn all_not_ready(mut world: World) -> World {
    for member in ["1", "2", "3"] {
        world.pod_mut(member).node_ready = false;
    }
    world
}

/// What waits is counted on one's own clock: where the operators' clocks differ by 5 s, another of them decides the same.
#[test]
fn a_clock_of_day_that_is_five_seconds_off_changes_nothing_that_is_decided() {
    let mut overdue = healthy();
    overdue.lease_mut().unchanged_since = Monotonic(NOW - 6_000);
    let mut left = raised();
    left.leaves("2", 2, 1_000, &[]);
    left.leaves("3", 2, 900, &[]);
    for world in [healthy(), overdue, raised(), left] {
        for skew in [-5_000, 5_000] {
            let mut skewed = world.clone();
            skewed.wall = Timestamp(world.wall.0 + skew);
            assert_eq!(steps(&skewed), steps(&world), "{skew}");
            assert_eq!(decide(&skewed).requeue_after.is_some(), decide(&world).requeue_after.is_some());
        }
    }
}
