//! The transformers of the RSM controller, in the order in which they run (rsm.md 2.1).
//!
//! Each turns a decision into vertices and decides nothing itself.

mod deletion;
mod fix_meta;
mod generation;
mod init;
mod membership;
mod status;
mod update_strategy;

pub use deletion::ObjectDeletionTransformer;
pub use fix_meta::FixMetaTransformer;
pub use generation::ObjectGenerationTransformer;
pub use init::InitTransformer;
pub use membership::MemberReconfigurationTransformer;
pub use status::ObjectStatusTransformer;
pub use update_strategy::UpdateStrategyTransformer;

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::ReplicatedStateMachineStatus;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::dag::{Action, Dag, Step};
use crate::names;
use crate::plan::PlanBuilder;
use crate::transformer::{Interrupt, Transformer};
use crate::world::World;

/// A builder with every transformer of the RSM controller over one observation.
pub fn plan_builder(world: World) -> PlanBuilder<World> {
    PlanBuilder::new(world, names::MANAGER)
        .add_transformer(InitTransformer)
        .add_transformer(FixMetaTransformer)
        .add_transformer(ObjectDeletionTransformer)
        .add_transformer(ObjectGenerationTransformer)
        .add_transformer(ObjectStatusTransformer)
        .add_transformer(UpdateStrategyTransformer)
        .add_transformer(MemberReconfigurationTransformer)
}

/// What a transformer that waits for nothing does; [`Transformer`] follows from it.
trait Pure: Send + Sync {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt>;
}

macro_rules! transformer {
    ($type:ty) => {
        impl Transformer<World> for $type {
            fn transform<'a>(&'a self, world: &'a World, dag: &'a mut Dag) -> BoxFuture<'a, Result<(), Interrupt>> {
                ready(self.apply(world, dag)).boxed()
            }
        }
    };
}
transformer!(InitTransformer);
transformer!(FixMetaTransformer);
transformer!(ObjectDeletionTransformer);
transformer!(ObjectGenerationTransformer);
transformer!(ObjectStatusTransformer);
transformer!(UpdateStrategyTransformer);
transformer!(MemberReconfigurationTransformer);

/// The root with this action, as it was read.
fn root(rsm: &ReplicatedStateMachine, action: Action) -> Result<Step, Interrupt> {
    Ok(Step::new(rsm, action)?.with_original(rsm)?)
}

/// The status that the root's write will carry, as far as it is decided.
pub(crate) fn planned_status(dag: &Dag) -> Option<ReplicatedStateMachineStatus> {
    let root: ReplicatedStateMachine = dag.root()?.object.clone().try_parse().ok()?;
    Some(root.status.unwrap_or_default())
}

/// Sets the status that the root's write will carry; nothing is written when it is that of before.
pub(crate) fn set_status(world: &World, dag: &mut Dag, status: ReplicatedStateMachineStatus) -> Result<(), Interrupt> {
    let mut rsm = world.rsm.clone();
    rsm.status = Some(status);
    let action = if rsm.status == world.rsm.status { Action::Noop } else { Action::Status };
    dag.set_root(Step::new(&rsm, action)?.with_original(&world.rsm)?);
    Ok(())
}
