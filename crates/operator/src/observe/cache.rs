//! Every object of our clusters as last seen, and who is to be woken when one changes. A plain struct with
//! `applied`/`deleted`/`listed`; the watches only feed it.

use super::leases::Leases;
use super::pods::Pods;
use super::refused::{Refusal, Unmade};
use crate::clock::Clock;
use coregent_api::{DatabaseCluster, ReplicatedStateMachine, labels};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// `(namespace, name)`.
pub type Key = (String, String);

/// What one watch says.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// A complete list is about to be asked for, after a start or a gap.
    Listing,
    /// That list.
    Listed(Vec<K>),
    /// Created or changed.
    Applied(K),
    /// Gone; as it last was.
    Deleted(K),
    /// The watch has a gap from here on.
    Broken,
}

/// The objects.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) clusters: Table<DatabaseCluster>,
    pub(super) rsms: Table<ReplicatedStateMachine>,
    pub(super) claims: Table<PersistentVolumeClaim>,
    pub(super) secrets: Table<Secret>,
    pub(super) config_maps: Table<ConfigMap>,
    pub(super) services: Table<Service>,
    pub(super) budgets: Table<PodDisruptionBudget>,
    pub(super) nodes: Table<Node>,
    pub(super) pods: Pods,
    pub(super) leases: Leases,
    pub(super) unmade: Unmade,
    /// Kinds of which nothing is heard, and why.
    unheard: BTreeMap<&'static str, Refusal>,
    listed: BTreeSet<&'static str>,
}

/// Disruption budgets, which nothing is decided from: they are not waited for.
pub(super) const BUDGETS: &str = "PodDisruptionBudget";

impl Objects {
    pub(super) fn unheard(&self) -> impl Iterator<Item = &Refusal> {
        self.unheard.values()
    }

    /// Whether this kind has been listed at least once.
    pub(super) fn is_listed(&self, kind: &str) -> bool {
        self.listed.contains(kind)
    }
}

/// The kinds whose first list must be there before anything is decided: nothing is ever derived from a cache that is
/// not known to be complete (rust.md 3.3, no. 18 and 19).
pub(super) const KINDS: [&str; 9] = [
    "DatabaseCluster",
    "ReplicatedStateMachine",
    "PersistentVolumeClaim",
    "Secret",
    "ConfigMap",
    "Service",
    "Node",
    "Pod",
    "Lease",
];

/// See the module.
pub struct Cache {
    objects: Mutex<Objects>,
    wakers: Mutex<BTreeMap<Key, Arc<Notify>>>,
    /// Told of clusters that come and go.
    roster: Notify,
    /// How often the controller of sets has told of a watch that cannot be begun.
    sets_told: AtomicU64,
    clock: Clock,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(clock: Clock) -> Arc<Cache> {
        Arc::new(Cache {
            objects: Mutex::new(Objects::default()),
            wakers: Mutex::new(BTreeMap::new()),
            roster: Notify::new(),
            sets_told: AtomicU64::new(0),
            clock,
        })
    }

