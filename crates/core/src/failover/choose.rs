//! Whom to name (F6, F7, F9, F10): pure arithmetic over the reports of one election round.

use super::dead_end;
use super::electorate::{Electorate, counting_sets};
use super::memory::Lossless;
use super::standing::Standing;
use super::world::{Lease, Mode, World};
use crate::fence::RestOfLog;
use crate::lsn::{Lsn, Timeline};
use crate::names::MemberName;
use crate::operation::StepId;
use crate::report::MemberState;
use std::collections::BTreeSet;

/// Bound of the wait for reports in async mode (F6).
const ASYNC_WAIT: u64 = 300;
/// Bound of the wait for members that run and do not report, once those that did are enough.
const REPORT_WAIT: u64 = 10_000;
/// How long other members are waited for before one is named whose server does not run.
const IN_PLACE_WAIT: u64 = 1_000;
/// How long the old primary is waited for where no server runs and its pod is about to: after a stop of everything it
/// has the most, and hosts that start again start at their own pace.
const OLD_PRIMARY_WAIT: u64 = 10_000;
/// How long a preferred member is waited for when others could be named.
const PREFERRED_WAIT: u64 = 3_000;

/// The outcome of looking at the reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    Chosen(Chosen),
    /// Nobody yet.
    Wait {
        /// Why, for people.
        why: String,
        /// Milliseconds after which the answer may differ without anything being reported.
        again: Option<u64>,
    },
}

/// The member to be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// It.
    pub member: MemberName,
    /// Nothing can be acknowledged any more under any recorded set: the quorum fence holds (F7).
    pub fenced: bool,
    /// The epoch's initial sync set (F7).
    pub initial_sync: BTreeSet<MemberName>,
    /// WAL that it must have replayed (F10).
    pub must_reach: Option<Lsn>,
    /// Where it gets what only the old primary has (F10).
    pub rest_of_log: Option<RestOfLog>,
    /// What is known about loss (F17).
    pub lossless: Lossless,
    /// Where it stands.
    pub position: Option<Lsn>,
}

/// The facts of one round.
struct Round<'a> {
    world: &'a World,
    lease: &'a Lease,
    electorate: Electorate,
    elapsed: u64,
}

/// Chooses among those that have left for the Lease's epoch.
pub fn choose(world: &World, lease: &Lease) -> Choice {
    let electorate = Electorate::of(world, lease);
    // The round, not the operation: a raise after a member died in the middle begins a new wait.
    let elapsed = world.now.since(lease.epoch_since);
    let round = Round { world, lease, electorate, elapsed };
    if let Some(wait) = round.waits_for_every_volume().or_else(|| round.waits_for_the_newest()) {
        return wait;
    }
    if round.is_by_lease() { round.by_lease() } else { round.by_quorum() }
}

