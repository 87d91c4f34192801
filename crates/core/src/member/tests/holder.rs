//! F1, F2, F3, F5, F9, F11, F14.

use super::*;

#[test]
fn f1_only_the_target_takes_the_lease_and_only_in_an_epoch_that_it_made_durable() {
    let named = |index| lease(2, None, fence(Some(target(index, Proof::Released))));
    assert!(takes(&world(2, named(2))));
    assert!(!takes(&world(3, named(2))), "not the target");
    assert!(!takes(&world(2, lease(2, None, fence(None)))), "no target");
    let mut unreadable = named(2);
    unreadable.fence = Err("format 9".to_owned());
    assert_eq!(decide(&world(2, unreadable)).actions, []);
    let mut older = world(2, named(2));
    older.volume.epoch = Epoch(3);
    assert!(!takes(&older), "the API shows an older epoch than the volume (F14)");
    let mut again = world(2, named(2));
    again.released = Some(Epoch(2));
    assert!(!takes(&again), "released in this epoch by this process");
}

#[test]
fn f4_a_lease_with_a_holder_is_taken_by_proof_only() {
    let held = |proof| world(2, lease(2, Some(1), fence(Some(target(2, proof)))));
    let table = [
        (Proof::QuorumFence, true),
        (Proof::Terminated { container_id: "c".to_owned() }, true),
        (Proof::PoweredOff, true),
        (Proof::Released, false),
        (Proof::Bootstrap, false),
        (Proof::Expired, false),
    ];
    for (proof, expected) in table {
        assert_eq!(takes(&held(proof.clone())), expected, "{proof:?}");
    }
}

#[test]
fn f2_an_expired_lease_is_taken_after_a_whole_duration_of_the_members_own_observation() {
    let mut world = world(2, lease(2, Some(1), fence(Some(target(2, Proof::Expired)))));
    assert_eq!(decide(&world).wake, Some(NOW.plus(6_000)));
    world.now = NOW.plus(5_999);
    assert!(!takes(&world));
    world.now = NOW.plus(6_000);
    assert!(takes(&world));
}

#[test]
fn f2_at_the_deadline_the_engine_is_killed_and_then_the_lease_released() {
    let fence = fence(Some(target(1, Proof::Bootstrap)));
    let mut world = holding(1, lease(1, Some(1), fence));
    world.engine = Engine::Writable(writable(100, &[]));
    world.was_writable = true;
    world.now = world.deadline().unwrap_or_default();
    let stop = Job::Stop { fast: false, diverged: false, reason: "no renewal of the Lease was answered in time" };
    assert_eq!(job(&world), Some(stop));
    world.engine = Engine::Stopped { position: None };
    assert_eq!(write(&world), None, "not before the end of its log is known");
    world.engine = Engine::Stopped { position: Some(at(120, &[])) };
    let write = write(&world);
    let release = write.filter(|write| write.purpose == Purpose::Release).and_then(|write| write.fence.release);
    assert_eq!(release.map(|release| (release.epoch, release.end_lsn)), Some((Epoch(1), Lsn(120))));
}

#[test]
fn f2_lengths_that_let_a_holder_outlive_its_lease_are_refused() {
    assert!(Timing::default().check().is_ok());
    assert!(Timing { renew: 3_500, ..Timing::default() }.check().is_err());
    assert!(Timing { stop_by: 5_500, ..Timing::default() }.check().is_err());
    assert!(Timing { renew: u64::MAX, ..Timing::default() }.check().is_err());
    assert!(Timing { duration: u64::MAX, stop_by: u64::MAX, ..Timing::default() }.check().is_err());
}

#[test]
fn f5_a_new_process_is_not_the_holder_and_starts_nothing_writable_before_it_has_taken_the_lease() {
    let mut successor = world(1, lease(1, Some(1), fence(Some(target(1, Proof::Bootstrap)))));
    successor.me.nonce = "new".to_owned();
    assert_eq!(job(&successor), None);
    assert!(takes(&successor), "same member, same epoch, the lock proves the predecessor dead");
    let mut raised = successor.clone();
    raised.volume.epoch_at_start = Epoch(0);
    assert!(!takes(&raised), "the epoch has changed since the predecessor: no proof");
    let mut held = holding(1, lease(1, Some(1), fence(Some(target(1, Proof::Bootstrap)))));
    held.volume.epoch_at_start = Epoch(1);
    assert!(matches!(job(&held), Some(Job::Start { writable: true, follow: None, .. })));
}

