//! Where pods go.

use serde_json::{Value, json};

use crate::controllers::fixture::Fixture;
use crate::controllers::registry::Controller::Scheduler;

fn pod(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "db" } },
        "spec": { "containers": [] },
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

fn two_nodes() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.node("node-a").node("node-b");
    fixture
}

#[test]
fn pods_made_at_the_same_moment_are_spread() {
    let mut fixture = two_nodes();
    for name in ["a", "b", "c"] {
        fixture.put(pod(name, json!({})));
    }
    assert_eq!(
        fixture.lines(Scheduler, ""),
        ["bind Pod default/a to node-a", "bind Pod default/b to node-b", "bind Pod default/c to node-a",]
    );
    fixture.settle(Scheduler, "");
}

#[test]
fn only_ready_schedulable_nodes_without_taints_are_used() {
    for (change, why) in [
        (json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }), "were not ready"),
        (json!({ "spec": { "unschedulable": true } }), "were unschedulable"),
        (json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } }), "had untolerated taints"),
    ] {
        let mut fixture = Fixture::new();
        fixture.node("node-a").change("Node", "node-a", change).put(pod("a", json!({})));
        fixture.settle(Scheduler, "");
        let condition = fixture.get("Pod", "a").unwrap()["status"]["conditions"][0].clone();
        assert_eq!(condition["reason"], "Unschedulable");
        assert_eq!(condition["message"], format!("0/1 nodes are available: 1 node(s) {why}."));
        assert!(fixture.decide(Scheduler, "").is_quiet(), "said once");
    }
}

#[test]
fn a_selector_and_a_required_affinity_choose_the_node() {
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"] }] },
    ]}}});
    for spec in [json!({ "nodeSelector": { "kubernetes.io/hostname": "node-b" } }), json!({ "affinity": affinity })] {
        let mut fixture = two_nodes();
        fixture.put(pod("a", spec));
        assert_eq!(fixture.lines(Scheduler, ""), ["bind Pod default/a to node-b"]);
    }
}

fn apart(preferred: bool) -> Value {
    let term = json!({
        "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "db" } },
    });
    let rule = match preferred {
        true => {
            json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "podAffinityTerm": term }] })
        }
        false => json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] }),
    };
    json!({ "affinity": { "podAntiAffinity": rule } })
}

#[test]
fn pods_that_prefer_to_be_apart_share_a_node_only_when_they_must() {
    let mut fixture = two_nodes();
    fixture.put(pod("other", json!({ "nodeName": "node-b" })));
    fixture.change("Pod", "other", json!({ "metadata": { "labels": { "app": "web" } } }));
    for name in ["a", "b", "c"] {
        fixture.put(pod(name, apart(true)));
    }
    assert_eq!(
        fixture.lines(Scheduler, ""),
        ["bind Pod default/a to node-a", "bind Pod default/b to node-b", "bind Pod default/c to node-a",]
    );
}

#[test]
fn pods_that_must_be_apart_wait_rather_than_share() {
    let mut fixture = two_nodes();
    for name in ["a", "b", "c"] {
        fixture.put(pod(name, apart(false)));
    }
    let lines = fixture.lines(Scheduler, "");
    assert_eq!(lines[..2], ["bind Pod default/a to node-a", "bind Pod default/b to node-b"]);
    assert!(lines[2].contains("2 node(s) didn't match pod anti-affinity rules"), "{lines:?}");
}

#[test]
fn a_pod_whose_claim_is_missing_says_so() {
    let mut fixture = two_nodes();
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    fixture.put(pod("a", json!({ "volumes": volumes })));
    assert!(fixture.lines(Scheduler, "")[0].contains("persistentvolumeclaim \\\"data\\\" not found"));
}
