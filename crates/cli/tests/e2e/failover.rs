//! The primary dies, in every way that a process can.

use crate::members::{at_rest, freeze_server, kill_postmaster, manifest, three_members, uri};
use crate::plane::{PATIENCE, Plane, epoch, kill_and_wait, primary, settled, until};
use crate::writer::{Writer, connected, rows};
use coregent_api::database::Lossless;
use std::time::Duration;

/// Sessions that are in the middle of something: a transaction that takes 10 s, and a procedure that commits in a loop.
struct UnderWay(Vec<tokio::task::JoinHandle<Result<(), tokio_postgres::Error>>>);

impl UnderWay {
    async fn prepare(uri: &str) {
        let sql = "create table slow (n int); create table looped (n int);
                   create procedure loop_and_commit() language plpgsql as
                   $$ begin for n in 1..100000000 loop insert into looped values (n); commit; end loop; end $$";
        connected(uri).await.batch_execute(sql).await.expect("tables and a procedure");
    }

    async fn begin(uri: &str) -> UnderWay {
        let mut sessions = Vec::new();
        // The loop cannot commit in a transaction, which several statements in one message are.
        let slow = vec!["begin; insert into slow values (1); select pg_sleep(10); commit"];
        let looping = vec!["delete from looped", "call loop_and_commit()"];
        for statements in [slow, looping] {
            let session = connected(uri).await;
            sessions.push(tokio::spawn(async move {
                for statement in statements {
                    session.batch_execute(statement).await?;
                }
                Ok(())
            }));
        }
        let watcher = connected(uri).await;
        let is_busy =
            "select exists (select from looped) and exists (select from pg_stat_activity where wait_event = 'PgSleep')";
        let busy = async {
            while !watcher.query_one(is_busy, &[]).await.expect("an answer").get::<_, bool>(0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, busy).await.expect("both are in the middle");
        UnderWay(sessions)
    }

    /// Each ends with an error: the server that it talked to is dead, orphans included (F3).
    async fn end_with_an_error(self) {
        for session in self.0 {
            let end =
                tokio::time::timeout(PATIENCE, session).await.expect("the session ends").expect("it did not panic");
            assert!(end.is_err(), "a session of a dead primary must not end well");
        }
    }
}

async fn kill_the_postmaster_three_times(mode: &str) {
    let plane = three_members(mode);
    let client = plane.client().await;
    let uri = uri(&plane);
    UnderWay::prepare(&uri).await;
    let mut writer = Writer::start(&uri).await;
    for _ in 0..3 {
        let before = until(&client, "orders", settled).await;
        let old = primary(&before).expect("a settled cluster has a primary");
        let sessions = UnderWay::begin(&uri).await;
        writer.next_acknowledgement().await;
        kill_postmaster(&plane, &old);
        sessions.end_with_an_error().await;
        until(&client, "orders", |cluster| epoch(cluster) > epoch(&before)).await;
        writer.next_acknowledgement().await;
        let settled = until(&client, "orders", settled).await;
        let lost = settled.status.and_then(|status| status.last_failover).and_then(|failover| failover.data_loss);
        assert_eq!(lost.map(|loss| loss.lossless), Some(Lossless::True));
    }
    let acknowledged = writer.stop().await;
    let missing: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
    let unacknowledged = connected(&uri).await.query("select from slow", &[]).await.expect("rows");
    assert!(unacknowledged.is_empty(), "a transaction whose client got an error before its commit left rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_mode_loses_no_acknowledged_row_and_acknowledges_nothing_late_when_the_postmaster_is_killed_again_and_again()
 {
    kill_the_postmaster_three_times("Quorum").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn async_mode_loses_no_acknowledged_row_and_acknowledges_nothing_late_when_only_the_postmaster_dies() {
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
    // Another member is promoted, or its successor is faster than that and takes the Lease again in the same epoch (F5).
    writer.next_acknowledgement().await;
    at_rest(&plane, &client, "orders").await;
    writer.next_acknowledgement().await;
    let acknowledged = writer.stop().await;
    let missing: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
}

/// Its Lease is renewed all the while, so that nobody but its agent can tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_beside_a_living_agent_is_as_good_as_dead_in_async_mode() {
    let plane = three_members("Async");
    let client = plane.client().await;
    let uri = uri(&plane);
    let mut writer = Writer::start(&uri).await;
    let before = until(&client, "orders", settled).await;
    writer.next_acknowledgement().await;
    freeze_server(&plane, &primary(&before).expect("a primary"));
    until(&client, "orders", |cluster| epoch(cluster) > epoch(&before)).await;
    writer.next_acknowledgement().await;
    let after = at_rest(&plane, &client, "orders").await;
    let last = after.status.expect("a status").last_failover.expect("a failover");
    assert_eq!(last.data_loss.map(|loss| loss.lossless), Some(Lossless::True));
    let acknowledged = writer.stop().await;
    let missing: Vec<_> = acknowledged.difference(&rows(&uri).await).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
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
