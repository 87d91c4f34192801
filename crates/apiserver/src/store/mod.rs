//! The revisioned object log: compare-and-set writes, lists at a revision, watches from a revision.
//!
//! The current state and the recent history live in memory ([`state`]); under them lies nothing ([`Storage::Memory`])
//! or a SQLite file ([`log`]) that one writer thread appends to ([`sqlite`]). **Nothing is visible or acknowledged
//! before it is durable** (renewals of Leases excepted, [`Durability::Relaxed`]); revisions have no gaps that a watcher
//! could see.

mod error;
mod file;
mod hub;
mod log;
mod object;
mod reached;
mod refusal;
mod sqlite;
mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

pub use error::{Expired, OpenError, WriteError};
pub use hub::Subscription;
use log::{Disk, Log};
pub use object::{Change, Durability, Event, EventKind, Expect, Key, Stored, Write};
pub use reached::Restored;
use refusal::Told;
use state::{Overlay, State};

/// Where the objects are kept.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In memory only, answered on the caller's task: no thread and no channel, so that it works under paused time.
    Memory,
    /// In this SQLite file, made if it does not exist.
    Sqlite(PathBuf),
}

/// What a store keeps beside its objects.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Random, made with the store: tells a store from another one of the same path (failover.md F14).
    pub incarnation: String,
    /// Signs ServiceAccount tokens; lives as long as the store, so that tokens outlive a restart.
    pub signing_key: Vec<u8>,
}

enum Backend {
    Memory,
    Sqlite(sqlite::Writer),
}

/// The store.
pub struct Store {
    state: Arc<RwLock<State>>,
    backend: Backend,
    identity: Identity,
    restored: Option<Restored>,
    told: Told,
}

impl Store {
    /// Opens the store and recovers its current state.
    pub(crate) fn open(storage: &Storage, history: usize) -> Result<Store, OpenError> {
        let told = Told::default();
        match storage {
            Storage::Memory => {
                let state = Arc::new(RwLock::new(State::new(history)));
                Ok(Store { state, backend: Backend::Memory, identity: Identity::random()?, restored: None, told })
            }
            Storage::Sqlite(path) => {
                let file::Opened { file, identity, state, keeper, restored } = file::open(path, history)?;
                let state = Arc::new(RwLock::new(state));
                let log = Log::new(path, file, Disk::default(), keeper, state.clone(), told.clone())?;
                let backend = Backend::Sqlite(sqlite::Writer::start(path, log, state.clone())?);
                Ok(Store { state, backend, identity, restored, told })
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    /// The object at a key.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.read().get(resource, namespace, name)
    }

    /// The current objects of a resource and the revision that they are of.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> (u64, Vec<Arc<Stored>>) {
        let state = self.read();
        (state.revision, state.list(resource, namespace))
    }

    /// The objects of a resource as they were at a revision.
    pub fn list_at(&self, resource: &str, namespace: Option<&str>, at: u64) -> Result<Vec<Arc<Stored>>, Expired> {
        self.read().list_at(resource, namespace, at)
    }

    /// Whether everything since `revision` can still be told, and `revision` is one of ours.
    pub fn check(&self, revision: u64) -> Result<(), Expired> {
        self.read().check(revision)
    }

    /// The events of a resource after `since`: those of the log, then live ones.
    pub fn watch(
        &self,
        resource: &Arc<str>,
        namespace: Option<&str>,
        name: Option<&str>,
        since: u64,
    ) -> Result<Subscription, Expired> {
        Subscription::open(&self.state, resource, namespace, name, since)
    }

    /// Carries out one write; the answer comes once it is durable and visible.
    pub async fn write(&self, write: Write) -> Result<Arc<Event>, WriteError> {
        match &self.backend {
            Backend::Sqlite(writer) => writer.write(write).await,
            Backend::Memory => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                let event = Arc::new(state.stage(&Overlay::new(), state.revision + 1, write)?);
                state.apply(event.clone());
                Ok(event)
            }
        }
    }

    /// Why no writes are taken just now.
    pub(crate) fn refuses(&self) -> Option<String> {
        self.told.get()
    }

    /// Whether the file was found to be older than what ran here last (failover.md F14).
    pub(crate) fn restored(&self) -> Option<Restored> {
        self.restored
    }

    /// Everybody who must know of [`Store::restored`] has been told: the next start says nothing of it any more.
    pub(crate) async fn settle_restored(&self) -> Result<(), WriteError> {
        match &self.backend {
            Backend::Sqlite(writer) => writer.settle().await,
            Backend::Memory => Ok(()),
        }
    }

    /// Writes what is still pending and stops the writer.
    pub(crate) async fn close(&self) {
        if let Backend::Sqlite(writer) = &self.backend {
            writer.close().await;
        }
    }
}

impl Identity {
    pub(crate) fn random() -> Result<Identity, OpenError> {
        let mut incarnation = [0u8; 16];
        let mut signing_key = vec![0u8; 32];
        getrandom::fill(&mut incarnation)
            .and_then(|()| getrandom::fill(&mut signing_key))
            .map_err(|error| OpenError::Random(error.to_string()))?;
        let incarnation = incarnation.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Identity { incarnation, signing_key })
    }
}
