//! The status.

use super::{Pure, set_status};
use crate::dag::Dag;
use crate::status::observed;
use crate::transformer::Interrupt;
use crate::world::World;

/// In a pass that takes up a new spec, notes that; in any other, reports what was seen (rsm.md 2.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectStatusTransformer;

impl Pure for ObjectStatusTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        let mut before = world.rsm.status.clone().unwrap_or_default();
        let generation = world.rsm.metadata.generation;
        if before.observed_generation != generation {
            before.observed_generation = generation;
            return set_status(world, dag, before);
        }
        set_status(world, dag, observed(world, &before))
    }
}
