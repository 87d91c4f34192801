//! What the holder does: renew, start, promote, record the win, let clients in (F2, F5, F9, F11).

use crate::fence::Fence;
use crate::member::action::{Action, Job, LeaseWrite, Names, Purpose};
use crate::member::decide::{Outline, PROMOTION_MILLIS, idle, idle_names};
use crate::member::world::{Engine, Held, JobKind, Mode, Standby, World, Writable};
use crate::member::{sync_set, take};
use crate::names::{Epoch, Monotonic};
use crate::position::Promotion;

/// Pause after a renewal that failed.
const RETRY_MILLIS: u64 = 300;

/// When the next renewal is due.
pub(super) fn next_renewal(world: &World, held: Held) -> Monotonic {
    let timing = world.settings.timing;
    held.tried.plus(if held.failed { RETRY_MILLIS } else { timing.renew })
}

/// This member's promotion of the current epoch is recorded as won, or this is the bootstrap's epoch: only such a
/// holder writes the end of its log when it stops (F10, model X6).
pub(super) fn recorded_winner(world: &World, fence: &Fence) -> bool {
    match fence.history.last() {
        None => fence.system_id.is_some(),
        Some(last) => last.won && last.promotion.member == world.me.member,
    }
}

/// The epoch of the newest recorded win; the bootstrap's is 1.
pub(super) fn won_epoch(fence: &Fence) -> Epoch {
    fence.last_win().map_or(Epoch(1), |win| win.epoch)
}

/// The steps of a holder.
pub(super) fn hold(world: &World, fence: &Fence, out: &mut Outline) {
    let mut next = fence.clone();
    match &world.engine {
        Engine::Stopped { position } => start(world, fence, position.is_some(), out),
        Engine::Starting => {}
        Engine::Standby(standby) => promote(world, fence, standby, out),
        Engine::Writable(writable) => {
            if record_win(world, writable, &mut next, out) {
                serve(world, &mut next, writable, out);
            }
        }
    }
    renew(world, fence, next, out);
}

/// Renews when it is due, and at once when the record is to change.
fn renew(world: &World, fence: &Fence, next: Fence, out: &mut Outline) {
    let Some(held) = world.held else { return };
    if world.writing {
        return;
    }
    let changed = next != *fence && !held.failed;
    if changed || world.now >= next_renewal(world, held) || unanswered_since_writable(world, held) {
        out.act(Action::Lease(Box::new(LeaseWrite { purpose: Purpose::Renew, fence: next })));
    }
}

/// Clients are let in only after a renewal that was sent after recovery had ended (F11), so one is sent at once.
fn unanswered_since_writable(world: &World, held: Held) -> bool {
    match &world.engine {
        Engine::Writable(writable) => held.sent < writable.since && !held.failed,
        _ => false,
    }
}

fn start(world: &World, fence: &Fence, log_read: bool, out: &mut Outline) {
    if !idle(world) {
        return;
    }
    if world.volume.data == crate::member::Data::Absent {
        if take::may_initialise(world, fence) {
            out.begin(world, Job::InitDb);
        }
        return;
    }
    if !log_read {
        out.wait("the local log to be read to its end");
        return;
    }
    let writable = take::goes_on(world, fence);
    let names = if writable { sync_set::recorded_names(world, fence) } else { idle_names(world) };
    out.begin(world, Job::Start { writable, follow: None, names });
}

/// The attempt of this epoch that is recorded and not yet won.
fn open_attempt<'a>(world: &World, fence: &'a Fence) -> Option<&'a Promotion> {
    let last = fence.history.last()?;
    let mine = last.promotion.member == world.me.member && Some(last.promotion.epoch) == world.epoch();
    (mine && !last.won).then_some(&last.promotion)
}

