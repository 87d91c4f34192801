//! What happens to the members: faults and their healing, time, clients, streaming; and what must never come of it.

use super::log::{Log, ROOM, promotion};
use super::observe::Clock;
use super::rules::Rule;
use super::state::{Ended, Host, NOBODY, Names, PLACEHOLDER, Server, State, pair};
use super::steps::{Model, Next, node_speaks, step};
use coregent_core::member::{Action, Job};

impl Model {
    pub(super) fn environment(&mut self, s: &State, next: &mut Vec<Next>) {
        for i in 0..3 {
            self.faults(s, i, next);
            self.heals(s, i, next);
            self.agent_starts(s, i, next);
            self.clients(s, i, next);
            self.receives(s, i, next);
        }
        self.runs_out(s, next);
    }

    fn faults(&self, s: &State, i: usize, next: &mut Vec<Next>) {
        if s.faults == 0 {
            return;
        }
        let m = &s.members[i];
        let lease = self.lease(s);
        let matters =
            m.held.is_some() || m.server == Server::Writable || m.orphans.is_some() || lease.target() == Some(i);
        let may = |kind: char| self.bounds.kinds.contains(kind);
        let mut add = |what: &str, change: &dyn Fn(&mut State)| {
            let mut then = s.clone();
            then.faults -= 1;
            change(&mut then);
            next.push(Next { fault: true, ..step(i, what, then) });
        };
        if may('c') && m.acts() {
            let leaves = !self.on(Rule::PidNamespace) && m.writable();
            add("its agent crashes", &|then| {
                let m = &mut then.members[i];
                if leaves {
                    m.orphans = Some(m.older);
                }
                agent_gone(then, i);
            });
        }
        if may('p') && m.acts() && m.server == Server::Writable && m.orphans.is_none() {
            add("its postmaster is killed, backends live on", &|then| {
                let m = &mut then.members[i];
                m.orphans = m.open.then_some(m.older);
                m.stop();
                m.unswept = true;
            });
        }
        if may('o') && m.host != Host::Off && matters {
            add("its host loses power", &|then| {
                then.members[i].orphans = None;
                agent_gone(then, i);
                let m = &mut then.members[i];
                (m.host, m.ended) = (Host::Off, s.members[i].ended);
            });
        }
        if m.host == Host::Runs && matters {
            if may('f') {
                add("its pod freezes", &|then| then.members[i].host = Host::PodFrozen);
            }
            if may('h') {
                add("its host freezes", &|then| then.members[i].host = Host::AllFrozen);
            }
        }
        if may('a') && m.api && m.host == Host::Runs {
            add("is cut off from the API", &|then| then.members[i].api = false);
        }
        for j in (0..i).filter(|j| may('l') && s.linked(i, *j)) {
            add("loses a link", &|then| then.cut |= pair(i, j));
        }
    }

