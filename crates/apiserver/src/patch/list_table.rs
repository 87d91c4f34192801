//! The list keys of the built-in kinds, as the Kubernetes API declares them in its types (`+listType`, `+listMapKey`,
//! `+mapType`, `+structType`, `patchStrategy`, `patchMergeKey`).
//!
//! Only what differs from the default is here: objects merge field by field, lists are one value.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::list_keys::{ApplyRule, Shape, StrategicRule};

/// What is special about one field.
#[derive(Clone, Copy)]
enum Rule {
    /// An object of the named type.
    Object(&'static str),
    /// One value for server-side apply, whatever is in it; a strategic patch still merges objects.
    Atomic,
    /// One value for server-side apply, replaced by a strategic patch too.
    AtomicReplace,
    /// A list of objects: keys for server-side apply, key of the strategic merge ("" = replaced), element type.
    Map(&'static [&'static str], &'static str, &'static str),
    /// A list of objects that is one value for server-side apply yet merged by key by a strategic patch.
    MergeOnly(&'static str, &'static str),
    /// A list of scalars that both merge as a set.
    Set,
    /// A list of scalars that is a set for server-side apply and replaced by a strategic patch.
    SetApplyOnly,
}
use Rule::{Atomic, AtomicReplace, Map, MergeOnly, Object, Set, SetApplyOnly};

/// Keys that a type's schema gives a default, so that an element may omit them.
const KEY_DEFAULTS: &[(&str, &str)] = &[("protocol", "TCP")];