    /// The clock that everything here is measured by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Objects> {
        // A panic elsewhere leaves whole objects behind: each update is one assignment.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every kind has been listed at least once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let objects = self.lock();
        KINDS.iter().all(|kind| objects.listed.contains(kind))
    }

    /// The clusters that exist.
    #[must_use]
    pub fn clusters(&self) -> Vec<Key> {
        self.lock().clusters.keys()
    }

    /// Waits until clusters may have come or gone, or the cache may have become complete.
    pub async fn roster_changed(&self) {
        self.roster.notified().await;
    }

    /// What wakes the reconciliation of `key`.
    pub fn waker(&self, key: &Key) -> Arc<Notify> {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.entry(key.clone()).or_default().clone()
    }

    fn wake(&self, key: &Key) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = wakers.get(key) {
            waker.notify_one();
        }
    }

    fn wake_all(&self, wanted: impl Fn(&Key) -> bool) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter().filter(|(key, _)| wanted(key)).for_each(|(_, waker)| waker.notify_one());
    }

    /// Wakes the cluster that `object` carries the label of.
    fn wake_owner(&self, object: &impl ResourceExt) {
        if let Some(cluster) = object.labels().get(labels::CLUSTER) {
            self.wake(&(object.namespace().unwrap_or_default(), cluster.clone()));
        }
    }

    pub(super) fn mark_listed(&self, kind: &'static str) {
        let first = self.lock().listed.insert(kind);
        if first {
            self.roster.notify_one();
            self.wake_all(|_| true);
        }
    }

    pub(super) fn on_cluster(&self, change: Change<DatabaseCluster>) {
        self.lock().clusters.take(change, |cluster| self.wake(&key_of(cluster)));
        self.roster.notify_one();
    }

    pub(super) fn on_rsm(&self, change: Change<ReplicatedStateMachine>) {
        self.lock().rsms.take(change, |rsm| self.wake_owner(rsm));
    }

    pub(super) fn on_claim(&self, change: Change<PersistentVolumeClaim>) {
        self.lock().claims.take(change, |claim| self.wake_owner(claim));
    }

    pub(super) fn on_service(&self, change: Change<Service>) {
        self.lock().services.take(change, |service| self.wake_owner(service));
    }

    pub(super) fn on_budget(&self, change: Change<PodDisruptionBudget>) {
        self.lock().budgets.take(change, |budget| self.wake_owner(budget));
    }

    /// A Secret's values are not kept: only that it is there, and which keys it has.
    pub(super) fn on_secret(&self, change: Change<Secret>) {
        self.lock().secrets.take(change, |secret| {
            let namespace = secret.namespace().unwrap_or_default();
            self.wake_all(|key| key.0 == namespace);
        });
    }

    pub(super) fn on_config_map(&self, change: Change<ConfigMap>) {
        self.lock().config_maps.take(change, |map| {
            let namespace = map.namespace().unwrap_or_default();
            self.wake_all(|key| key.0 == namespace);
        });
    }

    pub(super) fn on_node(&self, change: Change<Node>) {
        let mut woken = false;
        {
            let mut objects = self.lock();
            let before = objects.nodes.facts();
            objects.nodes.take(change, |_| ());
            woken |= before != objects.nodes.facts();
        }
        // A node's status is renewed all the time; little of it is of interest.
        if woken {
            self.wake_all(|_| true);
        }
    }

    pub(super) fn on_pod(&self, change: Change<Pod>) {
        let mut objects = self.lock();
        let Objects { pods, unmade, .. } = &mut *objects;
        pods.take(change, |pod| {
            unmade.made(pod);
            self.wake_owner(pod);
        });
    }

    pub(super) fn on_failed_create(&self, change: Change<Event>) {
        let mut objects = self.lock();
        let Objects { pods, unmade, .. } = &mut *objects;
        unmade.take(change, pods, |namespace| self.wake_all(|key| key.0 == namespace));
    }

    /// Nothing is heard of a kind. Whether that is new.
    pub(super) fn is_unheard(&self, kind: &'static str, why: Refusal) -> bool {
        let news = self.lock().unheard.insert(kind, why.clone()).is_none_or(|before| before != why);
        if news {
            self.roster.notify_one();
            self.wake_all(|_| true);
        }
        news
    }

    pub(super) fn is_heard_again(&self, kind: &str) {
        if self.lock().unheard.remove(kind).is_some() {
            self.wake_all(|_| true);
        }
    }

    /// A watch of the controller of sets cannot be begun. It says so again for as long as that is so, and nothing when it
    /// no longer is.
    pub fn hear_of_sets(self: &Arc<Self>, error: &kube::runtime::watcher::Error) {
        const KIND: &str = "StatefulSet";
        const SILENCE: std::time::Duration = std::time::Duration::from_secs(75);
        let Some(why) = Refusal::of_watch("that the RSM controller generates", error) else { return };
        let line = why.line();
        if self.is_unheard(KIND, why) {
            tracing::warn!(kind = KIND, "{line}");
        }
        let told = self.sets_told.fetch_add(1, Ordering::Relaxed) + 1;
        let cache = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SILENCE).await;
            if cache.sets_told.load(Ordering::Relaxed) == told {
                cache.is_heard_again(KIND);
            }
        });
    }

    /// Of which kinds nothing is heard, and why.
    #[must_use]
    pub fn unheard(&self) -> Vec<Refusal> {
        self.lock().unheard().cloned().collect()
    }

    /// The cluster as last seen.
    #[must_use]
    pub fn cluster(&self, key: &Key) -> Option<Arc<DatabaseCluster>> {
        self.lock().clusters.get(key).cloned()
    }

    pub(super) fn on_lease(&self, change: Change<Lease>) {
        let now = self.clock.now();
        self.lock().leases.take(change, now, |lease| self.wake_owner(lease));
    }

    /// Takes in the answer of a write of ours, so that the next decision sees it without waiting for the watch.
    pub fn wrote_cluster(&self, cluster: DatabaseCluster) {
        self.lock().clusters.wrote(cluster);
    }

    /// Takes in what was read after a write on `before` was refused. It was asked for after `before` was held: if that is
    /// held still, the API knows better, even where its versions are lower (failover.md F14).
    pub fn read_cluster(&self, cluster: DatabaseCluster, before: &DatabaseCluster) {
        self.lock().clusters.read(cluster, version_of(before));
    }

    /// See [`Cache::read_cluster`]; nothing was held where `before` is `None`.
    pub fn read_lease(&self, lease: Lease, before: Option<&Lease>) {
        let now = self.clock.now();
        self.lock().leases.read(lease, before.map(version_of), now);
    }

    /// See [`Cache::wrote_cluster`].
    pub fn wrote_lease(&self, lease: Lease) {
        let now = self.clock.now();
        self.lock().leases.wrote(lease, now);
    }

    /// See [`Cache::wrote_cluster`].
    pub fn wrote_rsm(&self, rsm: ReplicatedStateMachine) {
        self.lock().rsms.wrote(rsm);
    }

    /// See [`Cache::wrote_cluster`].
    pub fn wrote_secret(&self, secret: Secret) {
        self.lock().secrets.wrote(secret);
    }

    /// See [`Cache::wrote_cluster`].
    pub fn wrote_budget(&self, budget: PodDisruptionBudget) {
        self.lock().budgets.wrote(budget);
    }

    /// See [`Cache::wrote_cluster`].
    pub fn wrote_config_map(&self, map: ConfigMap) {
        self.lock().config_maps.wrote(map);
    }

    /// Takes in the labels and annotations of the answer, not its status: whether a status was written after a raise
    /// is judged by the watch alone, which shows every version in order (failover.md F4).
    pub fn wrote_pod(&self, pod: Pod) {
        self.lock().pods.put_metadata(pod);
    }
}

