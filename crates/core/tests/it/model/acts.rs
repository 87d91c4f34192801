//! A member carries out what the core decided for it, one action at a time, as the agent does.

use super::log::{ROOM, index, promotion};
use super::observe::{Clock, me, setting};
use super::rules::Rule;
use super::state::{Lease, NOBODY, PLACEHOLDER, Server, State};
use super::steps::{Model, Next, step};
use coregent_core::fence::Fence;
use coregent_core::member::{self, Action, Job, LeaseWrite, Purpose};

impl Model {
    pub(super) fn agent(&mut self, s: &State, i: usize, next: &mut Vec<Next>) {
        let m = &s.members[i];
        if !m.acts() {
            return;
        }
        if m.unswept {
            let mut then = s.clone();
            let m = &mut then.members[i];
            m.unswept = false;
            if self.on(Rule::Sweep) {
                m.orphans = None;
                m.waiting = 0;
            }
            next.push(step(i, "sweeps what its server left", then));
            return;
        }
        if m.view != s.lease && m.api {
            let mut then = s.clone();
            then.members[i].view = s.lease;
            next.push(step(i, "sees the Lease as it is now", then));
        }
        if m.promoting.is_some() {
            self.promotes(s, i, next);
        }
        for clock in Clock::BOTH {
            let decision = self.decide_member(s, i, clock);
            for action in &decision.actions {
                self.act(s, i, action, next);
            }
        }
        self.by_itself(s, i, next);
    }

    fn act(&mut self, s: &State, i: usize, action: &Action, next: &mut Vec<Next>) {
        let mut then = s.clone();
        let m = &mut then.members[i];
        match action {
            Action::PersistEpoch(epoch) => {
                m.epoch = u8::try_from(epoch.0).unwrap_or(u8::MAX);
                next.push(step(i, &format!("persists epoch {epoch}"), then));
            }
            Action::PersistWin(_) => {
                m.recorded = true;
                next.push(step(i, "persists its win", then));
            }
            Action::Lease(write) if m.api => self.writes(s, i, write, next),
            Action::Lease(_) | Action::Exit => {}
            Action::Engine(job) => self.job(s, i, job, next),
        }
    }

    /// The member's write of the Lease, on the version that it has seen.
    fn writes(&mut self, s: &State, i: usize, write: &LeaseWrite, next: &mut Vec<Next>) {
        if s.members[i].view != s.lease && self.on(Rule::Cas) {
            return; // a conflict: it reads again
        }
        let seen = self.leases.get(s.members[i].view);
        let mut fence = write.fence.clone();
        if !self.on(Rule::Ancestry) && write.purpose == Purpose::Renew {
            fence.chain.clone_from(&seen.fence.chain);
        }
        let holder = match write.purpose {
            Purpose::Take => Some(me(s, i, self.bounds.off)),
            Purpose::Renew => seen.holder.clone(),
            Purpose::Release => None,
        };
        let lease = Lease { epoch: seen.epoch, holder, fence };
        let (epoch, label) =
            (lease.epoch, format!("writes the Lease: {:?}{}", write.purpose, change(&seen.fence, &lease.fence)));
        let degraded = lease.is_degraded(epoch) && !seen.is_degraded(epoch);
        let mut then = s.clone();
        then.lease = self.leases.put(lease);
        then.lapsed = then.lapsed && write.purpose == Purpose::Release;
        if degraded {
            then.acked = 0; // F16: the promise ends with the record
        }
        if write.purpose == Purpose::Take && s.faults > 0 && self.bounds.kinds.contains('n') {
            let mut lost = then.clone();
            lost.faults -= 1;
            next.push(Next { fault: true, ..step(i, &format!("{label}, the answer is lost"), lost) });
        }
        let m = &mut then.members[i];
        m.view = then.lease;
        match write.purpose {
            Purpose::Take => (m.held, m.late, m.was_writable, m.renewed) = (Some(epoch), false, false, false),
            Purpose::Renew => (m.held, m.renewed) = (Some(epoch), m.renewed || m.server == Server::Writable),
            Purpose::Release => {
                m.released = m.held.unwrap_or(m.released);
                (m.held, m.late, m.was_writable) = (None, false, false);
            }
        }
        next.push(step(i, &label, then));
    }

