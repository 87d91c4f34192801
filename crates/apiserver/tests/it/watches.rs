use coregent_apiserver::{ApiServer, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use crate::crud::config_map;
use crate::memory;

fn word(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(object) => format!("added {}", object.name_any()),
        WatchEvent::Modified(object) => format!("modified {}", object.name_any()),
        WatchEvent::Deleted(object) => format!("deleted {}", object.name_any()),
        WatchEvent::Bookmark(mark) => format!("bookmark {}", mark.metadata.annotations.len()),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

async fn words(api: &Api<ConfigMap>, params: &WatchParams, since: &str, count: usize) -> Vec<String> {
    let stream = api.watch(params, since).await.unwrap();
    stream.take(count).map_ok(|event| word(&event)).try_collect().await.unwrap()
}

#[tokio::test]
async fn a_watch_tells_everything_since_its_revision() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    let first = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    let patch = json!({"metadata": {"labels": {"v": "2"}}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    let since = first.resource_version().unwrap();
    let all = words(&api, &WatchParams::default(), &since, 3).await;
    assert_eq!(all, ["added b", "modified a", "deleted b"]);
    let one = words(&api, &WatchParams::default().labels("v=1"), &since, 3).await;
    assert_eq!(one, ["added b", "deleted a", "deleted b"], "what leaves the selection is deleted for its watcher");
    let two = words(&api, &WatchParams::default().labels("v=2"), &since, 1).await;
    assert_eq!(two, ["added a"], "what enters it is added");
    let named = words(&api, &WatchParams::default().fields("metadata.name=a"), &since, 1).await;
    assert_eq!(named, ["modified a"]);
}

#[tokio::test]
async fn a_streaming_list_ends_its_beginning_with_a_bookmark() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let params = WatchParams { send_initial_events: true, ..WatchParams::default() };
    assert_eq!(words(&api, &params, "0", 2).await, ["added a", "bookmark 1"]);
}

#[tokio::test]
async fn a_compacted_or_foreign_revision_is_expired() {
    let server = ApiServer::open(Options { history: 5, ..Options::default() }).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    for index in 0..20 {
        api.create(&PostParams::default(), &config_map(&format!("c{index}"), "1")).await.unwrap();
    }
    assert_eq!(words(&api, &WatchParams::default(), "3", 1).await, ["error 410"]);
    assert_eq!(words(&api, &WatchParams::default(), "999999", 1).await, ["error 410"]);
}

#[tokio::test]
async fn a_slow_watcher_catches_up_from_the_log() {
    let server = ApiServer::open(Options { history: 5_000, ..Options::default() }).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client());
    let since = api.create(&PostParams::default(), &config_map("a", "0")).await.unwrap().resource_version().unwrap();
    let stream = api.watch(&WatchParams::default(), &since).await.unwrap();
    for index in 1..3000 {
        let patch = json!({"data": {"k": index.to_string()}});
        api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let seen: Vec<u64> = stream
        .take(2999)
        .map_ok(|event| match event {
            WatchEvent::Modified(object) => object.data.unwrap()["k"].parse::<u64>().unwrap(),
            other => panic!("{}", word(&other)),
        })
        .try_collect()
        .await
        .unwrap();
    assert!(seen.iter().copied().eq(1..3000));
}

#[tokio::test]
async fn the_watcher_of_kube_follows_in_both_modes() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
        api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
        let mut stream = Box::pin(watcher(api.clone(), config).applied_objects());
        assert_eq!(stream.next().await.unwrap().unwrap().name_any(), "a");
        api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().name_any(), "b");
    }
}
