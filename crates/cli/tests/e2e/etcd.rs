//! `examples/etcd.yaml` as a person would apply it, with the real etcd: who leads is found out, and followed.

use crate::plane::{PATIENCE, Plane, kill_and_wait, process_with, skipped, text};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// The example, from the repository.
pub const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/etcd.yaml");

/// A plane with the example on it, ready; or why that cannot be had here.
pub fn three_members(test: &str) -> Option<Plane> {
    for program in ["etcd", "etcdctl"] {
        if Command::new(program).arg("--help").output().is_err() {
            skipped(test, "etcd is not installed: apt-get install etcd-server etcd-client");
            return None;
        }
    }
    let plane = Plane::up();
    plane.must(["apply", "-f", EXAMPLE]);
    plane.wait("rsm/etcd", "Ready");
    Some(plane)
}

/// An object as JSON.
pub fn object(plane: &Plane, kind: &str, name: &str) -> Value {
    serde_json::from_str(&plane.must(["get", kind, name, "-o", "json"])).expect("JSON")
}

/// Pods by the role label that they have.
pub fn labelled(plane: &Plane, role: &str) -> Vec<String> {
    let pods: Value = serde_json::from_str(&plane.must(["get", "pods", "-o", "json"])).expect("JSON");
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let has = |pod: &&Value| pod["metadata"]["labels"]["coregent.io/role"] == role;
    pods.iter().filter(has).filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect()
}

/// Client address of a member's etcd.
pub fn address(plane: &Plane, pod: &str) -> String {
    let ip = object(plane, "pod", pod)["status"]["podIP"].as_str().expect("its address").to_owned();
    format!("http://{ip}:2379")
}

/// What a member says of itself, by etcd's own client.
pub fn status(endpoint: &str) -> Option<Value> {
    let args = ["--endpoints", endpoint, "--command-timeout", "1s", "endpoint", "status", "-w", "json"];
    let output = Command::new("etcdctl").args(args).output().expect("etcdctl");
    let mut status: Value = serde_json::from_slice(&output.stdout).ok()?;
    status.get_mut(0)?.get_mut("Status").map(Value::take).filter(Value::is_object)
}

/// Whether a member leads, as it sees it itself.
pub fn leads(endpoint: &str) -> bool {
    status(endpoint).is_some_and(|status| status["leader"] == status["header"]["member_id"])
}

/// The election that a member is in.
pub fn term(endpoint: &str) -> Option<u64> {
    status(endpoint)?["raftTerm"].as_u64()
}

/// Waits for a fact.
pub fn until(plane: &Plane, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}\n{}", plane.evidence());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The leader Service's only address behind it.
fn served(plane: &Plane) -> Vec<String> {
    let slices = plane.must(["get", "endpointslices", "-l", "kubernetes.io/service-name=etcd", "-o", "json"]);
    let slices: Value = serde_json::from_str(&slices).expect("JSON");
    let endpoints = slices["items"].as_array().cloned().unwrap_or_default();
    let endpoints = endpoints.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    endpoints
        .filter(|endpoint| endpoint["conditions"]["ready"] != json!(false))
        .filter_map(|endpoint| Some(endpoint["addresses"][0].as_str()?.to_owned()))
        .collect()
}

/// kill -9 of a member's etcd.
pub fn kill_etcd(plane: &Plane, pod: &str) {
    let uid = object(plane, "pod", pod)["metadata"]["uid"].as_str().expect("a uid").to_owned();
    kill_and_wait(process_with(&format!("POD_UID={uid}")).expect("its etcd"));
}

#[test]
fn the_label_and_the_service_follow_the_leader_of_a_real_etcd_when_it_is_killed() {
    let Some(plane) = three_members("the_label_and_the_service_follow_the_leader_of_a_real_etcd_when_it_is_killed")
    else {
        return;
    };
    let leaders = labelled(&plane, "leader");
    assert_eq!((leaders.len(), labelled(&plane, "follower").len()), (1, 2), "{leaders:?}");
    let old = leaders[0].clone();
    let endpoints: Vec<(String, String)> =
        ["etcd-0", "etcd-1", "etcd-2"].map(|pod| (pod.to_owned(), address(&plane, pod))).to_vec();
    let at = |pod: &str| endpoints.iter().find(|(name, _)| name == pod).map(|(_, at)| at.clone()).expect("a member");
    assert!(leads(&at(&old)), "{old} leads by its own account");
    let before = term(&at(&old)).expect("a term");
    // Its successor in the same pod may be elected again, being up before anybody misses it.
    let mut old = old;
    let (new, elected) = loop {
        kill_etcd(&plane, &old);
        let elected = || endpoints.iter().find(|(_, at)| leads(at) && term(at) > Some(before)).cloned();
        until(&plane, "an election", || elected().is_some());
        let (moment, new) = (Instant::now(), elected().expect("a leader"));
        if new.0 != old {
            break (new, moment);
        }
        until(&plane, "the label of the leader", || labelled(&plane, "leader") == [new.0.clone()]);
        old = new.0;
    };
    until(&plane, "the label of the new leader", || labelled(&plane, "leader") == [new.0.clone()]);
    let label = elected.elapsed();
    let ip = new.1.trim_start_matches("http://").trim_end_matches(":2379").to_owned();
    until(&plane, "the Service to lead to it", || served(&plane) == [ip.clone()]);
    eprintln!("label {label:?}, Service {:?} after the election was seen", elected.elapsed());
    // The Service's own address, as a client knows it.
    let service = object(&plane, "service", "etcd")["spec"]["clusterIP"].as_str().expect("its address").to_owned();
    let put = ["--endpoints", &format!("http://{service}:2379"), "put", "k", "v"];
    let put = Command::new("etcdctl").args(put).output().expect("etcdctl");
    assert_eq!(text(&put.stdout), "OK\n", "{}", text(&put.stderr));
    until(&plane, "the killed member to follow", || labelled(&plane, "follower").contains(&old));
    plane.wait("rsm/etcd", "Ready");
}
