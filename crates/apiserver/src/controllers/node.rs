//! Nodes that have fallen silent.
//!
//! A node renews its Lease in `kube-node-lease`. Silence is measured on our own clock, by when we saw the Lease
//! change, never by the times written in it: clocks of hosts differ. Nothing is deleted here; who may conclude from
//! silence that something is dead is decided elsewhere (failover.md).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::Options;
use super::selector::PodFacts;
use super::world::{Change, Now, Object, ObjectKey, World};
use super::write::{Decision, Write};

const LEASES: &str = "kube-node-lease";
/// The conditions that a node reports and that nobody knows any more when it is silent.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The nodes that a change concerns.
pub fn touched(change: &Change) -> Vec<ObjectKey> {
    match change.versions().next() {
        Some(Object::Node(_)) => vec![change.key.clone()],
        Some(Object::Lease(_)) if change.key.namespace == LEASES => vec![ObjectKey::new("", &change.key.name)],
        Some(Object::Pod(pod)) => pod.node().map(|node| ObjectKey::new("", node)).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Marks a silent node as unknown, and the pods on it as not ready.
pub fn decide(world: &World, options: &Options, key: &ObjectKey, now: Now) -> Decision {
    let Some(node) = world.tables.nodes.get("", &key.name) else { return Decision::nothing() };
    let seen = [world.lease_seen(LEASES, &key.name), world.node_seen(&key.name)].into_iter().flatten().max();
    let silence = now.mono.saturating_sub(seen.unwrap_or(now.mono));
    if let Some(left) = options.node_silence.checked_sub(silence).filter(|left| !left.is_zero()) {
        return Decision::nothing().again_after(Some(left));
    }
    let mut writes: Vec<Write> = unknown(node, now).into_iter().collect();
    if !writes.is_empty() {
        let note = format!("Node {} has not renewed its Lease for {} s", key.name, options.node_silence.as_secs());
        writes.push(Write::warning(&**node, "NodeNotReady", note));
    }
    let pods = world.tables.pods.all().filter(|pod| pod.node() == Some(&key.name));
    writes.extend(pods.filter_map(|pod| not_ready(pod, now)));
    Decision::side_by_side(writes)
}

fn unknown(node: &Arc<Node>, now: Now) -> Option<Write> {
    let mut conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown") {
        return None;
    }
    if conditions.iter().all(|condition| condition.type_ != "Ready") {
        conditions.push(NodeCondition { type_: "Ready".to_owned(), ..NodeCondition::default() });
    }
    for condition in conditions.iter_mut().filter(|condition| REPORTED.contains(&condition.type_.as_str())) {
        condition.status = "Unknown".to_owned();
        condition.reason = Some("NodeStatusUnknown".to_owned());
        condition.message = Some("Kubelet stopped posting node status.".to_owned());
        condition.last_transition_time = Some(Time(now.wall));
    }
    Some(Write::patch_status(&**node, json!({ "conditions": conditions })))
}

fn not_ready(pod: &Arc<Pod>, now: Now) -> Option<Write> {
    if !pod.is_ready() {
        return None;
    }
    let mut conditions = pod.status.as_ref()?.conditions.clone()?;
    for condition in conditions.iter_mut().filter(|condition| condition.type_ == "Ready") {
        condition.status = "False".to_owned();
        condition.reason = Some("NodeNotReady".to_owned());
        condition.last_transition_time = Some(Time(now.wall));
    }
    Some(Write::patch_status(&**pod, json!({ "conditions": conditions })))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use crate::controllers::fixture::Fixture;
    use crate::controllers::registry::Controller;

    fn lease(renewed: &str) -> serde_json::Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "node-a", "namespace": "kube-node-lease" },
            "spec": { "renewTime": renewed },
        })
    }

    #[test]
    fn a_node_is_unknown_after_silence_on_our_own_clock_and_its_pods_are_not_ready() {
        let mut fixture = Fixture::new();
        fixture.node("node-a");
        fixture.put(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
            "spec": { "nodeName": "node-a", "containers": [] },
        }));
        fixture.ready("a");
        fixture.now.mono = Duration::from_secs(39);
        // Whatever time the node believes it is.
        fixture.put(lease("1999-01-01T00:00:00.000000Z"));
        assert_eq!(fixture.decide(Controller::Node, "node-a").look_again, Some(Duration::from_secs(40)));
        fixture.now.mono = Duration::from_secs(79);
        fixture.settle(Controller::Node, "node-a");
        let node = fixture.get("Node", "node-a").unwrap();
        assert_eq!(node["status"]["conditions"][0]["status"], "Unknown");
        let pod = fixture.get("Pod", "a").unwrap();
        assert_eq!(pod["status"]["conditions"][0]["status"], "False");
        assert!(pod["metadata"]["deletionTimestamp"].is_null());
    }
}
