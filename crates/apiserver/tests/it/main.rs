//! The API as its clients see it: through `kube::Client`, in process.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod access;
mod cluster;
mod controllers_ends;
mod controllers_workloads;
mod crud;
mod durability;
mod faults;
mod kube_controller;
mod kube_controller_manager;
mod kubectl;
mod patches;
mod refusing_disk;
mod served;
mod watches;

use coregent_apiserver::{ApiServer, Options};

/// A server without a file under it.
pub async fn memory() -> ApiServer {
    ApiServer::open(Options::default()).await.unwrap()
}
