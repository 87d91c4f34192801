//! A cluster called `orders`, and what tests do to its members and read from them.

use crate::plane::{PATIENCE, Plane, settled, until};
use crate::writer::{connect, connected};
use coregent_api::{DatabaseCluster, annotations, labels};
use coregent_core::fence::Fence;
use coregent_core::position::Promotion;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A cluster as `examples/postgres.yaml`, of so many members and in the mode asked for.
pub fn manifest(name: &str, replicas: u32, mode: &str) -> String {
    format!(
        "apiVersion: coregent.io/v1alpha1\nkind: DatabaseCluster\nmetadata: {{name: {name}}}\nspec:\n  replicas: \
         {replicas}\n  engine: {{postgresql: {{version: \"15\"}}}}\n  storage: {{size: 1Gi}}\n  replication: {{mode: \
         {mode}}}\n"
    )
}

/// A plane with a settled cluster of three.
pub fn three_members(mode: &str) -> Plane {
    let plane = Plane::up();
    plane.apply(&manifest("orders", 3, mode));
    plane.wait("dbc/orders", "Ready");
    plane
}

/// Where its primary is written to.
pub fn uri(plane: &Plane) -> String {
    uri_of(plane, "orders")
}

/// The same of a cluster of another name.
pub fn uri_of(plane: &Plane, cluster: &str) -> String {
    plane.must(["endpoint", cluster, "--uri"]).trim().to_owned()
}

/// Where each member answers itself, past every Service.
pub async fn direct_uris(plane: &Plane, client: &kube::Client, cluster: &str) -> BTreeMap<String, String> {
    let uri = uri_of(plane, cluster);
    let (credentials, _) = uri.rsplit_once('@').expect("a URI with credentials");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let selector = ListParams::default().labels(&format!("{}={cluster}", labels::CLUSTER));
    let pods = pods.list(&selector).await.expect("the pods");
    let address = |pod: Pod| {
        let member = pod.name_any().trim_end_matches("-0").to_owned();
        Some((member, format!("{credentials}@{}:5432/postgres", pod.status?.pod_ip?)))
    };
    pods.items.into_iter().filter_map(address).collect()
}

/// Waits until the cluster has come to rest and the members themselves say the same: one accepts writes and all others
/// stream from it. The status alone may still be that of before.
pub async fn at_rest(plane: &Plane, client: &kube::Client, name: &str) -> DatabaseCluster {
    let rest = async {
        loop {
            let cluster = until(client, name, settled).await;
            let members = direct_uris(plane, client, name).await;
            if members.len() == usize::try_from(cluster.spec.replicas).unwrap_or(0) && one_primary(&members).await {
                return until(client, name, settled).await;
            }
            // Nothing tells a client when a database is back; it has to ask.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("the cluster comes to rest")
}

/// Whether every member answers, exactly one of them accepts writes, and the others stream from that one.
async fn one_primary(members: &BTreeMap<String, String>) -> bool {
    let (mut primaries, mut streams) = (0, 0);
    for uri in members.values() {
        let question = "select pg_is_in_recovery(), (select count(*) from pg_stat_replication where state = 'streaming' \
                        and application_name not in ('pg_basebackup', 'coregent'))";
        let Ok(client) = connect(uri).await else { return false };
        let Ok(answer) = client.query_one(question, &[]).await else { return false };
        if !answer.get::<_, bool>(0) {
            primaries += 1;
            streams += answer.get::<_, i64>(1);
        }
    }
    primaries == 1 && usize::try_from(streams) == Ok(members.len() - 1)
}

/// PostgreSQL's identifier of the data.
pub async fn system_id(uri: &str) -> String {
    let sql = "select system_identifier::text from pg_control_system()";
    connected(uri).await.query_one(sql, &[]).await.expect("a row").get(0)
}

/// The server of a member: the child of its agent.
pub fn postmaster(plane: &Plane, member: &str) -> i32 {
    let agent = plane.container_pid(&format!("{member}-0")).expect("the member's first process");
    let server =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "postgres");
    children(agent).into_iter().find(server).expect("a server")
}

/// SIGKILL to the postmaster of a member.
pub fn kill_postmaster(plane: &Plane, member: &str) {
    signal(&[postmaster(plane, member)], Signal::KILL);
}

/// SIGSTOP to agent and server of a member; gives the processes, to be continued.
pub fn freeze(plane: &Plane, member: &str) -> Vec<i32> {
    let tree = tree_of(plane.container_pid(&format!("{member}-0")).expect("the member's first process"));
    signal(&tree, Signal::STOP);
    tree
}

/// SIGSTOP to the server of a member alone: its agent runs on.
pub fn freeze_server(plane: &Plane, member: &str) {
    signal(&tree_of(postmaster(plane, member)), Signal::STOP);
}

/// SIGCONT to what [`freeze`] gave. Some are gone: the node may have killed the frozen member first (failover.md F4).
pub fn thaw(tree: &[i32]) {
    signal(tree, Signal::CONT);
}

fn signal(tree: &[i32], signal: Signal) {
    for pid in tree {
        let _ = kill_process(Pid::from_raw(*pid).expect("a process id"), signal);
    }
}

fn children(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// A process and everything below it.
fn tree_of(root: i32) -> Vec<i32> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&pid) = tree.get(next) {
        tree.extend(children(pid));
        next += 1;
    }
    tree
}

