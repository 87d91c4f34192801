//! The objects of a DatabaseCluster, rendered from its spec alone: pure, and the same bytes every time.

mod access;
mod budget;
mod config;
mod pod;
mod rsm;
mod secrets;

pub use access::{account, binding, role};
pub use budget::budgets;
pub use config::{PROTECTED, config_map};
pub use rsm::{RENDERED, rsm};
pub use secrets::{REPLICATION_USER, SUPERUSER, generated_secret, replication_secret_name, superuser_secret_name};

use coregent_api::{DatabaseCluster, labels};
use coregent_core::names::MemberName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// Name of the primary Lease.
#[must_use]
pub fn primary_lease(cluster: &str) -> String {
    format!("{cluster}-primary")
}

/// Name of the Lease in which `member` reports.
#[must_use]
pub fn member_lease(member: &MemberName) -> String {
    format!("{member}-member")
}

/// Name of the create-only bootstrap grant (failover.md F14). It carries the uid, so that a cluster that is made anew
/// under the same name has a grant of its own.
#[must_use]
pub fn bootstrap_lease(cluster: &str, uid: &str) -> String {
    format!("{cluster}-bootstrap-{uid}")
}

/// Name of the ConfigMap with the base configuration.
#[must_use]
pub fn config_name(cluster: &str) -> String {
    format!("{cluster}-config")
}

/// Name of the ServiceAccount that the members run as.
#[must_use]
pub fn account_name(cluster: &DatabaseCluster) -> String {
    cluster.spec.service_account_name.clone().unwrap_or_else(|| cluster.name_any())
}

/// Members of the cluster: as many as the spec asks for, and never fewer than there are. Lowering `replicas` removes
/// nobody, so it may not weaken what a write waits for either.
#[must_use]
pub fn members(cluster: &DatabaseCluster, instances: &[u32]) -> i32 {
    i32::try_from(instances.len()).unwrap_or(i32::MAX).max(cluster.spec.replicas)
}

/// Labels of everything that the database controller makes for `cluster`.
#[must_use]
pub fn object_labels(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::CLUSTER.to_owned(), cluster.to_owned()),
        (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_DATABASE.to_owned()),
    ])
}

/// The owner reference that makes an object go with its cluster.
#[must_use]
pub fn owner(cluster: &DatabaseCluster) -> Vec<OwnerReference> {
    cluster.controller_owner_ref(&()).into_iter().collect()
}
