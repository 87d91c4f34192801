//! A planned hand-over: one operation with an undo (F12).

use super::decision::{Remembered, Step};
use super::draft::Draft;
use super::labels;
use super::raise;
use super::world::{Holder, Lease, Member, RENEWED_WITHIN, World};
use crate::fence::{Fence, Handover, Preparation};
use crate::names::MemberName;
use crate::operation::{BlockingOperation, OperationId, Outcome, Start, StepId};
use crate::report::{MemberReport, MemberState};

/// The target must hold the Lease by then. F12 says 5 s; the old primary is to write again within 6 s, and it needs
/// half a second of its own to come back.
const UNDO_AFTER: u64 = 4_500;
/// How long the old primary may take to write its dirty pages out beforehand. Writes go on meanwhile.
const PREPARE_WAIT: u64 = 20_000;
/// How far behind a member may be that a switchover goes to (postgres-recipes.md 9).
const MAX_LAG: u64 = 1 << 20;
/// The reason of a switchover that a person asked for.
const REQUESTED: &str = "SwitchoverRequested";
/// The reason of a switchover away from a node that is NotReady while the agent there lives (F15).
pub const NODE_NOT_READY: &str = "PrimaryNodeNotReady";
/// The reason of a switchover away from a node that takes no new pods, before its pods are evicted.
pub const NODE_LEAVING: &str = "PrimaryNodeLeaving";
/// How long after one that was undone the next is tried: each is a pause of writes.
const LEAVE_AGAIN: u64 = 60_000;
/// Name of the fact that a switchover away from a leaving node was undone, for [`World::held`].
pub const FACT_LEFT_IN_VAIN: &str = "primary-node-left-in-vain";
/// How long the node must have been NotReady: one that comes back at once is no reason for a pause of writes.
const NOT_READY_FOR: u64 = 10_000;
/// Name of the fact that the primary's node is NotReady, for [`World::held`].
pub const FACT_NOT_READY: &str = "primary-node-not-ready";

/// Looks at the request, if there is a new one, and starts the operation or says why not.
pub(super) fn answer(draft: &mut Draft<'_>, lease: &Lease) {
    let world = draft.world;
    let Some(request) = world.cluster.switchover.as_ref().filter(|request| !is_handled(world, &request.id)) else {
        return;
    };
    if let Some(active) = &world.operations().active {
        draft.diagnose(format!("the switchover waits: {}", active.step_id));
        return;
    }
    match destination(world, lease, request.to.as_ref()) {
        Ok(to) => start(draft, lease, Some(&request.id), REQUESTED, &to),
        Err(why) => {
            draft.memory.handled_request = Some(format!("{}: {why}", request.id));
            draft.remember(Remembered::RequestHandled);
            draft.event(true, "SwitchoverRefused", why);
        }
    }
}

fn is_handled(world: &World, id: &str) -> bool {
    world
        .memory
        .handled_request
        .as_deref()
        .is_some_and(|handled| handled == id || handled.strip_prefix(id).is_some_and(|rest| rest.starts_with(':')))
}

fn start(draft: &mut Draft<'_>, lease: &Lease, request: Option<&str>, reason: &str, to: &MemberName) {
    let start = Start {
        operation: OperationId::PrimaryDbCountSpecEnforcement,
        step: StepId::PrimaryDbSwitchingOver,
        id: request.map(ToOwned::to_owned),
        subject: Some(to.to_string()),
        epoch: lease.epoch.0,
        reason: Some(reason.to_owned()),
    };
    if let Ok(operations) = draft.world.operations().start(start, draft.world.wall) {
        draft.memory.operations = operations;
        draft.remember(Remembered::OperationStarted);
        let why = match reason {
            NODE_NOT_READY => "the primary's node is NotReady: ",
            NODE_LEAVING => "the primary's node is cordoned: ",
            _ => "",
        };
        draft.event(reason == NODE_NOT_READY, "SwitchoverStarted", format!("{why}handing over to {to}"));
    }
}