/// What the volume of each member holds.
pub struct Volumes(BTreeMap<String, PathBuf>);

/// Tells one data folder from another under the same name: initdb and a fresh copy make theirs beside it and rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folder {
    inode: u64,
    made: SystemTime,
}

impl Volumes {
    /// Where they are. The API must answer; what they hold can be read without it.
    pub async fn of(plane: &Plane, client: &kube::Client) -> Volumes {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "default");
        let claims = claims.list(&ListParams::default()).await.expect("the claims");
        let folder = |claim: PersistentVolumeClaim| {
            let member = claim.name_any().trim_start_matches("data-").trim_end_matches("-0").to_owned();
            Some((member, plane.data_dir().join("volumes").join(claim.spec?.volume_name?)))
        };
        Volumes(claims.items.into_iter().filter_map(folder).collect())
    }

    /// The data folder of each member.
    pub fn folders(&self) -> BTreeMap<String, Folder> {
        let folder = |(member, volume): (&String, &PathBuf)| {
            let found = std::fs::metadata(volume.join("pgdata")).ok()?;
            Some((member.clone(), Folder { inode: found.ino(), made: found.created().expect("a time of birth") }))
        };
        self.0.iter().filter_map(folder).collect()
    }

    /// What each member's agent keeps beside the data, as it stands now.
    pub fn states(&self) -> BTreeMap<String, serde_json::Value> {
        let state = |(member, volume): (&String, &PathBuf)| {
            let text = std::fs::read_to_string(volume.join("coregent/state.json")).ok()?;
            Some((member.clone(), serde_json::from_str(&text).expect("the agent's state")))
        };
        self.0.iter().filter_map(state).collect()
    }
}

/// Members that cannot go on with the data that they have, as their own `states` say: a rewind was interrupted, or a
/// promotion that `fence` does not know as won was asked for (failover.md F9, F12).
pub fn in_need_of_a_copy(states: &BTreeMap<String, serde_json::Value>, fence: &Fence) -> BTreeSet<String> {
    let is_won = |attempt: &Promotion| {
        let same = |won: &Promotion| won.epoch == attempt.epoch && won.member == attempt.member;
        fence.history.iter().any(|entry| entry.won && same(&entry.promotion))
    };
    let needs = |state: &serde_json::Value| {
        let attempt = state.get("attempt").map(|attempt| serde_json::from_value(attempt.clone()).expect("an attempt"));
        state.get("unusable").is_some() || attempt.is_some_and(|attempt| !is_won(&attempt))
    };
    states.iter().filter(|(_, state)| needs(state)).map(|(member, _)| member.clone()).collect()
}

/// The record in the primary Lease.
pub async fn fence(client: &kube::Client, cluster: &str) -> Fence {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let lease = leases.get(&format!("{cluster}-primary")).await.expect("the primary Lease");
    Fence::parse(&lease.annotations()[annotations::FENCE]).expect("a record that can be read")
}
