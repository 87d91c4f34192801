//! Which node fits a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, PodAffinityTerm, Taint, Toleration};

use super::Placements;
use crate::controllers::selector::{labels, matches};
use crate::controllers::volumes::{self, SELECTED_NODE, annotation, claims_of, is_bound, volume_name};
use crate::controllers::world::World;

/// A place for a pod.
pub struct Placed<'a> {
    /// The node.
    pub node: &'a str,
    /// Claims that get their volume there first.
    pub unbound: Vec<&'a Arc<PersistentVolumeClaim>>,
}

/// Why there is no place for a pod.
#[derive(Debug, PartialEq)]
pub enum Unplaced {
    /// Something else must happen first, and will be noticed.
    Waits,
    /// No node fits; the text says why.
    Unschedulable(String),
}

/// The best node for a pod.
pub fn place<'a>(world: &'a World, placements: &Placements<'_>, pod: &Pod) -> Result<Placed<'a>, Unplaced> {
    let claims = claims(world, pod)?;
    let mut refusals: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in world.tables.nodes.all() {
        match refusal(world, placements, pod, node, &claims) {
            None => fitting.push(node),
            Some(why) => *refusals.entry(why).or_default() += 1,
        }
    }
    let best = fitting.into_iter().min_by_key(|node| {
        let score = score(world, placements, pod, node);
        let load = placements.by_node.get(name(node)).map_or(0, Vec::len);
        (std::cmp::Reverse(score), load, name(node))
    });
    let Some(best) = best else {
        return Err(Unplaced::Unschedulable(explain(world.tables.nodes.all().count(), &refusals)));
    };
    let unbound = claims.into_iter().filter(|claim| !is_bound(claim)).collect();
    Ok(Placed { node: name(best), unbound })
}

