//! Watches and discovery: what brings changes to the runner.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Discovery, discovery::Scope, discovery::verbs};
use tokio::sync::mpsc::Sender;

/// News for the runner.
#[derive(Debug)]
pub enum Message {
    /// An object was created or changed.
    Applied(Arc<ApiResource>, Box<DynamicObject>),
    /// An object is gone.
    Removed(Arc<ApiResource>, Box<DynamicObject>),
    /// All objects of a kind.
    Listed(Arc<ApiResource>, Vec<DynamicObject>),
    /// All kinds that can be listed and watched, with the number of the question.
    Kinds(u64, Vec<ServedKind>),
}

/// A kind that the server serves.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedKind {
    /// The kind.
    pub resource: ApiResource,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
}

/// Watches one kind for ever. A failed or expired watch begins anew with a list.
pub async fn kind(client: Client, resource: Arc<ApiResource>, news: Sender<Message>) {
    let api: Api<DynamicObject> = Api::all_with(client, resource.as_ref());
    // managedFields are the larger part of an object, and no controller reads them.
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events.modify(|object| object.metadata.managed_fields = None));
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let message = match event {
            Ok(watcher::Event::Apply(object)) => Message::Applied(resource.clone(), Box::new(object)),
            Ok(watcher::Event::Delete(object)) => Message::Removed(resource.clone(), Box::new(object)),
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.push(object);
                continue;
            }
            Ok(watcher::Event::InitDone) => Message::Listed(resource.clone(), std::mem::take(&mut listed)),
            Err(error) => {
                tracing::debug!(kind = resource.kind, %error, "a watch failed and begins anew");
                continue;
            }
        };
        if news.send(message).await.is_err() {
            return;
        }
    }
}

/// Asks the server which kinds it has, again and again until it answers.
pub async fn kinds(client: Client, round: u64, news: Sender<Message>) {
    let mut pause = Duration::from_millis(20);
    loop {
        match Discovery::new(client.clone()).run().await {
            Ok(discovery) => {
                let _ = news.send(Message::Kinds(round, served(&discovery))).await;
                return;
            }
            Err(error) => tracing::debug!(%error, "failed to discover kinds; will try again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

fn served(discovery: &Discovery) -> Vec<ServedKind> {
    discovery
        .groups()
        // Events of both groups are the same objects (traps.md).
        .filter(|group| group.name() != "events.k8s.io")
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
        .filter(|(_, capabilities)| {
            capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::WATCH)
        })
        .map(|(resource, capabilities)| ServedKind { resource, namespaced: capabilities.scope == Scope::Namespaced })
        .collect()
}
