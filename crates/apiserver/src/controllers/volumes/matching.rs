//! Which volume fits which claim, and which node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::class::default_class;
use crate::controllers::selector::{holds, labels, matches};
use crate::controllers::world::World;

/// The class of a claim: the named one, or the default one. `Some("")` names no class on purpose.
pub fn class_name<'a>(world: &'a World, claim: &'a PersistentVolumeClaim) -> &'a str {
    let named = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let default = || default_class(world).and_then(|class| class.metadata.name.as_deref());
    named.or_else(default).unwrap_or_default()
}

/// The object of the claim's class.
pub fn class<'a>(world: &'a World, claim: &PersistentVolumeClaim) -> Option<&'a Arc<StorageClass>> {
    let name = class_name(world, claim).to_owned();
    world.tables.storage_classes.get("", &name)
}

/// Whether claims of this class wait for the first pod that uses them.
pub fn waits(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Whether a node may use a volume.
pub fn allows(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return true };
    required.node_selector_terms.iter().any(|term| fulfils(term, node))
}

/// Whether a node fulfils one term of a node selector. An empty term selects nothing.
pub fn fulfils(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    let label = |key: &str| labels(&node.metadata).get(key).map(String::as_str);
    let values = |values: &Option<Vec<String>>| values.clone().unwrap_or_default();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|wish| holds(&wish.operator, &values(&wish.values), label(&wish.key)))
        && fields.iter().all(|wish| wish.key == "metadata.name" && holds(&wish.operator, &values(&wish.values), name))
}

/// The volume that a claim should get, on `node` if one is chosen: one that already names the claim, else the
/// smallest free one that is large enough.
pub fn find<'a>(
    world: &'a World,
    claim: &PersistentVolumeClaim,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    let fitting = |volume: &&Arc<PersistentVolume>| fits(world, volume, claim, node);
    let volumes = || world.tables.volumes.all();
    volumes()
        .find(|volume| is_reserved_for(volume, claim))
        .or_else(|| volumes().filter(fitting).min_by_key(|volume| capacity(volume)))
}

fn is_reserved_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    volume.metadata.deletion_timestamp.is_none()
        && reference.is_some_and(|reference| {
            let uid = reference.uid.as_deref().unwrap_or_default();
            reference.name == claim.metadata.name
                && reference.namespace == claim.metadata.namespace
                && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
        })
}

fn fits(world: &World, volume: &PersistentVolume, claim: &PersistentVolumeClaim, node: Option<&Node>) -> bool {
    let (Some(spec), Some(wish)) = (volume.spec.as_ref(), claim.spec.as_ref()) else { return false };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    volume.metadata.deletion_timestamp.is_none()
        && spec.claim_ref.is_none()
        && matches!(phase, "Pending" | "Available")
        && spec.storage_class_name.as_deref().unwrap_or_default() == class_name(world, claim)
        && spec.volume_mode.as_deref().unwrap_or("Filesystem") == wish.volume_mode.as_deref().unwrap_or("Filesystem")
        && wish.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && wish.selector.as_ref().is_none_or(|selector| matches(selector, labels(&volume.metadata)))
        && capacity(volume) >= requested(claim)
        && node.is_none_or(|node| allows(volume, node))
}

fn capacity(volume: &PersistentVolume) -> u128 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    capacity.and_then(bytes).unwrap_or_default()
}

fn requested(claim: &PersistentVolumeClaim) -> u128 {
    request(claim).and_then(|quantity| bytes(&quantity)).unwrap_or_default()
}

/// The storage that a claim asks for.
pub fn request(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned()
}

/// The bytes of a quantity, rounded down; nothing if it is none.
fn bytes(quantity: &Quantity) -> Option<u128> {
    let text = quantity.0.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let scale: f64 = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024f64,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let bytes = number.parse::<f64>().ok()? * scale;
    // A float holds every size of a disk closely enough, and casts saturate.
    (bytes >= 0.0).then_some(bytes as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_every_notation() {
        for (text, expected) in [
            ("1Gi", Some(1 << 30)),
            ("1.5Ki", Some(1536)),
            ("2M", Some(2_000_000)),
            ("12e3", Some(12_000)),
            ("1000m", Some(1)),
            ("7", Some(7)),
            ("", None),
            ("1Zi", None),
        ] {
            assert_eq!(bytes(&Quantity(text.to_owned())), expected, "{text}");
        }
    }
}
