//! The database controller and the wiring of all controllers.
//!
//! Observe, decide, act (architecture.md): [`observe`] turns what the watches say into a plain world, deciding is in
//! `coregent_core::failover`, [`act`] carries each step out as one conditional write, and [`objects`] renders what a
//! cluster consists of. Nothing here decides who is primary.

mod act;
mod clock;
mod controller;
mod error;
pub mod install;
mod kinds;
pub mod leader;
mod metrics;
pub mod objects;
pub mod observe;
pub mod pace;
mod refused;
pub mod restored;
mod rivals;
pub mod status;
pub mod validate;

pub use error::Error;
pub use metrics::Metrics;

use crate::clock::Clock;
use kube::Client;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Duration of a primary Lease in milliseconds (failover.md F2).
pub const LEASE_DURATION: u64 = 6_000;

/// The image of this version, where none is named.
pub const IMAGE: &str = concat!("coregent:", env!("CARGO_PKG_VERSION"));

/// How to run the operator.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names this process among operators and in events; its host name or pod name.
    pub identity: String,
    /// Look after the clusters of this namespace only; of all when absent.
    pub namespace: Option<String>,
    /// Namespace of the Lease by which several operators agree who works; without one this process works at once.
    pub leader_election: Option<String>,
    /// Where `/metrics`, `/livez` and `/readyz` are served; nowhere when absent.
    pub metrics_addr: Option<SocketAddr>,
    /// Image that members get their agent from; that of this version when absent.
    pub image: Option<String>,
    /// Leave the ReplicatedStateMachine controller out: another process runs it.
    pub without_rsm: bool,
}

/// Runs every controller until `shutdown`, and ends when what was begun has been drained.
///
/// # Errors
/// When the metrics address cannot be opened, or a part ends that never should.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    let metrics = Metrics::default();
    let serving =
        options.metrics_addr.map(|address| tokio::spawn(metrics::serve(address, metrics.clone(), shutdown.clone())));
    let work = lead_and_work(&client, &options, &metrics, &shutdown);
    match serving {
        None => work.await,
        Some(serving) => tokio::select! {
            done = work => done,
            served = serving => match served {
                Ok(Err(error)) => Err(error),
                _ if shutdown.is_cancelled() => Ok(()),
                _ => Err(Error::Ended("the metrics endpoint")),
            },
        },
    }
}

async fn lead_and_work(
    client: &Client,
    options: &Options,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    kinds::wait(client, metrics, shutdown).await?;
    // Whoever waits to lead observes as well: how long a Lease has been silent is counted on one's own clock, and a new
    // leader that began to count when it took over would add that time to every failover of the old leader's node.
    let cache = observe::Cache::new(Clock::start());
    let mut watches = observe::start(client, options.namespace.as_deref(), &cache, metrics, shutdown);
    let done = work_while_leading(client, options, &cache, metrics, shutdown).await;
    watches.abort_all();
    while watches.join_next().await.is_some() {}
    done
}

async fn work_while_leading(
    client: &Client,
    options: &Options,
    cache: &Arc<observe::Cache>,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let Some(namespace) = &options.leader_election else {
        metrics.leads(true);
        work(client, options, cache, metrics, shutdown.clone()).await;
        return Ok(());
    };
    while !shutdown.is_cancelled() {
        metrics.set_ready(true);
        let clock = Clock::start();
        let Some(leadership) = leader::lead(client, namespace, options, clock, shutdown).await else { break };
        let lost = leadership.lost.clone();
        let mut rivals = rivals::Rivals::new(client, namespace, clock);
        let all = options.namespace.is_none();
        if all {
            rivals.give_way(&lost, shutdown).await;
        }
        metrics.leads(true);
        tracing::info!(identity = %options.identity, version = env!("CARGO_PKG_VERSION"), "leads");
        let stop = shutdown.child_token();
        let watching = tokio::spawn({
            let stop = stop.clone();
            async move {
                tokio::select! {
                    () = lost.cancelled() => {}
                    () = rivals.watch(), if all => {}
                }
                stop.cancel();
            }
        });
        work(client, options, cache, metrics, stop).await;
        watching.abort();
        metrics.leads(false);
        // Given back only once everything is drained.
        leadership.resign().await;
    }
    Ok(())
}

/// How long work that has begun may take to end. A request whose answer is lost would keep a candidate from ever leading again;
/// what it still does is conditional on what it was decided on.
const DRAIN: Duration = Duration::from_secs(10);

async fn work(
    client: &Client,
    options: &Options,
    cache: &Arc<observe::Cache>,
    metrics: &Metrics,
    stop: CancellationToken,
) {
    let identity = options.identity.clone();
    let image = options.image.as_deref().unwrap_or(IMAGE).into();
    let actor = act::Actor { client: client.clone(), cache: cache.clone(), metrics: metrics.clone(), image };
    let database = controller::run(actor, identity, stop.clone());
    let sets = replicated_state_machines(client, options, cache, &stop);
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(database, sets) } => {}
        () = overdue => tracing::warn!("a request of the work that was to end is not answered; it is not waited for"),
    }
}

async fn replicated_state_machines(
    client: &Client,
    options: &Options,
    cache: &Arc<observe::Cache>,
    stop: &CancellationToken,
) {
    if options.without_rsm {
        return;
    }
    let cache = cache.clone();
    let broken = move |error: &kube::runtime::watcher::Error| cache.hear_of_sets(error);
    let tools = coregent_rsm::Tools { image: options.image.clone().unwrap_or_else(|| IMAGE.to_owned()) };
    coregent_rsm::run(client.clone(), tools, Arc::new(broken), stop.clone()).await;
}
