//! An API that is older than its members (F14): yesterday's copy of the store put back.

use super::*;

fn older() -> World {
    let mut world = healthy();
    for member in ["1", "2", "3"] {
        world.report_mut(member).epoch = Epoch(7);
    }
    let win = promotion(7, "2", 4, Some(800));
    world.report_mut("2").position = Some(Position { timeline: Timeline(4), lsn: Lsn(900), chain: vec![win.clone()] });
    world.report_mut("3").position = Some(Position { timeline: Timeline(4), lsn: Lsn(880), chain: vec![win] });
    world
}

#[test]
fn a_lease_behind_its_members_is_raised_above_them_once_that_has_lasted() {
    let mut world = older();
    assert_eq!(steps(&world), [""; 0], "a report can be seen a moment before its Lease");
    world.held.insert("lease-behind-members".into(), Monotonic(NOW - 1_000));
    let decision = decide(&world);
    assert_eq!(decision.memory.operations.active.as_ref().unwrap().reason.as_deref(), Some("StoreOlderThanMembers"));
    world.memory = decision.memory;
    assert_eq!(steps(&world), ["raise to epoch 8 (if version 90)"]);
    let Some(Step::Raise { fence, .. }) = decide(&world).steps.pop() else { panic!("no raise") };
    assert_eq!(fence.history, [win(7, "2", 4, 800)], "the timelines that the folders know are used up");
    assert_eq!(fence.next_timeline(), Timeline(5));
}

#[test]
fn after_it_nobody_is_named_until_every_member_with_a_volume_has_reported() {
    let mut world = older();
    let reason = super::repair::OLDER_STORE;
    world.memory.operations.active = Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 1, reason, "1"));
    world.lease_mut().epoch = Epoch(8);
    world.lease_mut().holder = Holder::Nobody;
    world.lease_mut().fence.target = None;
    world.lease_mut().fence.history = vec![win(7, "2", 4, 800)];
    let chain = [promotion(7, "2", 4, Some(800))];
    world.leaves("2", 8, 900, &chain);
    world.leaves("3", 8, 880, &chain);
    world.lost("1");
    assert_eq!(named(&world), None);
    world.pod_mut("1").node_ready = true;
    world.leaves("1", 8, 5_000, &[]);
    assert_eq!(named(&world).map(|(member, ..)| member).as_deref(), Some("orders-2"));
}
