//! Every state that there is within the bounds, the nearest first.

use super::log::{Log, name};
use super::observe::{WALL, address};
use super::state::{Ended, Host, Lease, Member, NOBODY, PLACEHOLDER, Report, Server, State, identity, plain};
use super::steps::{Bounds, Model, print_of};
use coregent_core::failover::{Memory, PrimaryCopy};
use coregent_core::fence::{Fence, Proof, SyncSet, Target};
use coregent_core::names::Epoch;
use std::collections::{BTreeMap, BTreeSet};

/// What an exploration came to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// States that were looked at.
    pub(super) states: usize,
    /// Longest shortest way to one of them.
    pub(super) depth: usize,
    /// Decisions that the core was asked for.
    pub(super) asked: u64,
    /// All within the bounds of faults, epochs and writes were looked at.
    pub(super) whole: bool,
    /// What went wrong, and the shortest way to it.
    pub(super) wrong: Option<(&'static str, Vec<String>)>,
}

/// A primary with two standbys, all well, in the first epoch.
pub(super) fn beginning(model: &mut Model) -> State {
    let members: BTreeSet<_> = (0..3).map(name).collect();
    let set = SyncSet {
        epoch: Epoch(1),
        k: 1,
        members: [name(1), name(2)].into(),
        primary: Some(name(0)),
        complete: true,
        degraded: false,
    };
    let fence = Fence {
        target: Some(Target {
            member: name(0),
            address: address(0),
            proof: Proof::Bootstrap,
            initial_sync: BTreeSet::new(),
            must_reach_lsn: None,
            rest_of_log: None,
        }),
        sync_sets: if model.bounds.quorum { vec![set] } else { Vec::new() },
        system_id: Some("7".to_owned()),
        members,
        ..Fence::default()
    };
    let lease = model.leases.put(Lease { epoch: 1, holder: Some(identity(0, 1, 0)), fence });
    let primary = PrimaryCopy { target: Some(name(0)), current: Some(name(0)), epoch: Epoch(1), since: None };
    let memory = Memory { primary, last_created_index: 3, system_id: Some("7".to_owned()), ..Memory::default() };
    let memory = model.memories.put(plain(memory, &WALL.to_string()));
    // What a server has without a grant, and what its holder's has with both others in its set.
    let (without, with) = if model.bounds.quorum { (PLACEHOLDER, 0b110) } else { (NOBODY, NOBODY) };
    let standby = Member {
        log: Log::default(),
        host: Host::Runs,
        api: true,
        agent: true,
        run: 0,
        pod: 1,
        stamp: 0,
        ended: [Ended::Unsaid; 2],
        server: Server::Standby,
        unswept: false,
        orphans: None,
        source: Some((1, 0)),
        settled: false,
        promoting: None,
        open: false,
        renewed: false,
        names: without,
        older: without,
        proved: false,
        waiting: 0,
        epoch: 1,
        at_start: 1,
        attempt: None,
        recorded: false,
        unusable: false,
        held: None,
        late: false,
        unheard: false,
        released: 0,
        was_writable: false,
        view: lease,
        report: Report::NONE,
    };
    let first = Member {
        server: Server::Writable,
        source: None,
        open: true,
        renewed: true,
        names: with,
        older: with,
        proved: true,
        held: Some(1),
        was_writable: true,
        ..standby
    };
    let faults = model.bounds.faults;
    let mut state = State {
        members: [first, standby, standby],
        lease,
        memory,
        lapsed: false,
        cut: 0,
        delete: None,
        pending: None,
        writes: 0,
        acked: 0,
        primary: 0,
        faults,
    };
    model.settle(&mut state);
    state
}

impl Model {
    /// Tells states apart, but for which of B and C is which.
    fn print(&mut self, state: &State) -> u64 {
        print_of(state).min(print_of(&self.mirrored(state)))
    }
}

/// A state that was seen: how it was come to, and what it means for progress.
#[derive(Debug, Clone, Copy)]
struct Seen {
    from: u32,
    turn: u16,
    /// Enough is healed for there to be a primary.
    healed: bool,
    /// There is one, or the bounds end here.
    good: bool,
}

