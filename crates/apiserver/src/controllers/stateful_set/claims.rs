//! The claims of a StatefulSet's pods, and who owns them (persistentVolumeClaimRetentionPolicy).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use super::pod;
use crate::controllers::selector::controlled_by;
use crate::controllers::world::World;
use crate::controllers::write::Write;

/// Template name and claim name of every claim of an ordinal.
pub fn names(set: &StatefulSet, ordinal: i32) -> Vec<(String, String)> {
    templates(set)
        .iter()
        .map(|template| {
            let name = template.metadata.name.clone().unwrap_or_default();
            let claim = format!("{name}-{}", pod::name(set, ordinal));
            (name, claim)
        })
        .collect()
}

/// The ordinal of a claim by its name, if the name is one of the set's.
pub fn ordinal_of(set: &StatefulSet, claim: &str) -> Option<i32> {
    let (prefix, ordinal) = claim.rsplit_once('-')?;
    let set_name = set.metadata.name.as_deref()?;
    let template = prefix.strip_suffix(set_name)?.strip_suffix('-')?;
    let ordinal = pod::parse_ordinal(ordinal)?;
    templates(set).iter().any(|known| known.metadata.name.as_deref() == Some(template)).then_some(ordinal)
}

fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}

/// What the claims of a pod that is to be made need first.
pub enum Readiness {
    /// These must be created; none stands in the way.
    Create(Vec<Write>),
    /// A claim is being deleted: the pod waits until it is gone and can be made anew.
    Wait,
}

/// The claims to make before the pod of an ordinal.
pub fn prepare(world: &World, set: &StatefulSet, ordinal: i32) -> Readiness {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let mut writes = Vec::new();
    for (template, (_, name)) in templates(set).iter().zip(names(set, ordinal)) {
        match world.tables.claims.get(namespace, &name) {
            Some(claim) if claim.metadata.deletion_timestamp.is_some() => return Readiness::Wait,
            Some(claim) if is_stale(world, claim) => return Readiness::Wait,
            Some(_) => {}
            None => writes.extend(Write::create(&build(set, template, name))),
        }
    }
    Readiness::Create(writes)
}

/// A claim that was left to a pod which no longer exists is about to be collected with it.
fn is_stale(world: &World, claim: &PersistentVolumeClaim) -> bool {
    claim
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == "Pod" && owner.api_version == "v1" && world.by_uid(&owner.uid).is_none())
}

fn build(set: &StatefulSet, template: &PersistentVolumeClaim, name: String) -> PersistentVolumeClaim {
    let mut claim = template.clone();
    claim.status = None;
    claim.metadata.name = Some(name);
    claim.metadata.namespace = set.metadata.namespace.clone();
    let mut labels = claim.metadata.labels.take().unwrap_or_default();
    labels.extend(set.spec.iter().flat_map(|spec| spec.selector.match_labels.clone().unwrap_or_default()));
    claim.metadata.labels = (!labels.is_empty()).then_some(labels);
    if deletes_with_set(set) {
        claim.metadata.owner_references = Some(vec![owner_set(set)]);
    }
    claim
}

fn policy(set: &StatefulSet, pick: fn(&Retention) -> Option<&String>) -> bool {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    policy.and_then(pick).is_some_and(|policy| policy == "Delete")
}

type Retention = k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;

fn deletes_with_set(set: &StatefulSet) -> bool {
    policy(set, |policy| policy.when_deleted.as_ref())
}

fn deletes_when_scaled(set: &StatefulSet) -> bool {
    policy(set, |policy| policy.when_scaled.as_ref())
}

/// Claims are not controlled by their owner: the reference only says with whom they go.
fn owner_set(set: &StatefulSet) -> OwnerReference {
    OwnerReference { controller: None, block_owner_deletion: None, ..controlled_by(set) }
}

fn owner_pod(pod: &Pod) -> OwnerReference {
    OwnerReference { controller: None, block_owner_deletion: None, ..controlled_by(pod) }
}

/// Brings the owners of a pod's claims in line with the retention policy.
///
/// | whenDeleted | whenScaled | member | condemned |
/// | --- | --- | --- | --- |
/// | Retain | Retain | nobody | nobody |
/// | Delete | Retain | the set | the set |
/// | Retain | Delete | nobody | the pod |
/// | Delete | Delete | the set | the pod |
pub fn owners(world: &World, set: &StatefulSet, pod: &Arc<Pod>, ordinal: i32, condemned: bool) -> Vec<Write> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let wanted = if condemned && deletes_when_scaled(set) {
        Some(owner_pod(pod))
    } else if deletes_with_set(set) {
        Some(owner_set(set))
    } else {
        None
    };
    let ours = [set.metadata.uid.as_deref(), pod.metadata.uid.as_deref()];
    let mut writes = Vec::new();
    for (_, name) in names(set, ordinal) {
        let Some(claim) = world.tables.claims.get(namespace, &name) else { continue };
        if claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let known = claim.metadata.owner_references.clone().unwrap_or_default();
        let mut owners: Vec<OwnerReference> =
            known.iter().filter(|owner| !ours.contains(&Some(owner.uid.as_str()))).cloned().collect();
        owners.extend(wanted.clone());
        let uids = |owners: &[OwnerReference]| -> std::collections::BTreeSet<String> {
            owners.iter().map(|owner| owner.uid.clone()).collect()
        };
        if uids(&owners) != uids(&known) {
            writes.push(Write::patch(&**claim, json!({ "metadata": { "ownerReferences": owners } })));
        }
    }
    writes
}