/// Objects of one kind by key.
pub(super) struct Table<K> {
    objects: BTreeMap<Key, Arc<K>>,
    ours: Ours,
}

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table { objects: BTreeMap::new(), ours: Ours::default() }
    }
}

/// What we wrote while a list was under way.
///
/// A list is read from what is durable after it was asked for, so it replaces everything that is held, whatever the
/// versions say: where an older copy of the API's store was put back, an object that is held is newer by its version and
/// has never been (failover.md F14). Only the answer of a write of ours that came while the list was under way may be
/// newer than the list.
#[derive(Debug, Default)]
pub(super) struct Ours {
    listing: bool,
    written: BTreeSet<Key>,
}

impl Ours {
    pub(super) fn list_begins(&mut self) {
        self.listing = true;
        self.written.clear();
    }

    pub(super) fn wrote(&mut self, key: Key) {
        if self.listing {
            self.written.insert(key);
        }
    }

    /// The objects of which what is held may be newer than the list.
    pub(super) fn list_ends(&mut self) -> BTreeSet<Key> {
        self.listing = false;
        std::mem::take(&mut self.written)
    }
}

impl<K: ResourceExt> Table<K> {
    pub(super) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Keeps `object` unless a newer version of it is here already.
    pub(super) fn put(&mut self, object: K) -> bool {
        let key = key_of(&object);
        let newer = self.objects.get(&key).is_none_or(|held| version_of(held.as_ref()) <= version_of(&object));
        if newer {
            self.objects.insert(key, Arc::new(object));
        }
        newer
    }

