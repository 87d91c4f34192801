//! Which members there are (kubegres.md 3.4, 10.6 I2).

use super::*;

#[test]
fn missing_members_are_written_down_enrolled_and_then_made() {
    let mut world = healthy();
    world.members.remove(&name("2"));
    world.members.remove(&name("3"));
    world.instances = Some(vec![1]);
    world.memory.last_created_index = 1;
    world.lease_mut().fence.members = names(&["1"]);
    let decision = decide(&world);
    assert_eq!(decision.memory.last_created_index, 3);
    assert_eq!(decision.memory.operations.active.as_ref().unwrap().subject.as_deref(), Some("orders-2,orders-3"));
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["enrol orders-1,orders-2,orders-3 in epoch 1 (if version 90)"]);
    world.lease_mut().fence.members = names(&["1", "2", "3"]);
    assert_eq!(steps(&world), ["let the RSM have members [1, 2, 3]"]);
    world.instances = Some(vec![1, 2, 3]);
    assert_eq!(steps(&world), [""; 0]);
    world.members = healthy().members;
    assert_eq!(decide(&world).memory.operations.active, None);
}

#[test]
fn a_number_is_never_used_twice() {
    let mut world = healthy();
    world.instances = Some(vec![1, 3]);
    world.members.remove(&name("2"));
    world.memory.last_created_index = 7;
    assert_eq!(decide(&world).memory.operations.active.unwrap().subject.as_deref(), Some("orders-8"));
    // Whatever the status forgot, objects and folders still know.
    world.memory.last_created_index = 0;
    world.members.insert(name("12"), Member { claim: true, ..Member::default() });
    assert_eq!(decide(&world).memory.operations.active.unwrap().subject.as_deref(), Some("orders-13"));
}

#[test]
fn a_failover_goes_before_the_deployment_of_replicas() {
    let mut world = healthy();
    let mut deploying = operation(StepId::ReplicaDbDeploying, 1, "x", "3");
    deploying.operation_id = OperationId::ReplicaDbCountSpecEnforcement;
    world.memory.operations.active = Some(deploying);
    world.report_mut("3").state = MemberState::Copying;
    assert_eq!(steps(&world), [""; 0]);
    world.lease_mut().unchanged_since = Monotonic(1);
    let memory = decide(&world).memory;
    assert_eq!(memory.operations.step(), Some(StepId::PrimaryDbWaitingBeforeFailingOver));
    assert_eq!(memory.operations.previous.unwrap().outcome, Some(crate::operation::Outcome::PreEmpted));
}

#[test]
fn an_operation_that_is_late_is_marked_once_and_still_ends_well() {
    let mut world = healthy();
    let mut deploying = operation(StepId::ReplicaDbDeploying, 1, "x", "3");
    deploying.operation_id = OperationId::ReplicaDbCountSpecEnforcement;
    world.memory.operations.active = Some(deploying);
    world.report_mut("3").state = MemberState::Copying;
    world.step_seen = Monotonic(0);
    world.now = Monotonic(300_000);
    world.lease_mut().unchanged_since = Monotonic(299_500);
    let decision = decide(&world);
    assert!(decision.events.iter().any(|event| event.reason == "BlockingOperationTimedOut"));
    world.memory = decision.memory;
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
    assert!(decision.picture.conditions["OperationTimedOut"].holds);
    world.report_mut("3").state = MemberState::Streaming;
    assert_eq!(decide(&world).memory.operations.active, None);
}

#[test]
fn a_paused_or_deleted_cluster_is_left_alone() {
    for change in [(|w: &mut World| w.cluster.paused = true) as fn(&mut World), |w| w.cluster.deleting = true] {
        let mut world = raised();
        world.leaves("2", 2, 1_000, &[]);
        world.leaves("3", 2, 1_000, &[]);
        change(&mut world);
        assert_eq!(decide(&world).steps, []);
    }
}

#[test]
fn what_keeps_a_member_from_being_ready_is_a_condition_while_it_runs_and_is_not_ready() {
    let mut world = healthy();
    let failed = |world: &World| decide(world).picture.conditions["MemberFailed"].clone();
    world.report_mut("3").last_error = Some("no room".into());
    assert!(!failed(&world).holds, "it is ready, so that it is over");
    world.report_mut("3").state = MemberState::Failed;
    assert_eq!((failed(&world).holds, failed(&world).message.as_str()), (true, "orders-3: no room"));
    world.lost("3");
    assert!(!failed(&world).holds, "nobody knows what it would say now");
    world.pod_mut("3").trouble = Some("container postgresql: exit code 1".into());
    assert_eq!(failed(&world).message, "orders-3: container postgresql: exit code 1");
}

#[test]
fn after_the_last_number_there_is_none_for_another_member() {
    let mut world = healthy();
    world.cluster.replicas = 4;
    world.memory.last_created_index = u32::MAX;
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
    assert!(decision.diagnostics.iter().any(|why| why.starts_with("no number is left")));
}