    /// A server whose deadline has passed is killed by its agent a moment after it thaws. What it acknowledges in that moment
    /// cannot be had otherwise where its node could not be told anything (F16); else it was to be stopped first (F4).
    fn heals(&self, s: &State, i: usize, next: &mut Vec<Next>) {
        let m = &s.members[i];
        let mut add = |what: &str, wrong: Option<&'static str>, change: &dyn Fn(&mut State)| {
            let mut then = s.clone();
            change(&mut then);
            next.push(Next { fault: true, wrong, ..step(i, what, then) });
        };
        match m.host {
            Host::Runs => {}
            Host::Off => add("its host starts again", None, &|then| then.members[i].host = Host::Runs),
            Host::PodFrozen | Host::AllFrozen => {
                let mut moment = s.clone();
                moment.members[i].host = Host::Runs;
                let could_be_stopped = m.host == Host::PodFrozen && !m.unheard;
                let wrong = self.violated(&moment).filter(|_| m.late && could_be_stopped);
                add("thaws", wrong, &|then| {
                    let m = &mut then.members[i];
                    m.host = Host::Runs;
                    if m.late {
                        m.orphans = None;
                        m.stop();
                    }
                });
            }
        }
        if !m.api {
            add("reaches the API again", None, &|then| then.members[i].api = true);
        }
        for j in (0..i).filter(|j| !s.linked(i, *j)) {
            add("has its link again", None, &|then| then.cut &= !pair(i, j));
        }
    }

    fn agent_starts(&mut self, s: &State, i: usize, next: &mut Vec<Next>) {
        let m = &s.members[i];
        if m.agent || !m.moves() {
            return;
        }
        let mut then = s.clone();
        let held = self.lease(s).holder.as_ref().is_some_and(|holder| super::log::index(&holder.member) == i);
        let m = &mut then.members[i];
        (m.agent, m.run) = (true, m.run + 1);
        // The end of the container before is no word about this one.
        m.ended[0] = Ended::Unsaid;
        if self.on(Rule::Sweep) {
            m.orphans = None;
            m.waiting = 0;
        }
        if !self.on(Rule::LeaveDurable) {
            m.epoch = 1;
        }
        (m.at_start, m.released, m.was_writable, m.late) = (m.epoch, 0, false, false);
        m.held = (!self.on(Rule::Nonce) && held).then_some(m.epoch);
        next.push(step(i, "a new agent starts", then));
    }

    // ---- time

    /// The Lease runs out by everybody's clock. A holder that lives has acted on its deadline before.
    fn runs_out(&mut self, s: &State, next: &mut Vec<Next>) {
        let lease = self.lease(s);
        let Some(holder) = lease.holder.as_ref().filter(|_| !s.lapsed) else { return };
        let (i, epoch) = (super::log::index(&holder.member), lease.epoch);
        let m = &s.members[i];
        let is_it = *holder == super::observe::me(s, i, self.bounds.off);
        let renews = m.acts() && m.api && is_it && m.held.is_some() && !m.unswept && m.held == Some(epoch);
        let sees = m.acts() && m.api && is_it && m.held.is_some_and(|held| held < epoch) && !m.unswept;
        if (renews || sees) && self.on(Rule::Observer) {
            return;
        }
        let mut then = s.clone();
        then.lapsed = true;
        if m.agent && is_it && m.held.is_some() && !(renews || sees) {
            then.members[i].late = true;
            if m.moves() {
                let decision = self.decide_member(&then, i, Clock::Early);
                let stops = decision.actions.iter().any(|action| matches!(action, Action::Engine(Job::Stop { .. })));
                if stops || m.unswept {
                    // The watchdog kills every process of the server, whatever the agent waits for (F2).
                    then.members[i].orphans = None;
                    then.members[i].stop();
                }
            }
        }
        next.push(step(i, "its Lease runs out", then));
    }

    // ---- clients and streams

    fn clients(&mut self, s: &State, i: usize, next: &mut Vec<Next>) {
        let m = &s.members[i];
        if !m.moves() {
            return;
        }
        if (m.writable() || m.orphans.is_some()) && s.writes < self.bounds.writes && m.log.len() < ROOM {
            let mut then = s.clone();
            then.writes += 1;
            let m = &mut then.members[i];
            m.log = m.log.push(then.writes);
            m.waiting |= 1 << then.writes;
            next.push(step(i, &format!("a client writes w{}", then.writes), then));
        }
        for write in (1..=s.writes).filter(|write| m.waiting & 1 << write != 0) {
            if self.acknowledges(s, i, Some(write)) {
                let mut then = s.clone();
                then.members[i].waiting &= !(1 << write);
                let degraded = !self.bounds.quorum || self.leases.get(m.view).is_degraded(m.epoch);
                let mut wrong = None;
                if !degraded {
                    then.acked |= 1 << write;
                    let newest = &s.members[usize::from(s.primary)];
                    wrong =
                        (!newest.log.has(write)).then_some("S2 a write is acknowledged that the newest primary lacks");
                }
                next.push(Next { wrong, ..step(i, &format!("acknowledges w{write}"), then) });
            }
        }
    }

    /// Whether a commit at `p` is acknowledged: of `write`, or of any that would be made.
    pub(super) fn acknowledges(&self, s: &State, p: usize, write: Option<u8>) -> bool {
        let m = &s.members[p];
        if !m.moves() {
            return false;
        }
        let met = |names: Names| match names {
            NOBODY => true,
            PLACEHOLDER => false,
            _ => (0..3).any(|x| {
                let has = write.is_none_or(|write| s.members[x].log.has(write));
                names & 1 << x != 0 && has && s.streams(x, p, self.bound())
            }),
        };
        let of_server = m.writable() && (met(m.names) || met(m.older));
        of_server || m.orphans.is_some_and(met)
    }

    fn receives(&self, s: &State, x: usize, next: &mut Vec<Next>) {
        let Some((_, p)) = s.members[x].source else { return };
        let p = usize::from(p);
        if !s.streams(x, p, self.bound()) {
            return;
        }
        let (mine, theirs) = (s.members[x].log, s.members[p].log);
        let mut then = s.clone();
        if !mine.is_beginning_of(theirs) {
            let wrong = Some("S3 one timeline number and two histories, streamed together");
            next.push(Next { wrong, ..step(x, "streams on", then) });
        } else if let Some(entry) = theirs.at(mine.len()) {
            then.members[x].log = mine.push(entry);
            next.push(step(x, "receives and flushes", then));
        }
    }

    /// Clients are let in: nothing acknowledged may be missing.
    pub(super) fn opened(&self, then: &mut State, i: usize) -> Option<&'static str> {
        then.primary = u8::try_from(i).unwrap_or(0);
        let log = then.members[i].log;
        let lost = (1..=then.writes).any(|write| then.acked & 1 << write != 0 && !log.has(write));
        lost.then_some("S2 an acknowledged write is missing from the next primary")
    }

    /// What no state may be.
    pub(super) fn violated(&self, s: &State) -> Option<&'static str> {
        if (0..3).filter(|i| self.acknowledges(s, *i, None)).count() > 1 {
            return Some("S1 two members acknowledge");
        }
        let logs: Vec<Log> = s.members.iter().map(|m| m.log).collect();
        let promotions: Vec<u8> = logs.iter().flat_map(|log| log.promotions().map(|(_, entry)| entry)).collect();
        let number = |entry: u8| entry & 3;
        let twice = promotions.iter().any(|a| promotions.iter().any(|b| a != b && number(*a) == number(*b)));
        let room = promotions.iter().all(|entry| number(*entry) < number(promotion(0, 0, 5)));
        (twice && room).then_some("S3 a timeline number is used twice")
    }

    /// Whether enough is healed for there to be a primary, and if so whether there is one.
    pub(super) fn healed(&self, s: &State) -> Option<bool> {
        let well: Vec<usize> = (0..3).filter(|i| s.members[*i].moves() && s.members[*i].api).collect();
        let linked = well.iter().any(|a| well.iter().any(|b| a < b && s.linked(*a, *b)));
        linked.then(|| well.iter().any(|i| s.members[*i].held.is_some() && self.acknowledges(s, *i, None)))
    }
}

/// Its container has ended, and its node says so if it can.
fn agent_gone(then: &mut State, i: usize) {
    let m = &mut then.members[i];
    m.stop();
    (m.agent, m.held, m.late, m.unswept) = (false, None, false, false);
    if node_speaks(m) {
        m.ended[0] = Ended::AfterRaise;
    }
}