    /// Takes in the answer of a write of ours.
    fn wrote(&mut self, object: K) {
        let key = key_of(&object);
        if self.put(object) {
            self.ours.wrote(key);
        }
    }

    /// Takes in what was read while version `before` was held.
    fn read(&mut self, object: K, before: u64) {
        let key = key_of(&object);
        if self.objects.get(&key).is_some_and(|held| version_of(held.as_ref()) == before) {
            self.objects.insert(key, Arc::new(object));
        } else {
            self.put(object);
        }
    }

    fn take(&mut self, change: Change<K>, mut touched: impl FnMut(&K)) {
        match change {
            Change::Listing => self.ours.list_begins(),
            Change::Applied(object) => {
                touched(&object);
                self.put(object);
            }
            Change::Deleted(object) => {
                touched(&object);
                let key = key_of(&object);
                // A late event about an object that has been made anew since must not remove the new one.
                if self.objects.get(&key).is_some_and(|held| held.uid() == object.uid()) {
                    self.objects.remove(&key);
                }
            }
            Change::Listed(objects) => {
                let ours = self.ours.list_ends();
                let listed: BTreeSet<Key> = objects.iter().map(key_of).collect();
                let held: Vec<Key> = self.objects.keys().filter(|key| !ours.contains(*key)).cloned().collect();
                for key in held {
                    if let Some(object) = self.objects.remove(&key)
                        && !listed.contains(&key)
                    {
                        touched(&object);
                    }
                }
                for object in objects {
                    touched(&object);
                    self.put(object);
                }
            }
            Change::Broken => {}
        }
    }
}

/// What is of interest of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// It says that it is Ready.
    pub(super) ready: bool,
    /// It takes no new pods (`kubectl cordon`, the first thing that `kubectl drain` does).
    pub(super) leaving: bool,
}

impl Table<Node> {
    /// Of each node.
    pub(super) fn facts(&self) -> BTreeMap<String, NodeFacts> {
        let facts = |node: &Node| NodeFacts {
            ready: is_ready(node),
            leaving: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
        };
        self.values().map(|node| (node.name_any(), facts(node))).collect()
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The key of an object.
pub(super) fn key_of(object: &impl ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The version of an object as a number. Kubernetes lets clients compare them since 1.35.
pub(super) fn version_of(object: &impl ResourceExt) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::ObjectMeta;

    fn map(name: &str, version: u64) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    fn versions(table: &Table<ConfigMap>) -> Vec<u64> {
        table.values().map(|map| version_of(map.as_ref())).collect()
    }

    /// What an API server says whose store is an older copy (failover.md F14).
    #[test]
    fn a_list_replaces_what_is_newer_by_its_version_except_what_we_wrote_while_it_was_under_way() {
        let mut table = Table::default();
        table.put(map("a", 500));
        table.put(map("b", 600));
        table.put(map("gone", 700));
        table.take(Change::Listing, |_| ());
        table.wrote(map("b", 900));
        let mut touched = Vec::new();
        table.take(Change::Listed(vec![map("a", 200), map("b", 300)]), |map| touched.push(map.name_any()));
        assert_eq!(versions(&table), [200, 900]);
        assert_eq!(touched, ["gone", "a", "b"]);
    }

    #[test]
    fn what_is_read_after_a_refused_write_replaces_what_was_held_then_and_nothing_that_came_since() {
        let mut table = Table::default();
        table.put(map("a", 500));
        table.take(Change::Listing, |_| ());
        table.read(map("a", 200), 500);
        assert_eq!(versions(&table), [200]);
        table.take(Change::Applied(map("a", 700)), |_| ());
        table.read(map("a", 300), 200);
        assert_eq!(versions(&table), [700]);
        // Nor does it protect anything from the list.
        table.take(Change::Listed(vec![map("a", 250)]), |_| ());
        assert_eq!(versions(&table), [250]);
    }

    #[test]
    fn a_late_event_replaces_nothing_newer() {
        let mut table = Table::default();
        table.wrote(map("a", 500));
        table.take(Change::Applied(map("a", 400)), |_| ());
        assert_eq!(versions(&table), [500]);
    }
}
