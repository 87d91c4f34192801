//! The root of every plan, and nothing else for a set that is paused.

use super::{Pure, root};
use crate::dag::{Action, Dag};
use crate::transformer::Interrupt;
use crate::world::World;

/// Puts the RSM at the root. A paused one gets no write at all, its deletion included (rsm.md 2.2 no. 0).
#[derive(Clone, Copy, Debug, Default)]
pub struct InitTransformer;

impl Pure for InitTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        dag.set_root(root(&world.rsm, Action::Noop)?);
        if world.rsm.spec.paused { Err(Interrupt::PrematureStop) } else { Ok(()) }
    }
}
