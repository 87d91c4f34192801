//! An election round (F6): the epoch is raised and nobody is named. Everybody leaves, positions are compared, the old
//! holder is judged, and then one is named.

use super::bootstrap;
use super::choose::{self, Choice, Chosen};
use super::decision::{Remembered, Step};
use super::draft::Draft;
use super::electorate::Electorate;
use super::labels;
use super::loss;
use super::memory::{DataLoss, LastFailover, Lossless};
use super::proof::{self, Ruling};
use super::raise;
use super::repair;
use super::switchover;
use super::told;
use super::world::{Lease, Member, Mode, World};
use crate::fence::{Fence, Proof, Target};
use crate::lsn::Lsn;
use crate::names::MemberName;
use crate::operation::StepId;
use crate::position::Promotion;
use crate::wallclock::Timestamp;

/// The operation of a round that nobody remembers having opened.
const ROUND_FOUND_OPEN: &str = "RoundFoundOpen";

/// Holds the round of the Lease's epoch.
pub(super) fn hold(draft: &mut Draft<'_>, lease: &Lease) {
    if repair::is_running(draft.world) {
        return elect(draft, &repair::informed(draft.world, lease));
    }
    if bootstrap::is_first_naming(draft.world, lease) {
        return bootstrap::name_first(draft, lease);
    }
    elect(draft, lease);
}

fn elect(draft: &mut Draft<'_>, lease: &Lease) {
    if switchover::must_be_undone(draft, lease) {
        return switchover::undo(draft, lease);
    }
    // F15: the leader's label is gone from every pod before a target is written.
    draft.steps(labels::strip(draft.world, None));
    if !has_operation(draft.world) {
        return find_open(draft, lease);
    }
    let choice = choose::choose(draft.world, lease);
    let fenced = match &choice {
        Choice::Chosen(chosen) => chosen.fenced,
        Choice::Wait { .. } => Electorate::of(draft.world, lease).fences(&lease.fence, lease.epoch),
    };
    let by_quorum = fenced && draft.world.cluster.mode == Mode::Quorum;
    match (choice, proof::judge(draft.world, lease, by_quorum)) {
        (Choice::Chosen(chosen), Ruling::Proven(proof)) => name(draft, lease, &chosen, proof),
        (choice, ruling) => {
            stamp_early(draft, lease);
            if let Choice::Wait { why, again } = choice {
                draft.diagnose(why);
                draft.again_opt(again);
            }
            if let Ruling::NotYet { why, step, again } = ruling {
                draft.diagnose(why);
                draft.again_opt(again);
                if let Some(step) = step {
                    draft.event(true, "FencingOldPrimary", told::fencing(&step));
                    draft.step(*step);
                }
            }
        }
    }
}

fn has_operation(world: &World) -> bool {
    world.operations().step().is_some_and(|step| step.is_change_of_primary() || step == StepId::PrimaryDbDeploying)
}

/// A round without an operation: its status was lost or cleared. It is owned again before anything else.
fn find_open(draft: &mut Draft<'_>, lease: &Lease) {
    raise::decide(draft, lease, ROUND_FOUND_OPEN, loss::previous_primary(draft.world, lease).as_ref());
    // The raise itself has been carried out already: the operation belongs to the epoch before.
    if let Some(active) = &mut draft.memory.operations.active {
        active.epoch = lease.epoch.0.saturating_sub(1);
    }
}

/// Stamps whoever may be named, while reports are waited for, so that naming has one write less before it. Not the
/// pod of the old holder: a fencing delete may yet be decided against it, and the stamp must come after that (F4, X3).
fn stamp_early(draft: &mut Draft<'_>, lease: &Lease) {
    let old = lease.holder.member();
    let steps: Vec<Step> = draft
        .world
        .members
        .iter()
        .filter(|(name, member)| Some(*name) != old && draft.world.is_live(member))
        .filter_map(|(_, member)| stamp(member, lease))
        .collect();
    draft.steps(steps);
}

fn stamp(member: &Member, lease: &Lease) -> Option<Step> {
    let pod = member.pod.as_ref().filter(|pod| pod.stamp.is_none_or(|stamp| stamp < lease.epoch))?;
    Some(Step::Stamp { pod: pod.name.clone(), uid: pod.uid.clone(), epoch: lease.epoch })
}