/// F15: a primary whose node is NotReady while its agent lives hands over before that node can take it along. One whose
/// node is cordoned hands over before a drain evicts it; its PodDisruptionBudget holds the eviction up meanwhile.
pub(super) fn leave_node(draft: &mut Draft<'_>, lease: &Lease) {
    let world = draft.world;
    let renewed = world.now.since(lease.unchanged_since) < RENEWED_WITHIN;
    let pod = labels::reported_primary(world, lease)
        .and_then(|primary| world.members.get(primary)?.pod.as_ref())
        .filter(|pod| !pod.deleting);
    let Some(pod) = pod.filter(|_| renewed && world.operations().active.is_none()) else { return };
    if !pod.node_ready {
        // Nobody is sure to come back from there: a failover that a person has switched off.
        if !world.cluster.failover_disabled {
            leave_once_held(draft, lease, FACT_NOT_READY, NOT_READY_FOR, NODE_NOT_READY);
        }
    } else if pod.node_leaving && !was_left_in_vain(world) {
        leave(draft, lease, NODE_LEAVING);
    } else if pod.node_leaving {
        leave_once_held(draft, lease, FACT_LEFT_IN_VAIN, LEAVE_AGAIN, NODE_LEAVING);
    }
}

fn was_left_in_vain(world: &World) -> bool {
    world.operations().previous.as_ref().is_some_and(|previous| {
        let undone = previous.outcome.as_ref().is_some_and(|outcome| *outcome != Outcome::Completed);
        // An undone switchover carries the reason of its undoing.
        undone && previous.step_id == StepId::PrimaryDbSwitchingOver
    })
}

fn leave_once_held(draft: &mut Draft<'_>, lease: &Lease, fact: &'static str, limit: u64, reason: &'static str) {
    let held = draft.hold(fact);
    if held < limit {
        return draft.again(limit - held);
    }
    leave(draft, lease, reason);
}

fn leave(draft: &mut Draft<'_>, lease: &Lease, reason: &'static str) {
    match destination(draft.world, lease, None) {
        Ok(to) => start(draft, lease, None, reason, &to),
        Err(why) if reason == NODE_LEAVING => {
            draft.diagnose(format!("the primary's node is cordoned, and it stays there: {why}"));
        }
        Err(why) => draft.diagnose(format!("the primary's node is NotReady, and it stays there: {why}")),
    }
}

/// Who takes over: the one asked for, or the one that is least behind.
fn destination(world: &World, lease: &Lease, to: Option<&MemberName>) -> Result<MemberName, String> {
    let primary =
        labels::reported_primary(world, lease).ok_or("there is no primary to hand over from; try again later")?;
    match to {
        Some(to) if to == primary => Err(format!("{to} is the primary already")),
        Some(to) if !world.members.contains_key(to) => {
            Err(format!("{to} is no member of {}; `coregent status` lists them", world.cluster.name))
        }
        Some(to) => is_able(world, primary, to).map(|_| to.clone()),
        None => {
            // Nobody goes to a node that is being left as well.
            let stays = |member: &Member| member.pod.as_ref().is_none_or(|pod| !pod.node_leaving);
            let others = world.members.iter().filter(|(name, member)| *name != primary && stays(member));
            let able = others
                .map(|(name, _)| name)
                .filter_map(|name| is_able(world, primary, name).ok().map(|lag| (lag, name)));
            let best = able.min();
            best.map(|(_, name)| name.clone())
                .ok_or_else(|| "no member streams closely enough to take over; wait until one does".to_owned())
        }
    }
}