fn promote(world: &World, fence: &Fence, standby: &Standby, out: &mut Outline) {
    let Some(attempt) = open_attempt(world, fence) else {
        // A holder whose timeline goes on must not sit in recovery: it was started before it took the Lease.
        out.stop(world, false, false, "the holder goes on with its timeline and starts again writable");
        return;
    };
    if !standby.settled || standby.source.is_some() {
        if idle(world)
            && let Some(epoch) = world.epoch()
        {
            out.begin(world, Job::Leave { epoch });
        }
        return;
    }
    let must_reach = fence.target.as_ref().and_then(|target| target.must_reach_lsn);
    if let Some(lsn) = must_reach.filter(|lsn| standby.replayed < *lsn) {
        out.wait(format!("the log up to {lsn}, where the old primary ended"));
        return;
    }
    let enough_time = world.deadline().is_some_and(|deadline| deadline.since(world.now) > PROMOTION_MILLIS);
    if !enough_time {
        out.wait("a renewal, before the promotion");
        return;
    }
    if idle(world) {
        out.begin(
            world,
            Job::Promote {
                attempt: attempt.clone(),
                chain: fence.chain.clone(),
                names: sync_set::recorded_names(world, fence),
                slots: sync_set::admitted(world, fence),
            },
        );
    }
}

/// Puts the win into the record. False while the engine is not what the record allows.
fn record_win(world: &World, writable: &Writable, next: &mut Fence, out: &mut Outline) -> bool {
    let Some(attempt) = open_attempt(world, next).cloned() else { return true };
    if world.job == Some(JobKind::Promote) {
        return false; // the job checks the timeline and names the fork first
    }
    let own = writable.position.chain.last().filter(|last| last.timeline == attempt.timeline);
    let Some(fork) = own.and_then(|last| last.fork_lsn).filter(|_| writable.position.timeline == attempt.timeline)
    else {
        // F9: another timeline than the allotted one must not live.
        out.stop(world, false, true, "the promotion made another timeline than the allotted one");
        return false;
    };
    if let Some(last) = next.history.last_mut() {
        last.won = true;
        last.promotion.fork_lsn = Some(fork);
    }
    if let Some(last) = next.chain.last_mut() {
        last.fork_lsn = Some(fork);
    }
    next.release = None;
    true
}

fn serve(world: &World, next: &mut Fence, writable: &Writable, out: &mut Outline) {
    if !writable.set_up {
        if idle(world) {
            out.begin(world, Job::SetUp);
        }
        return;
    }
    if next.system_id.is_none()
        && let crate::member::Data::Present { system_id } = &world.volume.data
    {
        next.system_id = Some(system_id.clone());
    }
    let recorded = world.fence().is_some_and(|fence| open_attempt(world, fence).is_none() && fence.system_id.is_some());
    let renewed = world.held.is_some_and(|held| held.sent >= writable.since);
    let names_ok = world.settings.mode == Mode::Async || writable.names != Names::Nobody || degraded(world);
    let admitted = sync_set::admitted(world, next);
    if !writable.open {
        // What clients are told from here on counts, whatever becomes of the record: the volume knows it first (F14).
        let durable = world.volume.attempt.is_none() || world.volume.attempt_recorded;
        if recorded && renewed && names_ok && durable && idle(world) {
            out.begin(world, Job::Open);
        }
    } else if writable.slots != admitted {
        if idle(world)
            && let Some(epoch) = world.epoch()
        {
            out.begin(world, Job::Slots { epoch, members: admitted });
        }
    } else if writable.checkpoint_timeline < writable.position.timeline && idle(world) {
        out.begin(world, Job::Checkpoint { prepares: None });
    } else if let Some(operation) = to_prepare(world, writable)
        && idle(world)
    {
        out.begin(world, Job::Checkpoint { prepares: Some(operation) });
    }
    sync_set::keep(world, next, writable, out);
}

/// The operation that is about to hand over from here, if its dirty pages are not written out for that yet.
fn to_prepare(world: &World, writable: &Writable) -> Option<String> {
    let announced = world.fence()?.preparing.as_ref().filter(|announced| announced.from == world.me.member)?;
    let prepared = writable.checkpointing || writable.prepared.as_ref() == Some(&announced.id);
    (!prepared).then(|| announced.id.clone())
}

fn degraded(world: &World) -> bool {
    let Some(fence) = world.fence() else { return false };
    fence.sync_sets.iter().any(|set| Some(set.epoch) == world.epoch() && set.degraded)
}
