//! Claims: each gets a volume, keeps it, and is kept while a pod uses it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::matching::{class, class_name, find, request, waits};
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, DATA_DIR_ANNOTATION, HOSTNAME, PROVISIONED_BY, PROVISIONER, PV_PROTECTION,
    PVC_PROTECTION, SELECTED_NODE, VOLUME_FOLDER_FINALIZER, annotation, claims_of, finalizers_with, finalizers_without,
    has_finalizer, is_bound, volume_name,
};
use crate::controllers::Options;
use crate::controllers::selector::{PodFacts, labels};
use crate::controllers::world::{Change, Object, ObjectKey, World};
use crate::controllers::write::{Decision, Write};

/// The claims that a change concerns.
pub fn touched(world: &World, change: &Change) -> Vec<ObjectKey> {
    match change.versions().next() {
        Some(Object::PersistentVolumeClaim(_)) => vec![change.key.clone()],
        Some(Object::Pod(pod)) if change.new.is_none() || pod.is_over() => {
            claims_of(pod).map(|claim| ObjectKey::new(&change.key.namespace, claim)).collect()
        }
        Some(Object::PersistentVolume(volume)) => {
            let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            match reference {
                Some(claim) => vec![ObjectKey::new(
                    claim.namespace.clone().unwrap_or_default(),
                    claim.name.clone().unwrap_or_default(),
                )],
                None => unbound(world),
            }
        }
        Some(Object::StorageClass(_) | Object::Node(_)) => unbound(world),
        _ => Vec::new(),
    }
}

fn unbound(world: &World) -> Vec<ObjectKey> {
    let unbound = world.tables.claims.all().filter(|claim| !is_bound(claim));
    unbound.map(|claim| ObjectKey::of(&claim.metadata)).collect()
}

/// What to write for one claim: one step at a time, each of which leads to the next look.
pub fn decide(world: &World, options: &Options, key: &ObjectKey) -> Decision {
    let Some(claim) = world.tables.claims.get(&key.namespace, &key.name) else { return Decision::nothing() };
    if claim.metadata.deletion_timestamp.is_some() {
        return Decision::in_order(release(world, claim).into_iter().collect());
    }
    let step = match volume_name(claim) {
        Some(volume) => bound_step(world, claim, volume),
        None => unbound_step(world, options, claim),
    };
    Decision::in_order(step)
}

/// A claim stays while a pod uses it. One that is not bound to a node yet does not count: the scheduler refuses it
/// as long as the claim is being deleted.
fn release(world: &World, claim: &PersistentVolumeClaim) -> Option<Write> {
    let (namespace, name) = (claim.metadata.namespace.as_deref()?, claim.metadata.name.as_deref()?);
    let is_used = world
        .tables
        .pods
        .within(namespace)
        .any(|pod| !pod.is_over() && pod.node().is_some() && claims_of(pod).any(|used| used == name));
    (!is_used && has_finalizer(&claim.metadata, PVC_PROTECTION)).then(|| {
        let finalizers = finalizers_without(&claim.metadata, PVC_PROTECTION);
        Write::patch(claim, json!({ "metadata": { "finalizers": finalizers } }))
    })
}

