//! An RSM that is being deleted.

use super::{Pure, root};
use crate::dag::{Action, Dag, Propagation, Step};
use crate::names::FINALIZER;
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
        for child in world.children.iter().filter(|child| child.object.metadata.deletion_timestamp.is_none()) {
            dag.add(Step {
                resource: child.resource.clone(),
                object: child.object.clone(),
                original: None,
                action: Action::delete(),
                id: None,
            });
        }
        let (propagation, finalizer) = (Propagation::Background, Some(FINALIZER.to_owned()));
        let release = Action::Delete { propagation, finalizer, as_read: false };
        dag.set_root(root(&world.rsm, release)?);
        Err(Interrupt::PrematureStop)
    }
}
