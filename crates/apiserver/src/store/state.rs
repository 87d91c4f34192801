//! The current state and the recent history, in memory. Only complete, durable revisions are ever in here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::error::{Expired, WriteError};
use super::hub::Watcher;
use super::object::{Change, Event, EventKind, Expect, Key, Stored, Write};

/// Objects of one resource, ordered by namespace and name.
pub(crate) type Items = BTreeMap<(String, String), Arc<Stored>>;

#[derive(Default)]
struct Collection {
    items: Items,
    log: VecDeque<Arc<Event>>,
    watchers: Vec<Watcher>,
}

/// Newest events of a resource whose earlier objects stay as they are in memory: their watchers are about to look.
const FRESH: usize = 16;

impl Collection {
    fn retire_what_no_watcher_waits_for(&self) {
        let Some(event) = self.log.len().checked_sub(FRESH).and_then(|at| self.log.get(at)) else { return };
        event.previous.iter().for_each(|previous| previous.retire());
        if event.kind == EventKind::Deleted {
            event.object.retire();
        }
    }
}

/// Everything the store knows.
pub(crate) struct State {
    /// The newest revision.
    pub revision: u64,
    /// Events at or below this revision are no longer in the log.
    pub compacted: u64,
    history: usize,
    order: VecDeque<Arc<str>>,
    collections: BTreeMap<Arc<str>, Collection>,
}

/// Writes that are decided but not yet applied, so that a batch sees its own effects.
pub(crate) type Overlay = HashMap<Key, Option<Arc<Stored>>>;

impl State {
    pub fn new(history: usize) -> State {
        State {
            revision: 0,
            compacted: 0,
            history: history.max(1),
            order: VecDeque::new(),
            collections: BTreeMap::new(),
        }
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let items = &self.collections.get(resource)?.items;
        items.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// The objects of a resource, of one namespace or of all.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<Stored>> {
        let Some(collection) = self.collections.get(resource) else { return Vec::new() };
        match namespace {
            None => collection.items.values().cloned().collect(),
            Some(namespace) => collection
                .items
                .range((namespace.to_owned(), String::new())..)
                .take_while(|((ns, _), _)| ns == namespace)
                .map(|(_, object)| object.clone())
                .collect(),
        }
    }

    /// As [`State::list`], as of an earlier revision: the events since are undone.
    pub fn list_at(&self, resource: &str, namespace: Option<&str>, at: u64) -> Result<Vec<Arc<Stored>>, Expired> {
        self.check(at)?;
        let Some(collection) = self.collections.get(resource) else { return Ok(Vec::new()) };
        let mut items = collection.items.clone();
        for event in collection.log.iter().rev().take_while(|event| event.revision() > at) {
            let place = (event.key.namespace.clone(), event.key.name.clone());
            match &event.previous {
                Some(previous) => items.insert(place, previous.clone()),
                None => items.remove(&place),
            };
        }
        Ok(items.into_iter().filter(|((ns, _), _)| namespace.is_none_or(|n| n == ns)).map(|(_, o)| o).collect())
    }

    /// Whether the history since `revision` is complete.
    pub fn check(&self, revision: u64) -> Result<(), Expired> {
        if revision > self.revision {
            return Err(Expired::TooLarge { asked: revision, current: self.revision });
        }
        if revision < self.compacted {
            return Err(Expired::TooOld { asked: revision, oldest: self.compacted });
        }
        Ok(())
    }

    /// The events of a resource after `revision`.
    pub fn since(&self, resource: &str, revision: u64) -> Vec<Arc<Event>> {
        let Some(collection) = self.collections.get(resource) else { return Vec::new() };
        let start = collection.log.partition_point(|event| event.revision() <= revision);
        collection.log.iter().skip(start).cloned().collect()
    }

    /// Registers a watcher; it sees every event applied from now on.
    pub fn add_watcher(&mut self, resource: &Arc<str>, watcher: Watcher) {
        self.collections.entry(resource.clone()).or_default().watchers.push(watcher);
    }

    /// Decides a write against the state as it will be once `overlay` is applied.
    pub fn stage(&self, overlay: &Overlay, revision: u64, write: Write) -> Result<Event, WriteError> {
        let previous = match overlay.get(&write.key) {
            Some(staged) => staged.clone(),
            None => self.get(&write.key.resource, &write.key.namespace, &write.key.name),
        };
        match (write.expect, &previous) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(_), None) => return Err(WriteError::Missing),
            (Expect::Revision(wanted), Some(found)) if found.revision != wanted => {
                return Err(WriteError::Conflict(found.revision));
            }
            _ => {}
        }
        let (kind, value) = match write.change {
            Change::Put(value) if previous.is_some() => (EventKind::Modified, value),
            Change::Put(value) => (EventKind::Added, value),
            Change::Delete(value) => (EventKind::Deleted, value),
        };
        let object = Stored::at(revision, value).map_err(|error| WriteError::Disk(error.to_string()))?;
        Ok(Event { kind, key: write.key, object: Arc::new(object), previous })
    }

    /// Makes an event true and tells the watchers, in revision order.
    pub fn apply(&mut self, event: Arc<Event>) {
        self.revision = event.revision();
        let collection = self.collections.entry(event.key.resource.clone()).or_default();
        let place = (event.key.namespace.clone(), event.key.name.clone());
        match event.kind {
            EventKind::Deleted => collection.items.remove(&place),
            _ => collection.items.insert(place, event.object.clone()),
        };
        collection.watchers.retain(|watcher| watcher.offer(&event));
        collection.retire_what_no_watcher_waits_for();
        collection.log.push_back(event.clone());
        self.order.push_back(event.key.resource.clone());
        while self.order.len() > self.history {
            self.forget_oldest();
        }
    }

    /// Whether `there` has the objects of this state as they were before `pending`, the newest events.
    pub fn holds_what(&self, there: &State, pending: &VecDeque<Arc<Event>>) -> bool {
        let mut objects = self.objects();
        for event in pending.iter().rev() {
            match &event.previous {
                Some(previous) => objects.insert(event.key.clone(), previous.clone()),
                None => objects.remove(&event.key),
            };
        }
        let found = there.objects();
        let same =
            |(one, other): (&Arc<Stored>, &Arc<Stored>)| one.revision == other.revision && one.json == other.json;
        objects.keys().eq(found.keys()) && objects.values().zip(found.values()).all(same)
    }

    fn objects(&self) -> BTreeMap<Key, Arc<Stored>> {
        let of = |(resource, collection): (&Arc<str>, &Collection)| {
            let resource = resource.clone();
            let key = move |place: &(String, String)| Key {
                resource: resource.clone(),
                namespace: place.0.clone(),
                name: place.1.clone(),
            };
            collection.items.iter().map(|(place, object)| (key(place), object.clone())).collect::<Vec<_>>()
        };
        self.collections.iter().flat_map(of).collect()
    }

    /// Revisions kept for watches.
    pub fn history(&self) -> usize {
        self.history
    }

    /// Goes on at a higher revision; whoever knows one in between has to list again.
    pub fn skip_to(&mut self, revision: u64) {
        self.revision = revision;
        self.compacted = revision;
        self.order.clear();
        self.collections.values_mut().for_each(|collection| collection.log.clear());
    }

    fn forget_oldest(&mut self) {
        let Some(resource) = self.order.pop_front() else { return };
        if let Some(event) = self.collections.get_mut(&resource).and_then(|collection| collection.log.pop_front()) {
            self.compacted = event.revision();
        }
    }
}
