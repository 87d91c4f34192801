//! What counts as the loss of a primary. None of it proves death (F4): it is a reason to raise the epoch, no more.

use super::world::{Holder, Lease, Member, Mode, World};
use crate::fence::{Proof, Target};
use crate::lsn::Lsn;
use crate::names::{HolderIdentity, MemberName};
use crate::report::{MemberReport, MemberState, Reach};

/// The holder released the Lease: its engine died or was stopped.
pub const RELEASED: &str = "PrimaryReleased";
/// The container of the holder ended.
pub const TERMINATED: &str = "PrimaryTerminated";
/// The pod of the holder is gone or is another one.
pub const POD_GONE: &str = "PrimaryPodGone";
/// Nobody renewed the Lease for its whole duration.
pub const EXPIRED: &str = "PrimaryLeaseExpired";
/// Nobody streams from the holder any more and it has missed renewals.
pub const SILENT: &str = "PrimarySilent";
/// Nobody streams from the holder and nobody can reach it, so that in quorum mode it can acknowledge nothing.
pub const UNREACHABLE: &str = "PrimaryUnreachable";
/// The holder renews, and too few can stream from it while enough of them live (F7, model X8).
pub const SHORT_OF_ACKNOWLEDGEMENTS: &str = "PrimaryShortOfAcknowledgements";
/// The member that was named does not take the Lease.
pub const NOT_TAKEN: &str = "TargetDidNotTakeOver";
/// The holder renews and its server stands there, neither promoted nor on its way.
pub const NOT_PROMOTED: &str = "PrimaryNotPromoted";

/// Two renewals and a half: a holder that renews every 1.5 s has missed two when this has passed.
const SILENCE: u64 = 3_200;
/// A holder that renews every 1.5 s and has not for so long has missed one.
const OVERDUE: u64 = 1_700;
/// How long the others must be without a stream before a holder that renews is deposed.
const SHORT_FOR: u64 = 5_000;
/// The same where nobody has ever streamed in its epoch: on slow hosts the first stream may take its time.
const SHORT_FROM_THE_FIRST_FOR: u64 = 20_000;
/// Name of the fact that the holder is short of acknowledgements, for [`World::held`].
pub const FACT_SHORT: &str = "short-of-acknowledgements";
/// How long a holder may stand there without its promotion being recorded. A server that is up promotes within a second;
/// one that still recovers is not counted.
const UNPROMOTED_FOR: u64 = 20_000;
/// Name of the fact that the holder stands there without being promoted, for [`World::held`].
pub const FACT_UNPROMOTED: &str = "holder-not-promoted";

/// How long a named member is waited for after so many rounds without a promotion, in terms of the usual wait: on hosts that
/// have too little processor time for all, each round costs what the one before it lacked.
const MOST_PATIENT: u32 = 8;

/// `wait`, doubled for each attempt of this failover that came to nothing.
pub(super) fn patience(world: &World, wait: u64) -> u64 {
    let attempts = world.operations().active.as_ref().map_or(1, |active| active.attempt);
    let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(MOST_PATIENT);
    wait * u64::from(doubled.clamp(1, MOST_PATIENT))
}

/// What was found out about a holder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why the epoch is to be raised.
    pub loss: Option<&'static str>,
    /// Facts that matter once they have held for a while.
    pub holding: Vec<&'static str>,
    /// When to look again, milliseconds.
    pub again: Option<u64>,
}

impl Findings {
    /// Puts up with `fact` for `limit` milliseconds; then it counts as the loss `reason`.
    fn bear(&mut self, world: &World, fact: &'static str, limit: u64, reason: &'static str) {
        self.holding.push(fact);
        let held = world.held_for(fact).unwrap_or(0);
        if held >= limit {
            self.loss = Some(reason);
        }
        self.again = Some(limit.saturating_sub(held).max(1));
    }
}

