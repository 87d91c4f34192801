//! One grant, one initdb, ever (F14).

use super::*;

/// Nothing exists but the DatabaseCluster.
fn empty() -> World {
    let mut world = healthy();
    world.memory = Memory::default();
    world.lease = LeaseView::Absent;
    world.grant = None;
    world.members.clear();
    world.instances = None;
    world.cluster.base_config = false;
    world
}

#[test]
fn a_cluster_begins_with_the_operation_then_the_grant_then_the_lease_then_the_member() {
    let mut world = empty();
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.step(), Some(StepId::BaseConfigDeploying));
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["write the base configuration"]);
    world.cluster.base_config = true;
    world.memory = decide(&world).memory;
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.step(), Some(StepId::PrimaryDbDeploying));
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["create bootstrap grant for orders-1"]);
    world.grant = Some(name("1"));
    assert_eq!(steps(&world), ["write status: IndexUsed", "create primary Lease at epoch 1"]);
    let decision = decide(&world);
    world.memory = decision.memory;
    let Some(Step::CreateLease { fence, .. }) = decision.steps.last() else { panic!("no lease") };
    world.lease = healthy().lease;
    world.lease_mut().holder = Holder::Nobody;
    world.lease_mut().fence = fence.clone();
    assert_eq!(steps(&world), ["let the RSM have members [1]"]);
    world.instances = Some(vec![1]);
    assert_eq!(steps(&world), [""; 0]);
    let mut first = healthy().members.remove(&name("1")).unwrap();
    let report = first.report.as_mut().unwrap();
    (report.state, report.position, report.system_id) = (MemberState::WaitingForSource, None, None);
    world.members.insert(name("1"), first);
    assert_eq!(
        steps(&world),
        ["name in epoch 1 (if version 90): orders-1 at 127.64.0.1:5432, proof Bootstrap, initial set {}"]
    );
}

/// Its pod was deleted in the middle of initdb: it had taken the Lease and recorded the placeholder, and has no data.
#[test]
fn a_first_member_that_ended_before_it_had_data_is_named_again_and_only_as_long_as_nothing_can_have_been_acknowledged()
{
    let begun = || {
        let mut world = raised();
        world.memory.system_id = None;
        world.memory.primary = PrimaryCopy::default();
        world.members.retain(|member, _| *member == name("1"));
        world.instances = Some(vec![1]);
        let fence = &mut world.lease_mut().fence;
        *fence = Fence { members: names(&["1"]), sync_sets: vec![set(1, "1", &[], false)], ..Fence::default() };
        let report = world.report_mut("1");
        (report.state, report.position, report.system_id) = (MemberState::WaitingForSource, None, None);
        report.epoch = Epoch(2);
        world
    };
    assert_eq!(
        steps(&begun()),
        ["name in epoch 2 (if version 90): orders-1 at 127.64.0.1:5432, proof Bootstrap, initial set {}"]
    );
    type Change = fn(&mut World);
    let table: [(&str, Change); 5] = [
        ("a standby was in the set", |w| w.lease_mut().fence.sync_sets = vec![set(1, "1", &["2"], false)]),
        ("a commit was acknowledged", |w| w.lease_mut().fence.sync_sets = vec![set(1, "1", &[], true)]),
        ("commits did not wait", |w| w.lease_mut().fence.sync_sets[0].degraded = true),
        ("the system is known", |w| w.lease_mut().fence.system_id = Some("7".into())),
        ("it is held", |w| w.lease_mut().holder = Holder::Member(holder("1"))),
    ];
    for (what, change) in table {
        let mut world = begun();
        change(&mut world);
        assert!(!steps(&world).iter().any(|step| step.contains("proof Bootstrap")), "{what}: {:?}", steps(&world));
    }
}

/// Each row is a trace of an earlier life; no grant is made in any.
#[test]
fn any_sign_of_data_refuses_a_second_initdb() {
    type Change = fn(&mut World);
    let table: [(&str, Change); 5] = [
        ("the status knows the system", |w| w.memory.system_id = Some("7".into())),
        ("the status knows an epoch", |w| w.memory.primary.epoch = Epoch(4)),
        ("a number was used", |w| w.memory.last_created_index = 3),
        ("a claim is there", |w| {
            w.members.insert(name("1"), Member { claim: true, ..Member::default() });
        }),
        ("a member reports data", |w| {
            w.members.insert(name("2"), healthy().members.remove(&name("2")).unwrap());
        }),
    ];
    for (what, change) in table {
        let mut world = empty();
        world.cluster.base_config = true;
        change(&mut world);
        for _ in 0..3 {
            let decision = decide(&world);
            assert!(!decision.steps.iter().any(|step| matches!(step, Step::CreateGrant { .. })), "{what}");
            assert_ne!(decision.memory.operations.step(), Some(StepId::PrimaryDbDeploying), "{what}");
            world.memory = decision.memory;
        }
    }
}

#[test]
fn a_lost_lease_is_made_anew_above_every_known_epoch_and_everybody_with_a_volume_is_heard_first() {
    let mut world = healthy();
    world.lease = LeaseView::Absent;
    world.report_mut("2").epoch = Epoch(9);
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.active.as_ref().unwrap().reason.as_deref(), Some("LeaseLost"));
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["create primary Lease at epoch 10"]);
    world.lease = raised().lease;
    world.lease_mut().epoch = Epoch(10);
    world.lease_mut().fence = Fence { members: names(&["1", "2", "3"]), ..Fence::default() };
    for member in ["1", "2", "3"] {
        world.pod_mut(member).stamp = Some(Epoch(10));
        world.pod_mut(member).role = None;
    }
    world.leaves("2", 10, 1_000, &[]);
    world.leaves("3", 10, 1_000, &[]);
    assert_eq!(named(&world), None, "orders-1 has a volume and has not reported");
    world.leaves("1", 10, 1_200, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-1"));
}

/// The claims are all that is left of it. Its members are made again, of all that have data and not of as many as are asked
/// for, so that they can be heard.
#[test]
fn a_cluster_that_is_made_again_over_the_volumes_of_a_deleted_one_gets_all_of_its_members_back() {
    let mut world = empty();
    world.cluster.base_config = false;
    for member in ["1", "2", "3", "4", "5"] {
        world.members.insert(name(member), Member { claim: true, ..Member::default() });
    }
    assert_eq!(steps(&world), ["write status: OperationStarted"]);
    world.memory = decide(&world).memory;
    assert_eq!(steps(&world), ["create primary Lease at epoch 1"]);
    world.lease = raised().lease;
    world.lease_mut().epoch = Epoch(1);
    world.lease_mut().fence = Fence::default();
    assert_eq!(steps(&world), ["write the base configuration"]);
    world.cluster.base_config = true;
    let Some(Step::Enrol { fence, .. }) = decide(&world).steps.pop() else { panic!("{:?}", steps(&world)) };
    assert_eq!(fence.members, names(&["1", "2", "3", "4", "5"]));
    world.lease_mut().fence = fence;
    let instances = decide(&world).steps.pop();
    assert_eq!(instances, Some(Step::SetInstances { instances: vec![1, 2, 3, 4, 5] }));
}

#[test]
fn an_absent_secret_is_named_and_nothing_is_made_until_it_is_there() {
    let mut world = empty();
    world.cluster.waits_for = vec!["Secret \"pw\" does not exist".into()];
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
    assert_eq!(decision.picture.phase, picture::Phase::Waiting);
    assert!(decision.picture.conditions["Waiting"].message.contains("pw"));
    world.cluster.waits_for.clear();
    assert_eq!(steps(&world), ["write status: OperationStarted"]);
}
