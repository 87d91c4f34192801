//! Volumes: their phase, and their end.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::core::ApiResource;
use serde_json::json;

use super::{
    PROVISIONED_BY, PROVISIONER, PV_PROTECTION, VOLUME_FOLDER_FINALIZER, annotation, deletes, has_finalizer,
    volume_name,
};
use crate::controllers::world::{Change, Object, ObjectKey, World};
use crate::controllers::write::{Decision, Propagation, Target, Write};

/// The volumes that a change concerns.
pub fn touched(change: &Change) -> Vec<ObjectKey> {
    let keys = change.versions().filter_map(|version| match version {
        Object::PersistentVolume(_) => Some(change.key.clone()),
        Object::PersistentVolumeClaim(claim) => volume_name(claim).map(|name| ObjectKey::new("", name)),
        _ => None,
    });
    let mut keys: Vec<ObjectKey> = keys.collect();
    if let Some(Object::PersistentVolumeClaim(claim)) = change.versions().next() {
        // The volume of a claim that went before it could name it.
        keys.push(ObjectKey::new("", format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())));
    }
    keys.sort();
    keys.dedup();
    keys
}

/// Whose a volume is.
enum Holder<'a> {
    Nobody,
    Claim(&'a PersistentVolumeClaim),
    /// It names a claim that the world does not hold. The server is asked before anything is concluded from that.
    Missing(Box<Target>),
}

/// What to write for one volume.
pub fn decide(world: &World, key: &ObjectKey) -> Decision {
    let Some(volume) = world.tables.volumes.get("", &key.name) else { return Decision::nothing() };
    let holder = holder(world, volume);
    let writes = match volume.metadata.deletion_timestamp {
        Some(_) => unprotect(volume, &holder),
        None => match finalizers(volume) {
            Some(write) => vec![write],
            None => settle(volume, &holder),
        },
    };
    Decision::in_order(writes)
}

fn holder<'a>(world: &'a World, volume: &PersistentVolume) -> Holder<'a> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
    let Some(reference) = reference.filter(|reference| reference.uid.as_deref().is_some_and(|uid| !uid.is_empty()))
    else {
        return Holder::Nobody;
    };
    let ObjectReference { namespace, name, uid, .. } = reference;
    let (namespace, name, uid) = (namespace.unwrap_or_default(), name.unwrap_or_default(), uid.unwrap_or_default());
    match world.tables.claims.get(&namespace, &name) {
        Some(claim) if claim.metadata.uid.as_ref() == Some(&uid) => Holder::Claim(claim),
        _ => Holder::Missing(Box::new(Target {
            resource: ApiResource::erase::<PersistentVolumeClaim>(&()),
            namespace,
            name,
            uid,
            resource_version: String::new(),
        })),
    }
}

/// Every volume is protected; one of ours with policy Delete also waits for the node to remove its folder, and one
/// whose policy was changed to Retain does not: its folder stays.
fn finalizers(volume: &PersistentVolume) -> Option<Write> {
    let known = volume.metadata.finalizers.clone().unwrap_or_default();
    let mut wanted = known.clone();
    let is_ours = annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER);
    set(&mut wanted, PV_PROTECTION, true);
    set(&mut wanted, VOLUME_FOLDER_FINALIZER, is_ours && deletes(volume));
    (wanted != known).then(|| Write::patch(volume, json!({ "metadata": { "finalizers": wanted } })))
}

fn set(finalizers: &mut Vec<String>, name: &str, wanted: bool) {
    match (finalizers.iter().position(|known| known == name), wanted) {
        (None, true) => finalizers.push(name.to_owned()),
        (Some(at), false) => drop(finalizers.remove(at)),
        _ => {}
    }
}

fn settle(volume: &PersistentVolume, holder: &Holder<'_>) -> Vec<Write> {
    match holder {
        Holder::Nobody => phase(volume, "Available").into_iter().collect(),
        Holder::Claim(claim) if volume_name(claim) == volume.metadata.name.as_deref() => {
            phase(volume, "Bound").into_iter().collect()
        }
        // The claim has not named the volume yet, or has found another.
        Holder::Claim(claim) if volume_name(claim).is_none() => Vec::new(),
        Holder::Claim(_) => phase(volume, "Released").into_iter().chain(reclaim(volume)).collect(),
        Holder::Missing(claim) => {
            let writes: Vec<Write> = match phase(volume, "Released") {
                Some(released) => vec![released],
                None => reclaim(volume).into_iter().collect(),
            };
            confirmed(claim, writes)
        }
    }
}

fn confirmed(claim: &Target, writes: Vec<Write>) -> Vec<Write> {
    if writes.is_empty() {
        return writes;
    }
    let mut all = vec![Write::ConfirmGone { target: claim.clone() }];
    all.extend(writes);
    all
}

fn phase(volume: &PersistentVolume, phase: &str) -> Option<Write> {
    let known = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    (known != Some(phase)).then(|| Write::patch_status(volume, json!({ "phase": phase })))
}

/// A released volume of ours with policy Delete is deleted; the node then removes the folder. Any other is left for
/// a person.
fn reclaim(volume: &PersistentVolume) -> Option<Write> {
    let is_ours = has_finalizer(&volume.metadata, VOLUME_FOLDER_FINALIZER);
    let target = Target::of(volume);
    (is_ours && deletes(volume)).then_some(Write::Delete { target, propagation: Propagation::Background, grace: None })
}

/// Deletion was asked for: the protection goes when no claim needs the volume, and with it the permission for the
/// node to remove the folder. With policy Retain the folder stays, so nobody waits for the node.
fn unprotect(volume: &PersistentVolume, holder: &Holder<'_>) -> Vec<Write> {
    if let Holder::Claim(claim) = holder
        && volume_name(claim).is_none_or(|name| Some(name) == volume.metadata.name.as_deref())
    {
        return Vec::new();
    }
    let known = volume.metadata.finalizers.clone().unwrap_or_default();
    let mut left = known.clone();
    set(&mut left, PV_PROTECTION, false);
    if !deletes(volume) {
        set(&mut left, VOLUME_FOLDER_FINALIZER, false);
    }
    if left == known {
        return Vec::new();
    }
    let patch = Write::patch(volume, json!({ "metadata": { "finalizers": left } }));
    match holder {
        Holder::Missing(claim) => confirmed(claim, vec![patch]),
        _ => vec![patch],
    }
}