/// Looks at a holder that equals the target.
pub fn of_holder(world: &World, lease: &Lease, holder: &HolderIdentity) -> Findings {
    let silent_for = world.now.since(lease.unchanged_since);
    let mut findings = Findings::default();
    if !can_fail_over(world, &holder.member) && !is_left_behind(world, lease, holder) {
        // Nobody follows: the member goes on by itself, in the same epoch where F5 lets it. If it does not, those who have
        // stopped, and wait for it, may do better.
        if stands_unpromoted(world, lease, holder) && another_has_data(world, &holder.member) {
            findings.bear(world, FACT_UNPROMOTED, patience(world, UNPROMOTED_FOR), NOT_PROMOTED);
        }
        // Once its Lease has run out others may do better as well, and nothing else need change by then.
        if !lease.is_expired(world) {
            let expires = world.cluster.lease_duration.saturating_sub(silent_for).max(1);
            findings.again = Some(findings.again.map_or(expires, |again| again.min(expires)));
        }
        return findings;
    }
    let pod = world.members.get(&holder.member).and_then(|member| member.pod.as_ref());
    let restarted = world.live_report(&holder.member).is_some_and(|report| report.nonce != holder.nonce);
    if lease.is_expired(world) {
        findings.loss = Some(EXPIRED);
    } else if world.terminated.contains_key(&holder.pod_uid) || restarted {
        findings.loss = Some(TERMINATED);
    } else if pod.is_none_or(|pod| pod.uid != holder.pod_uid) {
        findings.loss = Some(POD_GONE);
    } else if is_unreachable(world, lease, &holder.member) {
        findings.loss = Some(UNREACHABLE);
    } else if nobody_streams(world, &holder.member) && silent_for >= SILENCE {
        findings.loss = Some(SILENT);
    } else if let Some(limit) = is_short(world, lease, holder) {
        findings.bear(world, FACT_SHORT, limit, SHORT_OF_ACKNOWLEDGEMENTS);
    } else if stands_unpromoted(world, lease, holder) {
        findings.bear(world, FACT_UNPROMOTED, patience(world, UNPROMOTED_FOR), NOT_PROMOTED);
    }
    let expires = world.cluster.lease_duration.saturating_sub(silent_for).max(1);
    let waits = [OVERDUE, SILENCE].map(|limit| limit.saturating_sub(silent_for)).into_iter().filter(|wait| *wait > 0);
    let next = waits.fold(expires, u64::min);
    findings.again = Some(findings.again.map_or(next, |again| again.min(next)));
    findings
}

/// Whether the member that was named took the Lease in this epoch and has given it up.
pub fn gave_up(world: &World, lease: &Lease, target: &Target) -> bool {
    let released = lease.fence.release.as_ref();
    let primary = &world.memory.primary;
    lease.holder == Holder::Nobody
        && (released.is_some_and(|release| release.epoch == lease.epoch && release.member == target.member)
            || (primary.current.as_ref() == Some(&target.member) && primary.epoch == lease.epoch)
            || lease.fence.history.iter().any(|attempt| attempt.promotion.epoch == lease.epoch))
}

/// Whether the member that was named can still be expected to take the Lease.
pub fn target_is_dead(world: &World, target: &Target) -> bool {
    let Some(member) = world.members.get(&target.member) else { return true };
    let moved = world.live_report(&target.member).is_some_and(|report| report.address != target.address);
    let gone = member.pod.as_ref().is_none_or(|pod| world.terminated.contains_key(&pod.uid) || pod.deleting);
    moved || gone
}

/// Another member runs, has data, and a person has not switched failover off.
pub fn can_fail_over(world: &World, holder: &MemberName) -> bool {
    !world.cluster.failover_disabled
        && world.members.iter().any(|(name, member)| name != holder && world.live_state(member).is_some_and(follows))
}

/// The Lease has run out, and its holder cannot go on by itself: it does not run, or its volume is empty. Then whoever has
/// data may do better, even one that has stopped and waits for that very holder to be rewound from it: it is judged by the
/// sets and positions of the round like anybody else. Without this the loss of the newest primary's host or volume, before
/// anybody has followed it, would leave the cluster without a primary for ever.
fn is_left_behind(world: &World, lease: &Lease, holder: &HolderIdentity) -> bool {
    let gone = world.members.get(&holder.member).is_none_or(|member| !world.is_live(member) || !member.has_data());
    gone && lease.is_expired(world) && another_has_data(world, &holder.member)
}

/// Another member is there with data, its server stopped or not, and a person has not switched failover off.
fn another_has_data(world: &World, holder: &MemberName) -> bool {
    let has_data = |member: &Member| world.is_live(member) && member.has_data();
    !world.cluster.failover_disabled && world.members.iter().any(|(name, member)| name != holder && has_data(member))
}

fn follows(state: MemberState) -> bool {
    matches!(state, MemberState::Streaming | MemberState::Standby)
}

/// Some other member runs with data and none of them has a stream: the receivers are gone (postgres-recipes.md 10).
fn nobody_streams(world: &World, holder: &MemberName) -> bool {
    let mut others = world
        .members
        .iter()
        .filter(|(name, _)| *name != holder)
        .filter_map(|(_, member)| world.live_state(member))
        .filter(|state| follows(*state))
        .peekable();
    others.peek().is_some() && others.all(|state| state != MemberState::Streaming)
}

/// Quorum mode, not degraded: nobody streams, so that nothing is acknowledged anyway, enough of the recorded set live to
/// fence the holder, and none of them can reach it. One whose host refuses the connection has lost its first process; one
/// of whom nothing comes back may be a link away, and has to have missed a renewal as well.
fn is_unreachable(world: &World, lease: &Lease, holder: &MemberName) -> bool {
    let Some(set) = lease.fence.sync_sets.iter().find(|set| set.epoch == lease.epoch) else { return false };
    let leaving = set.members.iter().filter(|member| world.live_report(member).is_some()).count();
    world.cluster.mode == Mode::Quorum
        && set.complete
        && !set.degraded
        && leaving > set.members.len().saturating_sub(set.k as usize)
        && nobody_streams(world, holder)
        && is_out_of_reach(world, holder, world.now.since(lease.unchanged_since) >= OVERDUE)
}

