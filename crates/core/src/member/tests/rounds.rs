//! F6, F9, F10, F12: leaving, following, coming back.

use super::*;
use crate::fence::Handover;
use crate::report::MemberState;

fn streaming(index: u32, now: PrimaryLease) -> World {
    let mut world = world(index, now);
    world.volume.epoch = Epoch(1);
    world.engine = Engine::Standby(Standby {
        source: Some(source(1, 1)),
        receiver: true,
        streaming: true,
        settled: false,
        ..standby(100, &[])
    });
    world
}

fn with_rest(index: u32, must: bool) -> Target {
    let rest = RestOfLog {
        member: MemberName::of("orders", 1),
        agent: "127.64.0.1:8008".to_owned(),
        timeline: Timeline(1),
        end_lsn: Lsn(120),
    };
    Target { must_reach_lsn: must.then_some(Lsn(120)), rest_of_log: Some(rest), ..target(index, Proof::Released) }
}

/// A port that was taken ended all starts of the only member there was, and it was never named again.
#[test]
fn a_member_whose_starts_failed_is_a_candidate_again_after_a_pause() {
    let mut world = world(1, lease(2, None, fence(None)));
    world.failing = true;
    world.retry = Some((JobKind::Start, world.now.plus(500)));
    let decision = decide(&world);
    assert_eq!((decision.state, decision.left, decision.wake), (MemberState::Failed, None, Some(world.now.plus(500))));
    world.now = world.now.plus(500);
    let decision = decide(&world);
    assert_eq!((decision.state, decision.left), (MemberState::Stopped, Some(Epoch(2))));
}

/// Slots of the next epoch are made while nothing is urgent (F6), so that a promotion need not wait for them.
#[test]
fn a_streaming_standby_makes_the_slots_of_the_next_epoch_once() {
    let mut named = fence(Some(target(1, Proof::Bootstrap)));
    named.system_id = Some("7".to_owned());
    let mut world = streaming(2, lease(1, Some(1), named));
    let slots = Job::Slots { epoch: Epoch(2), members: names(&[1, 3]) };
    assert_eq!(decide(&world).actions, [Action::Engine(slots)]);
    if let Engine::Standby(standby) = &mut world.engine {
        standby.next_slots = names(&[1, 3]);
    }
    assert_eq!(decide(&world).actions, []);
}

/// F10: fetched before the Lease is taken; what is only a courtesy is tried once.
#[test]
fn the_target_fetches_the_rest_of_the_old_primarys_log_before_it_takes_the_lease() {
    let jobs = |world: &World| decide(world).actions;
    let mut world = world(2, lease(2, None, fence(Some(with_rest(2, true)))));
    world.engine = Engine::Standby(standby(100, &[]));
    assert!(matches!(jobs(&world).as_slice(), [Action::Engine(Job::Fetch { within: None, .. })]));
    world.job = Some(JobKind::Fetch);
    assert_eq!(jobs(&world), []);
    assert_eq!(decide(&world).state, MemberState::Fetching);
    // It failed: nobody is promoted without it.
    world.job = None;
    world.retry = Some((JobKind::Fetch, world.now.plus(100)));
    assert_eq!(jobs(&world), []);
    // As a courtesy it is tried once.
    world.lease = Some(lease(2, None, fence(Some(with_rest(2, false)))));
    assert!(matches!(jobs(&world).as_slice(), [Action::Lease(write)] if write.purpose == Purpose::Take));
    world.retry = None;
    assert!(matches!(jobs(&world).as_slice(), [Action::Engine(Job::Fetch { within: Some(_), .. })]));
    // It is here.
    world.engine = Engine::Standby(standby(120, &[]));
    assert!(matches!(jobs(&world).as_slice(), [Action::Lease(write)] if write.purpose == Purpose::Take));
}

