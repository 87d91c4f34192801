//! How long no write is acknowledged.

use crate::figures::Table;
use crate::plane::{Plane, epoch, kill_and_wait, primary, settled, until};
use coregent_api::DatabaseCluster;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

fn manifest(name: &str, mode: &str) -> String {
    format!(
        "apiVersion: coregent.io/v1alpha1\nkind: DatabaseCluster\nmetadata: {{name: {name}}}\nspec:\n  replicas: 3\n  \
         engine: {{postgresql: {{version: \"15\"}}}}\n  storage: {{size: 1Gi}}\n  replication: {{mode: {mode}}}\n"
    )
}

/// From the command to Ready with three streaming members.
pub async fn to_ready(table: &mut Table) {
    let mut times = Vec::new();
    for _ in 0..3 {
        let plane = Plane::new();
        let file = plane.write("orders.yaml", &manifest("orders", "Quorum"));
        let begun = Instant::now();
        plane.must(["up", "--detach", "--wait", "-f", &file.display().to_string()]);
        times.push(begun.elapsed());
    }
    table.times("`up` to Ready with three streaming members", times, "10 s", "");
}

/// Every acknowledged row with the time of its acknowledgement.
type Acknowledged = Arc<Mutex<Vec<(Instant, i64)>>>;

/// Four sessions that insert as fast as they are acknowledged and connect again every 10 ms when they are not.
fn load(uri: &str) -> (Acknowledged, Vec<tokio::task::JoinHandle<()>>) {
    let acknowledged = Acknowledged::default();
    let sessions = (0..4_i64).map(|session| {
        let (uri, acknowledged) = (uri.to_owned(), acknowledged.clone());
        tokio::spawn(async move {
            let mut id = session * 1_000_000_000;
            loop {
                let Ok((client, connection)) = tokio_postgres::connect(&uri, NoTls).await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                tokio::spawn(connection);
                loop {
                    id += 1;
                    if client.execute("insert into acked values ($1)", &[&id]).await.is_err() {
                        break;
                    }
                    acknowledged.lock().expect("no writer panicked").push((Instant::now(), id));
                }
            }
        })
    });
    (acknowledged.clone(), sessions.collect())
}

struct Round {
    plane: Plane,
    client: kube::Client,
    uri: String,
    acknowledged: Acknowledged,
    sessions: Vec<tokio::task::JoinHandle<()>>,
}

impl Round {
    async fn begin(mode: &str) -> Round {
        let plane = Plane::up();
        plane.apply(&manifest("orders", mode));
        plane.wait("dbc/orders", "Ready");
        let uri = plane.must(["endpoint", "orders", "--uri"]).trim().to_owned();
        let (setup, connection) = tokio_postgres::connect(&uri, NoTls).await.expect("the database accepts connections");
        tokio::spawn(connection);
        setup.batch_execute("create table acked (id bigint primary key)").await.expect("a table");
        let (acknowledged, sessions) = load(&uri);
        Round { client: plane.client().await, plane, uri, acknowledged, sessions }
    }

    async fn settled(&self) -> (DatabaseCluster, String) {
        let cluster = until(&self.client, "orders", settled).await;
        let primary = primary(&cluster).expect("a settled cluster has a primary");
        (cluster, primary)
    }

