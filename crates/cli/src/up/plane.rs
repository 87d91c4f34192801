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

impl Plane {
    /// Starts everything; returns once the API answers.
    ///
    /// # Errors
    /// When the folder, the store, an address or a certificate cannot be used; nothing is left running then.
    pub async fn start(data_dir: &Path, args: &Args) -> Outcome<Plane> {
        let folder = DataFolder::open(data_dir)?;
        let dir = folder.path().to_owned();
        let network = coregent_node::network::claim(&dir).map_err(|error| {
            Failure::refused("cannot get addresses for this control plane", chain(&error), "stop another control plane on this machine")
        })?;
        let address = SocketAddr::from((network.api_server(), API_PORT));
        let resumed = dir.join("store.db").exists();
        let node_token = secret()?;
        let server = open_server(&dir, &network, node_token.clone()).await?;
        let tls = pki::prepare(&dir, &addresses(address, args)).map_err(|error| unusable(&dir, &error))?;
        let admin = pki::write_kubeconfig(&dir, address).map_err(|error| unusable(&dir, &error))?;
        server.add_static_token(&admin, coregent_apiserver::UserInfo::admin());
        let https = serve_all(&server, address, args, &tls).await?;
        let client = server.client();
        install_kinds(&client).await?;
        let built_in = Part::start("built-in controllers", |shutdown| {
            let options = coregent_apiserver::controllers::Options { data_dir: dir.clone(), ..Default::default() };
            let run = coregent_apiserver::controllers::run(client.clone(), options, shutdown);
            Box::pin(run)
        });
        let node = start_node(&client, &dir, network, address, &tls, node_token)?;
        let controllers = start_controllers(&client, args);
        Ok(Plane { folder, server, client, resumed, controllers, built_in, node, https })
    }
}