fn bound_step(world: &World, claim: &PersistentVolumeClaim, name: &str) -> Vec<Write> {
    let lost = |why: String| match phase(claim) {
        "Lost" => Vec::new(),
        _ => vec![Write::patch_status(claim, json!({ "phase": "Lost" })), Write::warning(claim, "ClaimLost", why)],
    };
    let Some(volume) = world.tables.volumes.get("", name) else {
        return match is_bound(claim) {
            true => lost(format!("bound claim has lost its PersistentVolume {name}; its data is not reachable")),
            false => pending(claim),
        };
    };
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let uid = reference.and_then(|reference| reference.uid.as_deref()).unwrap_or_default();
    if uid.is_empty() {
        return reserve(volume, claim);
    }
    if Some(uid) != claim.metadata.uid.as_deref() {
        return match is_bound(claim) {
            true => lost(format!("PersistentVolume {name} is bound to another claim")),
            false => pending(claim),
        };
    }
    if !is_bound(claim) || !has_finalizer(&claim.metadata, PVC_PROTECTION) {
        return vec![complete(world, volume, claim)];
    }
    let spec = volume.spec.clone().unwrap_or_default();
    let status = json!({ "phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity });
    let known = claim.status.clone().unwrap_or_default();
    let is_known = known.phase.as_deref() == Some("Bound")
        && known.access_modes == spec.access_modes
        && known.capacity == spec.capacity;
    if is_known { Vec::new() } else { vec![Write::patch_status(claim, status)] }
}

fn unbound_step(world: &World, options: &Options, claim: &PersistentVolumeClaim) -> Vec<Write> {
    let class = class(world, claim);
    let selected = annotation(&claim.metadata, SELECTED_NODE).and_then(|name| world.tables.nodes.get("", name));
    let must_wait = class.is_some_and(|class| waits(class)) && selected.is_none();
    let found = find(world, claim, selected.map(|node| &**node));
    match found {
        Some(volume) if is_named_by(volume, claim) => return vec![complete(world, volume, claim)],
        Some(volume) if !must_wait => return reserve(volume, claim),
        _ => {}
    }
    let Some(class) = class.filter(|class| class.provisioner == PROVISIONER && !must_wait) else {
        return pending(claim);
    };
    let Some(node) = selected.or_else(|| any_node(world)) else { return pending(claim) };
    let volume = provision(options, claim, class, node);
    let note = format!("provisioned volume {} on node {}", meta_name(&volume.metadata), meta_name(&node.metadata));
    let mut writes: Vec<Write> = Write::create(&volume).into_iter().collect();
    writes.push(Write::normal(claim, "ProvisioningSucceeded", note));
    writes
}

/// With binding mode Immediate nobody chooses the node: it is the first by name that is ready.
fn any_node(world: &World) -> Option<&Arc<Node>> {
    let is_ready = |node: &&Arc<Node>| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    world.tables.nodes.all().find(is_ready)
}

fn is_named_by(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| reference.uid.is_some() && reference.uid == claim.metadata.uid)
}

fn pending(claim: &PersistentVolumeClaim) -> Vec<Write> {
    if !has_finalizer(&claim.metadata, PVC_PROTECTION) {
        let finalizers = finalizers_with(&claim.metadata, PVC_PROTECTION);
        return vec![Write::patch(claim, json!({ "metadata": { "finalizers": finalizers } }))];
    }
    if phase(claim).is_empty() { vec![Write::patch_status(claim, json!({ "phase": "Pending" }))] } else { Vec::new() }
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// First half of a binding: the volume names the claim. From here on no other claim gets it.
fn reserve(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Write> {
    if volume.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    vec![Write::patch(
        volume,
        json!({
            "metadata": { "annotations": { BOUND_BY_CONTROLLER: "yes" } },
            "spec": { "claimRef": reference_to(claim) },
        }),
    )]
}

/// Second half of a binding: the claim names the volume.
fn complete(world: &World, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Write {
    let mut spec = json!({ "volumeName": volume.metadata.name });
    if claim.spec.as_ref().is_none_or(|spec| spec.storage_class_name.is_none()) {
        spec["storageClassName"] = Value::from(class_name(world, claim));
    }
    let finalizers = finalizers_with(&claim.metadata, PVC_PROTECTION);
    let annotations = json!({ BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes" });
    Write::patch(claim, json!({ "metadata": { "annotations": annotations, "finalizers": finalizers }, "spec": spec }))
}

fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// A volume for a claim on a node. The name comes from the claim's uid, so that a second try finds the first.
fn provision(options: &Options, claim: &PersistentVolumeClaim, class: &StorageClass, node: &Node) -> PersistentVolume {
    let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let mut finalizers = vec![PV_PROTECTION.to_owned()];
    if policy == "Delete" {
        finalizers.push(VOLUME_FOLDER_FINALIZER.to_owned());
    }
    let data_dir = annotation(&node.metadata, DATA_DIR_ANNOTATION).map(std::path::PathBuf::from);
    let folder = data_dir.unwrap_or_else(|| options.data_dir.clone()).join("volumes").join(&name);
    let wish = claim.spec.clone().unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())].into()),
            finalizers: Some(finalizers),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: wish.access_modes,
            capacity: request(claim).map(|storage| [("storage".to_owned(), storage)].into()),
            claim_ref: Some(reference_to(claim)),
            host_path: Some(HostPathVolumeSource {
                path: folder.to_string_lossy().into_owned(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            node_affinity: Some(only_on(node)),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

fn only_on(node: &Node) -> VolumeNodeAffinity {
    let name = meta_name(&node.metadata).to_owned();
    let (expressions, fields) = match labels(&node.metadata).get(HOSTNAME) {
        Some(hostname) => (Some(vec![one_of(HOSTNAME, hostname.clone())]), None),
        None => (None, Some(vec![one_of("metadata.name", name)])),
    };
    let term = NodeSelectorTerm { match_expressions: expressions, match_fields: fields };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

fn one_of(key: &str, value: String) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: key.to_owned(), operator: "In".to_owned(), values: Some(vec![value]) }
}

fn meta_name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Whether an unbound claim waits until a pod that uses it is placed.
pub fn waits_for_pod(world: &World, claim: &PersistentVolumeClaim) -> bool {
    class(world, claim).is_some_and(|class| waits(class))
}

/// Whether an unbound claim would get a volume on this node.
pub fn can_bind_on(world: &World, claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let can_provision = class(world, claim).is_some_and(|class| class.provisioner == PROVISIONER);
    can_provision || find(world, claim, Some(node)).is_some()
}
