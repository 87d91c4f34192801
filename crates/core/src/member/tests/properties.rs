//! What must hold in every world, however odd.

use super::*;
use proptest::prelude::*;

fn some_promotion() -> impl Strategy<Value = Promotion> {
    (1..5_u64, 1..4_u32, 2..5_u32, proptest::option::of(50..150_u64))
        .prop_map(|(epoch, index, timeline, fork)| promotion(epoch, index, timeline, fork))
}

fn some_chain() -> impl Strategy<Value = Vec<Promotion>> {
    proptest::collection::vec(some_promotion(), 0..3)
}

fn some_names() -> impl Strategy<Value = Names> {
    prop_oneof![
        Just(Names::Nobody),
        Just(Names::Placeholder),
        proptest::collection::btree_set(1..4_u32, 1..3)
            .prop_map(|set| Names::Any { k: 1, members: names(&set.into_iter().collect::<Vec<_>>()) }),
    ]
}

fn some_engine() -> impl Strategy<Value = Engine> {
    let standby_of = (some_chain(), 50..150_u64, any::<[bool; 4]>(), proptest::option::of(1..5_u64)).prop_map(
        |(chain, lsn, [receiver, streaming, settled, open], followed)| {
            Engine::Standby(Standby {
                source: followed.map(|epoch| source(epoch, 1)),
                receiver,
                streaming,
                settled,
                open,
                ..standby(lsn, &chain)
            })
        },
    );
    let writable_of = (some_chain(), some_names(), any::<[bool; 3]>(), 90_000..101_000_u64, any::<bool>()).prop_map(
        |(chain, in_force, [open, proved, set_up], since, streams)| {
            let seen = StandbySeen { caught_up: streams, sync: streams, seen: NOW };
            Engine::Writable(Writable {
                names: in_force,
                open,
                proved,
                set_up,
                since: Monotonic(since),
                standbys: BTreeMap::from([(MemberName::of("orders", 3), seen)]),
                ..writable(100, &chain)
            })
        },
    );
    prop_oneof![
        proptest::option::of(some_chain().prop_map(|chain| at(100, &chain)))
            .prop_map(|position| Engine::Stopped { position }),
        Just(Engine::Starting),
        standby_of,
        writable_of,
    ]
}

fn some_fence() -> impl Strategy<Value = Fence> {
    let proof =
        prop_oneof![Just(Proof::Bootstrap), Just(Proof::Released), Just(Proof::QuorumFence), Just(Proof::Expired)];
    let named = proptest::option::of((1..4_u32, proof).prop_map(|(index, proof)| target(index, proof)));
    let sets = proptest::collection::vec(
        (1..5_u64, proptest::collection::btree_set(1..4_u32, 0..3), any::<[bool; 2]>()).prop_map(
            |(epoch, members, [complete, degraded])| SyncSet {
                epoch: Epoch(epoch),
                k: 1,
                members: names(&members.into_iter().collect::<Vec<_>>()),
                primary: None,
                complete,
                degraded,
            },
        ),
        0..3,
    );
    let history = proptest::collection::vec(
        (some_promotion(), any::<bool>()).prop_map(|(promotion, won)| Attempt { promotion, won }),
        0..3,
    );
    (named, sets, history, some_chain(), any::<bool>()).prop_map(|(named, sync_sets, history, chain, data)| Fence {
        sync_sets,
        history,
        chain,
        system_id: data.then(|| "7".to_owned()),
        ..fence(named)
    })
}

prop_compose! {
    fn some_world()(
        fence in some_fence(),
        engine in some_engine(),
        (epoch, durable, held_epoch) in (1..5_u64, 0..5_u64, proptest::option::of(1..5_u64)),
        holder in proptest::option::of(1..4_u32),
        sent in 94_000..100_000_u64,
        [grant, was_writable, leaving, writing, present, degrade, quorum] in any::<[bool; 7]>(),
        attempt in proptest::option::of(some_promotion()),
        busy in proptest::option::of(prop_oneof![Just(JobKind::Promote), Just(JobKind::Stop), Just(JobKind::Clone)]),
    ) -> World {
        let mut world = world(2, lease(epoch, holder, fence));
        world.engine = engine;
        world.volume.epoch = Epoch(durable);
        world.volume.attempt = attempt;
        if !present {
            world.volume.data = Data::Absent;
        }
        let sent = Monotonic(sent);
        world.held = held_epoch.map(|epoch| Held { epoch: Epoch(epoch), sent, tried: sent, failed: false });
        world.bootstrap_grant = grant;
        world.was_writable = was_writable;
        world.leaving = leaving;
        world.writing = writing;
        world.job = busy;
        if degrade {
            world.settings.when_too_few = WhenTooFew::Degrade;
        }
        if !quorum {
            world.settings.mode = Mode::Async;
        }
        world
    }
}

