//! The API server of the plane and its sockets.

use super::Args;
use super::older_store;
use super::part::Part;
use crate::failure::{Failure, Outcome, chain};
use coregent_apiserver::{ApiServer, OpenError, Options, Storage, UserInfo, pki, serve};
use coregent_node::Network;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Port of the API on the plane's own address.
const PORT: u16 = 6443;

/// The running API server.
pub struct Api {
    /// It.
    pub server: ApiServer,
    /// Its sockets.
    pub https: Part,
    /// Where pods reach it.
    pub address: SocketAddr,
    /// What they know it by.
    pub ca_pem: String,
    /// What the node's own server asks for.
    pub node_token: String,
}

impl Api {
    /// Opens the store and listens.
    ///
    /// # Errors
    /// When the store, a certificate or an address cannot be used.
    pub async fn start(dir: &Path, network: &Network, args: &Args) -> Outcome<Api> {
        older_store::refuse_lost(dir)?;
        let address = SocketAddr::from((network.host(), PORT));
        let mut addresses: Vec<IpAddr> = vec![address.ip()];
        addresses.extend(args.listen.map(|listen| listen.ip()));
        let identity = pki::prepare(dir, &pki::names(&addresses)).map_err(|error| unusable(dir, &error))?;
        let mut listeners = vec![listen(address, "stop what uses that address: `ss -ltnp` names it").await?];
        if let Some(extra) = args.listen {
            listeners.push(listen(extra, "stop what uses that address, or name another with --listen").await?);
        }
        let node_token = pki::random_token().map_err(|error| unusable(dir, &error))?;
        let options = Options {
            store: Storage::Sqlite(dir.join("store.db")),
            service_ips: Some(network.service_range()),
            node_token: node_token.clone(),
            ..Options::default()
        };
        let server = ApiServer::open(options).await.map_err(|error| store(dir, &error))?;
        let admin = pki::write_kubeconfig(dir, address, &identity.ca_pem).map_err(|error| unusable(dir, &error))?;
        server.add_static_token(&admin, UserInfo::admin());
        let ca_pem = identity.ca_pem.clone();
        let served = server.clone();
        let https = Part::start("API sockets", |shutdown| async move {
            let each = listeners
                .into_iter()
                .map(|listener| serve::https(served.clone(), listener, identity.clone(), shutdown.clone()));
            futures::future::join_all(each).await;
            Ok(())
        });
        Ok(Api { server, https, address, ca_pem, node_token })
    }
}

async fn listen(address: SocketAddr, remedy: &str) -> Outcome<tokio::net::TcpListener> {
    serve::listen(address).await.map_err(|error| Failure::refused("cannot serve the API", chain(&error), remedy))
}

fn unusable(dir: &Path, error: &pki::PkiError) -> Failure {
    Failure::refused(
        format!("cannot use the data folder {}", dir.display()),
        chain(error),
        "make room or correct its permissions",
    )
}

fn store(dir: &Path, error: &OpenError) -> Failure {
    let remedy = match error {
        OpenError::Damaged { .. } | OpenError::Missing { .. } => older_store::REMEDY,
        OpenError::Foreign { .. } => {
            "put the store of this folder back, or name the folder that it belongs to with --data-dir"
        }
        OpenError::Newer { .. } => "use that newer version; nothing was changed",
        OpenError::InUse { .. } => "stop what uses it; nothing was changed",
        OpenError::Io { .. } | OpenError::Sqlite { .. } | OpenError::Random(_) | OpenError::Bootstrap(_) => {
            "make room or correct its owner and permissions; the file was left as it is"
        }
    };
    Failure::refused(format!("cannot open the store {}", dir.join("store.db").display()), chain(error), remedy)
}
