//! StatefulSets: pods of fixed names, each with its own claims.
//!
//! The rules are those of Kubernetes (pkg/controller/statefulset and the documentation of StatefulSets): a pod is
//! made, removed or replaced only in the order that the pod management policy and the update strategy allow.

mod claims;
mod plan;
mod pod;
mod revision;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::selector::{self, controller_of};
use super::world::{Change, Now, Object, ObjectKey, World};
use super::write::{Decision, Write};

/// The StatefulSets that a change concerns.
pub fn touched(world: &World, change: &Change) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for version in change.versions() {
        match version {
            Object::StatefulSet(_) => keys.push(change.key.clone()),
            Object::Pod(pod) => {
                keys.extend(owner_key(&pod.metadata));
                // A pod whose name is taken by a stranger holds up the set until it goes.
                keys.extend(pod::parent_name(&change.key.name).map(|name| ObjectKey::new(&change.key.namespace, name)));
            }
            Object::ControllerRevision(revision) => keys.extend(owner_key(&revision.metadata)),
            Object::PersistentVolumeClaim(_) => {
                let sets = world.tables.stateful_sets.within(&change.key.namespace);
                let owns = |set: &&Arc<StatefulSet>| claims::ordinal_of(set, &change.key.name).is_some();
                keys.extend(sets.filter(owns).map(|set| ObjectKey::of(&set.metadata)));
            }
            _ => {}
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

fn owner_key(meta: &kube::core::ObjectMeta) -> Option<ObjectKey> {
    let owner = controller_of(meta).filter(|owner| owner.kind == "StatefulSet")?;
    Some(ObjectKey::new(meta.namespace.clone().unwrap_or_default(), &owner.name))
}

/// What to write for one StatefulSet.
pub fn decide(world: &World, key: &ObjectKey, now: Now) -> Decision {
    let Some(set) = world.tables.stateful_sets.get(&key.namespace, &key.name) else {
        return Decision::nothing();
    };
    let mut writes = adoptions(world, set);
    let pods = owned_pods(world, set);
    let revisions = revision::History::read(world, set);
    if set.metadata.deletion_timestamp.is_some() {
        return Decision::in_order(writes);
    }
    writes.extend(revisions.writes());
    let slots = plan::Slots::sort(set, &pods);
    let status = status::compute(set, &pods, &revisions, now);
    let plan = plan::Plan::new(world, set, &revisions, now).run(&slots);
    writes.extend(plan.writes);
    writes.extend(revisions.surplus(set, &pods));
    // Events come after what they tell about, the status last: it is what others wait for.
    writes.extend(plan.events);
    writes.extend(status.write(set));
    Decision::in_order(writes).again_after(plan.look_again).again_after(status.look_again)
}

fn is_ours(set: &StatefulSet, meta: &kube::core::ObjectMeta) -> bool {
    controller_of(meta).is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}

/// The pods that the set controls.
fn owned_pods(world: &World, set: &StatefulSet) -> Vec<Arc<Pod>> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    world.tables.pods.within(namespace).filter(|pod| is_ours(set, &pod.metadata)).cloned().collect()
}

/// Takes pods of the set's name and labels that nobody controls, and lets go of those whose labels no longer match.
fn adoptions(world: &World, set: &StatefulSet) -> Vec<Write> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let selector = set.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
    let deleting = set.metadata.deletion_timestamp.is_some();
    let mut writes = Vec::new();
    for pod in world.tables.pods.within(namespace) {
        let matches = selector::matches(&selector, selector::labels(&pod.metadata));
        let is_member = pod::ordinal_of(set, pod).is_some();
        let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
        if is_ours(set, &pod.metadata) {
            if matches && is_member {
                continue;
            }
            owners.retain(|owner| Some(&owner.uid) != set.metadata.uid.as_ref());
        } else if matches && is_member && !deleting && controller_of(&pod.metadata).is_none() {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            owners.push(selector::controlled_by(set));
        } else {
            continue;
        }
        writes.push(Write::patch(&**pod, serde_json::json!({ "metadata": { "ownerReferences": owners } })));
    }
    writes
}
