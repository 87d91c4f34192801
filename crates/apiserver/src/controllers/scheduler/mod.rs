//! The scheduler: puts pods on nodes.
//!
//! One look decides for all waiting pods, so that pods made at the same moment see each other.

mod fit;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::selector::PodFacts;
use super::volumes::SELECTED_NODE;
use super::world::{Change, Now, Object, ObjectKey, World};
use super::write::{Decision, Write};

/// The one key of the scheduler, if a change may let a pod be placed.
pub fn touched(change: &Change) -> Vec<ObjectKey> {
    let concerns = match (&change.new, &change.old) {
        (Some(Object::Pod(pod)), _) => is_waiting(pod) || pod.is_over(),
        (None, Some(Object::Pod(_))) => true,
        (Some(object), _) | (None, Some(object)) => matches!(
            object,
            Object::Node(_) | Object::PersistentVolumeClaim(_) | Object::PersistentVolume(_) | Object::StorageClass(_)
        ),
        (None, None) => false,
    };
    if concerns { vec![ObjectKey::default()] } else { Vec::new() }
}

fn is_waiting(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or("default-scheduler");
    let is_gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    pod.node().is_none() && !pod.is_terminating() && !pod.is_over() && scheduler == "default-scheduler" && !is_gated
}

/// Where pods are or will be.
pub struct Placements<'a> {
    by_node: BTreeMap<&'a str, Vec<&'a Pod>>,
}

/// What to write for all pods that wait for a node.
pub fn decide(world: &World, now: Now) -> Decision {
    let mut placements = Placements { by_node: BTreeMap::new() };
    for pod in world.tables.pods.all() {
        if let Some(node) = pod.node().filter(|_| !pod.is_over()) {
            placements.by_node.entry(node).or_default().push(pod);
        }
    }
    let mut waiting: Vec<&Arc<Pod>> = world.tables.pods.all().filter(|pod| is_waiting(pod)).collect();
    waiting.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let mut groups = Vec::new();
    for pod in waiting {
        let group = match fit::place(world, &placements, pod) {
            Ok(placed) => {
                placements.by_node.entry(placed.node).or_default().push(pod);
                put(pod, &placed)
            }
            Err(fit::Unplaced::Waits) => Vec::new(),
            Err(fit::Unplaced::Unschedulable(why)) => tell(pod, &why, now),
        };
        if !group.is_empty() {
            groups.push(group);
        }
    }
    Decision { groups, look_again: None }
}

/// First the claims follow the pod to its node, then, once they are bound, the pod goes there.
fn put(pod: &Pod, placed: &fit::Placed<'_>) -> Vec<Write> {
    if placed.unbound.is_empty() {
        let place = format!(
            "{}/{}",
            pod.metadata.namespace.clone().unwrap_or_default(),
            pod.metadata.name.clone().unwrap_or_default()
        );
        return vec![
            Write::Bind { target: super::write::Target::of(pod), node: placed.node.to_owned() },
            Write::normal(pod, "Scheduled", format!("Successfully assigned {place} to {}", placed.node)),
        ];
    }
    let unselected = placed
        .unbound
        .iter()
        .filter(|claim| super::volumes::annotation(&claim.metadata, SELECTED_NODE) != Some(placed.node));
    unselected
        .map(|claim| {
            let patch = json!({ "metadata": { "annotations": { SELECTED_NODE: placed.node } } });
            Write::patch(&***claim, patch)
        })
        .collect()
}

/// Says once why a pod cannot be placed, and again when the reason changes.
fn tell(pod: &Pod, why: &str, now: Now) -> Vec<Write> {
    let known = pod.condition("PodScheduled");
    if known.is_some_and(|known| known.status == "False" && known.message.as_deref() == Some(why)) {
        return Vec::new();
    }
    let mut conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let since = known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
    conditions.retain(|condition| condition.type_ != "PodScheduled");
    conditions.push(PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(why.to_owned()),
        last_transition_time: since.or(Some(Time(now.wall))),
        ..PodCondition::default()
    });
    vec![
        Write::patch_status(pod, json!({ "conditions": conditions })),
        Write::warning(pod, "FailedScheduling", why.to_owned()),
    ]
}
