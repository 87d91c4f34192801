//! What must hold at every moment, judged from the objects themselves, apart from the code that is tested.

use crate::net::Net;
use coregent_api::DatabaseCluster;
use coregent_api::database::Lossless;
use coregent_core::fence::{self, Fence};
use futures::{Stream, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use tokio::time::Instant;

/// Lines of the trace that are kept.
const KEPT: usize = 120;

#[derive(Default)]
struct Seen {
    trace: VecDeque<String>,
    epoch: i32,
    /// Per epoch who was named.
    targets: BTreeMap<i32, String>,
    last: Option<String>,
    /// What each failover said about loss.
    losses: Vec<Lossless>,
}

/// Watches every state of the primary Lease and of the cluster.
#[derive(Clone)]
pub struct Oracle {
    begun: Instant,
    seen: Rc<RefCell<Seen>>,
}

impl Oracle {
    /// Begins to watch, through a client without faults.
    pub fn start(client: &Client, net: &Net) -> Oracle {
        let oracle = Oracle { begun: Instant::now(), seen: Rc::default() };
        let leases = watcher(
            Api::<Lease>::default_namespaced(client.clone()),
            watcher::Config::default().fields("metadata.name=orders-primary"),
        );
        let clusters = watcher(Api::<DatabaseCluster>::default_namespaced(client.clone()), watcher::Config::default());
        let (mine, of_net) = (oracle.clone(), net.clone());
        tokio::task::spawn_local(each(leases, move |lease| mine.lease(&lease, &of_net)));
        let mine = oracle.clone();
        tokio::task::spawn_local(each(clusters, move |cluster| mine.cluster(&cluster)));
        oracle
    }

    pub fn trace(&self) -> Vec<String> {
        self.seen.borrow().trace.iter().cloned().collect()
    }

    /// What each state of the status said about the newest failover's loss.
    pub fn losses(&self) -> Vec<Lossless> {
        self.seen.borrow().losses.clone()
    }

    /// A line for whoever reads the trace of a failure.
    pub fn note(&self, what: &str) {
        let mut seen = self.seen.borrow_mut();
        seen.trace.push_back(format!("{:>9.3} {what}", self.begun.elapsed().as_secs_f64()));
        if seen.trace.len() > KEPT {
            seen.trace.pop_front();
        }
    }

    /// F1: epochs only grow, one member is named in an epoch, and only the named one holds.
    fn lease(&self, lease: &Lease, net: &Net) {
        let spec = lease.spec.clone().unwrap_or_default();
        let epoch = spec.lease_transitions.unwrap_or(0);
        let holder = spec.holder_identity.unwrap_or_default();
        let text = lease.annotations().get(fence::ANNOTATION).cloned().unwrap_or_default();
        let Ok(fence) = Fence::parse(&text) else { return net.violation(format!("the fence is not readable: {text}")) };
        let target = fence.target.as_ref().map(|target| target.member.to_string());
        let sets: Vec<String> = fence
            .sync_sets
            .iter()
            .map(|set| {
                format!(
                    "{}:{:?}{}",
                    set.epoch,
                    set.members.iter().map(|m| m.as_str()).collect::<Vec<_>>(),
                    if set.complete { "!" } else { "" }
                )
            })
            .collect();
        let line = format!(
            "lease: epoch {epoch} target {target:?} proof {:?} holder {holder:?} sets {sets:?} attempts {:?}",
            fence.target.as_ref().map(|target| &target.proof),
            fence.history.iter().map(|a| (a.promotion.epoch.0, a.promotion.timeline.0, a.won)).collect::<Vec<_>>(),
        );
        let mut seen = self.seen.borrow_mut();
        if epoch < seen.epoch {
            net.violation(format!("the epoch went back from {} to {epoch}", seen.epoch));
        }
        seen.epoch = epoch;
        if let Some(target) = target {
            let named = seen.targets.entry(epoch).or_insert_with(|| target.clone());
            if *named != target {
                net.violation(format!("epoch {epoch} names {target} after {named}"));
            }
        }
        let granted = seen.targets.get(&epoch).is_some_and(|named| holder.starts_with(&format!("{named}/")));
        let news = seen.last.as_ref() != Some(&holder);
        // Whoever held before a raise may still stand there; a new name must be the target's.
        if news && !holder.is_empty() && !granted {
            net.violation(format!(
                "{holder} takes the Lease in epoch {epoch}, which names {:?}",
                seen.targets.get(&epoch)
            ));
        }
        seen.last = Some(holder);
        let same =
            seen.trace.iter().rev().find(|line| line.contains("lease:")).is_some_and(|last| last.ends_with(&line));
        drop(seen);
        if !same {
            self.note(&line);
        }
    }

    fn cluster(&self, cluster: &DatabaseCluster) {
        let status = cluster.status.clone().unwrap_or_default();
        let loss = status.last_failover.as_ref().and_then(|last| last.data_loss.as_ref()).map(|loss| loss.lossless);
        self.seen.borrow_mut().losses.extend(loss);
        let operation = status.blocking_operation.map(|operation| {
            format!(
                "{:?} of epoch {} attempt {} {:?}",
                operation.step_id, operation.epoch, operation.attempt, operation.reason
            )
        });
        let primary = status.primary.unwrap_or_default();
        let members: Vec<String> = status.members.iter().map(|m| format!("{}={:?}", m.name, m.state)).collect();
        let line = format!(
            "status: primary {:?} target {:?} epoch {:?} ready {:?} operation {operation:?} {members:?}",
            primary.current, primary.target, primary.epoch, status.ready_replicas
        );
        let same = self
            .seen
            .borrow()
            .trace
            .iter()
            .rev()
            .find(|line| line.contains("status:"))
            .is_some_and(|last| last.ends_with(&line));
        if !same {
            self.note(&line);
        }
    }
}

async fn each<K>(events: impl Stream<Item = watcher::Result<watcher::Event<K>>>, mut see: impl FnMut(K)) {
    let mut events = pin!(events);
    while let Ok(Some(event)) = events.try_next().await {
        match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => see(object),
            _ => {}
        }
    }
}
