//! Every namespace has an account `default`, which pods get that name no other.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::core::ObjectMeta;

use super::world::{Change, Object, ObjectKey, World};
use super::write::{Decision, Write};

const DEFAULT: &str = "default";

/// The namespaces that a change concerns.
pub fn touched(change: &Change) -> Vec<ObjectKey> {
    match change.versions().next() {
        Some(Object::Namespace(_)) => vec![change.key.clone()],
        Some(Object::ServiceAccount(_)) if change.new.is_none() && change.key.name == DEFAULT => {
            vec![ObjectKey::new("", &change.key.namespace)]
        }
        _ => Vec::new(),
    }
}

/// Makes the account of a namespace that is to stay.
pub fn decide(world: &World, key: &ObjectKey) -> Decision {
    let Some(namespace) = world.tables.namespaces.get("", &key.name) else { return Decision::nothing() };
    let is_there = world.tables.service_accounts.get(&key.name, DEFAULT).is_some();
    if is_there || namespace.metadata.deletion_timestamp.is_some() {
        return Decision::nothing();
    }
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(DEFAULT.to_owned()),
            namespace: Some(key.name.clone()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    Decision::in_order(Write::create(&account).into_iter().collect())
}
