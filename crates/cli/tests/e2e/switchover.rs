//! The primary is handed over as a person asks, under load.

use crate::members::{at_rest, freeze, thaw, three_members, uri};
use crate::plane::{Plane, kill_and_wait, primary, settled, until};
use crate::writer::{Writer, rows};
use coregent_api::DatabaseCluster;
use coregent_core::operation::{Outcome, StepId};
use std::time::Instant;

/// A member that is not primary.
fn replica(cluster: &DatabaseCluster) -> String {
    let old = primary(cluster);
    let members = cluster.status.iter().flat_map(|status| &status.members);
    members.map(|member| member.name.clone()).find(|member| Some(member) != old.as_ref()).expect("a replica")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_under_load_loses_nothing_and_moves_the_primary_where_it_was_told() {
    let plane = three_members("Quorum");
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    for _ in 0..2 {
        let before = until(&client, "orders", settled).await;
        let to = replica(&before);
        plane.must(["switchover", "orders", "--to", &to]);
        let after = until(&client, "orders", settled).await;
        assert_eq!(primary(&after), Some(to));
        writer.next_acknowledgement().await;
    }
    let acknowledged = writer.stop().await;
    assert!(acknowledged.is_subset(&rows(&uri).await));
}

/// Asks for a switchover to a member that can not take over, waits until the old primary's clients are out, lets
/// `happen` happen to the target's processes, and waits until the old primary is back.
async fn the_target_fails(happen: impl Fn(&Plane, &str)) {
    let plane = three_members("Quorum");
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    let before = at_rest(&plane, &client, "orders").await;
    let (old, to) = (primary(&before).expect("a primary"), replica(&before));
    writer.next_acknowledgement().await;
    // Frozen before it is asked for, so that it is certain not to hold the Lease before it dies.
    let frozen = freeze(&plane, &to);
    let asked = Instant::now();
    plane.must(["switchover", "orders", "--to", &to, "--no-wait"]);
    until(&client, "orders", |cluster| operation(cluster) == Some(StepId::PrimaryDbSwitchingOver)).await;
    happen(&plane, &to);
    let undone = until(&client, "orders", |cluster| operation(cluster).is_none() && primary(cluster).is_some()).await;
    writer.next_acknowledgement().await;
    // A figure for people: a busy machine proves nothing by it.
    eprintln!(
        "no write for {:?} at most; writes again {:?} after the request",
        writer.longest_pause(),
        asked.elapsed()
    );
    assert_eq!(primary(&undone), Some(old.clone()), "the old primary goes on");
    let status = undone.status.clone().expect("a status");
    let ended = status.previous_blocking_operation.expect("the operation has ended");
    assert_eq!((ended.step_id, ended.outcome), (StepId::PrimaryDbSwitchingOver, Some(Outcome::Undone)));
    let told = plane.must(["status", "orders"]);
    assert!(told.contains("Switching over") && told.contains("undone") && told.contains(&to), "{told}");
    thaw(&frozen);
    at_rest(&plane, &client, "orders").await;
    let acknowledged = writer.stop().await;
    let missing: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
}

fn operation(cluster: &DatabaseCluster) -> Option<StepId> {
    Some(cluster.status.as_ref()?.blocking_operation.as_ref()?.step_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_primary_goes_on_when_the_member_that_it_hands_over_to_dies_in_the_middle() {
    the_target_fails(|plane, to| kill_and_wait(plane.container_pid(&format!("{to}-0")).expect("its first process")))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_primary_goes_on_when_the_member_that_it_hands_over_to_freezes() {
    the_target_fails(|_, _| {}).await;
}