#[test]
fn a_member_that_takes_the_lease_again_says_where_it_is_reached_now() {
    let mut successor = world(1, lease(1, Some(1), fence(Some(target(1, Proof::Bootstrap)))));
    successor.me.nonce = "new".to_owned();
    successor.address = "10.0.0.9:5432".to_owned();
    let take = write(&successor).filter(|write| write.purpose == Purpose::Take).expect("it takes the Lease");
    assert_eq!(take.fence.target.map(|target| target.address).as_deref(), Some("10.0.0.9:5432"));
}

#[test]
fn f5_a_predecessor_in_an_epoch_that_moved_on_is_released_by_its_successor() {
    let mut successor = world(1, lease(2, Some(1), fence(None)));
    successor.me.nonce = "new".to_owned();
    let write = write(&successor);
    assert_eq!(write.as_ref().map(|write| write.purpose), Some(Purpose::Release));
    assert_eq!(write.and_then(|write| write.fence.release).map(|release| release.epoch), Some(Epoch(1)));
}

#[test]
fn f4_what_only_begins_like_a_holder_of_ours_is_a_strangers_and_is_not_cleared() {
    for stranger in ["orders-1", "orders-1/u1", "orders-1/u1/n/z", "orders-1//"] {
        let mut successor = world(1, lease(2, None, fence(None)));
        successor.lease.as_mut().unwrap().holder = Some(stranger.to_owned());
        assert_eq!(write(&successor), None, "{stranger}");
        let mut follower = world(2, lease(2, None, fence(Some(target(1, Proof::Released)))));
        follower.lease.as_mut().unwrap().holder = Some(stranger.to_owned());
        assert_eq!(follower.granted(), None, "{stranger}");
    }
}

#[test]
fn f9_no_timeline_is_allotted_that_the_folder_has_used_whatever_the_record_says() {
    let named = || lease(3, None, fence(Some(target(2, Proof::Released))));
    let allotted = |world: &World| write(world)?.fence.history.last().map(|last| last.promotion.timeline);
    let mut beneath = world(2, named());
    beneath.engine = Engine::Stopped { position: Some(at(100, &[promotion(2, 3, 4, Some(50))])) };
    assert_eq!(allotted(&beneath), Some(Timeline(5)));
    let mut tried = world(2, named());
    tried.volume.attempt = Some(promotion(2, 2, 6, None));
    assert_eq!(allotted(&tried), Some(Timeline(7)));
    let mut used_up = world(2, named());
    used_up.volume.attempt = Some(promotion(2, 2, u32::MAX, None));
    assert_eq!(write(&used_up), None, "no number is left, and none is used twice");
}

#[test]
fn f9_the_take_allots_the_timeline_and_records_set_and_chain_in_the_same_write() {
    let mut fence = fence(Some(target(2, Proof::QuorumFence)));
    fence.history = vec![Attempt { promotion: promotion(2, 3, 2, None), won: false }];
    if let Some(target) = &mut fence.target {
        target.initial_sync = names(&[3]);
    }
    let write = write(&world(2, lease(3, Some(1), fence)));
    let Some(LeaseWrite { purpose: Purpose::Take, fence }) = write else { panic!("{write:?}") };
    assert_eq!(fence.history.last().map(|last| &last.promotion), Some(&promotion(3, 2, 3, None)));
    assert_eq!(fence.chain, [promotion(3, 2, 3, None)]);
    let set = fence.sync_sets.last().map(|set| (set.epoch, set.k, set.members.clone(), set.complete));
    assert_eq!(set, Some((Epoch(3), 1, names(&[3]), false)));
}

