//! What a state leads to: one step of a member's decision, one more step of the controller's, or something that happens to
//! them.

use super::log::index;
use super::observe::{Clock, WALL, controller_world, is_up, member_world, number_of};
use super::rules::{Off, Rule};
use super::state::{Id, Lease, Member, Report, Server, State, Table, plain};
use coregent_core::failover::{self, Memory, Remembered, Step};
use coregent_core::member::{self, Action};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// The bounds and the rules of one exploration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) kinds: &'static str,
    pub(super) faults: u8,
    pub(super) epochs: u8,
    pub(super) writes: u8,
    pub(super) states: usize,
    /// `whenTooFew: Degrade`.
    pub(super) degrades: bool,
    /// Quorum mode; else commits wait for nobody, and only who acknowledges when is looked at, not what is lost.
    pub(super) quorum: bool,
    pub(super) off: Off,
}

/// One step: what, of whom, and what it led to.
#[derive(Debug, Clone)]
pub(super) struct Next {
    pub(super) label: String,
    pub(super) state: State,
    /// Progress may not count on it: a fault or its healing.
    pub(super) fault: bool,
    pub(super) wrong: Option<&'static str>,
}

/// The model: tables of values, and decisions that were asked for before.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) bounds: Bounds,
    pub(super) leases: Table<Lease>,
    pub(super) memories: Table<Memory>,
    /// By the print of all that they depend on.
    members: BTreeMap<u64, Rc<member::Decision>>,
    controllers: BTreeMap<u64, Rc<failover::Decision>>,
    /// Leases and statuses that are each other's with B and C exchanged.
    pub(super) mirrors: (BTreeMap<Id, Id>, BTreeMap<Id, Id>),
    pub(super) asked: u64,
    /// A step was not taken because of a bound.
    pub(super) bounded: bool,
}

