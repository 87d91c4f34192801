//! Credentials: those that a person names, else generated ones.

use super::{object_labels, owner};
use coregent_api::DatabaseCluster;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;

/// The superuser of a generated Secret.
pub const SUPERUSER: &str = "postgres";
/// The replication user of a generated Secret.
pub const REPLICATION_USER: &str = "coregent_replication";

/// Name of the Secret with the superuser's credentials.
#[must_use]
pub fn superuser_secret_name(cluster: &DatabaseCluster) -> String {
    cluster.spec.superuser_secret.clone().unwrap_or_else(|| format!("{}-superuser", cluster.name_any()))
}

/// Name of the Secret with the replication user's credentials.
#[must_use]
pub fn replication_secret_name(cluster: &DatabaseCluster) -> String {
    cluster.spec.replication_secret.clone().unwrap_or_else(|| format!("{}-replication", cluster.name_any()))
}

/// A Secret with a generated password. It is created and never written again: whoever lost the answer of the create
/// must not change a password that a member has already read.
#[must_use]
pub fn generated_secret(cluster: &DatabaseCluster, name: &str, username: &str, password: &str) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: cluster.namespace(),
            labels: Some(object_labels(&cluster.name_any())),
            owner_references: Some(owner(cluster)),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        string_data: Some(BTreeMap::from([
            ("username".to_owned(), username.to_owned()),
            ("password".to_owned(), password.to_owned()),
        ])),
        ..Secret::default()
    }
}
