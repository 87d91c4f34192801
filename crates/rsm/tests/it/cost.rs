//! What the controller writes and reads while sets come up, and while they rest.

use std::collections::BTreeMap;
use std::time::Duration;

use coregent_api::{ReplicatedStateMachine, conditions};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::controller::running;
use crate::plane::{Plane, manifest, wait};

/// `COREGENT_SETS=1000` measures more of them.
fn sets() -> usize {
    std::env::var("COREGENT_SETS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// Memory of this process, in MB.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / 1e6
}

/// A probe beside each member: it reports once, number 0 as the leader.
async fn probes(client: Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let events: Api<Event> = Api::default_namespaced(client);
    let mut changes = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff().applied_objects());
    let mut reported = std::collections::BTreeSet::new();
    while let Some(change) = changes.next().await {
        let Ok(pod) = change else { continue };
        let ready = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        if !ready || !reported.insert(pod.uid()) {
            continue;
        }
        let role = if pod.name_any().ends_with("-0") { "leader" } else { "follower" };
        let event = json!({
            "metadata": {"name": format!("{}.probe", pod.name_any())},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod.name_any(), "uid": pod.uid(),
                "fieldPath": "spec.containers{kb-role-probe}"},
            "reason": "checkRole", "type": "Normal", "count": 1, "eventTime": "2026-11-30T00:00:00.000001Z",
            "message": json!({"event": "Success", "role": role}).to_string(),
            "action": "check", "reportingComponent": "probe", "reportingInstance": pod.name_any(),
        });
        events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    }
}

async fn all_ready(plane: &Plane) {
    wait("every set to be ready", || async {
        let sets = plane.api::<ReplicatedStateMachine>().list(&Default::default()).await.unwrap();
        let is_ready = |set: &ReplicatedStateMachine| {
            set.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, "Ready"))
        };
        (sets.items.len() == self::sets() && sets.items.iter().all(is_ready)).then_some(())
    })
    .await;
}

/// Each set of three: four objects and a finalizer, three labels and three Events marked, however the work of the sets
/// falls together; beyond that only progress is written, each member's once at most.
#[tokio::test]
async fn sets_come_up_with_few_writes_and_then_rest() {
    let running = running().await;
    let plane = &running.plane;
    tokio::spawn(probes(plane.client.clone()));
    let spec = json!({"podManagementPolicy": "Parallel", "roleProbe": {}});
    for n in 0..sets() {
        plane.create::<ReplicatedStateMachine>(manifest(&format!("bar{n}"), spec.clone())).await;
    }
    all_ready(plane).await;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for write in plane.writes.take() {
        let what: String = write.chars().filter(|c| !c.is_ascii_digit()).collect();
        *kinds.entry(what.replace("bar", "").replace("-.probe", "").replace("/-", "/")).or_default() += 1;
    }
    println!("{:.1} writes a set: {kinds:#?}", kinds.values().sum::<usize>() as f64 / sets() as f64);
    let a_set = |what: &str| kinds.get(what).copied().unwrap_or_default() as f64 / sets() as f64;
    let exactly =
        [("POST configmaps", 1.0), ("POST services", 2.0), ("POST statefulsets", 1.0), ("PATCH events/", 3.0)];
    for (what, count) in exactly {
        assert_eq!(a_set(what), count, "{what}");
    }
    assert_eq!(a_set("PATCH replicatedstatemachines/"), 1.0, "the finalizer");
    assert!(a_set("PUT configmaps/rsm-env") <= 3.0, "each role once at most");
    assert!(a_set("PUT replicatedstatemachines//status") <= 9.0, "each member's start, readiness and role at most");
    // What a controller holds: another one beside it, which finds everything as it should be.
    let (before, second) = (resident(), tokio_util::sync::CancellationToken::new());
    let beside = tokio::spawn(coregent_rsm::run(
        plane.counted.clone(),
        coregent_rsm::Tools::default(),
        std::sync::Arc::new(|_| ()),
        second.clone(),
    ));
    plane.writes.take_reads();
    wait("the second controller to have looked at every set", || async {
        (plane.writes.reads() >= 5 * sets()).then_some(())
    })
    .await;
    println!("{:.1} MB for a controller of {} sets, with what its server remembers of it", resident() - before, sets());
    second.cancel();
    beside.await.unwrap();
    // What is still under way of the last status comes to its end; then nobody asks for anything.
    // No kubelet renews the node here: who would call it, and its pods with it, NotReady for that rests first.
    running.kubernetes.cancel();
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(10)).await;
    plane.writes.take();
    plane.writes.take_reads();
    tokio::time::sleep(Duration::from_secs(540)).await;
    assert_eq!(plane.writes.take(), Vec::<String>::new());
    assert_eq!(plane.writes.take_reads(), Vec::<String>::new());
    // Of all the sets only the one that changes is looked at.
    tokio::time::resume();
    let changed = json!({"spec": {"template": {"metadata": {"annotations": {"restarted-at": "now"}}}}});
    plane.patch::<ReplicatedStateMachine>("bar3", changed).await;
    wait("the changed set to be rendered", || async {
        (plane.rsm("bar3").await.status?.current_generation == Some(2)).then_some(())
    })
    .await;
    let (writes, reads) = (plane.writes.take(), plane.writes.take_reads());
    assert!(!writes.is_empty() && !reads.is_empty());
    // The path of a new Event does not say what it is about: that this set is not ready any more.
    let told = writes.iter().chain(&reads).filter(|request| *request != "POST events");
    assert_eq!(told.filter(|request| !about(request, "bar3")).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Whether a request names the set or what belongs to it, in its path or its selector.
fn about(request: &str, set: &str) -> bool {
    request.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == set || word == format!("3D{set}"))
}
