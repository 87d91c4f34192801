//! What people are shown: the picture and the words of events.

use super::super::picture::Phase;
use super::*;

fn told(world: &World, reason: &str) -> String {
    decide(world).events.into_iter().find(|event| event.reason == reason).map(|event| event.note).unwrap_or_default()
}

/// Each row loses the primary in another way; what the event says.
#[test]
fn a_failover_says_who_was_lost_and_how_it_died() {
    type Change = fn(&mut World);
    let table: [(Change, &str); 4] = [
        (
            |w| {
                let gone = Termination { container_id: "c".into(), how: "signal 9".into(), version: 5 };
                w.terminated.insert("u1".into(), gone);
            },
            "orders-1 is no longer the primary: its container ended (signal 9). One is chosen anew, and epoch 1 ends \
             (PrimaryTerminated)",
        ),
        (
            |w| w.lease_mut().unchanged_since = Monotonic(NOW - 6_000),
            "orders-1 is no longer the primary: its Lease was not renewed for 6 s. One is chosen anew, and epoch 1 ends \
             (PrimaryLeaseExpired)",
        ),
        (
            |w| {
                w.lease_mut().holder = Holder::Nobody;
                w.report_mut("1").last_error = Some("the server ended by signal 9".into());
            },
            "orders-1 is no longer the primary: its server ended, and its agent gave the Lease back (the server ended by \
             signal 9). One is chosen anew, and epoch 1 ends (PrimaryReleased)",
        ),
        (
            |w| w.pod_mut("1").uid = "other".into(),
            "orders-1 is no longer the primary: its pod is gone. One is chosen anew, and epoch 1 ends (PrimaryPodGone)",
        ),
    ];
    for (change, expected) in table {
        let mut world = healthy();
        change(&mut world);
        assert_eq!(told(&world, "FailoverStarted"), expected);
    }
}

/// Nobody else could take over; what the status says of whom it names.
#[test]
fn a_primary_whose_lease_has_run_out_is_named_no_longer_whoever_could_take_over() {
    type Change = fn(&mut World);
    let table: [(&str, Change, bool); 4] = [
        ("it renews", |_| (), true),
        ("it has missed renewals", |w| w.lease_mut().unchanged_since = Monotonic(NOW - 5_999), true),
        ("it has run out, and its node is silent", |w| w.lost("1"), false),
        ("it has run out, whatever it said last", |w| w.report_mut("1").ready = true, false),
    ];
    for (what, change, is_named) in table {
        let mut world = healthy();
        for other in ["2", "3"] {
            world.lost(other);
        }
        if !is_named {
            world.lease_mut().unchanged_since = Monotonic(NOW - 6_000);
        }
        change(&mut world);
        let decision = decide(&world);
        let current = decision.memory.primary.current.clone();
        assert_eq!(current, is_named.then(|| name("1")), "{what}");
        assert_eq!(decision.steps.iter().any(|step| matches!(step, Step::Remember { .. })), !is_named, "{what}");
        if !is_named {
            // Written once, and the leader's label is gone; when it holds the Lease again it is named again.
            world.memory = decision.memory;
            world.pod_mut("1").role = None;
            assert_eq!(decide(&world).steps, [], "{what}");
            world.lease_mut().unchanged_since = Monotonic(NOW - 100);
            world.pod_mut("1").node_ready = true;
            assert_eq!(decide(&world).memory.primary.current, Some(name("1")), "{what}");
        }
    }
}

#[test]
fn a_member_whose_probe_contradicts_its_report_for_a_while_is_shown_as_not_answering() {
    for member in ["1", "3"] {
        let mut world = healthy();
        world.pod_mut(member).ready = false;
        let line = |world: &World| {
            let lines = decide(world).picture.members;
            lines.into_iter().find(|line| line.name == name(member)).unwrap()
        };
        // One probe that is late says nothing yet; when to look again is said.
        assert!(line(&world).ready);
        assert!(decide(&world).requeue_after.is_some_and(|again| again <= 2_000));
        let fact = format!("silent orders-{member}");
        assert!(decide(&world).holding.contains(&fact));
        world.held.insert(fact.clone(), Monotonic(NOW - 1_999));
        assert!(line(&world).ready);
        world.held.insert(fact, Monotonic(NOW - 2_000));
        let shown = line(&world);
        assert_eq!((shown.ready, shown.state.as_deref()), (false, Some("NotAnswering")));
        assert!(shown.last_error.is_some_and(|said| said.contains("does not answer")));
        let picture = decide(&world).picture;
        assert!(!picture.conditions["Ready"].holds && picture.conditions["MemberFailed"].holds);
        assert_eq!(decide(&world).steps, [], "a probe decides nothing");
        // It answers again.
        world.pod_mut(member).ready = true;
        assert!(line(&world).ready);
    }
}

#[test]
fn commits_that_wait_for_members_are_told_and_not_called_accepted() {
    let mut world = healthy();
    world.report_mut("1").standbys.retain(|standby| standby.member != name("3"));
    let picture = decide(&world).picture;
    assert_eq!(picture.conditions["SyncDegraded"].reason, "InForce", "one is enough");
    world.report_mut("1").standbys.clear();
    let picture = decide(&world).picture;
    let ready = &picture.conditions["Ready"];
    assert_eq!((picture.phase, ready.holds, ready.reason), (Phase::Unavailable, false, "CommitsWait"));
    assert_eq!(
        ready.message,
        "orders-1 is primary, but commits wait: 1 of the members orders-2, orders-3 must have each of them, and 0 of these \
         stream; none is lost by waiting. They go on as soon as one is back"
    );
    let degraded = &picture.conditions["SyncDegraded"];
    assert_eq!((degraded.holds, degraded.reason), (false, "CommitsWait"));
    // In async mode, and once commits no longer wait, nothing is waited for.
    world.lease_mut().fence.sync_sets[0].degraded = true;
    assert_eq!(decide(&world).picture.phase, Phase::Degraded);
    world.lease_mut().fence.sync_sets[0].degraded = false;
    world.cluster.mode = Mode::Async;
    assert_ne!(decide(&world).picture.conditions["Ready"].reason, "CommitsWait");
}

#[test]
fn a_lowered_number_of_replicas_removes_nobody_and_says_so() {
    let mut world = healthy();
    world.cluster.replicas = 1;
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
    let surplus = &decision.picture.conditions["SurplusMembers"];
    assert!(surplus.holds && surplus.reason == "ScaleDownNotSupported");
    assert_eq!(
        surplus.message,
        "spec.replicas is 1, and lowering it is not supported yet: all 3 members go on (orders-1, orders-2, orders-3); \
         set spec.replicas to 3"
    );
    // A member that is lost is missed, though fewer are asked for.
    world.report_mut("3").state = MemberState::Copying;
    assert!(!decide(&world).picture.conditions["Ready"].holds);
    world.cluster.replicas = 3;
    assert!(!decide(&world).picture.conditions["SurplusMembers"].holds);
}

#[test]
fn what_members_warn_of_is_a_condition_of_its_own_and_makes_nothing_degraded() {
    let mut world = healthy();
    world.report_mut("1").warnings.insert("synchronous_commit is off for role app".into());
    world.report_mut("3").warnings.insert("UnexpectedPrimary: its server accepted writes".into());
    let picture = decide(&world).picture;
    let warnings = &picture.conditions["Warnings"];
    assert!(warnings.holds);
    assert_eq!(
        warnings.message,
        "orders-1: synchronous_commit is off for role app; orders-3: UnexpectedPrimary: its server accepted writes"
    );
    assert!(picture.conditions["Ready"].holds && !picture.conditions["Degraded"].holds);
}
