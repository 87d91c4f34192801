//! What becomes of a StatefulSet, step by step.

use serde_json::{Value, json};

use crate::controllers::fixture::Fixture;
use crate::controllers::registry::Controller::StatefulSet;

fn set(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "web", "generation": 1 },
        "spec": {
            "replicas": 3,
            "serviceName": "web",
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
            },
        },
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

fn pods(fixture: &Fixture) -> Vec<String> {
    fixture.world.tables.pods.all().map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

/// All members made and ready.
fn running(spec: Value) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.put(set(spec));
    for _ in 0..4 {
        fixture.settle(StatefulSet, "web");
        for pod in pods(&fixture) {
            fixture.ready(&pod);
        }
    }
    fixture.settle(StatefulSet, "web");
    fixture
}

fn gone(fixture: &mut Fixture, pod: &str) {
    fixture.remove("Pod", pod);
    fixture.settle(StatefulSet, "web");
}

fn deleting(fixture: &Fixture) -> Vec<String> {
    let pods = fixture.world.tables.pods.all().filter(|pod| pod.metadata.deletion_timestamp.is_some());
    pods.map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

fn status(fixture: &Fixture) -> Value {
    fixture.get("StatefulSet", "web").unwrap()["status"].clone()
}

#[test]
fn ordered_pods_are_made_one_after_the_other_as_each_gets_ready() {
    let mut fixture = Fixture::new();
    fixture.put(set(json!({})));
    fixture.settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0"]);
    fixture.ready("web-0").settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0", "web-1"]);
    fixture.ready("web-1").settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0", "web-1", "web-2"]);
}

#[test]
fn parallel_pods_are_made_at_once_from_the_start_ordinal() {
    let mut fixture = Fixture::new();
    fixture.put(set(json!({ "podManagementPolicy": "Parallel", "ordinals": { "start": 5 } })));
    fixture.settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-5", "web-6", "web-7"]);
}

#[test]
fn a_pod_bears_its_identity_and_its_claims() {
    let mut fixture = Fixture::new();
    let template =
        json!({ "metadata": { "name": "data" }, "spec": { "resources": { "requests": { "storage": "1Gi" } } } });
    fixture.put(set(json!({ "volumeClaimTemplates": [template] })));
    fixture.settle(StatefulSet, "web");
    let pod = fixture.get("Pod", "web-0").unwrap();
    let revision = status(&fixture)["updateRevision"].clone();
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "app": "web",
            "apps.kubernetes.io/pod-index": "0",
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "web-0",
        })
    );
    assert_eq!(pod["spec"]["hostname"], "web-0");
    assert_eq!(pod["spec"]["subdomain"], "web");
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-web-0");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    let claim = fixture.get("PersistentVolumeClaim", "data-web-0").unwrap();
    assert_eq!(claim["metadata"]["labels"]["app"], "web");
    assert!(claim["metadata"]["ownerReferences"].is_null(), "retained claims belong to nobody");
}

#[test]
fn a_set_at_rest_writes_nothing_and_says_so_in_its_status() {
    let fixture = running(json!({}));
    assert!(fixture.decide(StatefulSet, "web").is_quiet());
    let status = status(&fixture);
    for count in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(status[count], 3, "{count}");
    }
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["currentRevision"], status["updateRevision"]);
}

