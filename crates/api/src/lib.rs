//! The kinds of Coregent (group `coregent.io`, version `v1alpha1`), their labels, annotations and conditions.
//!
//! This crate knows the *shape* of things: what a person writes, what a controller reports, what the API server
//! refuses before any controller sees it (CEL rules in the schemas). It decides nothing; deciding is in
//! `coregent-core`.
//!
//! Parts of a pod that a user may write (a template, probes, affinity …) are kept as JSON values and preserved as they
//! are, so that a field this build does not know is not lost on its way to the API server. [`pod::typed`] turns such a
//! value into the Kubernetes type and says which field does not fit.

pub mod annotations;
pub mod conditions;
pub mod database;
pub mod labels;
pub mod pod;
pub mod refusal;
pub mod rsm;
pub mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use database::{DatabaseCluster, DatabaseClusterSpec, DatabaseClusterStatus};
pub use rsm::{ReplicatedStateMachine, ReplicatedStateMachineSpec, ReplicatedStateMachineStatus};

/// API group of every kind of ours.
pub const GROUP: &str = "coregent.io";
/// The one version served.
pub const VERSION: &str = "v1alpha1";
/// `group/version`, as in `apiVersion:`.
pub const API_VERSION: &str = "coregent.io/v1alpha1";

/// The definitions of all kinds, ready to be applied to an API server.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![schema::finish(DatabaseCluster::crd()), schema::finish(ReplicatedStateMachine::crd())]
}