/// Whether `to` can take over without a loss or a long pause; the bytes that it is behind.
fn is_able(world: &World, primary: &MemberName, to: &MemberName) -> Result<u64, String> {
    let report = world.live_report(to).ok_or_else(|| format!("{to} does not run; wait until it does"))?;
    // F15: no Service could reach it there, so that it would have to be left at once.
    if world.members.get(to).and_then(|known| known.pod.as_ref()).is_some_and(|pod| !pod.node_ready) {
        return Err(format!("the node of {to} is NotReady; wait until it is not"));
    }
    if report.state != MemberState::Streaming {
        return Err(format!("{to} does not stream from {primary} ({:?}); wait until it does", report.state));
    }
    let lag = lag_of(world.members.get(primary).and_then(|known| known.report.as_ref()), to);
    if lag > MAX_LAG {
        return Err(format!("{to} is {lag} bytes behind {primary}, more than {MAX_LAG}; wait until it has caught up"));
    }
    Ok(lag)
}

fn lag_of(primary: Option<&MemberReport>, to: &MemberName) -> u64 {
    primary
        .and_then(|report| report.standbys.iter().find(|standby| standby.member == *to))
        .and_then(|standby| standby.lag_bytes)
        .unwrap_or(0)
}

/// Looks again before the first effect, since a controller may have died in between.
pub(super) fn still_possible(world: &World, lease: &Lease) -> Result<Handover, String> {
    let to = subject(world).ok_or("the operation names no member")?;
    let to = destination(world, lease, Some(&to))?;
    let from = lease.holder.member().cloned().ok_or("nobody holds the Lease")?;
    Ok(Handover { from, to })
}

/// Whether the old primary has little left to write when it stops; announces the hand-over to it first. One that does not
/// answer, as one of an older version, or whose Lease is not renewed, is not waited for.
pub(super) fn is_prepared(draft: &mut Draft<'_>, lease: &Lease, handover: &Handover) -> bool {
    let world = draft.world;
    let Some(id) = world.operations().active.as_ref().map(|active| active.id.clone()) else { return true };
    let announcement = Preparation { id: id.clone(), from: handover.from.clone(), to: handover.to.clone() };
    if lease.fence.preparing.as_ref() != Some(&announcement) {
        let fence = Fence { preparing: Some(announcement), ..lease.fence.clone() };
        draft.step(Step::Prepare { version: lease.version.clone(), epoch: lease.epoch, fence });
        return false;
    }
    let report = world.members.get(&handover.from).and_then(|from| from.report.as_ref());
    let prepared = report.is_some_and(|report| report.prepared.as_ref() == Some(&id));
    let (elapsed, silent) = (world.step_elapsed(), world.now.since(lease.unchanged_since));
    if prepared || elapsed >= PREPARE_WAIT || silent >= RENEWED_WITHIN {
        return true;
    }
    draft.diagnose(format!("{} writes its dirty pages out, so that it stops quickly", handover.from));
    draft.again((PREPARE_WAIT - elapsed).min(RENEWED_WITHIN - silent));
    false
}

/// Ends a switchover that has had no effect yet.
pub(super) fn give_up(draft: &mut Draft<'_>, why: &str) {
    answer_with(draft, Some(why));
    draft.memory.operations = draft.world.operations().end(Outcome::Undone, Some(why.to_owned()));
    draft.remember(Remembered::OperationEnded);
    draft.event(true, "SwitchoverGivenUp", why.to_owned());
}

/// The hand-over has begun, and its target does not hold the Lease in time or never will.
pub(super) fn must_be_undone(draft: &mut Draft<'_>, lease: &Lease) -> bool {
    let world = draft.world;
    let Some(active) = running(world).filter(|active| active.epoch < lease.epoch.0) else { return false };
    let Some(subject) = active.subject.as_deref().map(MemberName::from) else { return false };
    if matches!(&lease.holder, Holder::Member(holder) if holder.member == subject && is_target(lease, &subject)) {
        return false;
    }
    let elapsed = world.step_elapsed();
    if elapsed >= UNDO_AFTER {
        return true;
    }
    draft.again(UNDO_AFTER - elapsed);
    // The old primary has stopped on purpose; a target that died is reason enough not to wait.
    active.reason.as_deref() != Some(raise::UNDO)
        && world.members.get(&subject).is_none_or(|member| {
            member.pod.as_ref().is_none_or(|pod| pod.deleting || world.terminated.contains_key(&pod.uid))
        })
}

