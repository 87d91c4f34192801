//! A complete, current copy of one kind, fed by a watch.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock},
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Namespace and name; the namespace is empty for kinds of the whole cluster.
pub(crate) type Key = (String, String);

type Objects<K> = BTreeMap<Key, Arc<K>>;

/// The objects of one kind, as last seen.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: RwLock<Objects<K>>,
    /// Counts changes, so that those who depend on the kind look again; 0 until the first list is complete.
    version: watch::Sender<u64>,
}

impl<K> Cache<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    /// Starts to watch; ends with `shutdown`.
    pub fn start(api: Api<K>, shutdown: CancellationToken) -> Arc<Self> {
        let cache = Arc::new(Self { objects: RwLock::default(), version: watch::Sender::new(0) });
        let fed = Arc::clone(&cache);
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = fed.feed(api) => {}
            }
        });
        cache
    }

    async fn feed(&self, api: Api<K>) {
        // managedFields are the larger part of an object, and nobody reads them here.
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let events = events.modify(|object| object.meta_mut().managed_fields = None);
        pin_mut!(events);
        let mut relisted = Objects::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event, &mut relisted),
                Err(e) => tracing::debug!(kind = std::any::type_name::<K>(), "watch interrupted: {e}"),
            }
        }
    }

    /// A re-list replaces the content at its end and not before: a half-filled copy would look like deletions.
    fn take(&self, event: watcher::Event<K>, relisted: &mut Objects<K>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            watcher::Event::Init => return relisted.clear(),
            watcher::Event::InitApply(object) => {
                relisted.insert(key(&object), Arc::new(object));
                return;
            }
            watcher::Event::InitDone => *objects = std::mem::take(relisted),
            watcher::Event::Apply(object) => drop(objects.insert(key(&object), Arc::new(object))),
            watcher::Event::Delete(object) => drop(objects.remove(&key(&object))),
        }
        drop(objects);
        self.version.send_modify(|version| *version += 1);
    }

    /// One object, if it exists.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All objects, in the order of namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Resolves at the next change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits for the first complete list: before it, absence means nothing.
    pub async fn synced(&self) {
        let mut version = self.version.subscribe();
        let _ = version.wait_for(|v| *v > 0).await;
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}
