//! Updates by role: which pods a pass deletes, and that nobody else's are touched.

use coregent_api::ReplicatedStateMachine;
use coregent_api::conditions;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::plane::{Plane, manifest};

/// A set of three whose StatefulSet is at revision `new`, its pods at `old`.
async fn outdated(spec: Value) -> Plane {
    let plane = Plane::start().await;
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
    plane.settle("bar").await;
    observe(&plane, "bar").await;
    for (pod, role) in [("bar-0", "follower"), ("bar-1", "leader"), ("bar-2", "follower")] {
        make(&plane, pod, "bar", "old", role).await;
    }
    plane
}

/// What the StatefulSet controller would say of a set.
async fn observe(plane: &Plane, set: &str) {
    let generation = plane.get::<StatefulSet>(set).await.unwrap().metadata.generation;
    let status = json!({"observedGeneration": generation, "replicas": 3, "readyReplicas": 3, "updateRevision": "new"});
    plane.patch_status::<StatefulSet>(set, status).await;
}

async fn make(plane: &Plane, name: &str, set: &str, revision: &str, role: &str) {
    let owner = plane.get::<StatefulSet>(set).await.unwrap();
    let mut labels = json!({"app": "bar", "controller-revision-hash": revision});
    if !role.is_empty() {
        labels["coregent.io/role"] = json!(role);
    }
    plane
        .create::<Pod>(json!({
            "metadata": {"name": name, "labels": labels, "ownerReferences": [{"apiVersion": "apps/v1",
                "kind": "StatefulSet", "name": set, "uid": owner.uid(), "controller": true}]},
            "spec": {"containers": [{"name": "db", "image": "db:1"}]},
        }))
        .await;
    ready(plane, name, true).await;
}

async fn ready(plane: &Plane, pod: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    plane.patch_status::<Pod>(pod, json!({"conditions": [{"type": "Ready", "status": status}]})).await;
}

/// Passes until nothing but the status is written, and the pods that were deleted.
async fn deleted(plane: &Plane) -> Vec<String> {
    let mut deleted = Vec::new();
    for _ in 0..10 {
        let written = plane.pass("bar").await;
        if written.is_empty() {
            return deleted;
        }
        let pods = written.iter().filter_map(|write| write.strip_prefix("DELETE pods/"));
        deleted.extend(pods.map(str::to_owned));
        if !deleted.is_empty() {
            return deleted;
        }
    }
    panic!("never settled");
}

/// The full run of rsm.md 10.1.
#[tokio::test]
async fn followers_go_one_by_one_and_the_leader_last() {
    let plane = outdated(json!({"memberUpdateStrategy": "Serial"})).await;
    for (pod, role) in [("bar-0", "follower"), ("bar-2", "follower"), ("bar-1", "follower")] {
        assert_eq!(deleted(&plane).await, [pod]);
        assert_eq!(deleted(&plane).await, Vec::<String>::new(), "{pod} is not there");
        make(&plane, pod, "bar", "new", "").await;
        assert_eq!(deleted(&plane).await, Vec::<String>::new(), "{pod} has no role yet");
        let status = plane.rsm("bar").await.status.unwrap();
        let told = conditions::find(&status.conditions, "Ready").unwrap().clone();
        assert!(told.message.contains("is at the newest revision and has no role yet"), "{told:?}");
        plane.patch::<Pod>(pod, json!({"metadata": {"labels": {"coregent.io/role": role}}})).await;
    }
    assert_eq!(deleted(&plane).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_order_follows_a_leader_that_moved() {
    let plane = outdated(json!({"memberUpdateStrategy": "Serial"})).await;
    assert_eq!(deleted(&plane).await, ["bar-0"]);
    make(&plane, "bar-0", "bar", "new", "leader").await;
    plane.patch::<Pod>("bar-1", json!({"metadata": {"labels": {"coregent.io/role": "follower"}}})).await;
    assert_eq!(deleted(&plane).await, ["bar-1"]);
    make(&plane, "bar-1", "bar", "new", "follower").await;
    assert_eq!(deleted(&plane).await, ["bar-2"]);
}

#[tokio::test]
async fn what_is_not_settled_is_not_updated() {
    let plane = outdated(json!({"memberUpdateStrategy": "Parallel"})).await;
    plane.patch_status::<StatefulSet>("bar", json!({"observedGeneration": 0})).await;
    assert_eq!(deleted(&plane).await, Vec::<String>::new(), "the set has not been looked at");
    observe(&plane, "bar").await;
    plane.api::<Pod>().delete("bar-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(deleted(&plane).await, Vec::<String>::new(), "a pod is lacking");
    make(&plane, "bar-0", "bar", "old", "follower").await;
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 4}})).await;
    assert_eq!(deleted(&plane).await, Vec::<String>::new(), "there are to be four, and the set is not looked at");
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 3, "paused": true}})).await;
    assert_eq!(deleted(&plane).await, Vec::<String>::new(), "paused");
    plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"paused": false}})).await;
    assert_eq!(deleted(&plane).await, Vec::<String>::new());
    observe(&plane, "bar").await;
    assert_eq!(deleted(&plane).await.len(), 3, "all at once, now that everything is told");
}

