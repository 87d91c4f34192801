//! `RSM_COMPATIBILITY_MODE`: labels, owner references and finalizers, as the first seed says of them.

use coregent_api::ReplicatedStateMachine;
use coregent_rsm::names::FINALIZER;
use coregent_rsm::ownership::controller_of;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::plane::{Plane, manifest};

/// A set that a controller of its own made, as the origin labels it.
async fn owned(compatibility: bool) -> Plane {
    let plane = Plane::start().await.compatible(compatibility);
    let owner = plane.create::<ConfigMap>(json!({"metadata": {"name": "cluster"}})).await;
    let mut object = manifest("bar", json!({}));
    object["metadata"]["labels"] = copied();
    object["metadata"]["labels"]["theirs"] = json!("x");
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "cluster",
        "uid": owner.metadata.uid, "controller": true}]);
    plane.create::<ReplicatedStateMachine>(object).await;
    plane.settle("bar").await;
    plane
}

fn copied() -> Value {
    json!({"app.kubernetes.io/managed-by": "kubeblocks", "app.kubernetes.io/instance": "cluster",
        "apps.kubeblocks.io/component-name": "bar"})
}

async fn generated(plane: &Plane) -> Vec<ObjectMeta> {
    vec![
        plane.get::<StatefulSet>("bar").await.unwrap().metadata,
        plane.get::<Service>("bar").await.unwrap().metadata,
        plane.get::<Service>("bar-headless").await.unwrap().metadata,
        plane.get::<ConfigMap>("bar-rsm-env").await.unwrap().metadata,
    ]
}

fn labels(meta: &ObjectMeta) -> Value {
    json!(meta.labels)
}

#[tokio::test]
async fn labels_of_the_set_are_copied_and_otherwise_not() {
    for (mode, expected) in [(true, true), (false, false)] {
        for meta in generated(&owned(mode).await).await {
            for (key, value) in copied().as_object().unwrap() {
                assert_eq!(labels(&meta).get(key) == Some(value), expected, "{mode} {key} {meta:?}");
            }
            assert!(labels(&meta).get("theirs").is_none(), "only those that the origin names");
        }
    }
}

#[tokio::test]
async fn the_owner_of_the_set_owns_what_it_generates_and_otherwise_the_set_does() {
    for (mode, kind) in [(true, "ConfigMap"), (false, "ReplicatedStateMachine")] {
        for meta in generated(&owned(mode).await).await {
            assert_eq!(controller_of(&meta).unwrap().kind, kind, "{meta:?}");
            assert_eq!(meta.owner_references.as_ref().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn the_finalizer_of_the_set_is_copied_and_taken_away_when_the_set_goes() {
    let plane = owned(true).await;
    for meta in generated(&plane).await {
        assert_eq!(meta.finalizers, Some(vec![FINALIZER.to_owned()]));
    }
    let api = plane.api::<StatefulSet>();
    api.delete("bar", &DeleteParams::default()).await.unwrap();
    assert!(plane.get::<StatefulSet>("bar").await.is_some(), "held by the finalizer");
    plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
    for _ in 0..3 {
        plane.pass("bar").await;
    }
    assert!(plane.get::<ReplicatedStateMachine>("bar").await.is_none());
    assert!(plane.get::<StatefulSet>("bar").await.is_none());
    assert!(plane.get::<Service>("bar-headless").await.is_none());
    for meta in generated(&owned(false).await).await {
        assert_eq!(meta.finalizers, None);
    }
}

/// An object that a controller before 0.6 made is found by the labels and the owner, taken over, and not made again; what
/// the owner made for itself under the same labels is left alone.
#[tokio::test]
async fn what_was_made_before_is_taken_over_and_what_is_the_owners_stays() {
    let plane = owned(true).await;
    let owner = plane.get::<ConfigMap>("cluster").await.unwrap();
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "cluster", "uid": owner.metadata.uid,
        "controller": true}]);
    let theirs = json!({"metadata": {"name": "settings", "labels": copied(), "ownerReferences": reference}});
    plane.create::<ConfigMap>(theirs).await;
    let before = plane.get::<ConfigMap>("bar-rsm-env").await.unwrap().metadata.uid;
    let ours = json!({"coregent.io/managed-by": null, "coregent.io/instance": null});
    plane.patch::<ConfigMap>("bar-rsm-env", json!({"metadata": {"labels": ours}, "data": null})).await;
    plane.settle("bar").await;
    let after = plane.get::<ConfigMap>("bar-rsm-env").await.unwrap();
    assert_eq!(after.metadata.uid, before);
    assert_eq!(labels(&after.metadata)["coregent.io/instance"], "bar");
    assert_eq!(after.data.unwrap()["KB_REPLICA_COUNT"], "3");
    plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
    plane.pass("bar").await;
    assert!(plane.get::<ConfigMap>("settings").await.is_some());
}

/// Forward and backward: a set that was made in one mode goes on in the other.
#[tokio::test]
async fn the_mode_can_be_turned_on_and_off() {
    for first in [true, false] {
        let plane = owned(first).await.compatible(!first);
        let uids = |all: Vec<ObjectMeta>| all.into_iter().map(|meta| meta.uid).collect::<Vec<_>>();
        let before = uids(generated(&plane).await);
        plane.patch::<ReplicatedStateMachine>("bar", json!({"spec": {"replicas": 5}})).await;
        plane.settle("bar").await;
        assert_eq!(uids(generated(&plane).await), before);
        assert_eq!(plane.get::<StatefulSet>("bar").await.unwrap().spec.unwrap().replicas, Some(5));
        plane.api::<ReplicatedStateMachine>().delete("bar", &DeleteParams::default()).await.unwrap();
        plane.pass("bar").await;
        assert!(plane.get::<StatefulSet>("bar").await.is_none() && plane.get::<Service>("bar").await.is_none());
    }
}
