//! etcd from three members to five and back, and a change of its template, while somebody writes all the time.

use crate::etcd::{EXAMPLE, address, labelled, object, status, three_members, until};
use crate::plane::{Plane, text};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ResourceExt, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Writes keys one after another by etcd's own client until it is stopped.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(BTreeSet<u32>, Duration)>,
}

impl Writer {
    fn start(endpoints: &[String]) -> Writer {
        let (stop, endpoints) = (Arc::new(AtomicBool::new(false)), endpoints.join(","));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let (mut acknowledged, mut longest, mut last) = (BTreeSet::new(), Duration::ZERO, Instant::now());
                for key in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key_text = format!("w{key:06}");
                    let put = ["--endpoints", &endpoints, "--command-timeout", "3s", "put", &key_text, "x"];
                    let output = Command::new("etcdctl").args(put).output().expect("etcdctl");
                    if text(&output.stdout) == "OK\n" {
                        longest = longest.max(last.elapsed());
                        last = Instant::now();
                        acknowledged.insert(key);
                    }
                }
                (acknowledged, longest)
            }
        });
        Writer { stop, thread }
    }

    /// The keys that were acknowledged, and the longest time between two acknowledgements.
    fn stop(self) -> (BTreeSet<u32>, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the writer ends")
    }
}

fn keys(endpoint: &str) -> BTreeSet<u32> {
    let get = ["--endpoints", endpoint, "get", "w", "--prefix", "--keys-only"];
    let output = Command::new("etcdctl").args(get).output().expect("etcdctl");
    text(&output.stdout).lines().filter_map(|line| line.strip_prefix('w')?.parse().ok()).collect()
}

/// What etcd itself says of its members, again and again.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Look {
    leader: Value,
    /// Whether each member is a learner.
    members: BTreeMap<String, bool>,
}

impl Watcher {
    fn start(endpoint: String) -> Watcher {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let mut looks: Vec<Look> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    if let Some(look) = look(&endpoint).filter(|look| looks.last() != Some(look)) {
                        looks.push(look);
                    }
                }
                looks
            }
        });
        Watcher { stop, thread }
    }

    fn stop(self) -> Vec<Look> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher ends")
    }
}

fn look(endpoint: &str) -> Option<Look> {
    let leader = status(endpoint)?["leader"].clone();
    let list = ["--endpoints", endpoint, "--command-timeout", "1s", "member", "list", "-w", "json"];
    let output = Command::new("etcdctl").args(list).output().expect("etcdctl");
    let list: Value = serde_json::from_slice(&output.stdout).ok()?;
    let member = |member: &Value| (member["ID"].to_string(), member["isLearner"] == json!(true));
    Some(Look { leader, members: list["members"].as_array()?.iter().map(member).collect() })
}

/// The example with so many members.
fn scale(plane: &Plane, replicas: u32) {
    let manifest = std::fs::read_to_string(EXAMPLE).expect("the example");
    plane.apply(&manifest.replacen("replicas: 3", &format!("replicas: {replicas}"), 1));
}

/// Etcd's number of a member.
fn id(endpoint: &str) -> Value {
    status(endpoint).expect("a status")["header"]["member_id"].clone()
}

fn joined(plane: &Plane) -> Value {
    object(plane, "rsm", "etcd")["status"]["joinedMembers"].clone()
}