/// orders-2 holds epoch 2 with its attempt recorded.
fn promoted(engine: Engine, won: bool) -> World {
    let mut fence = fence(Some(target(2, Proof::QuorumFence)));
    let fork = won.then_some(100);
    fence.history = vec![Attempt { promotion: promotion(2, 2, 2, fork), won }];
    fence.chain = vec![promotion(2, 2, 2, fork)];
    fence.sync_sets = vec![SyncSet {
        epoch: Epoch(2),
        k: 1,
        members: names(&[3]),
        primary: Some(MemberName::of("orders", 2)),
        complete: false,
        degraded: false,
    }];
    let mut world = holding(2, lease(2, Some(2), fence));
    world.engine = engine;
    world
}

#[test]
fn f11_a_promotion_needs_the_lease_a_settled_standby_and_a_second_to_the_deadline() {
    let good = promoted(Engine::Standby(standby(100, &[])), false);
    let begun = job(&good);
    let Some(Job::Promote { attempt, names: in_force, slots, .. }) = begun else { panic!("{begun:?}") };
    assert_eq!(attempt, promotion(2, 2, 2, None));
    assert_eq!(in_force, Names::Any { k: 1, members: names(&[3]) });
    assert_eq!(slots, names(&[1, 3]));

    let mut late = good.clone();
    late.now = NOW.plus(3_000);
    assert_eq!(job(&late), None);
    assert!(matches!(write(&late), Some(LeaseWrite { purpose: Purpose::Renew, .. })));
    let mut unsettled = good.clone();
    unsettled.engine = Engine::Standby(Standby { settled: false, ..standby(100, &[]) });
    assert!(matches!(job(&unsettled), Some(Job::Leave { .. })));
    let mut short = good.clone();
    if let Some(Ok(fence)) = short.lease.as_mut().map(|lease| lease.fence.as_mut())
        && let Some(target) = &mut fence.target
    {
        target.must_reach_lsn = Some(Lsn(101));
    }
    assert_eq!(job(&short), None, "F10: the log does not reach the old primary's end");
    let mut lost = good;
    lost.held = None;
    assert!(!matches!(job(&lost), Some(Job::Promote { .. })));
}

#[test]
fn f11_clients_are_let_in_only_after_the_win_is_recorded_by_a_renewal_sent_after_recovery() {
    let chain = [promotion(2, 2, 2, Some(100))];
    let in_force = Names::Any { k: 1, members: names(&[3]) };
    let shut = Writable { open: false, since: NOW, names: in_force, ..writable(150, &chain) };
    let unrecorded = promoted(Engine::Writable(shut.clone()), false);
    assert_eq!(job(&unrecorded), None);
    let written = write(&unrecorded).map(|write| write.fence.history);
    assert_eq!(written.and_then(|history| history.last().map(|last| last.won)), Some(true));
    let mut early = promoted(Engine::Writable(shut.clone()), true);
    assert_eq!(job(&early), None, "the last answered renewal was sent before recovery ended");
    if let Some(held) = &mut early.held {
        held.sent = NOW;
    }
    assert_eq!(job(&early), Some(Job::Open));
}

#[test]
fn f9_another_timeline_than_the_allotted_one_is_killed() {
    let chain = [promotion(2, 2, 3, Some(100))];
    let wrong = promoted(Engine::Writable(writable(150, &chain)), false);
    assert!(matches!(job(&wrong), Some(Job::Stop { fast: false, diverged: true, .. })));
}

#[test]
fn f11_a_writable_server_of_an_agent_that_is_not_holder_is_killed_and_marked() {
    let mut stranger = world(3, lease(2, Some(2), fence(Some(target(2, Proof::Released)))));
    stranger.engine = Engine::Writable(writable(100, &[]));
    stranger.job = Some(JobKind::Marker);
    assert_eq!(job(&stranger), Some(Job::Stop { fast: false, diverged: true, reason: "UnexpectedPrimary" }));
}

#[test]
fn f14_initdb_needs_the_grant_the_lease_and_a_cluster_without_data() {
    let empty = |grant, system_id: Option<&str>| {
        let mut fence = fence(Some(target(1, Proof::Bootstrap)));
        fence.system_id = system_id.map(str::to_owned);
        let mut world = holding(1, lease(1, Some(1), fence));
        world.volume.data = Data::Absent;
        world.engine = Engine::Stopped { position: None };
        world.bootstrap_grant = grant;
        world
    };
    assert_eq!(job(&empty(true, None)), Some(Job::InitDb));
    assert_eq!(job(&empty(false, None)), None);
    assert_eq!(job(&empty(true, Some("7"))), None);
    let mut unheld = empty(true, None);
    unheld.held = None;
    assert_eq!(job(&unheld), None);
}

