//! The built-in controllers: what makes a StatefulSet into pods, a claim into a folder, a Service into addresses.
//!
//! They know the API only through a [`kube::Client`], so they run beside the server, away from it, or under a
//! paused clock in tests. Each controller is a pure function from [`world::World`] to [`write::Decision`] in a file
//! of its own; one small runner keeps the world by watches, calls those functions for what changed, and carries out
//! the writes. Nothing polls: a decision is made the moment a watch brings a change, or when a decision asked for it.
//!
//! **Every write is conditional** (a create, a resourceVersion, a uid), and a look at an unchanged world writes nothing.
//!
//! # What the node needs to know about volumes
//!
//! A PersistentVolume of ours has `spec.hostPath.path` (a folder below the node's data folder) and node affinity for
//! the one node that holds it. With reclaim policy Delete it carries the finalizer [`VOLUME_FOLDER_FINALIZER`].
//! **The node removes the folder of a volume only when [`volumes::may_remove_folder`] says so**: deletion was asked
//! for, the policy is Delete, the finalizer is there and `kubernetes.io/pv-protection` is not (the volume controller
//! takes that one off last, when no claim needs the volume). After the folder is gone the node removes the finalizer,
//! and the object disappears. A folder that no object calls deleted is never removed (failover.md F14).

pub mod volumes;
pub mod world;
pub mod write;

mod act;
mod endpoints;
mod event;
mod garbage;
mod job;
mod namespace;
mod node;
mod queue;
mod registry;
mod runner;
mod scheduler;
mod selector;
mod service_account;
mod stateful_set;
mod stray_pod;
mod watch;

#[cfg(test)]
mod fixture;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub use volumes::VOLUME_FOLDER_FINALIZER;

/// Where wall time comes from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock that reads `now`.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The machine's clock.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// How the built-in controllers behave.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; volumes lie in `volumes/<name>` below it, unless a node says otherwise in its annotation
    /// [`volumes::DATA_DIR_ANNOTATION`].
    pub data_dir: PathBuf,
    /// A node whose Lease has not changed for this long is NotReady. 40 s, as in Kubernetes
    /// (`--node-monitor-grace-period`).
    pub node_silence: Duration,
    /// How long events are kept. An hour, as in Kubernetes (`--event-ttl`).
    pub event_ttl: Duration,
    /// Wall time.
    pub clock: Clock,
}

impl Options {
    /// The usual behaviour for this data folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            node_silence: Duration::from_secs(40),
            event_ttl: Duration::from_secs(3600),
            clock: Clock::system(),
        }
    }
}

/// Runs all built-in controllers until `shutdown`, then returns once no write is under way.
pub async fn run(client: kube::Client, options: Options, shutdown: CancellationToken) {
    runner::Runner::new(client, options, shutdown).run().await;
}