#[test]
fn a_pod_is_made_again_only_when_the_old_object_is_gone() {
    let mut fixture = running(json!({ "podManagementPolicy": "Parallel" }));
    fixture.change("Pod", "web-1", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    fixture.settle(StatefulSet, "web");
    assert_eq!(deleting(&fixture), ["web-1"]);
    fixture.remove("Pod", "web-1");
    let lines = fixture.lines(StatefulSet, "web");
    assert_eq!(lines.first().map(String::as_str), Some("create Pod default/web-1"));
}

#[test]
fn a_failed_pod_is_replaced() {
    let mut fixture = running(json!({}));
    fixture.change("Pod", "web-1", json!({ "status": { "phase": "Failed" } }));
    fixture.settle(StatefulSet, "web");
    assert_eq!(deleting(&fixture), ["web-1"]);
}

#[test]
fn a_stranger_of_the_same_name_is_left_alone() {
    let mut fixture = Fixture::new();
    fixture.put(set(json!({})));
    fixture.put(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-0" } }));
    fixture.settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0"]);
    assert!(deleting(&fixture).is_empty());
}

#[test]
fn an_orphan_of_the_set_is_adopted() {
    let mut fixture = running(json!({}));
    fixture.change("Pod", "web-1", json!({ "metadata": { "ownerReferences": null } }));
    fixture.settle(StatefulSet, "web");
    let pod = fixture.get("Pod", "web-1").unwrap();
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "uid-web");
    assert!(deleting(&fixture).is_empty());
}

#[test]
fn scaling_down_removes_the_highest_first_and_one_at_a_time() {
    let mut fixture = running(json!({}));
    fixture.change("StatefulSet", "web", json!({ "spec": { "replicas": 1 } }));
    fixture.settle(StatefulSet, "web");
    assert_eq!(deleting(&fixture), ["web-2"]);
    gone(&mut fixture, "web-2");
    assert_eq!(deleting(&fixture), ["web-1"]);
    gone(&mut fixture, "web-1");
    assert_eq!(pods(&fixture), ["web-0"]);
}

#[test]
fn a_rolling_update_goes_from_the_highest_down_and_waits_for_each() {
    let mut fixture = running(json!({}));
    let old = status(&fixture)["currentRevision"].clone();
    fixture.change("StatefulSet", "web", json!({ "spec": { "template": { "spec": { "hostNetwork": false } } } }));
    fixture.settle(StatefulSet, "web");
    assert_eq!(deleting(&fixture), ["web-2"]);
    gone(&mut fixture, "web-2");
    assert_eq!(deleting(&fixture), Vec::<String>::new(), "the new web-2 is not ready yet");
    assert_eq!(status(&fixture)["updatedReplicas"], 1);
    fixture.ready("web-2").settle(StatefulSet, "web");
    assert_eq!(deleting(&fixture), ["web-1"]);
    gone(&mut fixture, "web-1");
    fixture.ready("web-1").settle(StatefulSet, "web");
    gone(&mut fixture, "web-0");
    assert_eq!(status(&fixture)["currentRevision"], old);
    fixture.ready("web-0").settle(StatefulSet, "web");
    assert_eq!(status(&fixture)["currentRevision"], status(&fixture)["updateRevision"]);
    assert_eq!(status(&fixture)["currentReplicas"], 3);
}

#[test]
fn pods_below_the_partition_keep_the_current_revision_even_when_made_again() {
    let mut fixture = running(json!({}));
    let old = status(&fixture)["currentRevision"].clone();
    fixture.change(
        "StatefulSet",
        "web",
        json!({ "spec": {
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } },
            "template": { "spec": { "hostNetwork": false } },
        }}),
    );
    fixture.settle(StatefulSet, "web");
    gone(&mut fixture, "web-2");
    fixture.ready("web-2").settle(StatefulSet, "web");
    assert!(deleting(&fixture).is_empty());
    gone(&mut fixture, "web-0");
    assert_eq!(fixture.get("Pod", "web-0").unwrap()["metadata"]["labels"]["controller-revision-hash"], old);
    assert_ne!(fixture.get("Pod", "web-2").unwrap()["metadata"]["labels"]["controller-revision-hash"], old);
}

#[test]
fn on_delete_replaces_nothing_by_itself_and_makes_new_pods_from_the_new_template() {
    let mut fixture = running(json!({ "updateStrategy": { "type": "OnDelete" } }));
    fixture.change("StatefulSet", "web", json!({ "spec": { "template": { "spec": { "hostNetwork": false } } } }));
    fixture.settle(StatefulSet, "web");
    assert!(deleting(&fixture).is_empty());
    gone(&mut fixture, "web-1");
    let pod = fixture.get("Pod", "web-1").unwrap();
    assert_eq!(pod["metadata"]["labels"]["controller-revision-hash"], status(&fixture)["updateRevision"]);
    assert_eq!(pod["spec"]["hostNetwork"], false);
}