/// Tells values apart. Two of a million are taken for one another with a probability of one to thirty million.
pub(super) fn print_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Model {
    pub(super) fn new(bounds: Bounds) -> Model {
        Model {
            bounds,
            leases: Table::default(),
            memories: Table::default(),
            members: BTreeMap::new(),
            controllers: BTreeMap::new(),
            mirrors: (BTreeMap::new(), BTreeMap::new()),
            asked: 0,
            bounded: false,
        }
    }

    pub(super) fn on(&self, rule: Rule) -> bool {
        self.bounds.off.on(rule)
    }

    pub(super) fn lease(&self, s: &State) -> &Lease {
        self.leases.get(s.lease)
    }

    pub(super) fn bound(&self) -> bool {
        self.on(Rule::ConnectionEpoch)
    }

    /// What the core decides for member `i`.
    pub(super) fn decide_member(&mut self, s: &State, i: usize, clock: Clock) -> Rc<member::Decision> {
        let m = &s.members[i];
        let bound = self.bound();
        let streams = [0, 1, 2].map(|x| {
            let here = s.streams(x, i, bound);
            (here && s.members[x].log == m.log, here || s.streams(i, x, bound))
        });
        let mut own = *m;
        own.report = Report::NONE; // what it published does not matter to it
        let key = print_of(&(i, s.lapsed, clock, own, m.view == s.lease, streams));
        if let Some(known) = self.members.get(&key) {
            return Rc::clone(known);
        }
        self.asked += 1;
        let world = member_world(s, i, self.leases.get(m.view), &self.bounds, clock);
        let decision = Rc::new(member::decide(&world));
        self.members.insert(key, Rc::clone(&decision));
        decision
    }

    /// What the core decides for the controller.
    pub(super) fn decide_controller(&mut self, s: &State, clock: Clock) -> Rc<failover::Decision> {
        let facts = s.members.map(|m| (m.report, (m.answers(), m.agent, m.pod, m.stamp, m.ended)));
        let renews = self.lease(s).holder.as_ref().is_some_and(|holder| {
            let m = &s.members[index(&holder.member)];
            m.acts() && m.api && m.held.is_some()
        });
        let key = print_of(&(clock, s.lease, s.memory, s.lapsed, renews, facts));
        if let Some(known) = self.controllers.get(&key) {
            return Rc::clone(known);
        }
        self.asked += 1;
        let lease = self.leases.get(s.lease);
        let world = controller_world(s, lease, self.memories.get(s.memory), &self.bounds, clock);
        let decision = Rc::new(failover::decide(&world));
        self.controllers.insert(key, Rc::clone(&decision));
        decision
    }

    /// Everything that may happen next.
    pub(super) fn successors(&mut self, s: &State) -> Vec<Next> {
        let mut next = Vec::new();
        for i in 0..3 {
            self.agent(s, i, &mut next);
        }
        self.controller(s, &mut next);
        self.environment(s, &mut next);
        for one in &mut next {
            self.settle(&mut one.state);
        }
        next.retain(|one| one.state != *s || one.wrong.is_some());
        next
    }

    /// What follows by itself: whoever may be told at once is told, and publishes what it has to say.
    pub(super) fn settle(&mut self, s: &mut State) {
        for i in 0..3 {
            let told = s.members[i].held.is_none() && s.members[i].acts() && s.members[i].api;
            if told {
                s.members[i].view = s.lease;
            }
        }
        for i in 0..3 {
            if !(s.members[i].acts() && s.members[i].api) || s.members[i].unswept {
                continue;
            }
            let mut decision = self.decide_member(s, i, Clock::Early);
            if decision.actions.iter().any(|action| matches!(action, Action::PersistWin(_))) {
                s.members[i].recorded = true;
                decision = self.decide_member(s, i, Clock::Early);
            }
            let holder = self.lease(s).holder.as_ref().map(|holder| index(&holder.member));
            let lost = holder.filter(|p| *p != i && !s.streams(i, *p, self.bound()));
            let reached = lost.map(|p| (u8::try_from(p).unwrap_or(3), s.reach(i, p)));
            let m = &mut s.members[i];
            if !m.open && m.orphans.is_none() {
                m.older = m.names; // there is no backend that knows others
            }
            m.report = Report {
                reached,
                run: m.run,
                pod: m.pod,
                left: decision.left.map_or(0, |left| u8::try_from(left.0).unwrap_or(u8::MAX)),
                state: number_of(decision.state),
                ready: decision.ready,
                log: decision.left.is_some().then_some(m.log),
            };
        }
        self.forget(s);
        self.keep_books(s);
    }

    /// What the controller writes down once a primary is open is of no use to anybody before: it is done at once.
    fn keep_books(&mut self, s: &mut State) {
        // Where a fact that has lasted leads elsewhere, it may as well have lasted.
        let [early, late] = Clock::BOTH.map(|clock| self.decide_controller(s, clock));
        if is_book_keeping(&early) && is_book_keeping(&late) {
            s.memory = self.memories.put(plain(early.memory.clone(), &WALL.to_string()));
        }
    }

    /// Forgets what nobody will ask for any more, so that states differ only in what matters.
    fn forget(&self, s: &mut State) {
        let lease = self.leases.get(s.lease);
        let epoch = lease.epoch;
        let keeps_reports = !self.on(Rule::Stamp);
        let holder = lease.holder.as_ref().map(|holder| index(&holder.member));
        for (i, m) in s.members.iter_mut().enumerate() {
            // A stamp counts for the pod that may be deleted.
            let threatened = holder == Some(i) || s.delete.is_some_and(|delete| usize::from(delete.member) == i);
            if !threatened {
                m.stamp = epoch;
            }
            if m.held.is_none() {
                (m.was_writable, m.late, m.unheard) = (false, false, false);
            }
            if m.server != Server::Writable {
                (m.renewed, m.proved) = (false, false);
            }
            m.released = if m.released == epoch { epoch } else { 0 };
            m.at_start = if m.at_start == epoch { epoch } else { 0 };
            if m.report.left != epoch && !keeps_reports {
                m.report.left = 0;
            }
            // Positions are of use in a round only.
            if m.report.left == 0 {
                m.report.log = None;
            }
        }
        if let Some(delete) = s.delete {
            let m = &s.members[usize::from(delete.member)];
            if m.pod != delete.pod || (m.stamp != delete.stamp && self.on(Rule::DeleteStamp)) {
                s.delete = None;
            }
        }
    }
}

/// It only writes down that a primary is open, or that an operation has ended.
fn is_book_keeping(decision: &failover::Decision) -> bool {
    let mut steps = decision.steps.iter().filter(|step| !matches!(step, Step::Label { .. }));
    let written = matches!(steps.next(), Some(Step::Remember { what: Remembered::Facts | Remembered::OperationEnded }));
    written && steps.next().is_none()
}

pub(super) fn step(i: usize, what: &str, state: State) -> Next {
    let label = format!("{}: {what}", ['A', 'B', 'C', '?'][i.min(3)]);
    Next { label, state, fault: false, wrong: None }
}

/// A node's own word is needed for what its pod is.
pub(super) fn node_speaks(m: &Member) -> bool {
    m.api && is_up(m.host)
}