    fn job(&mut self, s: &State, i: usize, job: &Job, next: &mut Vec<Next>) {
        let mut then = s.clone();
        let kind = format!("{:?}", job.kind());
        let m = &mut then.members[i];
        match job {
            Job::Start { writable, follow, names } => {
                m.stop();
                m.server = if *writable { Server::Writable } else { Server::Standby };
                m.was_writable |= *writable;
                m.source = follow.as_ref().map(|(source, _)| told(source));
                m.settled = !*writable && follow.is_none();
                m.names = self.in_force(names);
                m.older = m.names;
            }
            Job::Leave { epoch } => {
                m.epoch = m.epoch.max(u8::try_from(epoch.0).unwrap_or(u8::MAX));
                m.settled = true;
                if self.on(Rule::Leave) {
                    m.source = None;
                }
            }
            Job::Follow { source, .. } => {
                let p = index(&source.member);
                if !s.linked(i, p) || !s.members[p].serves() {
                    return;
                }
                let m = &mut then.members[i];
                (m.source, m.settled) = (Some(told(source)), false);
            }
            Job::Clone { source, .. } | Job::Rewind { source, .. } => {
                let p = index(&source.member);
                if !s.linked(i, p) || !s.members[p].moves() || s.members[p].server != Server::Writable {
                    return;
                }
                let log = s.members[p].log;
                let m = &mut then.members[i];
                m.stop();
                (m.log, m.attempt, m.recorded, m.unusable) = (log, None, false, false);
            }
            Job::Promote { attempt, names, .. } => {
                let allotted = u8::try_from(attempt.timeline.0).unwrap_or(u8::MAX);
                m.promoting = Some((u8::try_from(attempt.epoch.0).unwrap_or(0), allotted));
                (m.attempt, m.recorded, m.was_writable) = (m.promoting, false, true);
                m.names = if self.on(Rule::NamesInForce) { self.in_force(names) } else { NOBODY };
                m.older = m.names;
            }
            Job::Open => m.open = true,
            Job::SetNames(names) => {
                (m.names, m.proved) = (self.in_force(names), false);
            }
            Job::Strengthen(names) if setting(names) != m.names => {
                (m.names, m.proved) = (self.in_force(names), false);
            }
            Job::Strengthen(_) | Job::Marker => {
                let adopted = m.names == m.older || !self.on(Rule::Adopt);
                let bound = self.bound();
                let acknowledged = (0..3).any(|x| {
                    m.names & 1 << x != 0 && m.names < NOBODY && s.streams(x, i, bound) && s.members[x].log == m.log
                });
                let unproved = !acknowledged && self.on(Rule::Marker);
                if !adopted || unproved {
                    return;
                }
                m.proved = true;
            }
            Job::Stop { diverged, .. } => {
                if self.on(Rule::Sweep) {
                    m.orphans = None;
                }
                m.stop();
                m.unusable |= *diverged;
            }
            Job::InitDb | Job::SetUp | Job::Fetch { .. } | Job::Checkpoint { .. } | Job::Slots { .. } => return,
        }
        let opens = matches!(job, Job::Open);
        let wrong = if opens { self.opened(&mut then, i) } else { None };
        next.push(Next { wrong, ..step(i, &kind, then) });
    }

    /// `pg_promote` was asked for: it can only be killed.
    fn promotes(&mut self, s: &State, i: usize, next: &mut Vec<Next>) {
        let Some((epoch, allotted)) = s.members[i].promoting else { return };
        let mut then = s.clone();
        let m = &mut then.members[i];
        if m.log.len() >= ROOM {
            self.bounded = true;
            return;
        }
        let timeline = if self.on(Rule::Allotted) { allotted } else { m.log.timeline() + 1 };
        m.log = m.log.push(promotion(i, epoch, timeline));
        (m.server, m.promoting, m.source, m.settled) = (Server::Writable, None, None, false);
        next.push(step(i, &format!("is promoted to timeline {timeline}"), then));
    }

    fn in_force(&self, names: &member::Names) -> u8 {
        match setting(names) {
            PLACEHOLDER if !self.on(Rule::EmptySet) => NOBODY,
            other => other,
        }
    }

    /// What a server does between two looks of its agent.
    fn by_itself(&mut self, s: &State, i: usize, next: &mut Vec<Next>) {
        let m = &s.members[i];
        if m.names != m.older {
            let mut then = s.clone();
            then.members[i].older = m.names;
            next.push(step(i, "every backend has adopted the names", then));
        }
        let cut = !m.api && m.writable() && m.names < NOBODY;
        if !self.on(Rule::ApiWeaken) && cut {
            let mut then = s.clone();
            then.members[i].names = NOBODY;
            next.push(step(i, "empties its names by itself", then));
        }
        let lease = self.leases.get(m.view);
        if !self.on(Rule::RecordFirst) && m.writable() && m.names < NOBODY && m.held == Some(lease.epoch) {
            for x in (0..3).filter(|x| m.names & 1 << x == 0 && s.streams(*x, i, self.bound())) {
                let mut then = s.clone();
                then.members[i].names |= 1 << x;
                next.push(step(i, "adds a name that is not recorded", then));
            }
        }
    }
}

fn told(source: &member::Source) -> (u8, u8) {
    (u8::try_from(source.epoch.0).unwrap_or(0), u8::try_from(index(&source.member)).unwrap_or(3))
}

/// What a write changes in the record, in a word.
fn change(before: &Fence, after: &Fence) -> String {
    let mut words = String::new();
    if before.history.len() < after.history.len() {
        words.push_str(", an attempt");
    }
    let wins = |fence: &Fence| fence.history.iter().filter(|attempt| attempt.won).count();
    if wins(before) < wins(after) {
        words.push_str(", its win");
    }
    if before.sync_sets != after.sync_sets {
        words.push_str(", its set");
    }
    words
}
