//! Claims and volumes on folders of a node.
//!
//! A claim of the default class waits for its first pod (`WaitForFirstConsumer`): the scheduler chooses a node and
//! writes it on the claim, then a volume is made that only this node holds, and the pod follows its volume for ever.

pub mod claim;
pub mod class;
pub mod volume;

mod matching;
pub(crate) use matching::{allows, fulfils};
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

/// Kept on a volume of ours until the node has removed its folder. Only the node takes it off, and only after
/// [`may_remove_folder`] held.
pub const VOLUME_FOLDER_FINALIZER: &str = "coregent.io/volume-folder";
/// Annotation of a Node: the data folder below which its volumes lie, where nodes do not share one.
pub const DATA_DIR_ANNOTATION: &str = "coregent.io/data-dir";
/// The provisioner of our storage class, which marks volumes that we made.
pub const PROVISIONER: &str = "coregent.io/local";

pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Whether the node that holds this volume may remove its folder: the store says explicitly that it is deleted, its
/// policy is Delete, it is ours, and no claim protects it any more (failover.md F14).
pub fn may_remove_folder(volume: &PersistentVolume) -> bool {
    let finalizers = volume.metadata.finalizers.as_deref().unwrap_or_default();
    volume.metadata.deletion_timestamp.is_some()
        && deletes(volume)
        && finalizers.iter().any(|name| name == VOLUME_FOLDER_FINALIZER)
        && finalizers.iter().all(|name| name != PV_PROTECTION)
}

fn deletes(volume: &PersistentVolume) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy == Some("Delete")
}

/// Whether the claim is bound for good: both sides name each other.
pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The names of the claims that a pod uses.
pub(crate) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

pub(crate) fn annotation<'a>(meta: &'a kube::core::ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn has_finalizer(meta: &kube::core::ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|known| known == name)
}

fn finalizers_with(meta: &kube::core::ObjectMeta, name: &str) -> Vec<String> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|known| known == name) {
        finalizers.push(name.to_owned());
    }
    finalizers
}

fn finalizers_without(meta: &kube::core::ObjectMeta, name: &str) -> Vec<String> {
    meta.finalizers.iter().flatten().filter(|known| *known != name).cloned().collect()
}
