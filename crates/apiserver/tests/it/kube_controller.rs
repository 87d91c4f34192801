//! A controller of kube-rs on this API, as somebody would write it for Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use coregent_apiserver::controllers::{self, Options as ControllerOptions};
use coregent_apiserver::faults::{Faults, Journal, Outage};
use coregent_apiserver::{ApiServer, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::wait;

const MANAGER: &str = "copier";

/// Gives each ConfigMap a Secret with the same value.
async fn copy(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let value = map.data.iter().flatten().next().map(|(_, value)| value.clone()).unwrap_or_default();
    let secret = Secret {
        metadata: kube::core::ObjectMeta {
            name: Some(map.name_any()),
            owner_references: Some(map.controller_owner_ref(&()).into_iter().collect()),
            ..kube::core::ObjectMeta::default()
        },
        data: Some([("k".to_owned(), ByteString(value.into_bytes()))].into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::default_namespaced(Client::clone(&client));
    secrets.patch(&map.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(secret)).await?;
    Ok(Action::await_change())
}

struct Bench {
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
    faults: Faults,
    _stop: DropGuard,
}

impl Bench {
    /// A server that remembers few revisions, with its own controllers, and the controller under test, whose way to the
    /// API can be cut.
    async fn start() -> Bench {
        let server = ApiServer::open(Options { history: 20, ..Options::default() }).await.unwrap();
        let shutdown = CancellationToken::new();
        tokio::spawn(controllers::run(server.client(), ControllerOptions::new("/data"), shutdown.clone()));
        let faults = Faults::new(MANAGER, 7, &Journal::default());
        let client = faults.client(&server);
        let controller =
            Controller::new(Api::<ConfigMap>::default_namespaced(client.clone()), watcher::Config::default())
                .owns(Api::<Secret>::default_namespaced(client.clone()), watcher::Config::default())
                .graceful_shutdown_on(shutdown.clone().cancelled_owned())
                .run(copy, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client));
        tokio::spawn(controller.for_each(|_| std::future::ready(())));
        let client = server.client();
        Bench {
            maps: Api::default_namespaced(client.clone()),
            secrets: Api::default_namespaced(client),
            faults,
            _stop: shutdown.drop_guard(),
        }
    }

    async fn put(&self, name: &str, value: &str) {
        let map = json!({"metadata": {"name": name}, "data": {"k": value}});
        self.maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }

    async fn change(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"data": {"k": value}}));
        self.maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the Secret has this value.
    async fn copied(&self, name: &str, value: &str) -> Secret {
        let has = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data["k"].0 == value.as_bytes());
        wait("the copy", || async { self.secrets.get_opt(name).await.unwrap().filter(has) }).await
    }

    /// A server-side apply of the Secret by somebody else.
    async fn apply(&self, force: bool, fields: Value) -> kube::Result<Secret> {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        json_patch::merge(&mut secret, &fields);
        let params = PatchParams { force, ..PatchParams::apply("somebody") };
        self.secrets.patch("a", &params, &Patch::Apply(secret)).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_keeps_what_it_owns_and_its_owner_takes_it_along() {
    let bench = Bench::start().await;
    bench.put("a", "1").await;
    let secret = bench.copied("a", "1").await;
    let owner = &secret.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.controller), ("ConfigMap", "a", Some(true)));
    bench.secrets.delete("a", &DeleteParams::default()).await.unwrap();
    bench.copied("a", "1").await;
    bench.change("a", "2").await;
    bench.copied("a", "2").await;
    bench.maps.delete("a", &DeleteParams::default()).await.unwrap();
    wait("no copy", || async { bench.secrets.get_opt("a").await.unwrap().is_none().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn fields_applied_by_others_stay_and_a_conflict_names_the_controller_which_takes_its_own_back() {
    let bench = Bench::start().await;
    bench.put("a", "1").await;
    bench.copied("a", "1").await;
    bench.apply(false, json!({"metadata": {"labels": {"tier": "gold"}}})).await.unwrap();
    let stolen = json!({"data": {"k": "c3RvbGVu"}});
    let refused = bench.apply(false, stolen.clone()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 409), "{refused}");
    assert!(refused.to_string().contains(MANAGER), "{refused}");
    let mut labelled = stolen;
    json_patch::merge(&mut labelled, &json!({"metadata": {"labels": {"tier": "gold"}}}));
    bench.apply(true, labelled).await.unwrap();
    let secret = bench.copied("a", "1").await;
    assert_eq!(secret.labels()["tier"], "gold");
    // What changes nothing of the copy writes nothing.
    let before = secret.resource_version();
    let note = Patch::Merge(json!({"metadata": {"annotations": {"seen": "yes"}}}));
    bench.maps.patch("a", &PatchParams::default(), &note).await.unwrap();
    bench.put("b", "1").await;
    bench.copied("b", "1").await;
    assert_eq!(bench.secrets.get("a").await.unwrap().resource_version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_watches_are_expired_lists_anew_and_misses_nothing() {
    let bench = Bench::start().await;
    for name in ["a", "b"] {
        bench.put(name, "1").await;
        bench.copied(name, "1").await;
    }
    let known = bench.secrets.get("b").await.unwrap().resource_version().unwrap();
    bench.faults.begin_outage(Outage::Refused);
    bench.change("a", "2").await;
    bench.secrets.delete("b", &DeleteParams::default()).await.unwrap();
    bench.put("c", "1").await;
    // More than is remembered.
    for index in 0..40 {
        bench.change("c", &index.to_string()).await;
    }
    let expired: Vec<_> = bench.maps.watch(&WatchParams::default(), &known).await.unwrap().try_collect().await.unwrap();
    assert!(matches!(&expired[..], [WatchEvent::Error(status)] if status.code == 410), "{expired:?}");
    bench.faults.end_outage();
    bench.copied("a", "2").await;
    bench.copied("b", "1").await;
    bench.copied("c", "39").await;
    // And it follows again.
    bench.change("a", "3").await;
    bench.copied("a", "3").await;
}