/// The states in the order in which they were seen, and the steps between them that are neither faults nor healings.
#[derive(Debug, Default)]
struct Ground {
    numbers: BTreeMap<u64, u32>,
    seen: Vec<Seen>,
    steps: Vec<(u32, u32)>,
}

impl Ground {
    fn add(&mut self, print: u64, from: u32, turn: usize, healed: Option<bool>) -> u32 {
        let number = u32::try_from(self.seen.len()).unwrap_or(u32::MAX);
        self.numbers.insert(print, number);
        let turn = u16::try_from(turn).unwrap_or(u16::MAX);
        self.seen.push(Seen { from, turn, healed: healed.is_some(), good: healed == Some(true) });
        number
    }

    /// The turns that lead from the beginning to state `to`.
    fn turns(&self, to: u32) -> Vec<u16> {
        let (mut turns, mut at) = (Vec::new(), to);
        while at != 0 {
            let seen = self.seen[at as usize];
            turns.push(seen.turn);
            at = seen.from;
        }
        turns.reverse();
        turns
    }

    /// A healed state from which no steps lead to a primary, if there is one.
    fn stuck(&mut self) -> Option<u32> {
        let mut before: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (from, to) in &self.steps {
            before.entry(*to).or_default().push(*from);
        }
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let mut open: Vec<u32> = (0..self.seen.len()).filter(|at| self.seen[*at].good).map(number).collect();
        while let Some(at) = open.pop() {
            for from in before.get(&at).into_iter().flatten() {
                if !std::mem::replace(&mut self.seen[*from as usize].good, true) {
                    open.push(*from);
                }
            }
        }
        self.seen.iter().position(|seen| seen.healed && !seen.good).map(number)
    }
}

/// Looks at everything within `bounds`.
pub(super) fn explore(bounds: Bounds) -> Outcome {
    let mut model = Model::new(bounds);
    let first = beginning(&mut model);
    let mut ground = Ground::default();
    let print = model.print(&first);
    ground.add(print, 0, 0, model.healed(&first));
    let mut layer = vec![(0, first.clone())];
    let (mut depth, mut whole) = (0, true);
    while !layer.is_empty() {
        let mut following = Vec::new();
        for (number, state) in &layer {
            let nexts = model.successors(state);
            ground.seen[*number as usize].good |= std::mem::take(&mut model.bounded);
            for (turn, next) in nexts.into_iter().enumerate() {
                if let Some(wrong) = next.wrong.or_else(|| model.violated(&next.state)) {
                    let mut way = replay(&mut model, &first, &ground.turns(*number));
                    way.push(next.label);
                    let (states, asked) = (ground.seen.len(), model.asked);
                    return Outcome { states, depth: way.len(), asked, whole: false, wrong: Some((wrong, way)) };
                }
                let print = model.print(&next.state);
                let known = ground.numbers.get(&print).copied();
                if known.is_none() && ground.seen.len() >= bounds.states {
                    whole = false;
                    continue;
                }
                let to = known.unwrap_or_else(|| {
                    let healed = model.healed(&next.state);
                    ground.add(print, *number, turn, healed)
                });
                if !next.fault {
                    ground.steps.push((*number, to));
                }
                if known.is_none() {
                    following.push((to, next.state));
                }
            }
        }
        layer = following;
        depth += usize::from(!layer.is_empty());
    }
    let (states, asked) = (ground.seen.len(), model.asked);
    let stuck = if whole { ground.stuck() } else { None };
    let wrong = stuck.map(|at| ("L1 no step leads to a primary", replay(&mut model, &first, &ground.turns(at))));
    Outcome { states, depth, asked, whole, wrong }
}

/// The labels of those turns.
fn replay(model: &mut Model, first: &State, turns: &[u16]) -> Vec<String> {
    let mut state = first.clone();
    let mut labels = Vec::new();
    for turn in turns {
        let Some(next) = model.successors(&state).into_iter().nth(usize::from(*turn)) else { break };
        labels.push(next.label);
        state = next.state;
    }
    labels
}
