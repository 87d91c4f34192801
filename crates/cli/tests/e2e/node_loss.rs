//! What happens to nodes, and to what runs on them, on a real cluster (`make test-cluster`).

use crate::direct::{Acknowledgement, DirectWriters, reigns};
use crate::members::{at_rest, direct_uris, three_members, uri};
use crate::nodes::{Nodes, node_of, on_node};
use crate::plane::{Plane, epoch, kill_and_wait, primary, process_with, until};
use crate::writer::{Writer, connected, rows};
use coregent_api::DatabaseCluster;
use coregent_core::operation::{Outcome, StepId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Rows of the clients that are on the primary's own node; the others' are below.
const OWN: i64 = 1_000_000_000;

/// A cluster of three under load through its Service.
struct Cluster {
    plane: Plane,
    client: kube::Client,
    uri: String,
    writer: Writer,
    before: DatabaseCluster,
    /// The primary before.
    old: String,
    /// Its node.
    node: String,
}

impl Cluster {
    async fn begin(mode: &str) -> Cluster {
        let plane = three_members(mode);
        let (client, uri) = (plane.client().await, uri(&plane));
        let writer = Writer::start(&uri).await;
        let before = at_rest(&plane, &client, "orders").await;
        let old = primary(&before).expect("a primary");
        let node = node_of(&plane, &old);
        Cluster { plane, client, uri, writer, before, old, node }
    }

    /// Another primary has been named since, or the same one in a later epoch.
    async fn deposed(&self) {
        until(&self.client, "orders", |cluster| {
            epoch(cluster) > epoch(&self.before) && primary(cluster).is_some_and(|now| now != self.old)
        })
        .await;
    }

    /// Waits until all is well again; nothing that was acknowledged may be missing then.
    async fn end(mut self, what: &str) -> DatabaseCluster {
        let after = at_rest(&self.plane, &self.client, "orders").await;
        self.writer.next_acknowledgement().await;
        // A figure for people: a busy machine proves nothing by it.
        eprintln!("{what}: no write through the Service for {:?} at most", self.writer.longest_pause());
        let acknowledged = self.writer.stop().await;
        let missing: Vec<_> = acknowledged.difference(&rows(&self.uri).await).copied().collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
        after
    }
}

/// Clients of every member past the Service, and clients of the primary on its own node, which reach it whatever becomes
/// of its cable.
struct Witnesses {
    others: DirectWriters,
    stop: oneshot::Sender<()>,
    own: std::thread::JoinHandle<Vec<Acknowledgement>>,
}

impl Witnesses {
    async fn start(cluster: &Cluster) -> Witnesses {
        connected(&cluster.uri)
            .await
            .batch_execute("create table direct (id bigint primary key)")
            .await
            .expect("a table");
        let members = direct_uris(&cluster.plane, &cluster.client, "orders").await;
        let of_old = BTreeMap::from([(cluster.old.clone(), members[&cluster.old].clone())]);
        let (stop, stopped) = oneshot::channel();
        let own = on_node(&cluster.node, async move || {
            let writers = DirectWriters::start(&of_old, OWN);
            let _ = stopped.await; // a test that failed stops it as well
            writers.stop().await
        });
        let others = DirectWriters::start(&members, 0);
        others.first_of(&cluster.old, Instant::now()).await;
        Witnesses { others, stop, own }
    }

    /// Whatever anybody was told must be there, and nobody was told anything by the old primary after the new one had
    /// answered. Both sides were timed by one clock.
    async fn judge(self, cluster: &Cluster, since: Instant, what: &str) {
        let mut told = self.others.stop().await;
        let _ = self.stop.send(()); // it may have ended
        told.extend(self.own.join().expect("the clients on the node"));
        told.sort_by_key(|one| one.received);
        let (old, new): (Vec<_>, Vec<_>) = told.iter().partition(|one| one.member == cluster.old);
        let (last, first) = (old.last().expect("the old primary's"), new.first().expect("the new primary's"));
        eprintln!(
            "{what}: the old primary acknowledged last after {:?}, the new one first after {:?}",
            last.received.saturating_duration_since(since),
            first.received.saturating_duration_since(since),
        );
        assert_eq!(reigns(&told).len(), 2, "two primaries at once");
        let told: BTreeSet<i64> = told.iter().map(|one| one.id).collect();
        at_rest(&cluster.plane, &cluster.client, "orders").await;
        let found = connected(&cluster.uri).await.query("select id from direct", &[]).await.expect("rows");
        let found: BTreeSet<i64> = found.iter().map(|row| row.get(0)).collect();
        let missing: Vec<_> = told.difference(&found).copied().collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
    }
}

async fn pull_the_cable(nodes: &Nodes, mode: &str, with_the_leader: bool) {
    let mut cluster = Cluster::begin(mode).await;
    if with_the_leader {
        go_to_the_leader(nodes, &mut cluster).await;
    }
    let witnesses = Witnesses::start(&cluster).await;
    cluster.writer.next_acknowledgement().await;
    let what = format!("the cable of the primary's node ({mode}, the operator's leader there: {with_the_leader})");
    let since = Instant::now();
    let cable = nodes.cut(&cluster.node);
    cluster.deposed().await;
    cluster.writer.next_acknowledgement().await;
    drop(cable);
    witnesses.judge(&cluster, since, &what).await;
    cluster.end(&what).await;
}

/// Makes the member primary that runs where the operator's leader does.
async fn go_to_the_leader(nodes: &Nodes, cluster: &mut Cluster) {
    let node = nodes.of_pod("coregent-system", &nodes.leader());
    if node != cluster.node {
        let members = cluster.before.status.iter().flat_map(|status| &status.members);
        let names: Vec<String> = members.map(|member| member.name.clone()).collect();
        let there =
            names.into_iter().find(|name| node_of(&cluster.plane, name) == node).expect("a member on each node");
        cluster.plane.must(["switchover", "orders", "--to", &there]);
        cluster.before = at_rest(&cluster.plane, &cluster.client, "orders").await;
        (cluster.old, cluster.node) = (there, node);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_cable_is_pulled_acknowledges_nothing_once_another_does_in_quorum_mode() {
    let test = "node_loss::a_primary_whose_cable_is_pulled_acknowledges_nothing_once_another_does_in_quorum_mode";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    pull_the_cable(&nodes, "Quorum", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_leader_may_be_on_the_node_whose_cable_is_pulled() {
    let test = "node_loss::the_operators_leader_may_be_on_the_node_whose_cable_is_pulled";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    pull_the_cable(&nodes, "Quorum", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_a_switchover_before_the_eviction() {
    let Some(nodes) = Nodes::of_this_machine("node_loss::a_drain_is_a_switchover_before_the_eviction") else { return };
    let cluster = Cluster::begin("Quorum").await;
    let cordon = nodes.uncordoned(&cluster.node);
    let args = ["drain", &cluster.node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s"];
    nodes.kubectl(&args);
    let now = until(&cluster.client, "orders", |now| primary(now).is_some_and(|now| now != cluster.old)).await;
    let status = now.status.expect("a status");
    let ended = status.previous_blocking_operation.expect("an operation that has ended");
    assert_eq!((ended.step_id, ended.outcome), (StepId::PrimaryDbSwitchingOver, Some(Outcome::Completed)));
    assert_eq!(ended.reason.as_deref(), Some("PrimaryNodeLeaving"));
    drop(cordon);
    cluster.end("a drain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_kubelet_is_dead_hands_over_while_its_containers_run() {
    let test = "node_loss::a_primary_whose_kubelet_is_dead_hands_over_while_its_containers_run";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    let cluster = Cluster::begin("Quorum").await;
    let kubelet = nodes.stop(&format!("{}-kubelet", cluster.node));
    cluster.deposed().await;
    drop(kubelet);
    let after = cluster.end("the primary's kubelet").await;
    let ended = after.status.and_then(|status| status.previous_blocking_operation).expect("an operation");
    assert_eq!((ended.step_id, ended.outcome), (StepId::PrimaryDbSwitchingOver, Some(Outcome::Completed)));
    assert_eq!(ended.reason.as_deref(), Some("PrimaryNodeNotReady"));
}

/// Without the API nobody can tell that the holder is not cut off from everybody else, so that it stops (failover.md F2);
/// F13, which lets the members agree on it among themselves, is not built.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_nobody_is_promoted_and_when_it_is_back_writes_go_on() {
    let test = "node_loss::without_an_api_server_nobody_is_promoted_and_when_it_is_back_writes_go_on";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    let mut cluster = Cluster::begin("Quorum").await;
    let members = direct_uris(&cluster.plane, &cluster.client, "orders").await;
    let away = nodes.stop("apiserver");
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        for (member, uri) in members.iter().filter(|(member, _)| **member != cluster.old) {
            if let Ok(client) = crate::writer::connect(uri).await {
                let recovery = client.query_one("select pg_is_in_recovery()", &[]).await;
                assert!(recovery.map_or(true, |row| row.get(0)), "{member} was promoted");
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(away);
    cluster.writer.next_acknowledgement().await;
    cluster.end("the API server away for 60 s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_goes_on_when_the_operators_leader_is_killed_in_the_middle() {
    let test = "node_loss::a_failover_goes_on_when_the_operators_leader_is_killed_in_the_middle";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    let mut cluster = Cluster::begin("Quorum").await;
    let leader = process_with(&format!("POD_NAME={}", nodes.leader())).expect("the leader's process");
    kill_and_wait(cluster.plane.container_pid(&format!("{}-0", cluster.old)).expect("the primary's first process"));
    until(&cluster.client, "orders", |now| now.status.as_ref().is_some_and(|s| s.blocking_operation.is_some())).await;
    kill_and_wait(leader);
    cluster.writer.next_acknowledgement().await;
    cluster.end("the primary and the operator's leader").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_pod_is_deleted_releases_and_another_takes_over() {
    let test = "node_loss::a_primary_whose_pod_is_deleted_releases_and_another_takes_over";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    let mut cluster = Cluster::begin("Quorum").await;
    nodes.kubectl(&["delete", "pod", &format!("{}-0", cluster.old), "--wait=false"]);
    cluster.deposed().await;
    cluster.writer.next_acknowledgement().await;
    cluster.end("the primary's pod deleted").await;
}
