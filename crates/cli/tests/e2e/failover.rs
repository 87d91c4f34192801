//! The primary dies, in every way that a process can.

use crate::members::{freeze, kill_postmaster, manifest, thaw, three_members, uri};
use crate::plane::{PATIENCE, Plane, epoch, kill_and_wait, primary, settled, until};
use crate::writer::{Writer, connected, rows};
use coregent_api::database::Lossless;

async fn kill_the_postmaster_three_times(mode: &str) {
    let plane = three_members(mode);
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    for _ in 0..3 {
        let before = until(&client, "orders", settled).await;
        let old = primary(&before).expect("a settled cluster has a primary");
        writer.next_acknowledgement().await;
        kill_postmaster(&plane, &old);
        until(&client, "orders", |cluster| epoch(cluster) > epoch(&before)).await;
        writer.next_acknowledgement().await;
        let settled = until(&client, "orders", settled).await;
        let lost = settled.status.and_then(|status| status.last_failover).and_then(|failover| failover.data_loss);
        assert_eq!(lost.map(|loss| loss.lossless), Some(Lossless::True));
    }
    let acknowledged = writer.stop().await;
    let missing: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_mode_loses_no_acknowledged_row_when_the_postmaster_is_killed_again_and_again() {
    kill_the_postmaster_three_times("Quorum").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn async_mode_loses_no_acknowledged_row_when_only_the_postmaster_dies() {
    kill_the_postmaster_three_times("Async").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_a_whole_member_is_survived_and_the_member_comes_back() {
    let plane = three_members("Quorum");
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    let before = until(&client, "orders", settled).await;
    let old = primary(&before).expect("a primary");
    writer.next_acknowledgement().await;
    kill_and_wait(plane.container_pid(&format!("{old}-0")).expect("the member's first process"));
    until(&client, "orders", |cluster| primary(cluster).is_some_and(|now| now != old)).await;
    writer.next_acknowledgement().await;
    until(&client, "orders", settled).await;
    let acknowledged = writer.stop().await;
    assert!(acknowledged.is_subset(&rows(&uri).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_primary_is_replaced_and_acknowledges_nothing_when_it_thaws() {
    let plane = three_members("Quorum");
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    let before = until(&client, "orders", settled).await;
    let old = primary(&before).expect("a primary");
    writer.next_acknowledgement().await;
    let tree = freeze(&plane, &old);
    until(&client, "orders", |cluster| primary(cluster).is_some_and(|now| now != old)).await;
    writer.next_acknowledgement().await;
    thaw(&tree);
    until(&client, "orders", settled).await;
    let acknowledged = writer.stop().await;
    assert!(acknowledged.is_subset(&rows(&uri).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_under_way_when_the_primary_dies_gets_an_error_and_no_late_acknowledgement() {
    let plane = three_members("Async");
    let client = plane.client().await;
    let uri = uri(&plane);
    let before = until(&client, "orders", settled).await;
    let old = primary(&before).expect("a primary");
    let session = connected(&uri).await;
    session.batch_execute("create table looped (n int); create procedure loop_and_commit() language plpgsql as $$ begin for n in 1..100000000 loop insert into looped values (n); commit; end loop; end $$").await.expect("a procedure");
    let looping = tokio::spawn(async move { session.batch_execute("call loop_and_commit()").await });
    let watcher = connected(&uri).await;
    let busy = async {
        while watcher.query_one("select count(*) from looped", &[]).await.map_or(0, |row| row.get::<_, i64>(0)) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, busy).await.expect("the loop commits");
    kill_postmaster(&plane, &old);
    let ended = tokio::time::timeout(PATIENCE, looping).await.expect("the session ends").expect("it did not panic");
    assert!(ended.is_err(), "a session of a dead primary must not end well");
    until(&client, "orders", settled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_under_load_loses_nothing_and_moves_the_primary_where_it_was_told() {
    let plane = three_members("Quorum");
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    for _ in 0..2 {
        let before = until(&client, "orders", settled).await;
        let old = primary(&before).expect("a primary");
        let to = before
            .status
            .expect("a status")
            .members
            .into_iter()
            .find(|member| member.name != old)
            .expect("a replica")
            .name;
        plane.must(["switchover", "orders", "--to", &to]);
        let after = until(&client, "orders", settled).await;
        assert_eq!(primary(&after), Some(to));
        writer.next_acknowledgement().await;
    }
    let acknowledged = writer.stop().await;
    assert!(acknowledged.is_subset(&rows(&uri).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_as_a_process_of_their_own_do_the_same() {
    let plane = Plane::new();
    plane.must(["up", "--detach", "--no-controllers"]);
    let mut operator = plane.command(["operator"]).spawn().expect("the coregent binary");
    plane.apply(&manifest("orders", 3, "Quorum"));
    plane.wait("dbc/orders", "Ready");
    let client = plane.client().await;
    let before = until(&client, "orders", settled).await;
    let old = primary(&before).expect("a primary");
    kill_postmaster(&plane, &old);
    until(&client, "orders", |cluster| epoch(cluster) > epoch(&before)).await;
    until(&client, "orders", settled).await;
    operator.kill().expect("the controllers can be killed");
    operator.wait().expect("the controllers end");
}