fn fence_of(world: &World) -> &Fence {
    world.fence().unwrap_or_else(|| panic!("a fence"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn only_a_holder_promotes_starts_writable_or_initialises(world in some_world()) {
        let job = job(&world);
        let writes = matches!(job, Some(Job::Promote { .. } | Job::Start { writable: true, .. } | Job::InitDb));
        prop_assert!(!writes || world.holding(), "{job:?}");
    }

    #[test]
    fn a_promotion_is_recorded_as_an_attempt_before(world in some_world()) {
        if let Some(Job::Promote { attempt, .. }) = job(&world) {
            let recorded = fence_of(&world).history.last();
            prop_assert!(recorded.is_some_and(|last| last.promotion == attempt && !last.won));
            prop_assert!(world.deadline().is_some_and(|deadline| deadline.since(world.now) > 1_000));
        }
    }

    #[test]
    fn a_writable_server_without_the_lease_is_stopped_whatever_else_goes_on(world in some_world()) {
        if matches!(world.engine, Engine::Writable(_)) && !world.holding() && world.job != Some(JobKind::Stop) {
            let stops = job(&world).is_some_and(|job| job.kind() == JobKind::Stop);
            prop_assert!(stops, "{:?}", decide(&world));
        }
    }

    #[test]
    fn clients_are_let_into_a_primary_only_by_a_renewal_sent_after_recovery(world in some_world()) {
        if let (Engine::Writable(writable), Some(Job::Open)) = (&world.engine, job(&world)) {
            prop_assert!(world.holding());
            prop_assert!(world.held.is_some_and(|held| held.sent >= writable.since));
        }
    }

    #[test]
    fn nothing_is_released_while_an_engine_may_live(world in some_world()) {
        let releases = write(&world).is_some_and(|write| write.purpose == Purpose::Release);
        let dead = matches!(world.engine, Engine::Stopped { .. }) && world.job.is_none();
        prop_assert!(!releases || dead);
    }

    /// Else an agent whose renewal is on its way would decide again and again until the answer is here.
    #[test]
    fn nothing_is_looked_at_again_at_once(world in some_world()) {
        let wake = decide(&world).wake;
        prop_assert!(wake.is_none_or(|at| at > world.now), "{wake:?}");
    }

    #[test]
    fn one_write_and_one_job_at_a_time(world in some_world()) {
        let decision = decide(&world);
        let jobs: Vec<&Job> = decision.actions.iter().filter_map(|action| match action {
            Action::Engine(job) => Some(job),
            _ => None,
        }).collect();
        let writes = decision.actions.iter().filter(|action| matches!(action, Action::Lease(_))).count();
        prop_assert!(jobs.len() <= 1 && writes <= usize::from(!world.writing));
        if let (Some(running), Some(job)) = (world.job, jobs.first()) {
            let stops = job.kind() == JobKind::Stop && running != JobKind::Stop;
            prop_assert!(stops);
        }
    }

    #[test]
    fn epoch_target_and_proof_are_never_written_by_a_member(world in some_world()) {
        if let Some(write) = write(&world) {
            prop_assert_eq!(&write.fence.target, &fence_of(&world).target);
            prop_assert_eq!(&write.fence.handover, &fence_of(&world).handover);
            prop_assert_eq!(&write.fence.members, &fence_of(&world).members);
        }
    }

    #[test]
    fn a_set_is_never_recorded_stronger_than_what_runs(world in some_world()) {
        let Some(write) = write(&world).filter(|write| write.purpose == Purpose::Renew) else { return Ok(()) };
        let set = |fence: &Fence| fence.sync_sets.iter().find(|set| Some(set.epoch) == world.epoch()).cloned();
        let (Some(before), Some(after), Engine::Writable(writable)) =
            (set(fence_of(&world)), set(&write.fence), &world.engine) else { return Ok(()) };
        let removed = !before.members.is_subset(&after.members) || (before.degraded && !after.degraded);
        if removed {
            let in_force = Names::Any { k: after.k, members: after.members.clone() };
            prop_assert!(writable.proved && writable.names == in_force);
        }
        prop_assert!(before.complete || !after.complete || writable.proved);
    }

    #[test]
    fn the_same_world_gives_the_same_decision(world in some_world()) {
        prop_assert_eq!(decide(&world), decide(&world.clone()));
    }
}
