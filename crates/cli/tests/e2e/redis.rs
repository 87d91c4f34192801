//! `examples/redis.yaml` as a person would apply it, with the real Redis.

use crate::etcd::{labelled, object, until};
use crate::plane::{Plane, skipped, text};
use std::process::Command;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/redis.yaml");

fn three_members(test: &str) -> Option<Plane> {
    for program in ["redis-server", "redis-cli"] {
        if Command::new(program).arg("--version").output().is_err() {
            skipped(test, "Redis is not installed: apt-get install redis-server redis-tools");
            return None;
        }
    }
    let plane = Plane::up();
    plane.must(["apply", "-f", EXAMPLE]);
    plane.wait("rsm/redis", "Ready");
    Some(plane)
}

fn service(plane: &Plane, name: &str) -> String {
    object(plane, "service", name)["spec"]["clusterIP"].as_str().expect("its address").to_owned()
}

fn redis(host: &str, command: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-h", host]).args(command).output().expect("redis-cli");
    text(&output.stdout).trim().to_owned()
}

fn address(plane: &Plane, pod: &str) -> String {
    object(plane, "pod", pod)["status"]["podIP"].as_str().expect("its address").to_owned()
}

#[test]
fn the_primary_of_a_real_redis_is_found_and_has_the_service_and_a_new_member_follows_it() {
    let Some(plane) =
        three_members("the_primary_of_a_real_redis_is_found_and_has_the_service_and_a_new_member_follows_it")
    else {
        return;
    };
    assert_eq!(labelled(&plane, "primary"), ["redis-0"]);
    assert_eq!(labelled(&plane, "replica"), ["redis-1", "redis-2"]);
    let host = service(&plane, "redis");
    until(&plane, "the Service to lead to the primary", || redis(&host, &["set", "k", "v"]) == "OK");
    let manifest = std::fs::read_to_string(EXAMPLE).expect("the example");
    plane.apply(&manifest.replacen("replicas: 3", "replicas: 4", 1));
    until(&plane, "the fourth member", || {
        object(&plane, "rsm", "redis")["status"]["joinedMembers"] == serde_json::json!([0, 1, 2, 3])
    });
    let fourth = address(&plane, "redis-3");
    until(&plane, "the key to be there", || redis(&fourth, &["get", "k"]) == "v");
    plane.must(["apply", "-f", EXAMPLE]);
    plane.wait("rsm/redis", "Ready");
}

#[test]
fn a_change_of_the_template_hands_the_primary_of_redis_over_before_it_is_restarted_and_loses_nothing() {
    let Some(plane) = three_members(
        "a_change_of_the_template_hands_the_primary_of_redis_over_before_it_is_restarted_and_loses_nothing",
    ) else {
        return;
    };
    let host = service(&plane, "redis");
    let manifest = std::fs::read_to_string(EXAMPLE).expect("the example");
    let labels = "labels: {app: redis}\n    spec:";
    let annotated = "labels: {app: redis}\n      annotations: {changed: \"1\"}\n    spec:";
    assert!(manifest.contains(labels));
    plane.apply(&manifest.replacen(labels, annotated, 1));
    let mut acknowledged = Vec::new();
    let mut key = 0;
    until(&plane, "all pods to be new", || {
        key += 1;
        if redis(&host, &["set", &format!("k{key}"), "v"]) == "OK" {
            acknowledged.push(key);
        }
        let pods: serde_json::Value = serde_json::from_str(&plane.must(["get", "pods", "-o", "json"])).expect("JSON");
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        pods.len() == 3 && pods.iter().all(|pod| pod["metadata"]["annotations"]["changed"] == "1")
    });
    plane.wait("rsm/redis", "Ready");
    let new = labelled(&plane, "primary");
    assert_eq!(new.len(), 1, "{new:?}");
    assert_ne!(new, ["redis-0"], "the primary was handed over");
    let new = address(&plane, &new[0]);
    let gone: Vec<_> = acknowledged.iter().filter(|key| redis(&new, &["get", &format!("k{key}")]) != "v").collect();
    assert!(gone.is_empty() && !acknowledged.is_empty(), "acknowledged and gone: {gone:?}");
}
