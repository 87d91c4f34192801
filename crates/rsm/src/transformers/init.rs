//! The root of every plan, and next to nothing else for a set that is paused.

use coregent_api::conditions::{self, State, set_condition};

use super::{Pure, root, set_status};
use crate::dag::{Action, Dag};
use crate::transformer::Interrupt;
use crate::world::World;

/// Puts the RSM at the root. A paused one gets no write, its deletion included, save the condition that says so
/// (rsm.md 2.2 no. 0).
#[derive(Clone, Copy, Debug, Default)]
pub struct InitTransformer;

impl Pure for InitTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        let rsm = &world.rsm;
        dag.set_root(root(rsm, Action::Noop)?);
        if !rsm.spec.paused {
            return Ok(());
        }
        let (reason, message) = match rsm.metadata.deletion_timestamp {
            Some(_) => ("DeletionWaits", "the set is being deleted and paused: set spec.paused to false to let it go"),
            None => ("Paused", "nothing is done for this set until spec.paused is false"),
        };
        let mut status = rsm.status.clone().unwrap_or_default();
        let generation = rsm.metadata.generation;
        let conditions = &mut status.conditions;
        set_condition(conditions, conditions::PAUSED, State::True, reason, message, generation, &world.now);
        set_status(world, dag, status)?;
        Err(Interrupt::PrematureStop)
    }
}
