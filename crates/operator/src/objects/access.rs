//! What a member's agent may touch: its own Leases and events, nothing else.

use super::{account_name, bootstrap_lease, member_lease, object_labels, owner, primary_lease};
use coregent_api::DatabaseCluster;
use coregent_core::names::MemberName;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

/// The account that the members run as.
#[must_use]
pub fn account(cluster: &DatabaseCluster) -> ServiceAccount {
    ServiceAccount { metadata: metadata(cluster, &account_name(cluster)), ..ServiceAccount::default() }
}

/// The rights of that account, for the members of these numbers. `create` cannot be narrowed to names.
#[must_use]
pub fn role(cluster: &DatabaseCluster, instances: &[u32]) -> Role {
    let name = cluster.name_any();
    let members = instances.iter().map(|index| member_lease(&MemberName::of(&name, *index)));
    let uid = cluster.meta().uid.clone().unwrap_or_default();
    let mut writable = vec![primary_lease(&name)];
    writable.extend(members);
    let rule = |group: &str, resource: &str, names: Vec<String>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: (!names.is_empty()).then_some(names),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    Role {
        metadata: metadata(cluster, &name),
        rules: Some(vec![
            rule("coordination.k8s.io", "leases", writable, &["get", "list", "watch", "update"]),
            rule("coordination.k8s.io", "leases", vec![bootstrap_lease(&name, &uid)], &["get", "list", "watch"]),
            rule("coordination.k8s.io", "leases", Vec::new(), &["create"]),
            rule("", "events", Vec::new(), &["create", "patch"]),
            rule("events.k8s.io", "events", Vec::new(), &["create", "patch"]),
        ]),
    }
}

/// Gives the account its rights.
#[must_use]
pub fn binding(cluster: &DatabaseCluster) -> RoleBinding {
    RoleBinding {
        metadata: metadata(cluster, &cluster.name_any()),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: cluster.name_any(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account_name(cluster),
            namespace: cluster.namespace(),
            ..Subject::default()
        }]),
    }
}

fn metadata(cluster: &DatabaseCluster, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: cluster.namespace(),
        labels: Some(object_labels(&cluster.name_any())),
        owner_references: Some(owner(cluster)),
        ..ObjectMeta::default()
    }
}
