//! What holds in every world, however odd.

use super::*;
use proptest::prelude::*;

/// A member in any condition.
fn members() -> impl Strategy<Value = Vec<(u8, u8, u64, bool, bool, bool, u8)>> {
    // state, epoch left, lsn, running, node ready, has pod, label
    prop::collection::vec((0u8..8, 0u8..4, 900u64..1_100, any::<bool>(), any::<bool>(), any::<bool>(), 0u8..3), 3)
}

prop_compose! {
    fn worlds()(
        members in members(),
        epoch in 1u64..4,
        named in prop::option::of(1u8..4),
        held in 0u8..5,
        released in any::<bool>(),
        step in 0u8..5,
        decided in 0u64..4,
        silent in 0u64..20_000,
        since in 0u64..60_000,
        asynchronous in any::<bool>(),
        complete in any::<bool>(),
        gone in prop::option::of(80u64..100),
    ) -> World {
        // What an epoch's primary recorded is there only once the epoch has had a target.
        let epoch = if named.is_none() { epoch.max(2) } else { epoch };
        let states = [
            MemberState::Starting, MemberState::WaitingForSource, MemberState::Streaming, MemberState::Standby,
            MemberState::Promoting, MemberState::Primary, MemberState::Stopped, MemberState::Failed,
        ];
        let mut world = healthy();
        for (index, (state, left, lsn, running, node, has_pod, label)) in members.into_iter().enumerate() {
            let member = (index + 1).to_string();
            let report = world.report_mut(&member);
            report.state = states[usize::from(state)];
            report.left = (left > 0).then_some(Epoch(u64::from(left)));
            report.epoch = Epoch(u64::from(left).min(epoch));
            report.position.as_mut().unwrap().lsn = Lsn(lsn);
            let pod = world.pod_mut(&member);
            (pod.running, pod.node_ready) = (running, node);
            pod.role = [None, Some("primary".to_owned()), Some("replica".to_owned())][usize::from(label)].clone();
            if !has_pod {
                world.member_mut(&member).pod = None;
            }
        }
        let asynchronous = asynchronous && !complete;
        if asynchronous {
            world.cluster.mode = Mode::Async;
            world.cluster.k = 0;
        }
        let lease = world.lease_mut();
        lease.epoch = Epoch(epoch);
        lease.holder = match held {
            0 => Holder::Nobody,
            4 => Holder::Stranger("x".into()),
            member => Holder::Member(holder(&member.to_string())),
        };
        lease.fence.target = named.map(|member| target(&member.to_string(), Proof::Released));
        lease.fence.sync_sets = if asynchronous { Vec::new() } else { vec![set(1, "1", &["2", "3"], complete)] };
        lease.fence.release = released.then(|| Release {
            member: name("1"), epoch: Epoch(1), timeline: Timeline(1), end_lsn: Lsn(1_000),
        });
        lease.unchanged_since = Monotonic(NOW - silent);
        lease.epoch_since = Monotonic(NOW - since);
        let step = [
            None,
            Some(StepId::PrimaryDbWaitingBeforeFailingOver),
            Some(StepId::PrimaryDbFailingOver),
            Some(StepId::PrimaryDbSwitchingOver),
            Some(StepId::PrimaryDbDeploying),
        ][usize::from(step)];
        world.memory.operations.active = step.map(|step| operation(step, decided, super::loss::RELEASED, "2"));
        world.memory.primary.epoch = Epoch(decided.min(epoch));
        if let Some(version) = gone {
            world.terminated.insert("u1".into(), Termination { container_id: "c".into(), how: String::new(), version });
        }
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_world_gives_the_same_bytes(world in worlds()) {
        prop_assert_eq!(format!("{:?}", decide(&world)), format!("{:?}", decide(&world.clone())));
    }

    /// F1: a target is written once an epoch, over an empty one, and never beside a raise.
    #[test]
    fn nobody_is_named_over_another_nor_in_another_epoch(world in worlds()) {
        let lease = world.lease().unwrap();
        let mut writes = 0;
        for step in decide(&world).steps {
            if let Step::Name { epoch, version, fence } = step {
                writes += 1;
                prop_assert!(lease.fence.target.is_none());
                prop_assert_eq!((epoch, &version), (lease.epoch, &lease.version));
                prop_assert!(fence.target.is_some());
            } else if let Step::Raise { epoch, fence, .. } = step {
                writes += 1;
                prop_assert!(epoch > lease.epoch && fence.target.is_none());
            }
        }
        prop_assert!(writes <= 1);
    }

    /// F4, F7: while the old holder may still acknowledge a write, nobody is named.
    #[test]
    fn nobody_is_named_while_the_old_holder_could_still_acknowledge(world in worlds()) {
        let lease = world.lease().unwrap();
        let named = decide(&world).steps.into_iter().find_map(|step| match step {
            Step::Name { fence, .. } => fence.target,
            _ => None,
        });
        let Some(target) = named else { return Ok(()) };
        let left = |member: &str| world.members[&name(member)].report.as_ref().unwrap().left == Some(lease.epoch);
        match target.proof {
            Proof::Released | Proof::Bootstrap => prop_assert_eq!(&lease.holder, &Holder::Nobody),
            Proof::Terminated { .. } => prop_assert!(world.terminated["u1"].version > lease.raised_at),
            Proof::Expired => prop_assert!(lease.is_expired(&world)),
            Proof::QuorumFence => {
                let fenced = left("1") || (left("2") && left("3")) || lease.fence.release.is_some();
                prop_assert!(fenced && world.cluster.mode == Mode::Quorum);
            }
            Proof::PoweredOff => prop_assert!(false),
        }
        // F7: with S = {2, 3} and k = 1, both have left or their primary has said where its log ends.
        if world.cluster.mode == Mode::Quorum {
            prop_assert!(left("1") || (left("2") && left("3")) || lease.fence.release.is_some());
        }
    }

    /// F15: never two label holders, whatever labels there were and however far the steps get.
    #[test]
    fn no_second_pod_ever_carries_the_leaders_label(world in worlds()) {
        let mut labelled: BTreeSet<String> = world
            .members.values()
            .filter_map(|member| member.pod.as_ref())
            .filter(|pod| pod.role.as_deref() == Some("primary"))
            .map(|pod| pod.name.clone())
            .collect();
        for step in decide(&world).steps {
            match step {
                Step::Label { pod, role: Some(Role::Primary), .. } => {
                    labelled.insert(pod);
                    prop_assert_eq!(labelled.len(), 1);
                }
                Step::Label { pod, .. } => { labelled.remove(&pod); }
                Step::Name { .. } => prop_assert!(labelled.is_empty()),
                _ => {}
            }
        }
    }

    /// F4: a fencing delete is for the holder's pod in a raised epoch, and never for one that was stamped in it.
    #[test]
    fn a_fencing_delete_is_only_for_the_old_holder(world in worlds()) {
        let lease = world.lease().unwrap();
        for step in decide(&world).steps {
            if let Step::FencingDelete { uid, epoch, .. } = step {
                let Holder::Member(holder) = &lease.holder else { panic!("nobody to fence") };
                prop_assert_eq!((&uid, epoch), (&holder.pod_uid, lease.epoch));
                prop_assert!(lease.fence.target.is_none());
                let pod = world.members[&holder.member].pod.as_ref().unwrap();
                prop_assert!(pod.stamp.is_none_or(|stamp| stamp < epoch));
            }
        }
    }

    /// F14: with a Lease there is no second grant and no second Lease.
    #[test]
    fn nothing_is_ever_bootstrapped_beside_a_lease(world in worlds()) {
        let made = |step: &Step| matches!(step, Step::CreateGrant { .. } | Step::CreateLease { .. });
        prop_assert!(!decide(&world).steps.iter().any(made));
    }
}