    /// The longest time without an acknowledgement from `since` until writes flow again.
    async fn pause(&self, since: Instant, before: &DatabaseCluster) -> Duration {
        // A killed member can be back before it is deposed: then the operation ends as undone, in the same epoch.
        let operation = |cluster: &DatabaseCluster| cluster.status.as_ref()?.previous_blocking_operation.clone();
        let over = |now: &DatabaseCluster| epoch(now) > epoch(before) || operation(now) != operation(before);
        until(&self.client, "orders", over).await;
        let resumed = Instant::now();
        loop {
            let times: Vec<Instant> =
                self.acknowledged.lock().expect("no writer panicked").iter().map(|(time, _)| *time).collect();
            if times.iter().filter(|time| **time > resumed).count() >= 8 {
                let before = times.iter().filter(|time| **time <= since).max().copied().unwrap_or(since);
                let after: Vec<_> =
                    std::iter::once(before.max(since)).chain(times.into_iter().filter(|time| *time > since)).collect();
                let mut after = after;
                after.sort();
                return after.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self, table: &mut Table, what: &str, times: Vec<Duration>, promised: &str, peers: &str) {
        for session in &self.sessions {
            session.abort();
        }
        let (client, connection) =
            tokio_postgres::connect(&self.uri, NoTls).await.expect("the database accepts connections");
        tokio::spawn(connection);
        let present: BTreeSet<i64> =
            client.query("select id from acked", &[]).await.expect("rows").iter().map(|row| row.get(0)).collect();
        let acknowledged = self.acknowledged.lock().expect("no writer panicked");
        let missing = acknowledged.iter().filter(|(_, id)| !present.contains(id)).count();
        let rows = acknowledged.len();
        table.times(&format!("{what}; {missing} of {rows} acknowledged rows missing"), times, promised, peers);
    }
}

/// SIGKILL of the postmaster.
pub async fn postmaster_killed(table: &mut Table, mode: &str, rounds: usize) {
    let round = Round::begin(mode).await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let (before, old) = round.settled().await;
        let container = round.plane.container_pid(&format!("{old}-0")).expect("the member's first process");
        let postmaster = postmaster_of(container).expect("a postmaster");
        let killed = Instant::now();
        let _ = kill_process(Pid::from_raw(postmaster).expect("a process id"), Signal::KILL);
        times.push(round.pause(killed, &before).await);
    }
    round.settled().await;
    let peers = "Patroni 10.7 s, tuned 3.5 s; repmgr 52 s; pg_auto_failover 5.1 s";
    let what = format!("postmaster killed, {mode}: no write acknowledged for");
    round.end(table, &what, times, "0.7 s median, 2 s worst", peers).await;
}

/// The child of the agent that is the server.
fn postmaster_of(agent: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).ok()?;
    let mut children = children.split_whitespace().filter_map(|child| child.parse::<i32>().ok());
    children.find(|child| {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.trim() == "postgres")
    })
}

/// SIGKILL of agent and server together.
pub async fn member_killed(table: &mut Table, rounds: usize) {
    let round = Round::begin("Quorum").await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let (before, old) = round.settled().await;
        let container = round.plane.container_pid(&format!("{old}-0")).expect("the member's first process");
        let killed = Instant::now();
        kill_and_wait(container);
        times.push(round.pause(killed, &before).await);
    }
    round.settled().await;
    let peers = "Patroni 24 s, tuned 20 s; repmgr 52 s, tuned 2 s; pg_auto_failover 54 s, tuned 12 s";
    round.end(table, "whole member killed, Quorum: no write acknowledged for", times, "1 s median", peers).await;
}

/// SIGSTOP of the whole member, thawed once another has taken over.
pub async fn member_frozen(table: &mut Table, rounds: usize) {
    let round = Round::begin("Quorum").await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let (before, old) = round.settled().await;
        let tree = tree_of(round.plane.container_pid(&format!("{old}-0")).expect("the member's first process"));
        let frozen = Instant::now();
        signal(&tree, Signal::STOP);
        times.push(round.pause(frozen, &before).await);
        signal(&tree, Signal::CONT);
    }
    round.settled().await;
    let peers = "Patroni 26 s, 33-35 acknowledged rows lost; repmgr 10 s, two primaries; pg_auto_failover 10 s";
    let promised = "8 s worst (Lease + 2 s)";
    round.end(table, "member frozen, Quorum: no write acknowledged for", times, promised, peers).await;
}

fn signal(tree: &[i32], signal: Signal) {
    for pid in tree {
        // Some may be gone by now.
        let _ = kill_process(Pid::from_raw(*pid).expect("a process id"), signal);
    }
}

fn tree_of(root: i32) -> Vec<i32> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&pid) = tree.get(next) {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        tree.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        next += 1;
    }
    tree
}

/// `coregent switchover` under load.
pub async fn switched_over(table: &mut Table, rounds: usize) {
    let round = Round::begin("Quorum").await;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let (before, _) = round.settled().await;
        let asked = Instant::now();
        round.plane.must(["switchover", "orders"]);
        times.push(round.pause(asked, &before).await);
    }
    round.settled().await;
    let peers = "Patroni 3.4 s; pg_auto_failover 4.1 s";
    round.end(table, "switchover, Quorum: no write acknowledged for", times, "0.7 s median", peers).await;
}
