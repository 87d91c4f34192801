//! Pods of an old revision, in the order of their roles.

use coregent_core::rsm::update::Next;
use k8s_openapi::api::core::v1::Pod;

use super::Pure;
use crate::dag::{Action, Dag, Step};
use crate::handover::{Handover, before_leader_goes};
use crate::membership::is_changing;
use crate::transformer::Interrupt;
use crate::update::{leads, next};
use crate::world::World;

/// Deletes the pods that an update by role replaces now, so that their StatefulSet makes them again at the newest
/// revision (rsm.md 5). Without `memberUpdateStrategy` it touches no pod: those are their owner's to replace.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateStrategyTransformer;

impl Pure for UpdateStrategyTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        let rsm = &world.rsm;
        let observed = rsm.status.as_ref().and_then(|status| status.observed_generation);
        let settled = rsm.metadata.deletion_timestamp.is_none() && observed == rsm.metadata.generation;
        // A StatefulSet that this pass changes has a newer revision than it tells.
        if !settled || dag.of_kind("StatefulSet").any(|step| step.action != Action::Noop) {
            return Ok(());
        }
        // A member that comes or goes changes what a majority is.
        if is_changing(world) {
            return Ok(());
        }
        let Some(Next::Replace(numbers)) = next(world) else { return Ok(()) };
        let pod_of = |number: &i64| world.pods.iter().find(|pod| world.number(pod) == *number);
        let batch: Vec<&Pod> = numbers.iter().filter_map(pod_of).collect();
        for leader in batch.iter().filter(|pod| leads(world, pod)) {
            if before_leader_goes(world, dag, leader, &batch)? == Handover::Wait {
                return Ok(());
            }
        }
        for pod in batch {
            // On exactly what was decided on: a pod that became the leader meanwhile has another version.
            dag.add(Step::new(pod, Action::delete_as_read())?);
        }
        Ok(())
    }
}
