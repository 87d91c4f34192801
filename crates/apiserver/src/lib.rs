//! The embedded Kubernetes API server: store, watch hub, a table of kinds and generic routes over it.
//!
//! [`ApiServer::client`] gives a [`kube::Client`] whose service is the router itself: no socket lies between.

pub mod controllers;
pub mod faults;
mod http;
mod kinds;
pub mod patch;
pub mod pki;
pub mod schema;
pub mod serve;
pub mod store;
mod time;

use std::net::Ipv4Addr;
use std::sync::Arc;

pub use http::UserInfo;
pub use store::{OpenError, Restored, Storage, WriteError};

/// How to open an [`ApiServer`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the objects are kept.
    pub store: Storage,
    /// The cluster IPs of Services: first and last, inclusive. Without it Services get none.
    pub service_ips: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The bearer token for the nodes' own HTTP endpoints (logs, exec, port-forward).
    pub node_token: String,
    /// Revisions kept for watches and for lists at a revision.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { store: Storage::Memory, service_ips: None, node_token: String::new(), history: 1_000 }
    }
}

/// The API server; a cheap handle.
#[derive(Clone)]
pub struct ApiServer {
    server: Arc<http::Server>,
}

impl ApiServer {
    /// Opens the store and makes what every cluster has (the namespaces).
    pub async fn open(options: Options) -> Result<ApiServer, OpenError> {
        let server = Arc::new(http::Server::open(options)?);
        http::bootstrap(&server).await.map_err(|error| OpenError::Bootstrap(error.message))?;
        Ok(ApiServer { server })
    }

    /// A client of the trusted router, in process, with the default namespace `default`.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service_as(UserInfo::admin()), "default")
    }

    /// The router for one user, whom it trusts: to be put behind a [`kube::Client`], or under tower layers in tests.
    pub fn service_as(&self, user: UserInfo) -> axum::Router {
        http::trusted(self.server.clone(), user)
    }

    /// The router that authenticates bearer tokens.
    pub fn router(&self) -> axum::Router {
        http::authenticating(self.server.clone())
    }

    /// Lets `token` in as `user` for as long as this server lives.
    pub fn add_static_token(&self, token: &str, user: UserInfo) {
        self.server.add_static_token(token, user);
    }

    /// The random identity of the store: another one means another history (failover.md F14).
    pub fn incarnation(&self) -> &str {
        self.server.incarnation()
    }

    /// Whether an older copy of the store was put back: what followed it is not known here, and must be learned from
    /// what lies outside the store before anything is concluded from it (failover.md F14). It is said at every start
    /// until [`ApiServer::settle_restored`].
    pub fn restored(&self) -> Option<Restored> {
        self.server.store.restored()
    }

    /// Says that whoever must know of [`ApiServer::restored`] knows.
    ///
    /// # Errors
    /// When the store cannot write.
    pub async fn settle_restored(&self) -> Result<(), WriteError> {
        self.server.store.settle_restored().await
    }

    /// Writes what is pending and stops the writer. Requests after it answer 503.
    pub async fn close(self) {
        self.server.close().await;
    }
}
