//! Pods whose node is gone: nobody is left to end them.
//!
//! Only those that have ended, or whose deletion was asked for, are removed. A pod that may still run somewhere stays:
//! death is proved, never concluded from a missing object (failover.md F7).

use k8s_openapi::api::core::v1::Node;
use kube::core::ApiResource;

use super::selector::PodFacts;
use super::world::{Change, Object, ObjectKey, World};
use super::write::{Decision, Propagation, Target, Write};

/// The pods that a change concerns.
pub fn touched(world: &World, change: &Change) -> Vec<ObjectKey> {
    match (&change.new, &change.old) {
        (Some(Object::Pod(pod)), _) if pod.is_over() || pod.is_terminating() => vec![change.key.clone()],
        (None, Some(Object::Node(_))) => {
            let pods = world.tables.pods.all().filter(|pod| pod.node() == Some(&change.key.name));
            pods.map(|pod| ObjectKey::of(&pod.metadata)).collect()
        }
        _ => Vec::new(),
    }
}

/// Removes a stray pod, once the server itself says that its node is gone.
pub fn decide(world: &World, key: &ObjectKey) -> Decision {
    let Some(pod) = world.tables.pods.get(&key.namespace, &key.name) else { return Decision::nothing() };
    let Some(node) = pod.node() else { return Decision::nothing() };
    let is_zero = pod.metadata.deletion_grace_period_seconds == Some(0);
    if world.tables.nodes.get("", node).is_some() || !(pod.is_over() || pod.is_terminating()) || is_zero {
        return Decision::nothing();
    }
    let node = Target {
        resource: ApiResource::erase::<Node>(&()),
        namespace: String::new(),
        name: node.to_owned(),
        uid: String::new(),
        resource_version: String::new(),
    };
    let target = Target::of(&**pod);
    Decision::in_order(vec![
        Write::ConfirmGone { target: node },
        Write::Delete { target, propagation: Propagation::Background, grace: Some(0) },
    ])
}
