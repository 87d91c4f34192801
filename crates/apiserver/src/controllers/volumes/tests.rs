//! The life of claims and volumes, step by step.

use serde_json::{Value, json};

use super::{VOLUME_FOLDER_FINALIZER, may_remove_folder};
use crate::controllers::fixture::Fixture;
use crate::controllers::registry::Controller::{Claim, Scheduler, StorageClass, Volume};

const VOLUME: &str = "pvc-uid-data";

fn claim(annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "annotations": annotations },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    })
}

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.node("node-a").node("node-b");
    fixture.settle(StorageClass, "");
    fixture
}

/// A claim bound on node-b.
fn bound() -> Fixture {
    let mut fixture = fixture();
    fixture.put(claim(json!({ "volume.kubernetes.io/selected-node": "node-b" })));
    fixture.settle(Claim, "data");
    fixture.settle(Volume, VOLUME);
    fixture
}

fn user(fixture: &mut Fixture, phase: &str) {
    fixture.put(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "user" },
        "spec": {
            "nodeName": "node-b", "containers": [],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
        },
        "status": { "phase": phase },
    }));
}

fn deleted(fixture: &mut Fixture, kind: &str, name: &str) {
    fixture.change(kind, name, json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
}

#[test]
fn the_default_class_waits_for_the_first_pod() {
    let mut fixture = fixture();
    fixture.put(claim(Value::Null));
    fixture.settle(Claim, "data");
    let claim = fixture.get("PersistentVolumeClaim", "data").unwrap();
    assert_eq!(claim["status"]["phase"], "Pending");
    assert!(fixture.get("PersistentVolume", VOLUME).is_none());
}

#[test]
fn a_claim_gets_a_volume_on_the_node_that_was_chosen_for_it() {
    let fixture = bound();
    let volume = fixture.get("PersistentVolume", VOLUME).unwrap();
    assert_eq!(volume["spec"]["hostPath"]["path"], "/data/volumes/pvc-uid-data");
    let term = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(term["values"], json!(["node-b"]));
    assert_eq!(volume["status"]["phase"], "Bound");
    assert_eq!(volume["spec"]["claimRef"]["uid"], "uid-data");
    let claim = fixture.get("PersistentVolumeClaim", "data").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    assert_eq!(claim["spec"]["storageClassName"], "local");
    assert!(fixture.decide(Claim, "data").is_quiet() && fixture.decide(Volume, VOLUME).is_quiet());
}

#[test]
fn a_free_volume_that_is_large_enough_is_taken_before_one_is_made() {
    let mut fixture = fixture();
    for (name, size) in [("large", "5Gi"), ("fit", "2Gi"), ("small", "1Mi")] {
        fixture.put(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size }, "storageClassName": "local",
                "hostPath": { "path": "/srv" },
            },
        }));
        fixture.settle(Volume, name);
        assert_eq!(fixture.get("PersistentVolume", name).unwrap()["status"]["phase"], "Available");
    }
    fixture.put(claim(json!({ "volume.kubernetes.io/selected-node": "node-b" })));
    fixture.settle(Claim, "data");
    assert_eq!(fixture.get("PersistentVolumeClaim", "data").unwrap()["spec"]["volumeName"], "fit");
}

#[test]
fn a_claim_stays_while_a_pod_uses_it() {
    let mut fixture = bound();
    user(&mut fixture, "Running");
    deleted(&mut fixture, "PersistentVolumeClaim", "data");
    assert!(fixture.decide(Claim, "data").is_quiet());
    user(&mut fixture, "Succeeded");
    fixture.settle(Claim, "data");
    assert!(fixture.get("PersistentVolumeClaim", "data").is_none());
}

fn volume(fixture: &Fixture) -> k8s_openapi::api::core::v1::PersistentVolume {
    serde_json::from_value(fixture.get("PersistentVolume", VOLUME).unwrap()).unwrap()
}

#[test]
fn the_folder_of_a_released_volume_may_go_only_after_the_store_says_that_it_is_deleted() {
    let mut fixture = bound();
    fixture.remove("PersistentVolumeClaim", "data");
    let mut permitted = Vec::new();
    for _ in 0..4 {
        permitted.push(may_remove_folder(&volume(&fixture)));
        fixture.step(Volume, VOLUME);
    }
    assert_eq!(permitted, [false, false, false, true], "released, deleted, unprotected");
    assert!(fixture.decide(Volume, VOLUME).is_quiet(), "the rest is the node's");
    let left = fixture.get("PersistentVolume", VOLUME).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(left, json!([VOLUME_FOLDER_FINALIZER]));
}

#[test]
fn nothing_is_released_before_the_server_itself_says_that_the_claim_is_gone() {
    let mut fixture = bound();
    fixture.remove("PersistentVolumeClaim", "data");
    let lines = fixture.lines(Volume, VOLUME);
    assert_eq!(lines[0], "confirm that PersistentVolumeClaim default/data uid-data is gone");
    assert!(lines[1].contains("Released"), "{lines:?}");
}

#[test]
fn a_bound_volume_that_is_deleted_stays_protected() {
    let mut fixture = bound();
    deleted(&mut fixture, "PersistentVolume", VOLUME);
    assert!(fixture.decide(Volume, VOLUME).is_quiet());
    assert!(!may_remove_folder(&volume(&fixture)));
}

#[test]
fn a_volume_that_is_to_be_retained_stays_released_and_its_folder_stays_when_it_is_deleted() {
    let mut fixture = bound();
    fixture.change("PersistentVolume", VOLUME, json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    fixture.settle(Volume, VOLUME);
    fixture.remove("PersistentVolumeClaim", "data");
    fixture.settle(Volume, VOLUME);
    assert_eq!(fixture.get("PersistentVolume", VOLUME).unwrap()["status"]["phase"], "Released");
    deleted(&mut fixture, "PersistentVolume", VOLUME);
    assert!(!may_remove_folder(&volume(&fixture)));
    fixture.settle(Volume, VOLUME);
    assert!(fixture.get("PersistentVolume", VOLUME).is_none());
}

#[test]
fn a_claim_whose_volume_is_gone_is_lost() {
    let mut fixture = bound();
    fixture.remove("PersistentVolume", VOLUME);
    fixture.settle(Claim, "data");
    assert_eq!(fixture.get("PersistentVolumeClaim", "data").unwrap()["status"]["phase"], "Lost");
}

#[test]
fn a_pod_and_its_claim_are_placed_together() {
    let mut fixture = fixture();
    fixture.put(claim(Value::Null));
    user(&mut fixture, "Pending");
    fixture.change("Pod", "user", json!({ "spec": { "nodeName": null } }));
    let mut trace = Vec::new();
    for _ in 0..8 {
        for (controller, name) in [(Scheduler, ""), (Claim, "data")] {
            trace.extend(
                fixture
                    .lines(controller, name)
                    .iter()
                    .map(|line| line.split('{').next().unwrap().trim_end().to_owned()),
            );
            fixture.step(controller, name);
        }
    }
    insta::assert_snapshot!(trace.join("\n"), @"
    patch PersistentVolumeClaim default/data
    create PersistentVolume pvc-uid-data
    patch PersistentVolumeClaim default/data
    bind Pod default/user to node-a
    patch status of PersistentVolumeClaim default/data
    ");
}
