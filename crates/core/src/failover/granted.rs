//! A member is named: either it takes the Lease soon, or it holds it and is watched.

use super::decision::Remembered;
use super::draft::Draft;
use super::labels;
use super::loss;
use super::raise;
use super::switchover;
use super::world::{Holder, Lease};
use crate::fence::Target;
use crate::names::{HolderIdentity, MemberName};
use crate::operation::{Operations, Outcome, StepId};
use crate::report::MemberState;

/// How long a named member may take to make itself holder.
const TAKE_WAIT: u64 = 5_000;
/// The same while it says that it fetches the rest of the old primary's log: an agent that gives up says so sooner.
const FETCH_WAIT: u64 = 60_000;
const FACT_NOT_TAKEN: &str = "named-and-not-taken";

/// Looks at the named member.
pub(super) fn watch(draft: &mut Draft<'_>, lease: &Lease, target: &Target) {
    if switchover::must_be_undone(draft, lease) {
        return switchover::undo(draft, lease);
    }
    if let Some(reason) = loss(draft, lease) {
        let subject = lease.holder.member().or(Some(&target.member)).cloned();
        return raise::decide(draft, lease, reason, subject.as_ref());
    }
    // What a member last said of itself stands in the API for as long as its node is called Ready.
    let primary = labels::open_primary(draft.world, lease).filter(|_| !lease.is_expired(draft.world)).cloned();
    match &primary {
        Some(primary) => {
            draft.steps(labels::settle(draft.world, Some(primary)));
            settle_memory(draft, lease, primary);
        }
        None => {
            let keeps = draft.world.memory.primary.current.clone();
            // The label of a primary that is named still, but busy, stays; of anybody else it goes at once.
            let stays = keeps.filter(|current| *current == target.member && lease.holder.member() == Some(current));
            draft.steps(labels::strip(draft.world, stays.as_ref()));
            forget_the_dead(draft, lease);
        }
    }
    if draft.is_idle() && primary.is_some() {
        switchover::answer(draft, lease);
    }
    if draft.is_idle() {
        switchover::leave_node(draft, lease);
    }
}

/// Whoever has not renewed for the whole of its Lease accepts no writes (F2), whether or not another could take over: the
/// status names it no longer. Should it come back in this epoch it is written down anew.
fn forget_the_dead(draft: &mut Draft<'_>, lease: &Lease) {
    let is_dead = lease.holder != Holder::Nobody && lease.is_expired(draft.world);
    if is_dead && draft.memory.primary.current.take().is_some() {
        draft.memory.primary.since = None;
        draft.remember(Remembered::Facts);
    }
}

/// Why the named member is to be deposed, if it is.
pub(super) fn loss(draft: &mut Draft<'_>, lease: &Lease) -> Option<&'static str> {
    let world = draft.world;
    let target = lease.fence.target.as_ref()?;
    if let Holder::Member(holder) = &lease.holder
        && holder.member == target.member
    {
        return loss_of_holder(draft, lease, holder);
    }
    if loss::gave_up(world, lease, target) {
        return Some(loss::RELEASED);
    }
    let waited = draft.hold(FACT_NOT_TAKEN);
    let dead = loss::target_is_dead(world, target) && loss_helps(draft, target);
    let fetches = world.live_report(&target.member).is_some_and(|report| report.state == MemberState::Fetching);
    let bound = if fetches { FETCH_WAIT } else { loss::patience(world, TAKE_WAIT) };
    if dead || waited >= bound {
        return Some(loss::NOT_TAKEN);
    }
    draft.again(bound - waited);
    None
}

/// A raise only helps if somebody else can be named, or the same member at another address.
fn loss_helps(draft: &Draft<'_>, target: &Target) -> bool {
    let moved = draft.world.live_report(&target.member).is_some_and(|report| report.address != target.address);
    moved || loss::can_fail_over(draft.world, &target.member)
}

fn loss_of_holder(draft: &mut Draft<'_>, lease: &Lease, holder: &HolderIdentity) -> Option<&'static str> {
    let findings = loss::of_holder(draft.world, lease, holder);
    for fact in findings.holding {
        draft.hold(fact);
    }
    draft.again_opt(findings.again);
    findings.loss
}

/// Copies what the Lease says, and ends the operation that led here.
fn settle_memory(draft: &mut Draft<'_>, lease: &Lease, primary: &MemberName) {
    let world = draft.world;
    let mut what = None;
    let copy = &mut draft.memory.primary;
    if copy.current.as_ref() != Some(primary) || copy.epoch != lease.epoch || copy.target.as_ref() != Some(primary) {
        if copy.current.as_ref() != Some(primary) || copy.since.is_none() {
            copy.since = Some(world.wall);
        }
        copy.current = Some(primary.clone());
        copy.target = Some(primary.clone());
        copy.epoch = lease.epoch;
        what = Some(Remembered::Facts);
    }
    let reported = || world.live_report(primary).and_then(|report| report.system_id.clone());
    if draft.memory.system_id.is_none()
        && let Some(system_id) = lease.fence.system_id.clone().or_else(reported)
    {
        draft.memory.system_id = Some(system_id);
        what = Some(Remembered::Facts);
    }
    if ends(world.operations()) {
        end_operation(draft, primary);
        what = Some(Remembered::OperationEnded);
    }
    if let Some(what) = what {
        draft.remember(what);
    }
}

fn ends(operations: &Operations) -> bool {
    operations.step().is_some_and(|step| step.is_change_of_primary() || step == StepId::PrimaryDbDeploying)
}

fn end_operation(draft: &mut Draft<'_>, primary: &MemberName) {
    let world = draft.world;
    if let Some(last) = &mut draft.memory.last_failover
        && last.to == *primary
        && last.completed_at.is_none()
    {
        last.completed_at = Some(world.wall);
    }
    match world.operations().step() {
        Some(StepId::PrimaryDbSwitchingOver) => switchover::end(draft, primary),
        Some(StepId::PrimaryDbDeploying) => {
            draft.memory.operations = world.operations().end(Outcome::Completed, None);
            draft.event(false, "PrimaryDeployed", format!("{primary} accepts writes"));
        }
        _ => {
            draft.memory.operations = world.operations().end(Outcome::Completed, None);
            draft.event(false, "FailoverCompleted", format!("{primary} accepts writes"));
            switchover::overtaken(draft, primary);
        }
    }
}