#[test]
fn a_fetch_gives_way_to_the_next_round() {
    let mut world = world(2, lease(3, None, fence(None)));
    world.engine = Engine::Standby(standby(100, &[]));
    world.volume.epoch = Epoch(2);
    world.job = Some(JobKind::Fetch);
    assert_eq!(decide(&world).actions, [Action::Engine(Job::Leave { epoch: Epoch(3) })]);
}

#[test]
fn f6_a_standby_leaves_for_a_newer_epoch_before_it_reports_it() {
    let mut world = streaming(2, lease(2, Some(1), fence(None)));
    assert_eq!(job(&world), Some(Job::Leave { epoch: Epoch(2) }));
    assert_eq!(decide(&world).left, None);
    world.volume.epoch = Epoch(2);
    assert_eq!(decide(&world).left, None, "durable, but the receiver is still there");
    world.engine = Engine::Standby(standby(100, &[]));
    assert_eq!(decide(&world).left, Some(Epoch(2)));
}

#[test]
fn f6_a_stopped_member_has_left_once_the_epoch_is_durable() {
    let mut world = world(1, lease(2, None, fence(None)));
    world.volume.epoch = Epoch(1);
    assert_eq!(decide(&world).actions, [Action::PersistEpoch(Epoch(2))]);
    world.volume.epoch = Epoch(2);
    assert_eq!(decide(&world).left, Some(Epoch(2)));
    world.volume.data = Data::Absent;
    assert_eq!(decide(&world).left, None, "an empty volume leaves nothing");
}

#[test]
fn f6_in_a_planned_handover_the_successor_keeps_its_receiver_until_it_has_all_of_the_log() {
    let handover = Handover { from: MemberName::of("orders", 1), to: MemberName::of("orders", 2) };
    let with = |release: Option<u64>| {
        let release = release.map(|end| Release {
            member: MemberName::of("orders", 1),
            epoch: Epoch(1),
            timeline: Timeline(1),
            end_lsn: Lsn(end),
        });
        lease(2, None, Fence { handover: Some(handover.clone()), release, ..fence(None) })
    };
    assert_eq!(job(&streaming(2, with(None))), None);
    assert_eq!(job(&streaming(2, with(Some(101)))), None, "not all of it replayed");
    assert!(matches!(job(&streaming(2, with(Some(100)))), Some(Job::Leave { .. })));
    assert!(matches!(job(&streaming(3, with(None))), Some(Job::Leave { .. })), "the others leave at once");
    let mut late = streaming(2, with(None));
    late.now = NOW.plus(2_000);
    assert!(matches!(job(&late), Some(Job::Leave { .. })));
}

#[test]
fn f1_a_holder_that_sees_a_newer_epoch_stops_first_and_releases_then() {
    let mut world = holding(1, lease(1, Some(1), fence(Some(target(1, Proof::Bootstrap)))));
    world.engine = Engine::Writable(writable(100, &[]));
    world.was_writable = true;
    if let Some(lease) = &mut world.lease {
        lease.epoch = Epoch(2);
        lease.fence = Ok(fence(None));
    }
    assert!(matches!(job(&world), Some(Job::Stop { fast: false, diverged: false, .. })));
    assert_eq!(write(&world), None);
    world.engine = Engine::Stopped { position: Some(at(120, &[])) };
    let release = write(&world).filter(|write| write.purpose == Purpose::Release).and_then(|write| write.fence.release);
    assert_eq!(release.map(|release| (release.epoch, release.end_lsn)), Some((Epoch(1), Lsn(120))));
}

#[test]
fn a_holder_whose_lease_was_taken_by_another_does_not_stop_its_own_rewind() {
    let mut old = world(1, granted(true));
    let sent = Monotonic(NOW.0 - 9_000);
    old.held = Some(Held { epoch: Epoch(1), sent, tried: sent, failed: false });
    old.engine = Engine::Stopped { position: Some(at(101, &[])) };
    assert!(matches!(job(&old), Some(Job::Rewind { .. })));
    old.job = Some(JobKind::Rewind);
    assert_eq!(job(&old), None);
}