/// The type at the root of each built-in kind. A kind that is missing here has only `metadata`.
const ROOTS: &[(&str, &str, &str)] = &[
    ("", "Pod", "Pod"),
    ("", "PodTemplate", "PodTemplate"),
    ("", "Service", "Service"),
    ("", "ServiceAccount", "ServiceAccount"),
    ("", "Node", "Node"),
    ("", "Namespace", "Namespace"),
    ("", "PersistentVolume", "PersistentVolume"),
    ("", "PersistentVolumeClaim", "PersistentVolumeClaim"),
    ("", "Event", "Event"),
    ("", "Endpoints", "Endpoints"),
    ("events.k8s.io", "Event", "Event"),
    ("apps", "StatefulSet", "StatefulSet"),
    ("apps", "Deployment", "Deployment"),
    ("apps", "ReplicaSet", "Workload"),
    ("apps", "DaemonSet", "Workload"),
    ("batch", "Job", "Job"),
    ("discovery.k8s.io", "EndpointSlice", "EndpointSlice"),
    ("policy", "PodDisruptionBudget", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "RoleBinding", "Binding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "Binding"),
    ("storage.k8s.io", "StorageClass", "StorageClass"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "CustomResourceDefinition"),
];

/// Type, field, rule.
const FIELDS: &[(&str, &str, Rule)] = &[
    // metadata of every object and of every template
    ("ObjectMeta", "finalizers", Set),
    ("ObjectMeta", "ownerReferences", Map(&["uid"], "uid", "OwnerReference")),
    ("OwnerReference", "", Atomic),
    // pods
    ("Pod", "spec", Object("PodSpec")),
    ("Pod", "status", Object("PodStatus")),
    ("PodTemplate", "template", Object("PodTemplateSpec")),
    ("PodTemplateSpec", "metadata", Object("ObjectMeta")),
    ("PodTemplateSpec", "spec", Object("PodSpec")),
    ("PodSpec", "containers", Map(&["name"], "name", "Container")),
    ("PodSpec", "initContainers", Map(&["name"], "name", "Container")),
    ("PodSpec", "ephemeralContainers", Map(&["name"], "name", "Container")),
    ("PodSpec", "volumes", Map(&["name"], "name", "Volume")),
    ("PodSpec", "imagePullSecrets", Map(&["name"], "name", "")),
    ("PodSpec", "hostAliases", Map(&["ip"], "ip", "")),
    ("PodSpec", "schedulingGates", Map(&["name"], "name", "")),
    ("PodSpec", "resourceClaims", Map(&["name"], "name", "")),
    ("PodSpec", "nodeSelector", Atomic),
    ("PodSpec", "affinity", Object("Affinity")),
    (
        "PodSpec",
        "topologySpreadConstraints",
        Map(&["topologyKey", "whenUnsatisfiable"], "topologyKey", "TopologySpreadConstraint"),
    ),
    ("TopologySpreadConstraint", "labelSelector", Atomic),
    ("Affinity", "nodeAffinity", Object("NodeAffinity")),
    ("NodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", Atomic),
    ("Container", "env", Map(&["name"], "name", "EnvVar")),
    ("Container", "ports", Map(&["containerPort", "protocol"], "containerPort", "")),
    ("Container", "volumeMounts", Map(&["mountPath"], "mountPath", "")),
    ("Container", "volumeDevices", Map(&["devicePath"], "devicePath", "")),
    ("Container", "resources", Object("ResourceRequirements")),
    ("ResourceRequirements", "claims", Map(&["name"], "", "")),
    ("EnvVar", "valueFrom", Object("EnvVarSource")),
    ("EnvVarSource", "fieldRef", Atomic),
    ("EnvVarSource", "resourceFieldRef", Atomic),
    ("EnvVarSource", "configMapKeyRef", Atomic),
    ("EnvVarSource", "secretKeyRef", Atomic),
    ("PodStatus", "conditions", Map(&["type"], "type", "")),
    ("PodStatus", "podIPs", Map(&["ip"], "ip", "")),
    ("PodStatus", "hostIPs", MergeOnly("ip", "")),
    ("PodStatus", "resourceClaimStatuses", Map(&["name"], "name", "")),
    // volumes
    ("Volume", "csi", Object("CsiSource")),
    ("Volume", "ephemeral", Object("EphemeralSource")),
    ("EphemeralSource", "volumeClaimTemplate", Object("ClaimTemplate")),
    ("ClaimTemplate", "metadata", Object("ObjectMeta")),
    ("ClaimTemplate", "spec", Object("ClaimSpec")),
    ("CsiSource", "nodePublishSecretRef", Atomic),
    ("PersistentVolume", "spec", Object("VolumeSpec")),
    ("VolumeSpec", "claimRef", Atomic),
    ("VolumeSpec", "nodeAffinity", Object("VolumeNodeAffinity")),
    ("VolumeNodeAffinity", "required", Atomic),
    ("PersistentVolumeClaim", "spec", Object("ClaimSpec")),
    ("PersistentVolumeClaim", "status", Object("Conditions")),
    ("ClaimSpec", "selector", Atomic),
    ("ClaimSpec", "dataSource", Atomic),
    ("StorageClass", "allowedTopologies", Atomic),
    // services
    ("Service", "spec", Object("ServiceSpec")),
    ("Service", "status", Object("Conditions")),
    ("ServiceSpec", "ports", Map(&["port", "protocol"], "port", "")),
    ("ServiceSpec", "selector", Atomic),
    ("ServiceAccount", "secrets", Map(&["name"], "name", "Reference")),
    ("Reference", "", Atomic),
    ("EndpointSlice", "endpoints", Atomic),
    ("EndpointSlice", "ports", Atomic),
    ("Endpoints", "subsets", Atomic),
    // cluster
    ("Node", "spec", Object("NodeSpec")),
    ("Node", "status", Object("NodeStatus")),
    ("NodeSpec", "podCIDRs", Set),
    ("NodeStatus", "conditions", Map(&["type"], "type", "")),
    ("NodeStatus", "addresses", Map(&["type"], "type", "")),
    ("Namespace", "status", Object("Conditions")),
    ("Conditions", "conditions", Map(&["type"], "type", "")),
    ("Event", "involvedObject", Atomic),
    ("Event", "regarding", Atomic),
    ("Event", "related", Atomic),
    // workloads
    ("StatefulSet", "spec", Object("WorkloadSpec")),
    ("StatefulSet", "status", Object("Conditions")),
    ("Workload", "spec", Object("WorkloadSpec")),
    ("Workload", "status", Object("Conditions")),
    ("Deployment", "spec", Object("WorkloadSpec")),
    ("Deployment", "status", Object("Conditions")),
    ("WorkloadSpec", "selector", Atomic),
    ("WorkloadSpec", "template", Object("PodTemplateSpec")),
    ("Job", "spec", Object("WorkloadSpec")),
    ("Job", "status", Object("JobStatus")),
    ("JobStatus", "conditions", MergeOnly("type", "")),
    ("JobStatus", "uncountedTerminatedPods", Object("UncountedPods")),
    ("UncountedPods", "succeeded", SetApplyOnly),
    ("UncountedPods", "failed", SetApplyOnly),
    ("PodDisruptionBudget", "spec", Object("BudgetSpec")),
    ("PodDisruptionBudget", "status", Object("Conditions")),
    ("BudgetSpec", "selector", AtomicReplace),
    // access
    ("Binding", "roleRef", Atomic),
    // extension
    ("CustomResourceDefinition", "spec", Object("CrdSpec")),
    ("CustomResourceDefinition", "status", Object("CrdStatus")),
    ("CrdSpec", "versions", Atomic),
    ("CrdStatus", "conditions", Map(&["type"], "", "")),
    ("CrdStatus", "storedVersions", Atomic),
];

/// The rules of a built-in kind.
pub(super) fn shape_of(group: &str, kind: &str) -> Arc<Shape> {
    static SHAPES: LazyLock<BTreeMap<(&'static str, &'static str), Arc<Shape>>> =
        LazyLock::new(|| ROOTS.iter().map(|(group, kind, ty)| ((*group, *kind), Arc::new(root(ty)))).collect());
    static OTHER: LazyLock<Arc<Shape>> = LazyLock::new(|| Arc::new(root("")));
    SHAPES.get(&(group, kind)).map_or_else(|| Arc::clone(&OTHER), Arc::clone)
}

/// Declared fields without special rules.
pub(super) fn plain() -> Arc<Shape> {
    static PLAIN: LazyLock<Arc<Shape>> = LazyLock::new(Arc::default);
    Arc::clone(&PLAIN)
}

/// A value whose type nobody declared: every key is data, lists are one value.
pub(super) fn untyped() -> Arc<Shape> {
    static UNTYPED: LazyLock<Arc<Shape>> =
        LazyLock::new(|| Arc::new(Shape { keys_are_data: true, ..Shape::default() }));
    Arc::clone(&UNTYPED)
}

/// An object of unknown type whose `metadata` follows the usual rules.
pub(super) fn untyped_root() -> Arc<Shape> {
    static ROOT: LazyLock<Arc<Shape>> = LazyLock::new(|| {
        let fields = BTreeMap::from([("metadata".to_owned(), metadata())]);
        Arc::new(Shape { fields, keys_are_data: true, ..Shape::default() })
    });
    Arc::clone(&ROOT)
}

/// The rules of `metadata`.
pub(crate) fn metadata() -> Arc<Shape> {
    static METADATA: LazyLock<Arc<Shape>> = LazyLock::new(|| Arc::new(shape("ObjectMeta")));
    Arc::clone(&METADATA)
}

fn root(ty: &str) -> Shape {
    let mut root = shape(ty);
    root.fields.insert("metadata".to_owned(), metadata());
    root
}

/// Builds the tree below a type. The types above do not recur, so this ends.
fn shape(ty: &str) -> Shape {
    let mut shape = Shape::default();
    for (_, field, rule) in FIELDS.iter().filter(|(owner, _, _)| !ty.is_empty() && *owner == ty) {
        if field.is_empty() {
            shape.apply = ApplyRule::Atomic;
        } else {
            shape.fields.insert((*field).to_owned(), Arc::new(field_shape(rule)));
        }
    }
    shape
}

fn field_shape(rule: &Rule) -> Shape {
    match *rule {
        Object(ty) => shape(ty),
        Atomic => Shape { apply: ApplyRule::Atomic, ..Shape::default() },
        AtomicReplace => Shape { apply: ApplyRule::Atomic, strategic: StrategicRule::Replace, ..Shape::default() },
        Map(keys, merge_key, ty) => Shape {
            apply: ApplyRule::Map(keys.iter().map(|key| ((*key).to_owned(), key_default(key))).collect()),
            strategic: merge_by(merge_key),
            items: Some(Arc::new(shape(ty))),
            ..Shape::default()
        },
        MergeOnly(merge_key, ty) => Shape {
            apply: ApplyRule::Atomic,
            strategic: merge_by(merge_key),
            items: Some(Arc::new(shape(ty))),
            ..Shape::default()
        },
        Set => Shape { apply: ApplyRule::Set, strategic: StrategicRule::MergeScalars, ..Shape::default() },
        SetApplyOnly => Shape { apply: ApplyRule::Set, ..Shape::default() },
    }
}

fn merge_by(key: &str) -> StrategicRule {
    if key.is_empty() { StrategicRule::Default } else { StrategicRule::MergeBy(key.to_owned()) }
}

fn key_default(key: &str) -> Option<serde_json::Value> {
    KEY_DEFAULTS.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_named_in_the_table_has_rows_or_is_left_plain() {
        let named = |ty: &str| FIELDS.iter().any(|(owner, _, _)| *owner == ty);
        for (_, _, rule) in FIELDS {
            if let Object(ty) | Map(_, _, ty) | MergeOnly(_, ty) = rule {
                assert!(ty.is_empty() || named(ty), "{ty} is used but has no rows");
            }
        }
        for (_, kind, ty) in ROOTS {
            assert!(named(ty), "{kind} points at {ty}, which has no rows");
        }
    }

    #[test]
    fn container_ports_are_keyed_by_port_and_protocol_for_apply_and_by_port_alone_for_strategic_patches() {
        let ports =
            ["spec", "template", "spec", "containers"].iter().fold(shape_of("apps", "StatefulSet"), |s, f| s.child(f));
        let ports = ports.element().child("ports");
        assert_eq!(
            ports.apply,
            ApplyRule::Map(vec![("containerPort".into(), None), ("protocol".into(), Some("TCP".into()))])
        );
        assert_eq!(ports.strategic, StrategicRule::MergeBy("containerPort".into()));
    }

    #[test]
    fn a_kind_without_rows_still_merges_owner_references_by_uid() {
        let owners = shape_of("coordination.k8s.io", "Lease").child("metadata").child("ownerReferences");
        assert_eq!(owners.strategic, StrategicRule::MergeBy("uid".into()));
    }
}
