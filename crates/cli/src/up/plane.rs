//! The embedded control plane as one process: API server, built-in controllers, node, our controllers.
//!
//! It stops in the opposite order of its start: our controllers first, so that nobody fails a database over that is
//! being stopped; then the node with the pods; the API server and its store last.

use super::data_folder::DataFolder;
use super::{Args, signals};
use crate::connection::{Connection, Target};
use crate::failure::{Failure, Outcome, chain};
use coregent_apiserver::{ApiServer, Options, Storage, pki, serve};
use std::net::SocketAddr;
use std::path::Path;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Port of the API on the plane's own address.
const API_PORT: u16 = 6443;
/// Name of the one node.
const NODE: &str = "local";

/// A running control plane.
pub struct Plane {
    folder: DataFolder,
    server: ApiServer,
    client: kube::Client,
    resumed: bool,
    controllers: Part,
    built_in: Part,
    node: Part,
    https: Part,
}

/// One part: how to stop it and how it ended.
struct Part {
    name: &'static str,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

impl Part {
    fn start<E: std::error::Error>(
        name: &'static str,
        run: impl FnOnce(CancellationToken) -> futures::future::BoxFuture<'static, Result<(), E>>,
    ) -> Part {
        let shutdown = CancellationToken::new();
        let work = run(shutdown.clone());
        let task = tokio::spawn(async move { work.await.map_err(|error| chain(&error)) });
        Part { name, shutdown, task }
    }

    async fn stop(&mut self) {
        self.shutdown.cancel();
        match (&mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::error!("{} ended: {why}", self.name),
            Err(error) => tracing::error!("{} ended: {error}", self.name),
        }
    }
}