#[test]
fn f14_a_folder_of_another_cluster_is_left_alone() {
    for index in [1, 2] {
        let mut other = world(2, lease(2, Some(1), fence(Some(target(index, Proof::Released)))));
        other.volume.data = Data::Present { system_id: "8".to_owned() };
        let decision = decide(&other);
        assert_eq!(decision.actions, []);
        assert_eq!(decision.state, crate::report::MemberState::Failed);
        assert_eq!(decision.left, None);
    }
}

#[test]
fn f14_nobody_takes_a_lease_of_a_store_that_was_put_back_and_nobody_claims_an_end_in_it() {
    let restored = |named| Fence { restored: true, ..fence(Some(target(named, Proof::Bootstrap))) };
    let mut predecessor = world(1, lease(1, Some(1), restored(1)));
    predecessor.me.nonce = "new".to_owned();
    assert!(!takes(&predecessor), "not even the successor of the holder that stands in it");
    let release = write(&predecessor).filter(|write| write.purpose == Purpose::Release).expect("it clears the holder");
    assert_eq!(release.fence.release, None);
    let mut newer = world(1, lease(1, Some(1), fence(Some(target(1, Proof::Bootstrap)))));
    newer.me.nonce = "new".to_owned();
    newer.volume.epoch = Epoch(4);
    newer.volume.epoch_at_start = Epoch(4);
    assert_eq!(write(&newer).map(|write| write.fence.release), Some(None), "its end belongs to a later epoch");
}

#[test]
fn f14_that_a_promotion_is_recorded_is_durable_in_the_volume_before_clients_are_let_in() {
    let attempt = promotion(2, 2, 2, None);
    let mut fence = fence(Some(target(2, Proof::Released)));
    let won = promotion(2, 2, 2, Some(100));
    fence.history = vec![Attempt { promotion: won.clone(), won: true }];
    fence.chain = vec![won.clone()];
    let mut world = holding(2, lease(2, Some(2), fence));
    world.volume.attempt = Some(attempt.clone());
    world.engine = Engine::Writable(Writable { open: false, ..writable(120, &[won]) });
    assert!(decide(&world).actions.contains(&Action::PersistWin(attempt.clone())));
    assert_ne!(job(&world), Some(Job::Open));
    world.volume.attempt_recorded = true;
    assert_eq!(job(&world), Some(Job::Open));
    // A record that has forgotten it is older than the folder.
    world.lease = Some(lease(1, None, Fence::default()));
    assert_eq!(world.unrecorded_attempt(), None);
}

/// Each row is what the Lease announces, what the server has done for it, and the job that follows.
#[test]
fn a_hand_over_that_is_announced_is_prepared_by_one_checkpoint() {
    let announced = |from: u32, id: &str| Preparation {
        id: id.into(),
        from: MemberName::of("orders", from),
        to: MemberName::of("orders", 2),
    };
    let begins = Some(Job::Checkpoint { prepares: Some("r1".into()) });
    let table = [
        (None, false, None, None),
        (Some(announced(1, "r1")), false, None, begins.clone()),
        (Some(announced(1, "r1")), true, None, None),
        (Some(announced(1, "r1")), false, Some("r1"), None),
        (Some(announced(1, "r1")), false, Some("r0"), begins),
        (Some(announced(3, "r1")), false, None, None),
    ];
    for (preparing, checkpointing, prepared, expected) in table {
        let record = Fence { preparing: preparing.clone(), ..fence(Some(target(1, Proof::Bootstrap))) };
        let mut world = holding(1, lease(1, Some(1), record));
        let prepared_for = prepared.map(Into::into);
        let slots = names(&[2, 3]);
        world.engine = Engine::Writable(Writable {
            checkpointing,
            prepared: prepared_for,
            slots,
            names: Names::Nobody,
            ..writable(100, &[])
        });
        world.settings.mode = Mode::Async;
        assert_eq!(job(&world), expected, "{preparing:?} {checkpointing} {prepared:?}");
    }
}
