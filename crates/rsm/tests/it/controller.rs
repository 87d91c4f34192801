//! The running controller, with the built-in controllers and a kubelet that says that pods run.

use coregent_api::{ReplicatedStateMachine, conditions};
use coregent_apiserver::controllers;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::plane::{Plane, manifest, wait};

pub struct Running {
    pub plane: Plane,
    /// Ends the built-in controllers.
    pub kubernetes: CancellationToken,
    _stop: DropGuard,
}

pub async fn running() -> Running {
    let plane = Plane::start().await;
    let shutdown = CancellationToken::new();
    let nodes: Api<Node> = Api::all(plane.client.clone());
    let node = json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let room = json!({"pods": "10000", "cpu": "10000", "memory": "10000Gi"});
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": room, "allocatable": room}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let kubernetes = shutdown.child_token();
    let options = controllers::Options::new("/data");
    tokio::spawn(controllers::run(plane.client.clone(), options, kubernetes.clone()));
    tokio::spawn(kubelet(plane.client.clone()));
    tokio::spawn(coregent_rsm::run(
        plane.counted.clone(),
        coregent_rsm::Tools::default(),
        std::sync::Arc::new(|_| ()),
        shutdown.clone(),
    ));
    Running { plane, kubernetes, _stop: shutdown.drop_guard() }
}

async fn kubelet(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let api: Api<Pod> = Api::default_namespaced(client.clone());
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        } else if pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Running") {
            let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            let _ = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
        }
    }
}

async fn ready(plane: &Plane, name: &str) -> ReplicatedStateMachine {
    wait("the set to be ready", || async {
        let rsm = plane.rsm(name).await;
        let status = rsm.status.clone()?;
        (status.observed_generation == rsm.metadata.generation && conditions::is_true(&status.conditions, "Ready"))
            .then_some(rsm)
    })
    .await
}

#[tokio::test]
async fn a_set_comes_up_follows_its_roles_and_then_writes_nothing() {
    let running = running().await;
    let plane = &running.plane;
    let spec = json!({"podManagementPolicy": "Parallel"});
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
    ready(plane, "bar").await;
    for (pod, role) in [("bar-0", "follower"), ("bar-1", "leader"), ("bar-2", "follower")] {
        plane.patch::<Pod>(pod, json!({"metadata": {"labels": {"coregent.io/role": role}}})).await;
    }
    wait("the environment to name the leader", || async {
        let data = plane.get::<ConfigMap>("bar-rsm-env").await?.data?;
        (data.get("KB_LEADER")? == "bar-1" && data.get("KB_FOLLOWERS")? == "bar-2,bar-0").then_some(())
    })
    .await;
    // Settled: whatever else happens to something of the set, there is nothing to write.
    wait("a look that writes nothing", || async { plane.try_pass("bar").await.ok()?.is_empty().then_some(()) }).await;
    plane.patch::<Pod>("bar-0", json!({"metadata": {"annotations": {"theirs": "x"}}})).await;
    assert_eq!(plane.pass("bar").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_set_of_instances_is_scaled_and_deleted() {
    let running = running().await;
    let plane = &running.plane;
    plane.create::<ReplicatedStateMachine>(manifest("bar", json!({"memberLayout": "Instances", "replicas": 2}))).await;
    ready(plane, "bar").await;
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 3}})).await;
    let rsm = ready(plane, "bar").await;
    assert_eq!(rsm.status.unwrap().instances, [1, 2, 3]);
    let pods = plane.api::<Pod>().list(&ListParams::default().labels("app=bar")).await.unwrap();
    let mut names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    names.sort();
    assert_eq!(names, ["bar-1-0", "bar-2-0", "bar-3-0"]);
    plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
    wait("everything to be gone", || async {
        let pods = plane.api::<Pod>().list(&ListParams::default()).await.unwrap();
        (plane.get::<ReplicatedStateMachine>("bar").await.is_none() && pods.items.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_changed_template_restarts_followers_first_and_each_pod_once() {
    let running = running().await;
    let plane = &running.plane;
    let spec = json!({"podManagementPolicy": "Parallel", "memberUpdateStrategy": "Serial"});
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
    ready(plane, "bar").await;
    for (pod, role) in [("bar-0", "leader"), ("bar-1", "follower"), ("bar-2", "follower")] {
        plane.patch::<Pod>(pod, json!({"metadata": {"labels": {"coregent.io/role": role}}})).await;
    }
    plane.writes.take();
    // A restart is asked for on the set's own template (issues 5738 and 5749).
    let restart = json!({"spec": {"template": {"metadata": {"annotations": {"restarted-at": "now"}}}}});
    plane.patch::<ReplicatedStateMachine>("bar", restart).await;
    let mut deleted = Vec::new();
    for (pod, role) in [("bar-1", "follower"), ("bar-2", "follower"), ("bar-0", "leader")] {
        wait("a new pod", || async {
            let new = plane.get::<Pod>(pod).await?;
            new.annotations().contains_key("restarted-at").then_some(())
        })
        .await;
        deleted.extend(plane.writes.take().into_iter().filter(|write| write.starts_with("DELETE pods")));
        plane.patch::<Pod>(pod, json!({"metadata": {"labels": {"coregent.io/role": role}}})).await;
    }
    ready(plane, "bar").await;
    wait("a look that writes nothing", || async { plane.try_pass("bar").await.ok()?.is_empty().then_some(()) }).await;
    assert_eq!(deleted, ["DELETE pods/bar-1", "DELETE pods/bar-2", "DELETE pods/bar-0"]);
}