fn explain(nodes: usize, refusals: &BTreeMap<&'static str, usize>) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let reasons: Vec<String> = refusals.iter().map(|(why, count)| format!("{count} node(s) {why}")).collect();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn claims<'a>(world: &'a World, pod: &Pod) -> Result<Vec<&'a Arc<PersistentVolumeClaim>>, Unplaced> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let unschedulable = |why: String| Err(Unplaced::Unschedulable(why));
    let mut claims = Vec::new();
    for name in claims_of(pod) {
        let Some(claim) = world.tables.claims.get(namespace, name) else {
            return unschedulable(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return unschedulable(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if !is_bound(claim) && volume_name(claim).is_some() {
            return Err(Unplaced::Waits);
        }
        if !is_bound(claim) && !volumes::claim::waits_for_pod(world, claim) {
            return unschedulable(format!("pod has an unbound immediate PersistentVolumeClaim \"{name}\""));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Why a node does not fit, in the words that follow `n node(s)`.
fn refusal(
    world: &World,
    placements: &Placements<'_>,
    pod: &Pod,
    node: &Node,
    claims: &[&Arc<PersistentVolumeClaim>],
) -> Option<&'static str> {
    let spec = pod.spec.clone().unwrap_or_default();
    let node_spec = node.spec.clone().unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if !is_ready(node) {
        return Some("were not ready");
    }
    if node_spec.unschedulable == Some(true) {
        return Some("were unschedulable");
    }
    let intolerable =
        |taint: &Taint| taint.effect != "PreferNoSchedule" && !tolerations.iter().any(|t| tolerates(t, taint));
    if node_spec.taints.iter().flatten().any(intolerable) {
        return Some("had untolerated taints");
    }
    if !spec.node_selector.iter().flatten().all(|(key, value)| labels(&node.metadata).get(key) == Some(value)) {
        return Some("didn't match Pod's node affinity/selector");
    }
    let affinity = spec.affinity.unwrap_or_default();
    let required =
        affinity.node_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
    if required.is_some_and(|required| !required.node_selector_terms.iter().any(|term| volumes::fulfils(term, node))) {
        return Some("didn't match Pod's node affinity/selector");
    }
    let apart = affinity.pod_anti_affinity.and_then(|apart| apart.required_during_scheduling_ignored_during_execution);
    if apart.iter().flatten().any(|term| meets(world, placements, pod, node, term)) {
        return Some("didn't match pod anti-affinity rules");
    }
    let together = affinity.pod_affinity.and_then(|near| near.required_during_scheduling_ignored_during_execution);
    if together.iter().flatten().any(|term| !meets(world, placements, pod, node, term) && !is_first(world, pod, term)) {
        return Some("didn't match pod affinity rules");
    }
    claims.iter().find_map(|claim| claim_refusal(world, claim, node))
}

fn claim_refusal(world: &World, claim: &PersistentVolumeClaim, node: &Node) -> Option<&'static str> {
    match volume_name(claim) {
        Some(volume) => match world.tables.volumes.get("", volume) {
            Some(volume) if volumes::allows(volume, node) => None,
            Some(_) => Some("had volume node affinity conflict"),
            None => Some("didn't find the claim's volume"),
        },
        None => {
            let selected = annotation(&claim.metadata, SELECTED_NODE);
            let is_elsewhere = selected.is_some_and(|selected| {
                // A choice binds while its node exists: the volume may already be under way.
                selected != name(node) && world.tables.nodes.get("", selected).is_some()
            });
            if is_elsewhere {
                Some("didn't match the claim's selected node")
            } else if volumes::claim::can_bind_on(world, claim, node) {
                None
            } else {
                Some("didn't find available persistent volumes to bind")
            }
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let is_key = key.is_empty() || key == taint.key;
    let is_value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => !key.is_empty() && toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default(),
    };
    (effect.is_empty() || effect == taint.effect) && is_key && is_value
}

/// Whether a pod that the term speaks of runs in the same topology domain as `node`.
fn meets(world: &World, placements: &Placements<'_>, pod: &Pod, node: &Node, term: &PodAffinityTerm) -> bool {
    let domain = |node: &Node| match labels(&node.metadata).get(&term.topology_key) {
        Some(value) => Some(value.clone()),
        None if term.topology_key == "kubernetes.io/hostname" => node.metadata.name.clone(),
        None => None,
    };
    let Some(here) = domain(node) else { return false };
    placements.by_node.iter().any(|(other, pods)| {
        let is_here = world.tables.nodes.get("", other).is_some_and(|other| domain(other).as_ref() == Some(&here));
        is_here && pods.iter().any(|other| other.metadata.uid != pod.metadata.uid && speaks_of(term, pod, other))
    })
}

fn speaks_of(term: &PodAffinityTerm, pod: &Pod, other: &Pod) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    let every = term.namespace_selector.as_ref().is_some_and(|selector| *selector == Default::default());
    let other_namespace = other.metadata.namespace.clone().unwrap_or_default();
    let in_namespace = match named {
        [] => every || pod.metadata.namespace == other.metadata.namespace,
        named => every || named.contains(&other_namespace),
    };
    in_namespace && term.label_selector.as_ref().is_some_and(|selector| matches(selector, labels(&other.metadata)))
}

/// The first pod of a group that wants to be together may go anywhere.
fn is_first(world: &World, pod: &Pod, term: &PodAffinityTerm) -> bool {
    let nobody =
        !world.tables.pods.all().any(|other| other.metadata.uid != pod.metadata.uid && speaks_of(term, pod, other));
    nobody && speaks_of(term, pod, pod)
}

/// How much the pod likes a node: weights of preferred terms that it fulfils.
fn score(world: &World, placements: &Placements<'_>, pod: &Pod, node: &Node) -> i64 {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else { return 0 };
    let mut score = 0;
    if let Some(preferred) = &affinity.node_affinity {
        let terms = preferred.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let liked = terms.filter(|term| volumes::fulfils(&term.preference, node));
        score += liked.map(|term| i64::from(term.weight)).sum::<i64>();
    }
    if let Some(near) = &affinity.pod_affinity {
        let terms = near.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let met = terms.filter(|term| meets(world, placements, pod, node, &term.pod_affinity_term));
        score += met.map(|term| i64::from(term.weight)).sum::<i64>();
    }
    if let Some(apart) = &affinity.pod_anti_affinity {
        let terms = apart.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let met = terms.filter(|term| meets(world, placements, pod, node, &term.pod_affinity_term));
        score -= met.map(|term| i64::from(term.weight)).sum::<i64>();
    }
    score
}
