//! The built-in kinds: their types, their defaults, their rules.
//!
//! Types come from `k8s_openapi`; defaults and rules are those of the Kubernetes API server that clients and controllers
//! rely on, with its wording of errors.

mod access;
mod at;
mod cluster;
mod container;
mod defaults;
mod extension;
mod metadata;
mod names;
mod pod;
mod pod_defaults;
mod quality;
mod quantity;
mod service;
mod storage;
mod types;
mod workload;

use serde_json::Value;

use super::FieldError;
use at::At;

pub use quality::quality;
pub use types::{check, prune, prune_metadata};

/// Fills in the defaults that clients and controllers rely on.
pub fn default(group: &str, kind: &str, object: &mut Value) {
    defaults::apply(group, kind, object);
}

/// Everything that is wrong with `new` beyond its types; with `old`, also what may not be changed. For a kind that is
/// not built in (a custom resource) this checks `metadata`.
pub fn validate(group: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = At::root(new);
    let was = At::root_of(old);
    metadata::validate(group, kind, &at, &was, &mut errors);
    let rules = match (group, kind) {
        ("", "Pod") => pod::validate,
        ("", "Service") => service::validate,
        ("discovery.k8s.io", "EndpointSlice") => service::validate_slice,
        ("", "ConfigMap") => storage::validate_config_map,
        ("", "Secret") => storage::validate_secret,
        ("", "PersistentVolumeClaim") => storage::validate_claim,
        ("", "PersistentVolume") => storage::validate_volume,
        ("storage.k8s.io", "StorageClass") => storage::validate_class,
        ("apps", "StatefulSet") => workload::validate_stateful_set,
        ("apps", "ControllerRevision") => workload::validate_revision,
        ("batch", "Job") => workload::validate_job,
        ("policy", "PodDisruptionBudget") => workload::validate_budget,
        ("coordination.k8s.io", "Lease") => cluster::validate_lease,
        ("", "Event") => cluster::validate_event,
        ("", "Node") => cluster::validate_node,
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => access::validate_role,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => access::validate_binding,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => extension::validate,
        _ => return errors,
    };
    rules(&at, &was, &mut errors);
    errors
}

#[cfg(test)]
mod tests;
