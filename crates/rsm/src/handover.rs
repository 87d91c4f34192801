//! What has to happen before the pod of a leader may go (rsm.md 5.7).

use coregent_api::rsm::{ActionKind, MemberOperation, OperationCause, OperationPhase, ReplicatedStateMachineStatus};
use coregent_core::wallclock::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::dag::Dag;
use crate::membership::{action, bounds, is_by_actions};
use crate::operation;
use crate::status::members;
use crate::transformer::Interrupt;
use crate::transformers::{planned_status, set_status};
use crate::update::REVISION;
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
///
/// A switchover that failed for good does not keep the update (rsm.md 5.7): the engine has an election of its own then. One
/// that succeeded is followed by another look at who leads, never by the deletion itself.
pub(crate) fn before_leader_goes(
    world: &World,
    dag: &mut Dag,
    leader: &Pod,
    batch: &[&Pod],
) -> Result<Handover, Interrupt> {
    let rsm = &world.rsm;
    if !is_by_actions(rsm) || action(rsm, ActionKind::Switchover).is_none() {
        return Ok(Handover::Clear);
    }
    let Some(mut status) = planned_status(dag).filter(is_up) else { return Ok(Handover::Clear) };
    let now = Timestamp(world.now.0.as_millisecond());
    match &status.member_operation {
        Some(other) if matches!(other.phase, OperationPhase::Running | OperationPhase::BackingOff) => {
            return Ok(Handover::Wait);
        }
        Some(ours) if is_about(ours, leader) => match ours.phase {
            // Its label follows within a moment; where it does not, another switchover is made.
            OperationPhase::Succeeded if !is_past(ours, now) => return Ok(Handover::Wait),
            OperationPhase::Failed | OperationPhase::Skipped => return Ok(Handover::Clear),
            _ => {}
        },
        // A change of membership that waits for a person is not overwritten.
        Some(other) if other.cause == OperationCause::Scale && other.phase == OperationPhase::Failed => {
            return Ok(Handover::Wait);
        }
        _ => {}
    }
    let Some(target) = target(world, leader, batch) else { return Ok(Handover::Clear) };
    let (member, cause) = (leader.name_any(), OperationCause::Update);
    let begun = operation::begin(ActionKind::Switchover, &member, Some(&target), cause, bounds(rsm), now);
    status.member_operation = Some(begun);
    set_status(world, dag, status)?;
    Ok(Handover::Wait)
}

/// Actions are carried out once every founder had a role.
fn is_up(status: &ReplicatedStateMachineStatus) -> bool {
    status.init_replicas > 0 && status.ready_init_replicas.unwrap_or_default() >= status.init_replicas
}

fn is_about(operation: &MemberOperation, leader: &Pod) -> bool {
    operation.cause == OperationCause::Update
        && operation.action == ActionKind::Switchover
        && operation.member == leader.name_any()
}

fn is_past(operation: &MemberOperation, now: Timestamp) -> bool {
    operation.deadline.parse::<Timestamp>().is_ok_and(|deadline| now > deadline)
}

/// Who takes over: a ready voter that stays, one of the newest revision before all others, then the smallest number.
fn target(world: &World, leader: &Pod, batch: &[&Pod]) -> Option<String> {
    let newest = world.stateful_sets.first().and_then(|set| set.status.as_ref()?.update_revision.clone());
    let members = members(world);
    let stays = |pod: &&Pod| {
        let name = pod.name_any();
        name != leader.name_any()
            && !batch.iter().any(|going| going.name_any() == name)
            && members.iter().any(|member| member.pod_name == name && member.role.can_vote && !member.role.is_leader)
    };
    let key = |pod: &&Pod| (pod.labels().get(REVISION) != newest.as_ref(), world.number(pod));
    world.pods.iter().filter(stays).min_by_key(key).map(ResourceExt::name_any)
}
