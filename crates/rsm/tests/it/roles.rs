//! Role Events become labels.

use coregent_api::{ReplicatedStateMachine, annotations, labels};
use coregent_rsm::PodRoleEventHandler;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::plane::{Plane, manifest};

async fn probed(probe: Value) -> Plane {
    probed_with(json!({"roleProbe": probe})).await
}

async fn probed_with(spec: Value) -> Plane {
    let plane = Plane::start().await;
    plane.create::<ReplicatedStateMachine>(manifest("bar", spec)).await;
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

/// Both pods of a set whose leader is exclusive.
async fn exclusive() -> Plane {
    let roles = json!([{"name": "leader", "isLeader": true, "isExclusive": true}, {"name": "follower"}]);
    probed_with(json!({"roleProbe": {}, "roles": roles})).await
}

async fn claim(plane: &Plane, name: &str, micros: u32, pod: &str, said: &str) -> Event {
    let uid = plane.get::<Pod>(pod).await.unwrap().uid().unwrap();
    let mut object =
        serde_json::to_value(event(plane, &format!("{name}-draft"), micros, None, role(said)).await).unwrap();
    object["metadata"] = json!({"name": name});
    object["involvedObject"]["name"] = json!(pod);
    object["involvedObject"]["uid"] = json!(uid);
    plane.create(object).await
}

/// Issues 782 and 10087.
#[tokio::test]
async fn an_exclusive_role_moves_with_the_newest_claim_and_a_late_one_does_not_bring_it_back() {
    let plane = exclusive().await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    handler.handle(&claim(&plane, "a", 1, "bar-0", "leader").await).await.unwrap();
    plane.writes.take();
    handler.handle(&claim(&plane, "b", 100, "bar-1", "leader").await).await.unwrap();
    assert_eq!(
        plane.writes.take(),
        ["PATCH pods/bar-0", "PATCH pods/bar-1", "PATCH events/b"],
        "first the old one loses it"
    );
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
    assert_eq!(labelled(&plane, "bar-1").await.0.as_deref(), Some("leader"));
    handler.handle(&claim(&plane, "c", 90, "bar-0", "leader").await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
    assert_eq!(labelled(&plane, "bar-1").await.0.as_deref(), Some("leader"));
    handler.handle(&claim(&plane, "d", 101, "bar-0", "follower").await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await.0.as_deref(), Some("follower"));
}

#[tokio::test]
async fn the_engines_number_weighs_more_than_the_time_of_a_claim() {
    let plane = exclusive().await;
    let handler = PodRoleEventHandler::new(plane.counted.clone());
    handler.handle(&claim(&plane, "a", 50, "bar-0", "leader 8").await).await.unwrap();
    handler.handle(&claim(&plane, "b", 60, "bar-1", "leader 7").await).await.unwrap();
    handler.handle(&claim(&plane, "c", 70, "bar-1", "leader").await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await.0.as_deref(), Some("leader"));
    assert_eq!(labelled(&plane, "bar-1").await, (None, None));
    handler.handle(&claim(&plane, "d", 40, "bar-1", "leader 9").await).await.unwrap();
    assert_eq!(labelled(&plane, "bar-0").await, (None, None));
    assert_eq!(labelled(&plane, "bar-1").await.0.as_deref(), Some("leader"));
}

/// Two controllers that each take one of two claims at the same time.
#[tokio::test]
async fn of_claims_at_the_same_time_one_is_left() {
    let plane = exclusive().await;
    for round in 0..20 {
        let (one, other) =
            (PodRoleEventHandler::new(plane.counted.clone()), PodRoleEventHandler::new(plane.counted.clone()));
        let a = claim(&plane, &format!("a{round}"), round * 10 + 1, "bar-0", "leader").await;
        let b = claim(&plane, &format!("b{round}"), round * 10 + 2, "bar-1", "leader").await;
        let (a, b) = tokio::join!(one.handle(&a), other.handle(&b));
        a.unwrap();
        b.unwrap();
        let leaders = [labelled(&plane, "bar-0").await.0, labelled(&plane, "bar-1").await.0];
        assert_eq!(leaders.iter().flatten().count(), 1, "{leaders:?}");
        assert_eq!(leaders[1].as_deref(), Some("leader"), "the newer one");
    }
}
