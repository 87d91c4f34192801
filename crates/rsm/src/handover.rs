//! What has to happen before the pod of a leader may go (rsm.md 5.7).

use k8s_openapi::api::core::v1::Pod;

use crate::dag::Dag;
use crate::transformer::Interrupt;
use crate::world::World;

/// Whether a leader may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Nothing is in the way: there is no switchover to make, or nobody to hand over to, or it was given up.
    Clear,
    /// A switchover is under way, or is to be begun with what was added to the graph. Nothing is replaced meanwhile, and
    /// afterwards the order is decided anew.
    Wait,
}

/// Called for every leader that an update is about to replace; `batch` are all that it replaces.
pub(crate) fn before_leader_goes(
    _world: &World,
    _dag: &mut Dag,
    _leader: &Pod,
    _batch: &[&Pod],
) -> Result<Handover, Interrupt> {
    Ok(Handover::Clear)
}