#[test]
fn etcd_grows_to_five_and_shrinks_to_three_under_writes_without_losing_one_or_its_quorum() {
    let Some(plane) =
        three_members("etcd_grows_to_five_and_shrinks_to_three_under_writes_without_losing_one_or_its_quorum")
    else {
        return;
    };
    let founders: Vec<String> = ["etcd-0", "etcd-1", "etcd-2"].map(|pod| address(&plane, pod)).to_vec();
    let watcher = Watcher::start(founders[0].clone());
    let writer = Writer::start(&founders);
    scale(&plane, 5);
    until(&plane, "five members", || joined(&plane) == json!([0, 1, 2, 3, 4]));
    until(&plane, "all of them to vote", || labelled(&plane, "follower").len() == 4);
    // One that is to go shall lead.
    let last = address(&plane, "etcd-4");
    let leader = labelled(&plane, "leader").first().cloned().expect("a leader");
    let to = format!("{:x}", id(&last).as_u64().expect("a number"));
    plane.must(["get", "rsm", "etcd"]);
    let moved = Command::new("etcdctl").args(["--endpoints", &address(&plane, &leader), "move-leader", &to]).output();
    assert!(moved.as_ref().is_ok_and(|moved| moved.status.success()), "{moved:?}");
    until(&plane, "the label of the last member", || labelled(&plane, "leader") == ["etcd-4"]);
    scale(&plane, 3);
    until(&plane, "three members", || joined(&plane) == json!([0, 1, 2]));
    plane.wait("rsm/etcd", "Ready");
    until(&plane, "the pods of the others to go", || plane.run(["get", "pod", "etcd-3"]).status.code() != Some(0));
    let (acknowledged, longest) = writer.stop();
    let looks = watcher.stop();
    for endpoint in &founders {
        let missing: Vec<_> = acknowledged.difference(&keys(endpoint)).copied().collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
    }
    let first = &looks[0].members;
    let mut learned = BTreeSet::new();
    for look in &looks {
        for (member, is_learner) in look.members.iter().filter(|(member, _)| !first.contains_key(*member)) {
            assert!(*is_learner || learned.contains(member), "{member} voted before it learned: {looks:?}");
            learned.extend(is_learner.then(|| member.clone()));
        }
    }
    assert_eq!(learned.len(), 2, "{looks:?}");
    for pair in looks.windows(2) {
        let gone: Vec<_> = pair[0].members.keys().filter(|member| !pair[1].members.contains_key(*member)).collect();
        let led = pair[0].leader.to_string();
        assert!(gone.iter().all(|member| **member != led), "{led} led and was removed: {pair:?}");
    }
    eprintln!("{} writes acknowledged, {longest:?} between two at most", acknowledged.len());
}

/// Pods that were told to go, in order, each with the role that it had at that moment.
struct Replaced {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<Vec<(String, String)>>,
}

impl Replaced {
    fn watch(plane: &Plane) -> Replaced {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let pods: Api<Pod> = runtime.block_on(async { Api::default_namespaced(plane.client().await) });
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let mut replaced: Vec<(String, String)> = Vec::new();
            runtime.block_on(async {
                let mut seen = pods.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
                let look = async {
                    while let Ok(Some(event)) = seen.try_next().await {
                        let WatchEvent::Modified(pod) = event else { continue };
                        let (name, role) = (pod.name_any(), pod.labels().get("coregent.io/role").cloned());
                        let known = replaced.iter().any(|(other, _)| *other == name);
                        if pod.metadata.deletion_timestamp.is_some() && !known {
                            replaced.push((name, role.unwrap_or_default()));
                        }
                    }
                };
                tokio::select! {
                    () = look => panic!("the watch ended"),
                    _ = stopped => {}
                }
            });
            replaced
        });
        Replaced { stop, thread }
    }

    fn stop(self) -> Vec<(String, String)> {
        let _ = self.stop.send(());
        self.thread.join().expect("the watcher ends")
    }
}

#[test]
fn a_change_of_the_template_restarts_followers_one_by_one_then_moves_the_leader_then_restarts_it() {
    let Some(plane) =
        three_members("a_change_of_the_template_restarts_followers_one_by_one_then_moves_the_leader_then_restarts_it")
    else {
        return;
    };
    let leader = labelled(&plane, "leader").first().cloned().expect("a leader");
    // Pods come back with other addresses; the Service keeps its own.
    let service = object(&plane, "service", "etcd")["spec"]["clusterIP"].as_str().expect("its address").to_owned();
    let writer = Writer::start(&[format!("http://{service}:2379")]);
    let replaced = Replaced::watch(&plane);
    let manifest = std::fs::read_to_string(EXAMPLE).expect("the example");
    let labels = "labels: {app: etcd}\n    spec:";
    let annotated = "labels: {app: etcd}\n      annotations: {changed: \"1\"}\n    spec:";
    assert!(manifest.contains(labels));
    plane.apply(&manifest.replacen(labels, annotated, 1));
    until(&plane, "all pods to be new", || {
        let pods: Value = serde_json::from_str(&plane.must(["get", "pods", "-o", "json"])).expect("JSON");
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        pods.len() == 3 && pods.iter().all(|pod| pod["metadata"]["annotations"]["changed"] == "1")
    });
    plane.wait("rsm/etcd", "Ready");
    let replaced = replaced.stop();
    let (acknowledged, longest) = writer.stop();
    let order: Vec<&str> = replaced.iter().map(|(pod, _)| pod.as_str()).collect();
    assert_eq!((order.len(), order.last().copied()), (3, Some(leader.as_str())), "{replaced:?}");
    assert!(replaced.iter().all(|(_, role)| role != "leader"), "it led when it was told to go: {replaced:?}");
    let missing: Vec<_> = acknowledged.difference(&keys(&address(&plane, &leader))).copied().collect();
    assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
    eprintln!("{} writes acknowledged, {longest:?} between two at most", acknowledged.len());
}
