//! The finalizer of the RSM.

use coregent_api::ReplicatedStateMachine;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::ObjectMeta;

use super::Pure;
use crate::dag::{Action, Dag, Step};
use crate::names::FINALIZER;
use crate::transformer::Interrupt;
use crate::world::World;

/// Adds our finalizer to an RSM without one, and does nothing else in that pass, so that nothing exists that a deletion
/// in between would leave behind (rsm.md 2.2 no. 1).
#[derive(Clone, Copy, Debug, Default)]
pub struct FixMetaTransformer;

impl Pure for FixMetaTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        let rsm = &world.rsm;
        if rsm.metadata.deletion_timestamp.is_some() || rsm.finalizers().iter().any(|one| one == FINALIZER) {
            return Ok(());
        }
        let mut finalizers = rsm.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        // Only what is changed is sent, on the version that was read, so that nothing else can be overwritten.
        let metadata = ObjectMeta {
            name: rsm.metadata.name.clone(),
            namespace: rsm.metadata.namespace.clone(),
            resource_version: rsm.metadata.resource_version.clone(),
            finalizers: Some(finalizers),
            ..ObjectMeta::default()
        };
        let resource = ApiResource::erase::<ReplicatedStateMachine>(&());
        let object = DynamicObject { types: None, metadata, data: serde_json::json!({}) };
        dag.set_root(Step { resource, object, original: None, action: Action::Merge, id: None }.with_original(rsm)?);
        Err(Interrupt::PrematureStop)
    }
}