/// Whether the epoch was raised because the holder had missed a renewal. The raise changes the Lease: how long that has been
/// unchanged says nothing of the holder any more.
pub(super) fn was_overdue(world: &World) -> bool {
    let reason = world.operations().active.as_ref().and_then(|active| active.reason.as_deref());
    matches!(reason, Some(UNREACHABLE | SILENT | EXPIRED))
}

/// None of the other members that run has reached `holder` since it lost the stream; where nothing came back at all, a
/// renewal of its has to be `overdue` too.
pub(super) fn is_out_of_reach(world: &World, holder: &MemberName, overdue: bool) -> bool {
    let others = world.members.iter().filter(|(name, member)| *name != holder && world.is_live(member));
    let reached: Vec<Option<Reach>> = others
        .map(|(_, member)| {
            let source = member.report.as_ref()?.source.as_ref()?;
            (source.member == *holder).then_some(source.reach)
        })
        .collect();
    let all = |wanted: &[Reach]| reached.iter().all(|reach| reach.is_some_and(|reach| wanted.contains(&reach)));
    !reached.is_empty() && (all(&[Reach::Refuses]) || (overdue && all(&[Reach::Refuses, Reach::Silent])))
}

/// The holder renews, its recorded set is in force, and fewer than k of it stream, although every member of the set
/// runs and could leave, with k others left for the one that would be chosen. Gives how long that is put up with.
///
/// An epoch in which nothing was acknowledged yet counts once its holder lets clients in: one that was deposed for this, and
/// was named again because nobody else had left in time, would stay for ever beside a healthy majority.
fn is_short(world: &World, lease: &Lease, holder: &HolderIdentity) -> Option<u64> {
    let set = lease.fence.sync_sets.iter().find(|set| set.epoch == lease.epoch)?;
    let idle: Vec<&MemberName> = world
        .members
        .iter()
        .filter(|(name, member)| **name != holder.member && world.live_state(member) == Some(MemberState::Standby))
        .map(|(name, _)| name)
        .collect();
    let streaming = world
        .members
        .iter()
        .filter(|(name, member)| {
            set.members.contains(*name) && world.live_state(member) == Some(MemberState::Streaming)
        })
        .count();
    let is_short = world.cluster.mode == Mode::Quorum
        && !set.degraded
        && streaming < set.k as usize
        && set.members.iter().all(|member| idle.contains(&member))
        && idle.len() > world.cluster.k as usize;
    let opened = world.live_state_of(&holder.member) == Some(MemberState::Primary);
    let limit = if set.complete { Some(SHORT_FOR) } else { opened.then_some(SHORT_FROM_THE_FIRST_FOR) };
    limit.filter(|_| is_short)
}

/// The holder's agent runs, no promotion of this epoch is recorded as won, and no server is on its way to one: whatever
/// the cause, another member may do better. It has not even begun one while it cannot replay its own log; the first primary
/// of all never does.
fn stands_unpromoted(world: &World, lease: &Lease, holder: &HolderIdentity) -> bool {
    let attempt = lease.fence.history.iter().find(|attempt| attempt.promotion.epoch == lease.epoch);
    let is_first = lease.fence.target.as_ref().is_none_or(|target| target.proof == Proof::Bootstrap);
    let state = world.live_state_of(&holder.member);
    attempt.map_or(!is_first, |attempt| !attempt.won)
        && state.is_some_and(|state| {
            use MemberState::{Failed, Promoting, Standby, Stopped, Stopping};
            matches!(state, Standby | Promoting | Stopped | Stopping | Failed)
        })
}

/// Who was primary before this round: the last recorded winner, else whom the newest set or the status names.
pub fn previous_primary(world: &World, lease: &Lease) -> Option<MemberName> {
    let of_set = lease
        .fence
        .sync_sets
        .iter()
        .filter(|set| set.epoch < lease.epoch)
        .max_by_key(|set| set.epoch)
        .and_then(|set| set.primary.clone());
    let of_win = lease.fence.last_win().map(|win| win.member.clone());
    let of_release = lease.fence.release.as_ref().map(|release| release.member.clone());
    // A fence that knows of nobody is that of the first epoch.
    of_win.or(of_release).or(of_set).or_else(|| lease.holder.member().or(world.grant.as_ref()).cloned())
}

/// The newest position at which the old primary was seen: what it released, else what it reported (F17).
pub fn last_seen_primary(world: &World, lease: &Lease) -> Option<Lsn> {
    let released = lease.standing_release().map(|release| release.end_lsn);
    let report = || -> Option<&MemberReport> {
        world.members.get(&previous_primary(world, lease)?).and_then(|member| member.report.as_ref())
    };
    let reported = || {
        let report = report()?;
        let position = report.position.as_ref().map(|position| position.lsn);
        report.flushed_lsn.max(position)
    };
    released.or_else(reported)
}
