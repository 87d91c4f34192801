//! An RSM that is being deleted.

use super::{Pure, root};
use crate::dag::{Action, Dag, Step};
use crate::transformer::Interrupt;
use crate::world::World;

/// Deletes what the RSM generated, then takes our finalizer off it. Claims stay: they belong to nobody here. Pods go with
/// their StatefulSet (rsm.md 8.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectDeletionTransformer;

impl Pure for ObjectDeletionTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        if world.rsm.metadata.deletion_timestamp.is_none() {
            return Ok(());
        }
        // One that is on its way may still wait for our finalizer, which it has in compatibility mode.
        for child in &world.children {
            dag.add(Step {
                resource: child.resource.clone(),
                object: child.object.clone(),
                original: None,
                action: Action::release(),
                id: None,
            });
        }
        dag.set_root(root(&world.rsm, Action::release())?);
        Err(Interrupt::PrematureStop)
    }
}
