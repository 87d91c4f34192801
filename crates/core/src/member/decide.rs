//! The order in which the rules are asked: what protects acknowledged writes comes first.

use crate::member::action::{Action, Decision, Job, LeaseWrite, Purpose};
use crate::member::take::NotYet;
use crate::member::world::{Data, Engine, JobKind, Mode, World};
use crate::member::{Names, hold, leave, rejoin, report, take};
use crate::names::{Epoch, Monotonic};

/// Why a server is stopped that accepts writes although this member has never held the Lease: a person promoted it, or
/// something other than its agent started it (F11).
pub const UNEXPECTED_PRIMARY: &str = "UnexpectedPrimary";

/// Time that must be left before the deadline when a promotion is asked for: nothing but SIGKILL ends one (F11).
pub(super) const PROMOTION_MILLIS: u64 = 1_000;

/// How long a log is fetched on which nothing acknowledged depends.
const COURTESY_MILLIS: u64 = 1_000;

/// Collects the steps of one decision.
#[derive(Debug)]
pub(super) struct Outline {
    now: Monotonic,
    actions: Vec<Action>,
    wake: Option<Monotonic>,
    waiting_for: Option<String>,
}

impl Outline {
    fn new(now: Monotonic) -> Outline {
        Outline { now, actions: Vec::new(), wake: None, waiting_for: None }
    }