/// The database controller replaces its pods itself (failover.md F15).
#[tokio::test]
async fn without_a_strategy_no_pod_is_touched() {
    for update in [json!({"type": "OnDelete"}), json!({"type": "RollingUpdate"})] {
        let plane = outdated(json!({"updateStrategy": update})).await;
        assert_eq!(deleted(&plane).await, Vec::<String>::new());
        let set = plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap().update_strategy.unwrap();
        assert_eq!(set.type_.as_deref(), update["type"].as_str());
    }
}

#[tokio::test]
async fn with_a_strategy_the_set_itself_replaces_nothing() {
    let update = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    let plane = outdated(json!({"memberUpdateStrategy": "Serial", "updateStrategy": update})).await;
    let strategy = plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap().update_strategy.unwrap();
    assert_eq!((strategy.type_.as_deref(), strategy.rolling_update), (Some("OnDelete"), None));
}

#[tokio::test]
async fn a_percentage_bounds_what_is_away() {
    let bounded = json!({"memberUpdateStrategy": "Parallel", "updateStrategy": {"maxUnavailable": "67%"}});
    let plane = outdated(bounded).await;
    assert_eq!(deleted(&plane).await, ["bar-0", "bar-2"]);
}

#[tokio::test]
async fn a_crashed_member_of_an_old_revision_is_repaired_first() {
    let plane = outdated(json!({"memberUpdateStrategy": "Serial"})).await;
    ready(&plane, "bar-2", false).await;
    assert_eq!(deleted(&plane).await, ["bar-2"]);
}

/// A pod whose label moved after the decision is another pod: who leads now must not go unasked.
#[tokio::test]
async fn a_pod_that_became_the_leader_meanwhile_is_not_deleted() {
    let plane = outdated(json!({"memberUpdateStrategy": "Serial"})).await;
    let world = coregent_rsm::world::World::observe(
        &plane.client,
        "default",
        "bar",
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::now()),
    );
    let plan = coregent_rsm::transformers::plan_builder(world.await.unwrap().unwrap()).build().await.unwrap();
    assert!(plan.lines().unwrap().contains(&"Delete Pod default/bar-0".to_owned()), "{:?}", plan.lines());
    plane.patch::<Pod>("bar-0", json!({"metadata": {"labels": {"coregent.io/role": "leader"}}})).await;
    assert!(plan.execute(&plane.client).await.unwrap_err().is_conflict());
    assert!(plane.get::<Pod>("bar-0").await.is_some());
}

#[tokio::test]
async fn every_member_has_a_revision_of_its_own_in_the_layout_of_instances() {
    let plane = Plane::start().await;
    let spec = json!({"memberLayout": "Instances", "memberUpdateStrategy": "Serial", "replicas": 2});
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
    plane.settle("bar").await;
    for (set, role) in [("bar-1", "leader"), ("bar-2", "follower")] {
        observe(&plane, set).await;
        plane.patch_status::<StatefulSet>(set, json!({"updateRevision": format!("{set}-new")})).await;
        make(&plane, &format!("{set}-0"), set, "old", role).await;
    }
    assert_eq!(deleted(&plane).await, ["bar-2-0"]);
    make(&plane, "bar-2-0", "bar-2", "bar-2-new", "follower").await;
    assert_eq!(deleted(&plane).await, ["bar-1-0"]);
}
