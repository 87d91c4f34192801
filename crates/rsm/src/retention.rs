//! What becomes of the claims of a member that is no longer wanted (`spec.persistentVolumeClaimRetentionPolicy`).
//!
//! With one StatefulSet for all members Kubernetes does it alone. A member with a StatefulSet of its own goes by a deletion
//! of that, so what is to hold for a smaller set is first written there as what holds for a deletion.

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::ClaimRetention;
use coregent_core::rsm::roles::member_number;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::world::Child;

/// Field of a StatefulSet's spec.
pub(crate) const FIELD: &str = "persistentVolumeClaimRetentionPolicy";

/// What is done before an object that is no longer wanted is deleted.
pub(crate) enum Before {
    /// Nothing: it can be deleted.
    Remove,
    /// Its policy is brought to what shall hold.
    Change(Box<DynamicObject>),
    /// The StatefulSet controller has not looked at its policy yet.
    Wait,
}

/// Whether an object that is no longer wanted can go.
pub(crate) fn before_removal(rsm: &ReplicatedStateMachine, child: &Child) -> Before {
    if child.resource.kind != "StatefulSet" {
        return Before::Remove;
    }
    let wanted = wanted(rsm, &child.object.name_any());
    let policy = child.object.data.pointer(&format!("/spec/{FIELD}")).cloned().unwrap_or(Value::Null);
    let holds = policy.get("whenDeleted").and_then(Value::as_str).unwrap_or(ClaimRetention::Retain.as_str());
    if holds != wanted.as_str() {
        let mut object = child.object.clone();
        if let Some(spec) = object.data.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert(FIELD.to_owned(), json!({"whenDeleted": wanted.as_str(), "whenScaled": wanted.as_str()}));
        }
        return Before::Change(Box::new(object));
    }
    let observed = child.object.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    // Only a policy that was changed can be one that nobody has looked at.
    match policy.get("whenScaled").is_some() && rsm_has_policy(rsm) && observed < child.object.metadata.generation {
        true => Before::Wait,
        false => Before::Remove,
    }
}

fn rsm_has_policy(rsm: &ReplicatedStateMachine) -> bool {
    rsm.spec.persistent_volume_claim_retention_policy.is_some()
}

/// Claims of a member that was taken out of service stay, whatever holds for others.
fn wanted(rsm: &ReplicatedStateMachine, set: &str) -> ClaimRetention {
    let number = member_number(&rsm.name_any(), set, false);
    let set_aside = rsm.status.iter().flat_map(|status| &status.offline_instances);
    if set_aside.into_iter().any(|aside| i64::from(*aside) == number) {
        return ClaimRetention::Retain;
    }
    rsm.spec.persistent_volume_claim_retention_policy.unwrap_or_default().when_scaled
}