#[test]
fn going_back_to_an_old_template_makes_its_revision_the_newest() {
    let mut fixture = running(json!({ "podManagementPolicy": "Parallel" }));
    let old = status(&fixture)["updateRevision"].clone();
    fixture.change("StatefulSet", "web", json!({ "spec": { "template": { "spec": { "hostNetwork": false } } } }));
    fixture.settle(StatefulSet, "web");
    fixture.change("StatefulSet", "web", json!({ "spec": { "template": { "spec": { "hostNetwork": null } } } }));
    fixture.settle(StatefulSet, "web");
    assert_eq!(status(&fixture)["updateRevision"], old);
    assert_eq!(fixture.get("ControllerRevision", old.as_str().unwrap()).unwrap()["revision"], 3);
}

#[test]
fn revisions_beyond_the_limit_are_removed_oldest_first() {
    let mut fixture = running(json!({ "revisionHistoryLimit": 0, "replicas": 0 }));
    for term in 1..4 {
        let spec = json!({ "terminationGracePeriodSeconds": term });
        fixture.change("StatefulSet", "web", json!({ "spec": { "template": { "spec": spec } } }));
        fixture.settle(StatefulSet, "web");
    }
    assert_eq!(fixture.world.tables.revisions.all().count(), 1);
}

#[test]
fn the_next_pod_waits_for_min_ready_seconds_and_the_decision_says_when_to_look() {
    let mut fixture = Fixture::new();
    fixture.put(set(json!({ "minReadySeconds": 10 })));
    fixture.settle(StatefulSet, "web");
    fixture.ready("web-0").settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0"]);
    assert_eq!(fixture.decide(StatefulSet, "web").look_again, Some(std::time::Duration::from_secs(10)));
    fixture.now.wall = "2026-01-01T00:00:10Z".parse().unwrap();
    fixture.settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0", "web-1"]);
}

fn claimed(policy: Value) -> Value {
    let template =
        json!({ "metadata": { "name": "data" }, "spec": { "resources": { "requests": { "storage": "1Gi" } } } });
    json!({ "volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": policy })
}

fn owner(fixture: &Fixture, claim: &str) -> Value {
    fixture.get("PersistentVolumeClaim", claim).unwrap()["metadata"]["ownerReferences"][0]["kind"].clone()
}

#[test]
fn claims_go_with_whom_the_retention_policy_says() {
    for (policy, member, condemned) in [
        (json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }), Value::Null, Value::Null),
        (json!({ "whenDeleted": "Delete", "whenScaled": "Retain" }), json!("StatefulSet"), json!("StatefulSet")),
        (json!({ "whenDeleted": "Retain", "whenScaled": "Delete" }), Value::Null, json!("Pod")),
        (json!({ "whenDeleted": "Delete", "whenScaled": "Delete" }), json!("StatefulSet"), json!("Pod")),
    ] {
        let mut fixture = running(claimed(policy.clone()));
        fixture.change("StatefulSet", "web", json!({ "spec": { "replicas": 2 } }));
        fixture.settle(StatefulSet, "web");
        assert_eq!(owner(&fixture, "data-web-1"), member, "{policy}");
        assert_eq!(owner(&fixture, "data-web-2"), condemned, "{policy}");
    }
}

#[test]
fn a_pod_waits_while_its_claim_is_being_deleted() {
    let mut fixture = Fixture::new();
    fixture.put(set(claimed(Value::Null)));
    fixture.put(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-web-0", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"] },
    }));
    fixture.settle(StatefulSet, "web");
    assert!(pods(&fixture).is_empty());
    fixture.remove("PersistentVolumeClaim", "data-web-0");
    fixture.settle(StatefulSet, "web");
    assert_eq!(pods(&fixture), ["web-0"]);
}