impl Round<'_> {
    /// In async mode and after a degraded record the sets say nothing: the Lease fences and F10 judges the loss.
    fn is_by_lease(&self) -> bool {
        let mut sets = counting_sets(&self.lease.fence, self.lease.epoch).peekable();
        let unrecorded = sets.peek().is_none() && self.world.cluster.mode == Mode::Async;
        unrecorded || sets.any(|set| set.degraded)
    }

    /// F14: an API that is older than its members knows neither their wins nor their sets. Everybody with a volume is
    /// heard before anybody is named.
    fn waits_for_every_volume(&self) -> Option<Choice> {
        if !self.record_is_old() {
            return None;
        }
        let silent: Vec<&str> = self
            .world
            .members
            .iter()
            .filter(|(name, member)| (member.claim || member.has_data()) && !self.electorate.left.contains_key(*name))
            .filter(|(_, member)| !self.has_nothing_of_its_own(member))
            .map(|(name, _)| name.as_str())
            .collect();
        if silent.is_empty() {
            return None;
        }
        if let Some(why) = self.dead_end() {
            return Some(Choice::Wait { why, again: None });
        }
        let reason = self.world.operations().active.as_ref().and_then(|active| active.reason.as_deref());
        let (found, advice) = match reason {
            Some(super::repair::LEASE_LOST) => {
                ("there is data and no primary Lease", self.advice_on_kept_volumes(&silent))
            }
            _ => ("the API was older than its members", String::new()),
        };
        let missing = silent.join(", ");
        let why = format!(
            "{found}: nobody is promoted until every member with a volume has reported; missing: {missing}{advice}"
        );
        Some(Choice::Wait { why, again: None })
    }

    fn has_nothing_of_its_own(&self, member: &super::world::Member) -> bool {
        let report = member.report.as_ref().filter(|_| self.world.is_live(member));
        report.is_some_and(|report| dead_end::has_nothing_of_its_own(report, self.lease))
    }

    fn dead_end(&self) -> Option<String> {
        dead_end::found(self.world, self.lease, &self.electorate)
    }

    /// F14: the sets of such a record do not say where acknowledged writes are, so that only the newest of all will do,
    /// whether or not it runs just now.
    fn waits_for_the_newest(&self) -> Option<Choice> {
        if !self.record_is_old() {
            return None;
        }
        let runs_with_all = |standing: Standing| self.electorate.candidates.values().any(|one| one.covers(standing));
        let is_usable = |name: &MemberName| self.world.members.get(name).is_some_and(|member| !is_lost(member));
        let newer: Vec<&str> = self
            .electorate
            .left
            .iter()
            .filter(|(name, standing)| {
                is_usable(name) && !self.electorate.candidates.contains_key(*name) && !runs_with_all(**standing)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if newer.is_empty() {
            return None;
        }
        let why = format!(
            "the API was older than its members, and no member that runs has all of it; waits for {}",
            newer.join(", ")
        );
        Some(Choice::Wait { why, again: None })
    }

    /// Volumes outlive their cluster, and whoever makes one of the same name meets them.
    fn advice_on_kept_volumes(&self, silent: &[&str]) -> String {
        let without_pod =
            |name: &&&str| self.world.members.get(&MemberName::from(**name)).is_some_and(|member| member.pod.is_none());
        let claims: Vec<String> = silent.iter().filter(without_pod).map(|name| format!("data-{name}-0")).collect();
        if claims.is_empty() {
            return String::new();
        }
        format!(
            "; if a cluster of this name was deleted before, its volumes were kept, and their claims ({}) are to be deleted only \
             if that data is not wanted any more",
            claims.join(", ")
        )
    }

    /// The Lease was lost, or is older than what its members know: its wins and sets prove nothing (F14).
    fn record_is_old(&self) -> bool {
        let reason = self.world.operations().active.as_ref().and_then(|active| active.reason.as_deref());
        matches!(reason, Some(super::repair::OLDER_STORE | super::repair::LEASE_LOST))
    }

    fn by_quorum(&self) -> Choice {
        let fence = &self.lease.fence;
        let satisfied: Vec<(&MemberName, Standing)> =
            self.eligible().filter(|(_, standing)| self.satisfies(*standing)).collect();
        let reachable: Vec<(&MemberName, Standing)> = satisfied
            .iter()
            .copied()
            .filter(|(member, _)| self.others(member) >= self.world.cluster.k as usize && !self.is_deposed(member))
            .collect();
        if let Some(wait) = self.preferred_is_coming(&reachable) {
            return wait;
        }
        // One whose server runs goes before the old primary, whatever more that has: by the recorded sets everything
        // acknowledged is with either, and a server that has to recover first costs seconds.
        let recorded = counting_sets(fence, self.lease.epoch).next().is_some();
        // Only on the newest history: one that has missed a promotion would throw a whole timeline away.
        let newest_win = reachable.iter().map(|(_, standing)| standing.win).max();
        let running = self.newest_running(&reachable).filter(|(_, standing)| Some(standing.win) == newest_win);
        let running = running.filter(|_| recorded);
        let chosen = match running.or_else(|| self.newest(&reachable)) {
            Some(found) => Some(found),
            None if self.awaits_somebody() && self.elapsed < REPORT_WAIT => {
                return self.wait("members that run have not left yet", REPORT_WAIT);
            }
            // Nobody has k others: then the newest of all that left, since a newer one may hold the only copy (X8).
            None => self
                .newest(&satisfied)
                .filter(|(_, standing)| self.electorate.candidates.values().all(|other| standing.covers(*other))),
        };
        match chosen {
            None => {
                self.wait_for_good("those that left do not make up a quorum of every recorded sync set", REPORT_WAIT)
            }
            Some((member, _)) if self.is_early_for(member) => {
                self.wait("members that run have not left yet", IN_PLACE_WAIT)
            }
            Some((member, _)) if self.old_primary_starts_with(member) => {
                self.wait("no server runs, and the old primary, which has the most, has not left yet", OLD_PRIMARY_WAIT)
            }
            Some((member, standing)) => {
                // Everything acknowledged was acknowledged by a quorum, whose newest member this is.
                let fenced = self.electorate.fences(fence, self.lease.epoch);
                // Commits that waited for nobody (synchronous_commit) may be in the rest as well.
                let rest_of_log = self.rest_of_log(member, standing);
                Choice::Chosen(Chosen { rest_of_log, ..self.chosen(member, standing, fenced, Lossless::Yes) })
            }
        }
    }

    fn by_lease(&self) -> Choice {
        let able: Vec<(&MemberName, Standing)> =
            self.eligible().filter(|(_, standing)| self.satisfies(*standing)).collect();
        if let Some(wait) = self.preferred_is_coming(&able) {
            return wait;
        }
        if let Some((member, standing)) = self.newest_running(&able)
            && let Some(rest) = self.rest_of_log(member, standing)
        {
            let must_reach = Some(rest.end_lsn);
            let chosen = self.chosen(member, standing, false, Lossless::Yes);
            return Choice::Chosen(Chosen { must_reach, rest_of_log: Some(rest), ..chosen });
        }
        let Some((member, standing)) = self.newest(&able) else {
            return self.wait_for_good("no member that runs has left yet", ASYNC_WAIT);
        };
        match self.old_primary() {
            _ if self.is_early_for(member) => self.wait("members that run have not left yet", IN_PLACE_WAIT),
            Some((_, end)) if standing.covers(end) => {
                Choice::Chosen(self.chosen(member, standing, false, Lossless::Yes))
            }
            Some((old, _)) if self.is_live(&old) && self.elapsed < self.world.cluster.delay => {
                self.wait("the old primary holds more and its agent runs: it is to go on itself", 0)
            }
            _ if self.old_primary_may_return() && self.elapsed < self.world.cluster.delay => {
                self.wait("whether anything would be lost is not known; the old primary is waited for", 0)
            }
            _ if self.elapsed < ASYNC_WAIT && self.awaits_somebody() => {
                self.wait("members that run have not left yet", ASYNC_WAIT)
            }
            _ if self.elapsed < self.world.cluster.delay => {
                self.wait("a failover that may lose writes waits for failover.delay", 0)
            }
            old => self.with_loss(member, standing, old.map(|(_, end)| end)),
        }
    }

    /// A failover that may lose something: only within `failover.maxLag` (F10).
    fn with_loss(&self, member: &MemberName, standing: Standing, end: Option<Standing>) -> Choice {
        let seen = end.and_then(|end| end.lsn).or_else(|| super::loss::last_seen_primary(self.world, self.lease));
        let lag = seen.zip(standing.lsn).map(|(seen, lsn)| seen.0.saturating_sub(lsn.0));
        if let (Some(limit), Some(lag)) = (self.world.cluster.max_lag, lag)
            && lag > limit
        {
            let why = format!("{member} is {lag} bytes behind, more than failover.maxLag allows ({limit})");
            return Choice::Wait { why, again: None };
        }
        let lossless = if end.is_some() { Lossless::No } else { Lossless::Unknown };
        Choice::Chosen(self.chosen(member, standing, false, lossless))
    }

    fn chosen(&self, member: &MemberName, standing: Standing, fenced: bool, lossless: Lossless) -> Chosen {
        let initial_sync = match self.world.cluster.mode {
            Mode::Async => BTreeSet::new(),
            Mode::Quorum => self.electorate.left.keys().filter(|name| *name != member).cloned().collect(),
        };
        let (member, position) = (member.clone(), standing.lsn);
        Chosen { member, fenced, initial_sync, must_reach: None, rest_of_log: None, lossless, position }
    }

    /// What only the stopped old primary has of the history that `member` is on, if its agent runs to read it out
    /// (F10). Not after a round in which nobody took the Lease: fetching may be what it failed on.
    fn rest_of_log(&self, member: &MemberName, standing: Standing) -> Option<RestOfLog> {
        let (old, end) = self.old_primary()?;
        let end_lsn = end.lsn?;
        let is_short = end.win == standing.win && standing.lsn.is_some_and(|lsn| lsn < end_lsn);
        let timeline = self.timeline(member)?;
        let same_timeline = self.old_timeline(&old) == Some(timeline);
        let report = self.world.members.get(&old).filter(|old| self.world.is_live(old))?.report.as_ref()?;
        if !is_short || !same_timeline || old == *member || self.tried().is_some() || report.agent.is_empty() {
            return None;
        }
        Some(RestOfLog { member: old, agent: report.agent.clone(), timeline, end_lsn })
    }

    /// The timeline that the data of a member which has left ends on.
    fn timeline(&self, member: &MemberName) -> Option<Timeline> {
        self.electorate.left.get(member)?;
        Some(self.world.members.get(member)?.report.as_ref()?.position.as_ref()?.timeline)
    }

    /// The timeline that the log of the old primary ends on, by its release or by its own report of this round.
    fn old_timeline(&self, old: &MemberName) -> Option<Timeline> {
        match self.lease.standing_release() {
            Some(release) => Some(release.timeline),
            None => self.timeline(old),
        }
    }

    /// Who may be named at all. With failover switched off only the old primary, which then starts in place.
    fn eligible(&self) -> impl Iterator<Item = (&MemberName, Standing)> {
        let only = self.world.cluster.failover_disabled.then(|| self.previous_primary()).flatten();
        let by_hand = self.is_switchover();
        self.electorate
            .candidates
            .iter()
            .filter(move |(name, _)| by_hand || only.as_ref().is_none_or(|only| only == *name))
            .map(|(name, standing)| (name, *standing))
    }

    fn satisfies(&self, standing: Standing) -> bool {
        self.electorate.satisfies(&self.lease.fence, self.lease.epoch, standing)
    }

    /// Members that could stream from `member`: they left and run. A primary that was deposed because nobody could
    /// stream from it is nobody's follower or source (X8).
    fn others(&self, member: &MemberName) -> usize {
        self.electorate.candidates.keys().filter(|other| *other != member && !self.is_deposed(other)).count()
    }

    fn is_deposed(&self, member: &MemberName) -> bool {
        self.world.operations().active.as_ref().is_some_and(|active| {
            active.reason.as_deref() == Some(super::loss::SHORT_OF_ACKNOWLEDGEMENTS)
                && self.previous_primary().as_ref() == Some(member)
        })
    }

    /// The newest of `members`; `None` if they cannot be told apart. Of equals the old primary is last, since its
    /// engine would have to recover first, and then the one that was tried in vain; before all of them one whose node is
    /// NotReady.
    fn newest<'m>(&self, members: &[(&'m MemberName, Standing)]) -> Option<(&'m MemberName, Standing)> {
        if let Some(preferred) = self.preferred()
            && let Some(found) = members.iter().find(|(member, _)| **member == preferred)
        {
            return Some(*found);
        }
        newest_of(members).min_by_key(|(member, _)| self.reluctance(member))
    }

    /// The newest of those of `members` whose server runs, which the old primary's does not. After a stop of everything
    /// nobody's does, and the old primary goes on as the newest without a rewind.
    fn newest_running<'m>(&self, members: &[(&'m MemberName, Standing)]) -> Option<(&'m MemberName, Standing)> {
        if self.record_is_old() {
            return None;
        }
        let (old, preferred) = (self.previous_primary(), self.preferred());
        let running: Vec<_> = members
            .iter()
            .copied()
            .filter(|(member, _)| {
                Some(*member) == preferred.as_ref() || (Some(*member) != old.as_ref() && self.runs(member))
            })
            .collect();
        self.newest(&running)
    }

    /// A member whose server must start first would be named, although one that need not may yet leave; or, after a stop
    /// of everything, the old primary, which has the most.
    fn is_early_for(&self, member: &MemberName) -> bool {
        let starts = !self.runs(member) && self.preferred().as_ref() != Some(member);
        starts && !self.world.cluster.failover_disabled && self.awaits_somebody() && self.elapsed < IN_PLACE_WAIT
    }

    /// No server runs, `member`'s included, and the pod of the old primary is about to: after a stop of everything.
    fn old_primary_starts_with(&self, member: &MemberName) -> bool {
        let coming = || {
            let old = self.previous_primary().filter(|old| !self.electorate.left.contains_key(old))?;
            let known = self.world.members.get(&old).filter(|known| known.claim && !is_lost(known))?;
            known.pod.as_ref().map(|pod| pod.node_ready && !pod.deleting)
        };
        let preferred = self.preferred();
        !self.runs(member)
            && preferred.as_ref() != Some(member)
            && self.elapsed < OLD_PRIMARY_WAIT
            && coming() == Some(true)
    }

    /// Sorts equals. No Service reaches a member whose node is NotReady, however well it is (F15).
    fn reluctance<'m>(&self, member: &'m MemberName) -> (bool, bool, bool, &'m MemberName) {
        let (old, tried) = (self.previous_primary(), self.tried());
        let pod = self.world.members.get(member).and_then(|known| known.pod.as_ref());
        let cut_off = pod.is_some_and(|pod| !pod.node_ready);
        (cut_off, Some(member) == old.as_ref(), Some(member) == tried.as_ref(), member)
    }

    /// The member that a switchover hands over to, or back to.
    fn preferred(&self) -> Option<MemberName> {
        let active = self.world.operations().active.as_ref()?;
        let subject = active.subject.as_deref().map(MemberName::from);
        if active.step_id == StepId::PrimaryDbSwitchingOver { subject } else { None }
    }

    /// The member that an earlier round of this failover named in vain (kubegres.md W12: next candidate).
    fn tried(&self) -> Option<MemberName> {
        let active = self.world.operations().active.as_ref().filter(|active| active.attempt > 1)?;
        active.subject.as_deref().map(MemberName::from)
    }

    fn is_switchover(&self) -> bool {
        self.world.operations().step() == Some(StepId::PrimaryDbSwitchingOver)
    }

    /// A preferred member that runs but has not left yet is waited for a while; in a hand-over until it is undone.
    fn preferred_is_coming(&self, able: &[(&MemberName, Standing)]) -> Option<Choice> {
        let preferred = self.preferred()?;
        let missing = able.iter().all(|(member, _)| **member != preferred);
        let handover = self.lease.fence.handover.is_some();
        let coming = handover || (self.is_live(&preferred) && self.elapsed < PREFERRED_WAIT);
        (missing && coming).then(|| self.wait(&format!("{preferred} has not left yet with everything"), PREFERRED_WAIT))
    }

    /// Its server is up as a standby.
    fn runs(&self, member: &MemberName) -> bool {
        let state = self.world.live_state_of(member);
        matches!(state, Some(MemberState::Standby | MemberState::Streaming | MemberState::Fetching))
    }

    fn is_live(&self, member: &MemberName) -> bool {
        self.world.members.get(member).is_some_and(|known| self.world.is_live(known))
    }

    /// Some member runs, has data and has not left yet.
    fn awaits_somebody(&self) -> bool {
        self.world.members.iter().any(|(name, member)| {
            self.world.is_live(member) && member.has_data() && !self.electorate.left.contains_key(name)
        })
    }

    /// The last winner, and where its log ends if that is known: by its release, or by its own report of this round.
    fn old_primary(&self) -> Option<(MemberName, Standing)> {
        if let Some((member, _, end)) = &self.electorate.released {
            return Some((member.clone(), *end));
        }
        let member = self.previous_primary()?;
        let end = self.electorate.left.get(&member)?;
        Some((member, *end))
    }

    /// The old primary has a volume and has not said where its log ends.
    fn old_primary_may_return(&self) -> bool {
        self.old_primary().is_none()
            && self.previous_primary().is_some_and(|old| {
                self.is_live(&old)
                    || self.world.members.get(&old).is_some_and(|member| member.claim && !is_lost(member))
            })
    }

    fn previous_primary(&self) -> Option<MemberName> {
        super::loss::previous_primary(self.world, self.lease)
    }

    /// For somebody who may yet come, or for a person.
    fn wait_for_good(&self, why: &str, bound: u64) -> Choice {
        self.wait(&self.dead_end().unwrap_or_else(|| why.to_owned()), bound)
    }

    fn wait(&self, why: &str, bound: u64) -> Choice {
        let delay = self.world.cluster.delay;
        let again = [bound, delay].into_iter().filter(|at| *at > self.elapsed).map(|at| at - self.elapsed).min();
        Choice::Wait { why: why.to_owned(), again }
    }
}

/// Those of `members` that hold what all the others hold.
fn newest_of<'m, 'a>(
    members: &'a [(&'m MemberName, Standing)],
) -> impl Iterator<Item = (&'m MemberName, Standing)> + use<'m, 'a> {
    members.iter().copied().filter(|(_, standing)| members.iter().all(|(_, other)| standing.covers(*other)))
}

fn is_lost(member: &super::world::Member) -> bool {
    member.report.as_ref().is_some_and(|report| report.state == MemberState::Failed)
}
