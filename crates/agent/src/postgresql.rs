//! `coregent agent postgresql`: the first process of a database container.

use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::engine::postgresql::Postgres;
use crate::health::{self, Health};
use crate::member::{self, Parts};
use crate::processes::{self, Processes};
use crate::read_out::{self, ReadOut};
use crate::volume::{Lock, Volume};
use crate::watchdog::Watchdog;
use coregent_core::names::HolderIdentity;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Why the agent could not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The environment.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The volume; the text says what to do.
    #[error("{0}")]
    Volume(String),
    /// The way to the API.
    #[error("cannot find the API server: {0}")]
    Api(String),
    /// This machine.
    #[error("cannot set up the agent's process: {0}")]
    System(#[from] std::io::Error),
}

/// Runs until the agent is told to end (SIGTERM) and has left cleanly. Logging is set up by the caller.
///
/// # Errors
/// When the agent cannot begin; once it has begun, trouble is reported in the member's Lease instead.
pub fn run(config: Config) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let tasks = tokio::task::LocalSet::new();
    let result = tasks.block_on(&runtime, serve(config));
    // A scan of the log that hangs on a dead disk must not keep the container.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn serve(config: Config) -> Result<(), AgentError> {
    let folder = agent_folder(&config);
    let volume = Volume::open(folder.clone()).map_err(|error| AgentError::Volume(error.to_string()))?;
    let processes = Processes::start()?;
    let _lock = lock(&folder, &config).await?;
    let client = client().await?;
    let leases: Api<Lease> = Api::namespaced(client, &config.namespace);
    let me = HolderIdentity { member: config.member.clone(), pod_uid: config.pod_uid.clone(), nonce: nonce() };
    let health = Health::default();
    let peers = read_out::router(ReadOut::new(&config, health.clone()));
    tokio::task::spawn_local(health::serve(SocketAddr::new(config.pod_ip, config.agent_port), health.clone(), peers));
    tokio::task::spawn_local(coregent_process::memory::give_back_regularly());
    let told_to_end = terminated()?;
    let watchdog = Watchdog::start(config.pgdata.clone())?;
    let engine = Rc::new(Postgres::new(config.clone(), processes, volume, watchdog));
    tracing::info!(member = %config.member, identity = %me, "the agent begins");
    member::run(Parts { config, me, leases, engine, clock: Clock::Boottime, health }, told_to_end).await;
    Ok(())
}

/// The agent's folder beside the data folder.
fn agent_folder(config: &Config) -> PathBuf {
    config.pgdata.parent().map_or_else(|| PathBuf::from("coregent"), |volume| volume.join("coregent"))
}

/// Waits for the volume's lock. It is held by a predecessor's server as long as one of its processes lives: those that
/// can be seen from here are killed (F5).
async fn lock(folder: &std::path::Path, config: &Config) -> Result<Lock, AgentError> {
    let mut said = false;
    loop {
        let lock = Lock::try_take(folder).map_err(|error| AgentError::Volume(error.to_string()))?;
        if let Some(lock) = lock {
            return Ok(lock);
        }
        processes::kill_in(&config.pgdata);
        if !said {
            tracing::warn!("the volume's lock is held by another agent or by processes of its server: waits for it");
            said = true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// In a pod by its service account, else by the kubeconfig that `KUBECONFIG` names.
pub(crate) async fn client() -> Result<Client, AgentError> {
    let config = match kube::Config::incluster() {
        Ok(config) => config,
        Err(in_pod) => kube::Config::infer().await.map_err(|error| AgentError::Api(format!("{in_pod}; {error}")))?,
    };
    Client::try_from(config).map_err(|error| AgentError::Api(error.to_string()))
}

/// Cancelled when this process is told to end.
pub(crate) fn terminated() -> std::io::Result<CancellationToken> {
    let told = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let told = told.clone();
        tokio::task::spawn_local(async move {
            if signals.recv().await.is_some() {
                told.cancel();
            }
        });
    }
    Ok(told)
}

/// Drawn anew by every process, so that nobody inherits what a predecessor held (F5).
fn nonce() -> String {
    let mut bytes = [0_u8; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // No random numbers: the process id and the clock still differ from the predecessor's.
        let seed = crate::clock::now().0 ^ u64::from(std::process::id()) << 40;
        bytes = seed.to_le_bytes();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