/// orders-2 has taken epoch 2 on timeline 2, forked at 100 if it is won.
fn granted(won: bool) -> PrimaryLease {
    let fork = won.then_some(100);
    let fence = Fence {
        history: vec![Attempt { promotion: promotion(2, 2, 2, fork), won }],
        chain: vec![promotion(2, 2, 2, fork)],
        ..fence(Some(target(2, Proof::QuorumFence)))
    };
    lease(2, Some(2), fence)
}

#[test]
fn f6_losers_follow_at_the_grant_and_copy_the_chain_first() {
    let mut loser = world(3, granted(false));
    loser.engine = Engine::Standby(standby(90, &[]));
    let chain = vec![promotion(2, 2, 2, None)];
    assert_eq!(job(&loser), Some(Job::Follow { source: source(2, 2), chain }));
    if let Some(lease) = &mut loser.lease {
        lease.holder = None;
    }
    assert_eq!(job(&loser), None, "named, but not taken: nobody to follow yet");
}

/// Days of the simulator: the holder's pod came back with another address in an unchanged epoch, and who waited for the old
/// one to listen did so for ever.
#[test]
fn a_follow_that_waits_for_another_address_gives_way_to_one_towards_the_holders_own() {
    let elsewhere = Source { address: "127.64.0.200:5432".to_owned(), ..source(2, 2) };
    let table = [
        (Some(JobKind::Follow), Some(elsewhere.clone()), true),
        (Some(JobKind::Follow), Some(source(2, 2)), false),
        (Some(JobKind::Slots), Some(elsewhere.clone()), false),
        (None, Some(elsewhere.clone()), true),
    ];
    for (running, towards, begins) in table {
        let mut loser = world(3, granted(false));
        loser.engine = Engine::Standby(standby(90, &[]));
        (loser.job, loser.towards) = (running, towards);
        let begun = matches!(job(&loser), Some(Job::Follow { source: to, .. }) if to == source(2, 2));
        assert_eq!(begun, begins, "{running:?}");
    }
    // A rewound server does not answer before it has got what it lacks: it is started anew.
    for (inconsistent, towards, stops) in
        [(true, elsewhere.clone(), true), (true, source(2, 2), false), (false, elsewhere, false)]
    {
        let mut loser = world(3, granted(true));
        loser.engine = Engine::Starting;
        loser.volume.inconsistent = inconsistent;
        loser.towards = Some(towards);
        assert_eq!(matches!(job(&loser), Some(Job::Stop { .. })), stops, "{inconsistent}");
    }
}

#[test]
fn f12_the_end_of_the_old_primarys_log_decides_how_it_comes_back() {
    let foreign = promotion(2, 1, 2, Some(80));
    let table: [(Position, &str); 5] = [
        (at(100, &[]), "start"),
        (at(90, &[]), "start"),
        (at(101, &[]), "rewind"),
        (at(500, &[promotion(2, 2, 2, Some(100))]), "start"),
        (at(90, &[foreign]), "clone"),
    ];
    for (position, expected) in table {
        let mut old = world(1, granted(true));
        old.engine = Engine::Stopped { position: Some(position.clone()) };
        let chosen = match job(&old) {
            Some(Job::Start { writable: false, follow: Some(_), .. }) => "start",
            Some(Job::Rewind { .. }) => "rewind",
            Some(Job::Clone { .. }) => "clone",
            other => panic!("{other:?}"),
        };
        assert_eq!(chosen, expected, "{position:?}");
    }
    let mut early = world(1, granted(false));
    early.engine = Engine::Stopped { position: Some(at(100, &[])) };
    assert_eq!(job(&early), None, "the fork is not recorded yet");
}

#[test]
fn f12_a_running_standby_beyond_the_fork_stops_instead_of_serving_its_divergent_rows() {
    let mut loser = world(3, granted(true));
    loser.engine = Engine::Standby(Standby { source: Some(source(2, 2)), ..standby(101, &[]) });
    assert!(matches!(job(&loser), Some(Job::Stop { .. })));
}