fn name(draft: &mut Draft<'_>, lease: &Lease, chosen: &Chosen, proof: Proof) {
    let world = draft.world;
    let Some(member) = world.members.get(&chosen.member) else { return };
    let Some(report) = &member.report else { return };
    draft.steps(stamp(member, lease).into_iter().collect());
    draft.memory.last_failover = Some(record(world, lease, chosen));
    // Nobody accepts writes until it does; a `current` left over would say that it had and gave up.
    draft.memory.primary.current = None;
    draft.memory.primary.target = Some(chosen.member.clone());
    draft.memory.primary.epoch = lease.epoch;
    if world.operations().step() != Some(StepId::PrimaryDbSwitchingOver) {
        let subject = Some(chosen.member.to_string());
        let step = StepId::PrimaryDbFailingOver;
        draft.memory.operations = world.operations().advance(step, subject, lease.epoch.0, world.wall);
    }
    draft.remember(Remembered::OperationAdvanced);
    let target = Target {
        member: chosen.member.clone(),
        address: report.address.clone(),
        proof,
        initial_sync: chosen.initial_sync.clone(),
        must_reach_lsn: chosen.must_reach,
        rest_of_log: chosen.rest_of_log.clone(),
    };
    draft.step(naming(lease, target));
    draft.event(false, "PrimaryNamed", format!("{} is named primary of epoch {}", chosen.member, lease.epoch));
}

/// The write that names `target`.
pub(super) fn naming(lease: &Lease, target: Target) -> Step {
    let fence = Fence { target: Some(target), ..lease.fence.clone() };
    Step::Name { version: lease.version.clone(), epoch: lease.epoch, fence }
}

fn record(world: &World, lease: &Lease, chosen: &Chosen) -> LastFailover {
    let active = world.operations().active.as_ref();
    let detected = active.and_then(|active| active.started_at.parse::<Timestamp>().ok()).unwrap_or(world.wall);
    let from = loss::previous_primary(world, lease);
    let seen = from.as_ref().and_then(|from: &MemberName| world.members.get(from)).map(|member| member.report_seen);
    let last = LastFailover {
        to: chosen.member.clone(),
        reason: active.and_then(|active| active.reason.clone()).unwrap_or_default(),
        epoch: lease.epoch,
        detected_at: detected,
        completed_at: None,
        data_loss: DataLoss {
            from_lsn: lost_from(world, lease, chosen),
            last_seen_primary_lsn: loss::last_seen_primary(world, lease),
            unseen_for: seen.map(|seen| lease.epoch_since.since(seen)),
            lossless: chosen.lossless,
        },
        from,
    };
    match &world.memory.last_failover {
        Some(before) if goes_on(before, lease) => continued(before, last),
        // Nobody has let clients in since: for them it is one outage, however many were named in vain.
        Some(before) if before.completed_at.is_none() => {
            LastFailover { detected_at: before.detected_at.min(last.detected_at), ..last }
        }
        _ => last,
    }
}

/// Where the history of whom is named leaves that of the last holder, if it does before its own end: whatever the holder wrote
/// behind that is lost, and the end lies on another history (F17).
fn lost_from(world: &World, lease: &Lease, chosen: &Chosen) -> Option<Lsn> {
    let report = world.members.get(&chosen.member)?.report.as_ref()?;
    let chain = report.position.as_ref()?.chain.as_slice();
    let common = chain.iter().zip(&lease.fence.chain).take_while(|(a, b)| a.is_same(b)).count();
    let parted = lease.fence.chain.get(common).and_then(|next| next.fork_lsn);
    // The chain in the record is of whoever took the Lease last, who need not have won: wins that it is not on, and that are
    // newer than what whom is named has, began where they left.
    let has = |promotion: &Promotion| chain.iter().any(|own| own.is_same(promotion));
    let wins = || lease.fence.history.iter().filter(|attempt| attempt.won).map(|attempt| &attempt.promotion);
    let newest = wins().filter(|win| has(win)).map(|win| win.epoch).max();
    let missed = wins().filter(|win| !has(win) && newest.is_none_or(|newest| win.epoch > newest));
    chosen.position.into_iter().chain(parted).chain(missed.filter_map(|win| win.fork_lsn)).min()
}

/// That change of primary has not ended: whom it named has won its epoch, which cut off what was lost, and has been lost
/// itself before it let anybody in.
fn goes_on(before: &LastFailover, lease: &Lease) -> bool {
    let won = lease.fence.history.iter().any(|attempt| attempt.won && attempt.promotion.epoch == before.epoch);
    before.completed_at.is_none() && won
}

/// What clients find once somebody lets them in is compared with what they had before the first of these rounds (F17).
fn continued(before: &LastFailover, last: LastFailover) -> LastFailover {
    let lossless = match (before.data_loss.lossless, last.data_loss.lossless) {
        (Lossless::Yes, Lossless::Yes) => Lossless::Yes,
        (Lossless::No, _) | (_, Lossless::No) => Lossless::No,
        _ => Lossless::Unknown,
    };
    let from_lsn = before.data_loss.from_lsn.into_iter().chain(last.data_loss.from_lsn).min();
    let data_loss = DataLoss { from_lsn, lossless, ..before.data_loss.clone() };
    LastFailover { from: before.from.clone(), detected_at: before.detected_at, data_loss, ..last }
}
