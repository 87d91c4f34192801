//! The embedded control plane as one process: API server, built-in controllers, node, our controllers.
//!
//! It stops in the opposite order of its start: our controllers first, so that nobody fails a database over that is
//! being stopped; then the node with the pods; the API server and its store last.

use super::data_folder::DataFolder;
use super::note::Note;
use super::part::Part;
use super::{Args, signals};
use super::{api, kinds, older_store, operator_lease};
use crate::connection::{Connection, Target};
use crate::failure::{Failure, Outcome, chain};
use coregent_api::labels::ACCESS_MODE;
use coregent_core::failover::Role;
use std::path::Path;

/// Name of the one node.
const NODE: &str = "local";

/// A running control plane.
pub struct Plane {
    folder: DataFolder,
    api: api::Api,
    client: kube::Client,
    resumed: bool,
    notes: Vec<Note>,
    built_in: Part,
    node: Part,
    controllers: Option<Part>,
}

impl Plane {
    /// Starts everything; returns once the API answers.
    ///
    /// # Errors
    /// When the folder, the store, an address or a certificate cannot be used; nothing is left running then.
    pub async fn start(data_dir: &Path, args: &Args) -> Outcome<Plane> {
        let folder = DataFolder::open(data_dir)?;
        let dir = folder.path().to_owned();
        let resumed = dir.join("store.db").exists();
        let network = coregent_node::network::claim(&dir).map_err(|error| {
            Failure::refused(
                "cannot get addresses for this control plane",
                chain(&error),
                "stop another control plane on this machine",
            )
        })?;
        let api = api::Api::start(&dir, &network, args).await?;
        let client = api.server.client();
        let mut notes = Vec::new();
        older_store::tell(&api, &client, &mut notes).await?;
        older_store::set_aside_unknown(&client, &dir, NODE, &mut notes).await;
        kinds::install(&client).await?;
        let built_in = start_built_in(&client, &dir);
        let node = start_node(&client, &dir, network, &api)?;
        tokio::spawn(coregent_process::memory::give_back_regularly());
        operator_lease::announce(&client, !args.no_controllers).await;
        let controllers = (!args.no_controllers).then(|| start_controllers(&client));
        Ok(Plane { folder, api, client, resumed, notes, built_in, node, controllers })
    }

    /// The data folder, absolute.
    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    /// It was there before and goes on.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// What a person should know about its start.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// A connection in this process.
    pub fn connection(&self, target: &Target) -> Connection {
        let namespace = target.namespace.clone().unwrap_or_else(|| "default".into());
        Connection { client: self.client.clone(), namespace }
    }

    /// Waits for a signal.
    ///
    /// # Errors
    /// When a part ends by itself, which none should.
    pub async fn until_stopped(&self) -> Outcome {
        let mut parts = vec![&self.built_in, &self.node, &self.api.https];
        parts.extend(&self.controllers);
        let ended = futures::future::select_all(parts.into_iter().map(|part| Box::pin(part.ended())));
        tokio::select! {
            () = signals::next_signal() => Ok(()),
            (part, _, _) = ended => Err(Failure::failed(format!("the {part} ended by themselves"), "see the log above", "start it again; nothing was lost")),
        }
    }

    /// Stops everything in order; a second signal stops waiting for databases that shut down.
    pub async fn stop(mut self) {
        if let Some(controllers) = &mut self.controllers {
            controllers.stop().await;
        }
        tokio::select! {
            () = self.node.stop() => {}
            () = signals::next_signal() => tracing::warn!("stopped without waiting for the pods"),
        }
        self.built_in.stop().await;
        self.api.https.stop().await;
        self.api.server.close().await;
    }
}

fn start_built_in(client: &kube::Client, dir: &Path) -> Part {
    let client = client.clone();
    let options = coregent_apiserver::controllers::Options::new(dir);
    Part::start("built-in controllers", move |shutdown| async move {
        coregent_apiserver::controllers::run(client, options, shutdown).await;
        Ok(())
    })
}

fn start_node(client: &kube::Client, dir: &Path, network: coregent_node::Network, api: &api::Api) -> Outcome<Part> {
    let cannot = |why: String| Failure::refused("cannot start the node", why, "correct what is named and start again");
    let self_exe = std::env::current_exe().map_err(|error| cannot(error.to_string()))?;
    let images = coregent_node::ImageMap::load(dir, &self_exe).map_err(|error| cannot(chain(&error)))?;
    let options = coregent_node::Options {
        client: client.clone(),
        name: NODE.into(),
        data_dir: dir.to_owned(),
        network,
        images,
        self_exe,
        api_url: format!("https://{}", api.address),
        ca_pem: api.ca_pem.clone(),
        node_token: api.node_token.clone(),
        longest_stop: None,
        // A primary that stopped first would leave its replicas with a shorter log.
        stops_last: Some((ACCESS_MODE.to_owned(), Role::Primary.access_mode().to_owned())),
    };
    Ok(Part::start("node", |shutdown| async move {
        coregent_node::run(options, shutdown).await.map_err(|error| chain(&error))
    }))
}

fn start_controllers(client: &kube::Client) -> Part {
    let client = client.clone();
    let options = coregent_operator::Options {
        identity: format!("embedded-{}", std::process::id()),
        namespace: None,
        leader_election: None,
        metrics_addr: None,
        image: None,
        without_rsm: false,
    };
    Part::start("controllers", |shutdown| async move {
        coregent_operator::run(client, options, shutdown).await.map_err(|error| chain(&error))
    })
}
