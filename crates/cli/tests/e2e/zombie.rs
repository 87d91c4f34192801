//! A primary that is frozen and continued later: clients that address every member directly see one primary after the
//! other, never two at once.

use crate::direct::{DirectWriters, reigns};
use crate::members::{at_rest, direct_uris, freeze, thaw, three_members, uri};
use crate::plane::{Plane, ended, epoch, primary, until};
use crate::writer::connected;
use coregent_api::DatabaseCluster;
use coregent_api::database::Lossless;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Rows that one round may write.
const ROUND: i64 = 1_000_000_000;

struct Cluster {
    plane: Plane,
    client: kube::Client,
    uri: String,
    rounds: i64,
}

/// A primary under load at every member, just frozen: agent and server.
struct Frozen {
    writers: DirectWriters,
    before: DatabaseCluster,
    member: String,
    tree: Vec<i32>,
    first_process: OwnedFd,
    since: Instant,
}

impl Cluster {
    async fn begin(mode: &str) -> Cluster {
        let plane = three_members(mode);
        let (client, uri) = (plane.client().await, uri(&plane));
        connected(&uri).await.batch_execute("create table direct (id bigint primary key)").await.expect("a table");
        Cluster { plane, client, uri, rounds: 0 }
    }

    async fn freeze_the_primary(&mut self) -> Frozen {
        let before = at_rest(&self.plane, &self.client, "orders").await;
        let member = primary(&before).expect("a primary");
        let first = self.rounds * ROUND;
        self.rounds += 1;
        let writers = DirectWriters::start(&direct_uris(&self.plane, &self.client, "orders").await, first);
        writers.first_of(&member, Instant::now()).await;
        let first_process = self.plane.container_pid(&format!("{member}-0")).expect("the member's first process");
        let first_process = Pid::from_raw(first_process).expect("a process id");
        let first_process = pidfd_open(first_process, PidfdFlags::empty()).expect("the member runs");
        let tree = freeze(&self.plane, &member);
        Frozen { writers, before, member, tree, first_process, since: Instant::now() }
    }

    /// Comes to rest, and judges everything that was acknowledged meanwhile.
    async fn judge(&self, frozen: Frozen) {
        let after = at_rest(&self.plane, &self.client, "orders").await;
        // The successor may be reached at another address than the writers know: they were told before.
        let acknowledged = frozen.writers.stop().await;
        let rounds = epoch(&after).unwrap_or(0) - epoch(&frozen.before).unwrap_or(0);
        let reigns = reigns(&acknowledged);
        // In the order of receipt nobody acknowledges anything after a successor has; each change is a round of its own.
        assert!(reigns.len() as u64 <= rounds + 1, "{rounds} rounds, and members acknowledged in turn: {reigns:?}");
        let session = connected(&self.uri).await;
        let rows = session.query("select id from direct", &[]).await.expect("rows");
        let rows: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let missing: Vec<_> = acknowledged.iter().filter(|one| !rows.contains(&one.id)).collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
        let lost = after.status.and_then(|status| status.last_failover).and_then(|failover| failover.data_loss);
        assert_eq!(lost.map(|loss| loss.lossless), Some(Lossless::True));
    }
}

async fn one_primary_at_a_time(mode: &str) {
    let mut cluster = Cluster::begin(mode).await;

    let frozen = cluster.freeze_the_primary().await;
    let old = frozen.member.clone();
    let after = until(&cluster.client, "orders", |now| primary(now).is_some_and(|now| now != old)).await;
    let first = frozen.writers.first_of(&primary(&after).expect("a primary"), frozen.since).await;
    // A figure for people: a busy machine proves nothing by it.
    eprintln!("{mode}: another member acknowledged {:?} after the primary froze", first.received - frozen.since);
    let killed = ended(&frozen.first_process, Some(Duration::ZERO));
    assert!(killed, "its node can stop the frozen member, so that one is dead before another acknowledges (F4)");
    thaw(&frozen.tree);
    cluster.judge(frozen).await;

    // The worst moment: the round that deposes it has begun, nobody is named, and it has not been killed yet.
    let frozen = cluster.freeze_the_primary().await;
    until(&cluster.client, "orders", |now| is_deposing(now) || epoch(now) > epoch(&frozen.before)).await;
    thaw(&frozen.tree);
    cluster.judge(frozen).await;
}

fn is_deposing(cluster: &DatabaseCluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.blocking_operation.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_mode_has_one_primary_at_a_time_whenever_a_frozen_one_thaws() {
    one_primary_at_a_time("Quorum").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn async_mode_has_one_primary_at_a_time_because_a_frozen_one_is_killed_first() {
    one_primary_at_a_time("Async").await;
}
