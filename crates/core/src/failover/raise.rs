//! Raising the epoch: it deposes whoever holds the Lease and opens an election round (F1, F6). It is decided by writing
//! the operation ahead, with the epoch at which it was decided, and carried out from there.

use super::decision::{Remembered, Step};
use super::draft::Draft;
use super::granted;
use super::repair;
use super::switchover;
use super::told;
use super::world::{Lease, World};
use crate::fence::{Fence, Handover};
use crate::names::{Epoch, MemberName};
use crate::operation::{OperationId, Operations, Outcome, Start, StepId};

/// Why a switchover goes back.
pub(super) const UNDO: &str = "SwitchoverUndone";

/// An operation was started at this very epoch whose first effect is a raise.
pub(super) fn is_pending(world: &World, lease: &Lease) -> bool {
    world.operations().active.as_ref().is_some_and(|active| {
        matches!(active.step_id, StepId::PrimaryDbWaitingBeforeFailingOver | StepId::PrimaryDbSwitchingOver)
            && active.epoch == lease.epoch.0
    })
}

/// Raises, if what led to the operation still stands; else ends the operation as undone.
pub(super) fn carry_out(draft: &mut Draft<'_>, lease: &Lease) {
    let world = draft.world;
    let Some(active) = &world.operations().active else { return };
    let reason = active.reason.as_deref().unwrap_or_default();
    let handover = if active.step_id == StepId::PrimaryDbSwitchingOver && reason != UNDO {
        match switchover::still_possible(world, lease) {
            Ok(handover) if !switchover::is_prepared(draft, lease, &handover) => return,
            Ok(handover) => Some(handover),
            Err(why) => return switchover::give_up(draft, &why),
        }
    } else {
        None
    };
    // Where nobody holds what was granted there is nothing that could have come back.
    let target = lease.fence.target.as_ref().map(|target| &target.member);
    let is_held = target.is_some() && lease.holder.member() == target;
    let is_forced = handover.is_some() || reason == UNDO || repair::is_reason(reason) || !is_held;
    if !is_forced && granted::loss(draft, lease).is_none() {
        let message = "the primary came back before it was deposed".to_owned();
        draft.memory.operations = world.operations().end(Outcome::Undone, Some(message));
        draft.memory.primary.current = lease.holder.member().cloned();
        return draft.remember(Remembered::OperationEnded);
    }
    if handover.is_some() {
        // The time in which the new primary has to take over counts from here.
        draft.memory.operations =
            world.operations().advance(active.step_id, active.subject.clone(), active.epoch, world.wall);
        draft.remember(Remembered::OperationAdvanced);
    }
    if let Some(epoch) = next_epoch(draft, lease.epoch) {
        draft.step(raised(world, lease, epoch, handover));
    }
}

fn raised(world: &World, lease: &Lease, epoch: Epoch, handover: Option<Handover>) -> Step {
    let mut fence = Fence { target: None, handover, preparing: None, restored: false, ..lease.fence.clone() };
    if repair::is_running(world) {
        repair::learn(world, &mut fence);
    }
    Step::Raise { version: lease.version.clone(), epoch, fence }
}

/// One more than anybody has ever seen (F14). None where the API could not hold it: it would read as epoch 0.
pub(super) fn next_epoch(draft: &mut Draft<'_>, lease: Epoch) -> Option<Epoch> {
    let known = repair::newest_known(draft.world).max(lease);
    if known >= Epoch::LAST {
        draft.diagnose(format!(
            "epoch {known} is known, and the API can hold none above {}: nobody can be promoted before whoever says so is \
             set right",
            Epoch::LAST
        ));
        return None;
    }
    Some(known.next())
}

/// Writes ahead that the primary is lost and the epoch `lease` has is to be raised.
pub(super) fn decide(draft: &mut Draft<'_>, lease: &Lease, reason: &'static str, subject: Option<&MemberName>) {
    let world = draft.world;
    let step = StepId::PrimaryDbWaitingBeforeFailingOver;
    let subject = subject.map(ToString::to_string);
    let repeated = world.operations().active.as_ref().filter(|active| active.step_id.is_change_of_primary());
    let operations = match repeated {
        // The change of primary goes on with another round; who was tried in vain stays known.
        Some(active) => {
            let tried = active.subject.clone().or(subject);
            let mut next = world.operations().advance(step, tried, lease.epoch.0, world.wall);
            if let Some(active) = &mut next.active {
                active.attempt = active.attempt.saturating_add(1);
                // A repair stays one until somebody is primary: what the record forgot is still not in it.
                if !active.reason.as_deref().is_some_and(repair::is_reason) {
                    active.reason = Some(reason.to_owned());
                }
            }
            next
        }
        None => start(world, step, lease.epoch, reason, subject),
    };
    draft.memory.operations = operations;
    draft.memory.primary.current = None;
    draft.memory.primary.target = None;
    draft.remember(Remembered::OperationStarted);
    draft.event(true, "FailoverStarted", told::failover(world, lease, reason));
}

fn start(world: &World, step: StepId, epoch: Epoch, reason: &str, subject: Option<String>) -> Operations {
    let start = Start {
        operation: OperationId::PrimaryDbCountSpecEnforcement,
        step,
        id: None,
        subject,
        epoch: epoch.0,
        reason: Some(reason.to_owned()),
    };
    // A change of primary goes before everything, so that nothing excludes it.
    world.operations().start(start, world.wall).unwrap_or_else(|_| world.operations().clone())
}