    /// Begins a job, unless another one was begun or this kind has just failed.
    pub(super) fn begin(&mut self, world: &World, job: Job) {
        if let Some((_, at)) = world.retry.filter(|(kind, at)| *kind == job.kind() && *at > world.now) {
            self.wake_at(at);
        } else if !self.actions.iter().any(|action| matches!(action, Action::Engine(_))) {
            self.actions.push(Action::Engine(job));
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn wait(&mut self, what: impl Into<String>) {
        self.waiting_for.get_or_insert(what.into());
    }

    /// An instant that has come already wakes nobody: what it stood for is among the actions or under way, and its end
    /// is an event. Else an agent that waits for an answer would look again and again without a pause.
    pub(super) fn wake_at(&mut self, at: Monotonic) {
        if at > self.now {
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
    }

    pub(super) fn stop(&mut self, world: &World, fast: bool, diverged: bool, reason: &'static str) {
        let stopped = matches!(world.engine, Engine::Stopped { .. });
        if world.job != Some(JobKind::Stop) && (!stopped || world.job.is_some_and(starts_engine)) {
            self.begin(world, Job::Stop { fast, diverged, reason });
        }
    }
}

fn starts_engine(job: JobKind) -> bool {
    matches!(job, JobKind::Start | JobKind::Rewind | JobKind::InitDb | JobKind::Clone)
}

/// What the agent does next, what it reports and when it looks again.
pub fn decide(world: &World) -> Decision {
    let mut out = Outline::new(world.now);
    let stopping = protect(world, &mut out);
    if !stopping {
        persist(world, &mut out);
        if !world.leaving {
            proceed(world, &mut out);
        }
    }
    wake_for_lease(world, &mut out);
    let Outline { actions, wake, waiting_for, .. } = out;
    let report::Summary { state, left, ready } = report::summary(world);
    let trouble = report::trouble(world);
    Decision { actions, state, left, ready, wake, waiting_for, trouble }
}

/// What must stop, and the release once it has. True while nothing else may happen.
fn protect(world: &World, out: &mut Outline) -> bool {
    if let Some(deadline) = world.deadline()
        && world.now >= deadline
        && !matches!(world.engine, Engine::Stopped { .. })
    {
        out.stop(world, false, false, "no renewal of the Lease was answered in time");
        return true;
    }
    if matches!(world.engine, Engine::Writable(_)) && !world.holding() {
        let unexpected = world.held.is_none();
        let planned = world.fence().and_then(|fence| fence.handover.as_ref());
        // A planned hand-over is under way while the Lease still runs: the server may finish what it has begun.
        let fast = !unexpected && planned.is_some_and(|handover| handover.from == world.me.member);
        let reason = if unexpected { UNEXPECTED_PRIMARY } else { "the Lease has moved on" };
        out.stop(world, fast, unexpected, reason);
        return true;
    }
    let lost = world.held.is_some_and(|held| Some(held.epoch) != world.epoch() || !world.is_target());
    let up = !matches!(world.engine, Engine::Stopped { .. }) || world.job == Some(JobKind::Start);
    if lost && up {
        // Holder of an older epoch, not yet writable: ends likewise before it releases.
        out.stop(world, false, false, "the Lease has moved on");
    }
    if world.leaving {
        out.stop(world, true, false, "the agent has been told to end");
    }
    if release(world, out) {
        return true;
    }
    if world.leaving && matches!(world.engine, Engine::Stopped { .. }) && world.job.is_none() && !world.writing {
        out.act(Action::Exit);
    }
    false
}

/// Clears the holder once every process of the engine is gone and the end of its log is known (F3, F4 b, F10).
/// True while the release is due.
fn release(world: &World, out: &mut Outline) -> bool {
    let (Some(lease), Some(fence)) = (&world.lease, world.fence()) else { return false };
    let Engine::Stopped { position } = &world.engine else { return false };
    if world.job.is_some() {
        return false;
    }
    let mine = world.is_holder() && world.held.is_some() && must_release(world);
    // The predecessor of this volume, proved dead by the volume's lock, in an epoch that has moved on.
    let predecessor =
        !world.is_holder() && lease.is_held_by(&world.me.member) && (take::permitted(world).is_err() || world.leaving);
    if !mine && !predecessor {
        return false;
    }
    if position.is_none() && matches!(world.volume.data, Data::Present { .. }) {
        out.wait("the end of the local log, for the release");
        return true;
    }
    if !world.writing {
        let mut fence = fence.clone();
        // A record that is older than this volume must not be given an end that belongs to a later epoch (F14).
        let current = !fence.restored && lease.epoch >= world.volume.epoch;
        let winner = position.as_ref().filter(|_| current && hold::recorded_winner(world, &fence));
        if let Some(position) = winner {
            let epoch = world.held.map_or_else(|| hold::won_epoch(&fence), |held| held.epoch);
            fence.release = Some(crate::fence::Release {
                member: world.me.member.clone(),
                epoch,
                timeline: position.timeline,
                end_lsn: position.lsn,
            });
        }
        out.act(Action::Lease(Box::new(LeaseWrite { purpose: Purpose::Release, fence })));
    }
    true
}

/// A holder whose engine is gone releases, unless it took the Lease to start that very engine.
fn must_release(world: &World) -> bool {
    let lost = !world.holding();
    lost || world.leaving || world.was_writable
}

/// Makes a newer epoch durable; a standby does so when it leaves (F6). Makes durable as well that the record has this
/// folder's own promotion as won, so that a record that forgets it again is not believed (F14).
fn persist(world: &World, out: &mut Outline) {
    let Some(epoch) = world.epoch() else { return };
    if epoch > world.volume.epoch && !leave::leaves(world) {
        out.act(Action::PersistEpoch(epoch));
        // It waits for a source of an older epoch to become consistent, which may never answer again: it is started anew
        // towards whoever holds this one. Until then it is no candidate, so nobody waits for it.
        if world.volume.inconsistent && matches!(world.engine, Engine::Starting) {
            out.stop(world, false, false, "what it was rewound to is of an older epoch");
        }
    }
    if let Some(attempt) = world.recorded_attempt().filter(|_| !world.volume.attempt_recorded) {
        out.act(Action::PersistWin(attempt.clone()));
    }
}

fn proceed(world: &World, out: &mut Outline) {
    let Some(lease) = &world.lease else {
        out.wait("the Lease to be read");
        return;
    };
    let fence = match &lease.fence {
        Ok(fence) => fence,
        Err(why) => {
            out.wait(why.clone());
            return;
        }
    };
    if lease.epoch < world.volume.epoch {
        out.wait(format!(
            "epoch {} or newer: this volume has seen it and the API shows {}, so its state is older than the data",
            world.volume.epoch, lease.epoch
        ));
        return;
    }
    if let Some(why) = unusable_here(world) {
        out.wait(why);
        return;
    }
    if world.holding() {
        hold::hold(world, fence, out);
        return;
    }
    if leave::leave(world, lease, fence, out) {
        return;
    }
    if fence.target.is_none() {
        out.wait("the controller to name a primary");
    } else if world.is_target() {
        candidate(world, out);
    } else {
        rejoin::rejoin(world, lease, fence, out);
    }
}

/// The target: takes the Lease as soon as it may.
fn candidate(world: &World, out: &mut Outline) {
    if fetches_first(world, out) {
        return;
    }
    match take::take(world) {
        Ok(action) if !world.writing => out.act(action),
        Ok(_) => {}
        Err(NotYet::Because(why)) => out.wait(why),
        Err(NotYet::Until(at, why)) => {
            out.wait(why);
            out.wake_at(at);
        }
    }
}

/// F10: the end of the old primary's log is fetched before the Lease is taken, so that the Lease need not be held for
/// as long as that takes. True while it is under way or to be tried again.
fn fetches_first(world: &World, out: &mut Outline) -> bool {
    let (Engine::Standby(standby), Some(target)) =
        (&world.engine, world.fence().and_then(|fence| fence.target.as_ref()))
    else {
        return false;
    };
    let Some(rest) = &target.rest_of_log else { return false };
    let left = standby.settled && standby.source.is_none() && !standby.receiver;
    let failed = world.retry.is_some_and(|(kind, _)| kind == JobKind::Fetch);
    let given_up = failed && target.must_reach_lsn.is_none();
    if !left || given_up || standby.replayed >= rest.end_lsn || take::permitted(world).is_err() {
        return false;
    }
    out.wait(format!("the log up to {}, from the agent of {}", rest.end_lsn, rest.member));
    if idle(world) {
        let within = target.must_reach_lsn.is_none().then_some(COURTESY_MILLIS);
        out.begin(world, Job::Fetch { rest: rest.clone(), within });
    }
    true
}

/// A folder that only a person can deal with (F14: another cluster's is never overwritten).
pub(super) fn unusable_here(world: &World) -> Option<String> {
    match (&world.volume.data, world.fence().and_then(|fence| fence.system_id.as_ref())) {
        (Data::Broken(why), _) => Some(why.clone()),
        (Data::Present { system_id }, Some(expected)) if system_id != expected => Some(format!(
            "the data folder has system identifier {system_id}, the cluster's is {expected}: it belongs to another cluster and is left alone; move it away or use an empty volume"
        )),
        _ => None,
    }
}

/// Names that a member has without a grant (F8).
pub(super) fn idle_names(world: &World) -> Names {
    match world.settings.mode {
        Mode::Quorum => Names::Placeholder,
        Mode::Async => Names::Nobody,
    }
}

/// Free to begin a job.
pub(super) fn idle(world: &World) -> bool {
    world.job.is_none()
}

fn wake_for_lease(world: &World, out: &mut Outline) {
    if let Some((_, at)) = world.retry.filter(|_| world.is_given_up()) {
        out.wake_at(at);
    }
    if let Some(deadline) = world.deadline().filter(|_| !matches!(world.engine, Engine::Stopped { .. })) {
        out.wake_at(deadline);
    }
    if let Some(held) = world.held {
        out.wake_at(hold::next_renewal(world, held));
    }
}

/// The epoch of the source that a standby is told to stream from.
pub(super) fn source_epoch(world: &World) -> Option<Epoch> {
    match &world.engine {
        Engine::Standby(standby) => standby.source.as_ref().map(|source| source.epoch),
        _ => None,
    }
}
