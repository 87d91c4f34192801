//! The embedded node: runs pods as processes of this machine, as a kubelet and a service proxy would.
//!
//! It knows the world only through its `kube::Client`, and nothing of databases. See ARCHITECTURE.md.

mod cache;
mod events;
mod hosts;
mod image_map;
mod logs;
pub mod network;
mod node;
mod node_object;
mod pod;
mod pods;
mod proxy;
mod server;
mod volumes;

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use image_map::{Bind, Image, ImageError, ImageMap, ImageUser, MapError, StopSignal};
pub use network::Network;
pub use proxy::SERVED;
pub use volumes::{FOLDER_FINALIZER, SetAsideError, set_aside_unknown, unknown_folders};

/// What a node is made of.
pub struct Options {
    /// How it reaches the API.
    pub client: Client,
    /// Its name.
    pub name: String,
    /// Where pods, volumes and logs live: an absolute path.
    pub data_dir: PathBuf,
    /// Its addresses.
    pub network: Network,
    /// What images stand for.
    pub images: ImageMap,
    /// A binary whose `main` calls `coregent_process::dispatch` first.
    pub self_exe: PathBuf,
    /// Where pods reach the API: `https://<ip>:<port>`.
    pub api_url: String,
    /// The certificate authority by which they know it.
    pub ca_pem: String,
    /// The bearer token that the node's own server asks for.
    pub node_token: String,
    /// The longest that any pod gets for its stop when the node stops; `None` is each pod's own grace period,
    /// zero is at once.
    pub longest_stop: Option<Duration>,
    /// A label, key and value: when the node stops, pods that have it are stopped once all others are gone.
    pub stops_last: Option<(String, String)>,
}

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Containers cannot be started at all.
    #[error("failed to prepare containers: {0}")]
    Launcher(#[from] coregent_process::StartError),
    /// The system lacks what containers need.
    #[error(transparent)]
    Unsupported(#[from] coregent_process::Unsupported),
    /// The node's own server has no address.
    #[error("failed to listen on {address} for logs and exec: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The node could not be made known.
    #[error("failed to register node {name:?}: {source}")]
    Register {
        /// The node.
        name: String,
        /// What the API said.
        source: Box<kube::Error>,
    },
}

/// Runs a node until `shutdown`; then its pods are stopped, their last statuses written, and the Node is marked not ready.
///
/// # Errors
/// Only at the start; a node that runs goes on through anything that the API or a pod does.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    coregent_process::check_support()?;
    let launcher = coregent_process::Launcher::new(options.self_exe.clone())?;
    // What serves pods ends after them.
    let services = CancellationToken::new();
    let _ends_with_us = services.clone().drop_guard();
    let node = node::Node::start(&options, launcher, &services);
    let listener = server::listen(options.network.host()).await?;
    let port = listener.local_addr().map_or(0, |a| a.port());
    let registered = node_object::register(&node, port)
        .await
        .map_err(|e| Error::Register { name: options.name.clone(), source: Box::new(e) })?;

    let tasks = TaskTracker::new();
    tasks.spawn(node_object::keep_lease(options.client.clone(), registered, services.clone()));
    tasks.spawn(server::run(node.clone(), listener, services.clone()));
    node.synced().await;
    tasks.spawn(hosts::run(node.clone(), services.clone()));
    tasks.spawn(proxy::run(node.clone(), services.clone()));
    tasks.spawn(volumes::run(node.clone(), services.clone()));
    tracing::info!(node = options.name, network = %options.network.prefix(), "node runs");

    pods::run(node.clone(), shutdown, options.longest_stop, options.stops_last).await;

    if let Err(e) = node_object::set_not_ready(&node).await {
        tracing::warn!("node not marked as stopped: {e}");
    }
    services.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}
