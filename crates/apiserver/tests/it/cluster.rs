//! A server with its controllers and kubelets that run nothing but say that they do.

use std::time::Duration;

use coregent_apiserver::controllers::{self, Options as ControllerOptions};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::memory;

/// How long a test waits for what must happen before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane without processes. It stops when it is dropped.
pub struct Cluster {
    pub client: Client,
    _stop: DropGuard,
}

impl Cluster {
    /// A control plane with these nodes.
    pub async fn start(nodes: &[&str]) -> Self {
        // These kubelets renew no Lease.
        let silence = Duration::from_secs(3600);
        Self::start_with(nodes, ControllerOptions { node_silence: silence, ..ControllerOptions::new("/data") }).await
    }

    /// The same with other options.
    pub async fn start_with(nodes: &[&str], options: ControllerOptions) -> Self {
        let client = memory().await.client();
        let shutdown = CancellationToken::new();
        tokio::spawn(controllers::run(client.clone(), options, shutdown.clone()));
        for node in nodes {
            register(&client, node).await;
            tokio::spawn(kubelet(client.clone(), (*node).to_owned(), shutdown.clone()));
        }
        Self { client, _stop: shutdown.drop_guard() }
    }

    /// Waits until `found` gives something.
    pub async fn wait<T, F: Future<Output = Option<T>>>(&self, what: &str, found: impl Fn() -> F) -> T {
        wait(what, found).await
    }

    /// Creates an object given as JSON.
    pub async fn create<K>(&self, object: serde_json::Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }
}

/// Waits until `found` gives something.
pub async fn wait<T, F: Future<Output = Option<T>>>(what: &str, found: impl Fn() -> F) -> T {
    let look = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

async fn register(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
}

/// Marks pods of its node as running and ready, and lets them go when they are deleted.
async fn kubelet(client: Client, node: String, shutdown: CancellationToken) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mine = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = std::pin::pin!(watcher(pods, mine).default_backoff());
    let mut address = 1;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            Some(event) = events.next() => event,
        };
        let (Ok(watcher::Event::Apply(pod)) | Ok(watcher::Event::InitApply(pod))) = event else { continue };
        address += 1;
        look_after(&client, &pod, address).await;
    }
}

async fn look_after(client: &Client, pod: &Pod, address: u8) {
    let name = pod.metadata.name.as_deref().unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap());
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if phase != "Pending" && !phase.is_empty() {
        return;
    }
    let status = json!({ "status": {
        "phase": "Running",
        "podIP": format!("127.64.0.{address}"),
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    }});
    let _ = pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
}