fn is_target(lease: &Lease, member: &MemberName) -> bool {
    lease.fence.target.as_ref().is_some_and(|target| target.member == *member)
}

/// Epoch + 1 back to the old primary; if that was tried already, a failover like any other.
pub(super) fn undo(draft: &mut Draft<'_>, lease: &Lease) {
    let world = draft.world;
    let Some(active) = running(world) else { return };
    let old = lease.fence.handover.as_ref().map(|handover| handover.from.clone());
    let old = old.or_else(|| super::loss::previous_primary(world, lease));
    let failed = active.subject.clone().unwrap_or_default();
    if active.reason.as_deref() == Some(raise::UNDO) {
        answer_with(draft, Some("neither the new nor the old primary took over in time"));
        return raise::decide(draft, lease, super::loss::NOT_TAKEN, old.as_ref());
    }
    let step = StepId::PrimaryDbSwitchingOver;
    let mut operations = world.operations().advance(step, old.map(|old| old.to_string()), lease.epoch.0, world.wall);
    if let Some(active) = &mut operations.active {
        active.reason = Some(raise::UNDO.to_owned());
        active.message = Some(format!("{failed} did not take over in time"));
    }
    draft.memory.operations = operations;
    draft.remember(Remembered::OperationAdvanced);
    draft.event(true, "SwitchoverUndone", format!("{failed} did not take over: the old primary goes on"));
}

/// A primary accepts writes again: the switchover has succeeded, or has been undone.
pub(super) fn end(draft: &mut Draft<'_>, primary: &MemberName) {
    let Some(active) = running(draft.world) else { return };
    let undone = active.reason.as_deref() == Some(raise::UNDO);
    let message = active.message.clone();
    if undone {
        let why = message.clone().unwrap_or_else(|| "the new primary did not take over in time".to_owned());
        answer_with(draft, Some(&format!("{why}; {primary} is primary")));
        draft.memory.operations = draft.world.operations().end(Outcome::Undone, Some(why));
    } else {
        answer_with(draft, None);
        draft.memory.operations = draft.world.operations().end(Outcome::Completed, None);
        draft.event(false, "SwitchoverCompleted", format!("{primary} accepts writes"));
    }
}

/// A failover that began as a switchover has ended: its request is answered with what came of it.
pub(super) fn overtaken(draft: &mut Draft<'_>, primary: &MemberName) {
    let world = draft.world;
    let Some(request) = world.cluster.switchover.as_ref().filter(|request| !is_handled(world, &request.id)) else {
        return;
    };
    let is_it = world.operations().active.as_ref().is_some_and(|active| active.id == request.id);
    if is_it {
        answer_with(draft, Some(&format!("it became a failover; {primary} is primary")));
    }
}

/// Answers the request that the operation carries out. One that nobody asked for answers nobody: to write its id over
/// that of the last request would carry that one out once more.
fn answer_with(draft: &mut Draft<'_>, why_not: Option<&str>) {
    let Some(active) = draft.world.operations().active.as_ref() else { return };
    let id = &active.id;
    if draft.world.cluster.switchover.as_ref().is_none_or(|request| request.id != *id) {
        return;
    }
    draft.memory.handled_request = Some(why_not.map_or_else(|| id.clone(), |why| format!("{id}: {why}")));
}

fn running(world: &World) -> Option<&BlockingOperation> {
    world.operations().active.as_ref().filter(|active| active.step_id == StepId::PrimaryDbSwitchingOver)
}

fn subject(world: &World) -> Option<MemberName> {
    running(world).and_then(|active| active.subject.as_deref()).map(MemberName::from)
}
