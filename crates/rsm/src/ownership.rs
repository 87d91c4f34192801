//! Whose object is whose.

use coregent_api::ReplicatedStateMachine;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

/// Kind of an object that never gets a finalizer (rsm.md 3.2).
const CLAIM: &str = "PersistentVolumeClaim";

/// An object that another controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} belongs to {kind} {name} already; rename one of them or delete it")]
pub struct AlreadyOwned {
    /// The object.
    pub object: String,
    /// Kind of its controller.
    pub kind: String,
    /// Name of its controller.
    pub name: String,
}

/// The reference that makes `owner` the controller of what carries it.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner.controller_owner_ref(&())
}

/// Copies the controller references of `owner` to `object`, and adds `finalizer` unless it is there or `object` is a
/// claim (rsm.md 7.6).
pub fn copy_ownership<K>(owner: &impl Resource, object: &mut K, finalizer: &str) -> Result<(), AlreadyOwned>
where
    K: Resource<DynamicType = ()>,
{
    let controllers =
        owner.meta().owner_references.iter().flatten().filter(|reference| reference.controller == Some(true));
    for reference in controllers {
        set_controller(object, reference.clone())?;
    }
    let is_claim = K::kind(&()) == CLAIM;
    let finalizers = &mut object.meta_mut().finalizers;
    let present = finalizers.iter().flatten().any(|one| one == finalizer);
    if !is_claim && !present {
        finalizers.get_or_insert_default().push(finalizer.to_owned());
    }
    Ok(())
}

/// Makes `reference` the controller of `object`, unless another is.
pub fn set_controller<K>(object: &mut K, reference: OwnerReference) -> Result<(), AlreadyOwned>
where
    K: Resource<DynamicType = ()>,
{
    if let Some(other) = controller_of(object.meta()).filter(|other| !same_object(other, &reference)) {
        let name = object.meta().name.clone().unwrap_or_default();
        return Err(AlreadyOwned {
            object: format!("{} {name}", K::kind(&())),
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    let references = object.meta_mut().owner_references.get_or_insert_default();
    match references.iter_mut().find(|other| same_object(other, &reference)) {
        Some(other) => *other = reference,
        None => references.push(reference),
    }
    Ok(())
}

/// The reference to the controller of an object.
#[must_use]
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Whether an RSM controls the object (rsm.md 7.8).
#[must_use]
pub fn is_owned_by_rsm(meta: &ObjectMeta) -> bool {
    controller_of(meta).is_some_and(|owner| owner.kind == ReplicatedStateMachine::kind(&()))
}

/// Whether this very RSM controls the object.
#[must_use]
pub fn is_controlled_by(meta: &ObjectMeta, rsm: &ReplicatedStateMachine) -> bool {
    controller_of(meta).is_some_and(|owner| Some(&owner.uid) == rsm.metadata.uid.as_ref())
}

/// Group, kind and name; the version may move and the uid is that of a newer object of the name (rsm.md 7.6).
fn same_object(a: &OwnerReference, b: &OwnerReference) -> bool {
    let group = |reference: &OwnerReference| reference.api_version.split_once('/').map(|(group, _)| group.to_owned());
    (group(a), &a.kind, &a.name) == (group(b), &b.kind, &b.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};

    fn reference(kind: &str, controller: bool) -> OwnerReference {
        OwnerReference {
            api_version: "coregent.io/v1alpha1".into(),
            kind: kind.into(),
            name: "bar".into(),
            uid: "u1".into(),
            controller: Some(controller),
            block_owner_deletion: None,
        }
    }

    fn config_map(owners: Vec<OwnerReference>) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("env".into());
        object.metadata.owner_references = Some(owners);
        object
    }

    #[test]
    fn only_the_controller_is_copied_and_only_once() {
        let owner = config_map(vec![reference("DatabaseCluster", true), reference("Backup", false)]);
        let mut object = ConfigMap::default();
        copy_ownership(&owner, &mut object, "f").unwrap();
        copy_ownership(&owner, &mut object, "f").unwrap();
        assert_eq!(object.metadata.owner_references, Some(vec![reference("DatabaseCluster", true)]));
        assert_eq!(object.metadata.finalizers, Some(vec!["f".to_owned()]));
    }

    #[test]
    fn an_object_of_another_controller_is_refused() {
        let owner = config_map(vec![reference("DatabaseCluster", true)]);
        let mut object = config_map(vec![reference("Deployment", true)]);
        let error = copy_ownership(&owner, &mut object, "f").unwrap_err();
        assert_eq!(
            error.to_string(),
            "ConfigMap env belongs to Deployment bar already; rename one of them or delete it"
        );
    }

    #[test]
    fn a_claim_gets_no_finalizer() {
        let owner = config_map(vec![reference("DatabaseCluster", true)]);
        let mut claim = PersistentVolumeClaim::default();
        copy_ownership(&owner, &mut claim, "f").unwrap();
        assert_eq!(claim.metadata.finalizers, None);
    }

    #[test]
    fn owned_by_an_rsm_means_controlled_by_one() {
        assert!(!is_owned_by_rsm(&ObjectMeta::default()));
        assert!(is_owned_by_rsm(&config_map(vec![reference("ReplicatedStateMachine", true)]).metadata));
        assert!(!is_owned_by_rsm(&config_map(vec![reference("ReplicatedStateMachine", false)]).metadata));
        assert!(!is_owned_by_rsm(&config_map(vec![reference("Cluster", true)]).metadata));
    }
}
