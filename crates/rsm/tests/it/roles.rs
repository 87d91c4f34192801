//! Role Events become labels.

use coregent_api::{ReplicatedStateMachine, annotations, labels};
use coregent_rsm::PodRoleEventHandler;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::plane::{Plane, manifest};

async fn probed(probe: Value) -> Plane {
    let plane = Plane::start().await;
    plane.create::<ReplicatedStateMachine>(manifest("bar", json!({"roleProbe": probe}))).await;
    plane.settle("bar").await;
    let set = plane.get::<StatefulSet>("bar").await.unwrap();
    for pod in ["bar-0", "bar-1"] {
        plane
            .create::<Pod>(json!({
                "metadata": {"name": pod, "labels": {"app": "bar"}, "ownerReferences": [{"apiVersion": "apps/v1",
                    "kind": "StatefulSet", "name": "bar", "uid": set.uid(), "controller": true}]},
                "spec": {"containers": [{"name": "db", "image": "db:1"}]},
            }))
            .await;
    }
    plane
}

/// An Event of a probe in `bar-0`, `micros` after a fixed moment.
async fn event(plane: &Plane, name: &str, micros: u32, uid: Option<String>, message: Value) -> Event {
    let uid = match uid {
        Some(uid) => uid,
        None => plane.get::<Pod>("bar-0").await.unwrap().uid().unwrap(),
    };
    plane
        .create(json!({
            "metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "bar-0", "uid": uid,
                "fieldPath": "spec.containers{kb-role-probe}"},
            "reason": "checkRole", "type": "Normal", "count": 1, "message": message.to_string(),
            "eventTime": format!("2026-11-30T00:00:00.{micros:06}Z"),
            "action": "check", "reportingComponent": "probe", "reportingInstance": "bar-0",
        }))
        .await
}

fn role(role: &str) -> Value {
    json!({"event": "Success", "originalRole": "", "role": role})
}

async fn labelled(plane: &Plane, pod: &str) -> (Option<String>, Option<String>) {
    let pod = plane.get::<Pod>(pod).await.unwrap();
    (pod.labels().get(labels::ROLE).cloned(), pod.labels().get(labels::ACCESS_MODE).cloned())
}

#[tokio::test]
async fn the_newest_event_wins_one_microsecond_apart_and_is_handled_once() {
    let plane = probed(json!({})).await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    let newer = event(&plane, "newer", 2, None, role("LEADER")).await;
    let older = event(&plane, "older", 1, None, role("follower")).await;
    handler.handle(&newer).await.unwrap();
    handler.handle(&older).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (Some("leader".into()), Some("ReadWrite".into())));
    let newer = plane.get::<Event>("newer").await.unwrap();
    assert_eq!(newer.annotations()[annotations::ROLE_EVENT_HANDLED], "count-1");
    plane.writes.take();
    handler.handle(&newer).await.unwrap();
    assert_eq!(plane.writes.take(), Vec::<String>::new());
}

#[tokio::test]
async fn an_event_of_the_predecessor_changes_nothing() {
    let plane = probed(json!({})).await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    let old = event(&plane, "old", 9, Some("another".into()), role("leader")).await;
    handler.handle(&old).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
    assert_eq!(plane.writes.take().len(), 1, "the Event is marked, the pod is left");
}

#[tokio::test]
async fn an_unknown_role_takes_both_labels_away() {
    let plane = probed(json!({})).await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    handler.handle(&event(&plane, "a", 1, None, role("follower")).await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (Some("follower".into()), Some("Readonly".into())));
    handler.handle(&event(&plane, "b", 2, None, role("candidate")).await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
}

#[tokio::test]
async fn a_snapshot_labels_every_pod_that_it_identifies() {
    let plane = probed(json!({})).await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    let uid = plane.get::<Pod>("bar-1").await.unwrap().uid();
    let snapshot = json!({"term": "7", "PodRoleNamePairs": [
        {"podName": "bar-9", "roleName": "follower", "podUid": "x"},
        {"podName": "bar-0", "roleName": "follower"},
        {"podName": "bar-1", "roleName": "leader", "podUid": uid},
    ]});
    handler.handle(&event(&plane, "a", 1, None, role(&snapshot.to_string())).await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await.0.as_deref(), Some("follower"));
    assert_eq!(labelled(&plane, "bar-1").await.0.as_deref(), Some("leader"));
}

#[tokio::test]
async fn garbage_is_marked_and_forgotten() {
    let plane = probed(json!({})).await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    let garbage = event(&plane, "a", 1, None, json!("{{{ \u{fffd}")).await;
    handler.handle(&garbage).await.unwrap();
    assert_eq!(plane.writes.take(), ["PATCH events/a"]);
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
}

#[tokio::test]
async fn pods_of_a_set_without_a_probe_are_their_owners_to_label() {
    let plane = Plane::start().await;
    plane.create::<ReplicatedStateMachine>(manifest("bar", json!({}))).await;
    plane.settle("bar").await;
    let set = plane.get::<StatefulSet>("bar").await.unwrap();
    let pod = json!({"metadata": {"name": "bar-0", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet",
        "name": "bar", "uid": set.uid(), "controller": true}]}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}});
    plane.create::<Pod>(pod).await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    handler.handle(&event(&plane, "a", 1, None, role("leader")).await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
}
