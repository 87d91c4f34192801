//! The watches that feed the cache: each on its own, so that one that is broken holds up no other (rust.md 3.3, no. 3).

use super::cache::{BUDGETS, Cache, Change};
use super::refused::{FAILED_CREATE, Refusal};
use crate::metrics::Metrics;
use coregent_api::labels;
use futures::{StreamExt, TryStreamExt};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// First and longest wait before a broken watch is begun again.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A watch that was refused counts as heard of again once it has stood for so long: its list alone does not say so.
const STANDS: Duration = Duration::from_secs(4);

/// Starts every watch; they end with `shutdown`.
pub fn start(
    client: &Client,
    namespace: Option<&str>,
    cache: &Arc<Cache>,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let scope = Scope { client, namespace, cache, metrics, shutdown };
    let ours = watcher::Config::default().labels(labels::CLUSTER);
    let all = watcher::Config::default();
    tasks.spawn(scope.feed("DatabaseCluster", scope.api(), all.clone(), Cache::on_cluster));
    tasks.spawn(scope.feed("ReplicatedStateMachine", scope.api(), ours.clone(), Cache::on_rsm));
    tasks.spawn(scope.feed("PersistentVolumeClaim", scope.api(), ours.clone(), Cache::on_claim));
    tasks.spawn(
        scope.feed("Secret", scope.api(), all.clone(), |cache, change| cache.on_secret(change.without_values())),
    );
    tasks.spawn(scope.feed("ConfigMap", scope.api(), all.clone(), Cache::on_config_map));
    tasks.spawn(scope.feed("Service", scope.api(), ours.clone(), Cache::on_service));
    tasks.spawn(scope.feed(BUDGETS, scope.api(), ours.clone(), Cache::on_budget));
    tasks.spawn(scope.feed("Pod", scope.api(), ours.clone(), Cache::on_pod));
    let failed = format!("involvedObject.kind=StatefulSet,reason={FAILED_CREATE}");
    let failed = watcher::Config::default().fields(&failed);
    tasks.spawn(scope.feed("Event", scope.api(), failed, Cache::on_failed_create));
    tasks.spawn(scope.feed("Lease", scope.api(), ours, Cache::on_lease));
    tasks.spawn(scope.feed("Node", Api::all(client.clone()), all, Cache::on_node));
    tasks
}

struct Scope<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
    cache: &'a Arc<Cache>,
    metrics: &'a Metrics,
    shutdown: &'a CancellationToken,
}

impl Scope<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn feed<K>(
        &self,
        kind: &'static str,
        api: Api<K>,
        config: watcher::Config,
        on: impl Fn(&Cache, Change<K>) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (cache, metrics, shutdown) = (self.cache.clone(), self.metrics.clone(), self.shutdown.clone());
        async move {
            let run = follow(kind, api, config, &cache, &metrics, on);
            tokio::select! {
                () = run => {}
                () = shutdown.cancelled() => {}
            }
        }
    }
}

/// Follows one kind for ever.
async fn follow<K>(
    kind: &'static str,
    api: Api<K>,
    config: watcher::Config,
    cache: &Cache,
    metrics: &Metrics,
    on: impl Fn(&Cache, Change<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut stream = watcher::watcher(api, config).boxed();
    let mut listing = Vec::new();
    let mut wait = RETRY.0;
    let mut refused = false;
    loop {
        let next = tokio::select! {
            next = stream.try_next() => next,
            () = tokio::time::sleep(STANDS), if refused => {
                refused = false;
                heard_again(kind, cache);
                continue;
            }
        };
        match next {
            Ok(Some(event)) => {
                // A list alone does not say that the watch after it is allowed as well.
                if matches!(event, watcher::Event::Apply(_) | watcher::Event::Delete(_)) && refused {
                    refused = false;
                    heard_again(kind, cache);
                }
                wait = if refused { wait } else { RETRY.0 };
                metrics.watch_event(kind);
                match event {
                    watcher::Event::Init => {
                        listing.clear();
                        on(cache, Change::Listing);
                    }
                    watcher::Event::InitApply(object) => listing.push(pruned(object)),
                    watcher::Event::InitDone => {
                        on(cache, Change::Listed(std::mem::take(&mut listing)));
                        cache.mark_listed(kind);
                    }
                    watcher::Event::Apply(object) => on(cache, Change::Applied(pruned(object))),
                    watcher::Event::Delete(object) => on(cache, Change::Deleted(pruned(object))),
                }
            }
            Ok(None) => return,
            Err(error) => {
                metrics.watch_error(kind);
                if let Some(why) = Refusal::of_watch(kind, &error) {
                    refused = true;
                    let line = why.line();
                    if cache.is_unheard(kind, why) {
                        tracing::warn!(kind, "{line}");
                    }
                }
                tracing::debug!(kind, %error, "the watch is broken; it is begun again");
                on(cache, Change::Broken);
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
            }
        }
    }
}

fn heard_again(kind: &str, cache: &Cache) {
    tracing::info!(kind, "the watch is allowed again");
    cache.is_heard_again(kind);
}

/// Without what nobody reads and what is the largest part of an object.
fn pruned<K: Resource>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object
}

impl Change<k8s_openapi::api::core::v1::Secret> {
    /// Keeps the keys of a Secret and drops its values: nothing here reads one.
    fn without_values(mut self) -> Self {
        let strip = |secret: &mut k8s_openapi::api::core::v1::Secret| {
            if let Some(data) = &mut secret.data {
                data.values_mut().for_each(|value| value.0.clear());
            }
        };
        match &mut self {
            Change::Listed(secrets) => secrets.iter_mut().for_each(strip),
            Change::Applied(secret) | Change::Deleted(secret) => strip(secret),
            Change::Listing | Change::Broken => {}
        }
        self
    }
}