#[test]
fn f9_a_member_with_an_unrecorded_promotion_follows_nobody_but_is_a_candidate() {
    let attempt = promotion(2, 3, 2, None);
    let with = |lease| {
        let mut world = world(3, lease);
        world.volume.attempt = Some(attempt.clone());
        world
    };
    assert!(matches!(job(&with(granted(true))), Some(Job::Clone { .. })));
    let candidate = with(lease(2, None, fence(None)));
    assert_eq!(decide(&candidate).left, Some(Epoch(2)));
    assert_eq!(candidate.unrecorded_attempt(), Some(&attempt));
    // A later recorded win covers what lies beneath it.
    let covered = Fence {
        history: vec![
            Attempt { promotion: attempt.clone(), won: false },
            Attempt { promotion: promotion(3, 2, 3, Some(200)), won: true },
        ],
        chain: vec![attempt.clone(), promotion(3, 2, 3, Some(200))],
        ..fence(Some(target(2, Proof::Released)))
    };
    assert_eq!(with(lease(3, Some(2), covered)).unrecorded_attempt(), None);
}

#[test]
fn f12_without_data_or_with_data_that_cannot_be_used_a_copy_is_made_of_the_holder_only() {
    for data in [Data::Absent, Data::Unusable("a rewind was interrupted".to_owned())] {
        let mut empty = world(3, granted(true));
        empty.volume.data = data;
        empty.engine = Engine::Stopped { position: None };
        assert!(matches!(job(&empty), Some(Job::Clone { source: from, .. }) if from == source(2, 2)));
        if let Some(lease) = &mut empty.lease {
            lease.holder = Some(identity(1).to_string());
        }
        assert_eq!(job(&empty), None, "the holder is not the target");
    }
}

#[test]
fn a_member_that_is_told_to_end_stops_its_server_and_exits_then() {
    let mut standby = streaming(3, lease(1, Some(1), fence(Some(target(1, Proof::Bootstrap)))));
    standby.leaving = true;
    assert!(matches!(job(&standby), Some(Job::Stop { fast: true, .. })));
    standby.engine = Engine::Stopped { position: Some(at(100, &[])) };
    assert_eq!(decide(&standby).actions, [Action::Exit]);
}

#[test]
fn a_folder_that_cannot_be_used_is_told_and_waits_for_a_primary_to_copy_from() {
    let damaged = Data::Unusable("global/pg_control is damaged".to_owned());
    let mut alone = world(3, lease(2, None, fence(None)));
    alone.volume.data = damaged.clone();
    let decision = decide(&alone);
    assert_eq!((decision.state, decision.left, job(&alone)), (MemberState::Failed, None, None));
    assert!(decision.trouble.is_some_and(|said| said.contains("pg_control is damaged") && said.contains("by hand")));
    let mut copying = world(3, granted(true));
    copying.volume.data = damaged.clone();
    assert!(matches!(job(&copying), Some(Job::Clone { .. })));
    copying.job = Some(JobKind::Clone);
    let decision = decide(&copying);
    assert_eq!(decision.state, MemberState::Copying);
    assert!(decision.trouble.is_some_and(|said| said.contains("set aside and copied anew")));
    // The one that is to be primary has nothing to be it with, whatever it held before.
    let mut target = world(2, lease(2, None, fence(Some(target(2, Proof::Released)))));
    target.volume.data = damaged;
    assert!(!takes(&target));
}

/// Found by the simulator: it waited for ever for the source that it had been rewound to.
#[test]
fn a_rewound_server_that_is_not_consistent_is_stopped_by_a_raise_and_another_goes_on_starting() {
    let stops = |inconsistent: bool, seen: u64| {
        let mut world = world(1, lease(3, None, fence(None)));
        world.engine = Engine::Starting;
        world.volume.inconsistent = inconsistent;
        world.volume.epoch = Epoch(seen);
        matches!(job(&world), Some(Job::Stop { .. }))
    };
    assert_eq!([stops(true, 2), stops(true, 3), stops(false, 2)], [true, false, false]);
}
