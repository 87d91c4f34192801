//! Modelled servers alone, without agents, nodes or an API: what a differential test drives beside real ones.

use crate::rules::Rules;
use crate::run;
use crate::server::{self, Answer, Container, Phase, Statement};
use crate::world::{MS, World};
use coregent_core::lsn::Timeline;
use coregent_core::member::{Job, Names, Source};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Promotion;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// How long an acknowledgement may take before nobody expects it any more.
const PATIENCE: u64 = 3_000 * MS;
/// How long an order may take, and how long things take to come to rest.
const LONG: u64 = 60_000 * MS;
/// Until a deadline that no promotion of these comes near.
const FAR: u64 = 1_000_000_000;

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It does not answer: no process, or none that a client reaches.
    Off,
    /// In recovery, with or without a stream.
    Standby,
    /// Out of recovery.
    Writable,
}

/// What is seen of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub role: Role,
    /// The timeline of its data; of one that does not answer nothing is seen.
    pub timeline: Option<u32>,
    /// It has a stream.
    pub streams: bool,
    /// Rows that are in its data, whether or not somebody still waits for one.
    pub rows: BTreeSet<u32>,
}

/// Servers of one cluster, the first of which has been made and is writable.
pub struct Solo {
    world: Rc<World>,
    servers: Vec<Rc<Container>>,
    epoch: Cell<Epoch>,
    chain: RefCell<Vec<Promotion>>,
}

impl Solo {
    /// The servers of a seed.
    pub fn new(seed: u64, members: usize) -> Solo {
        let mut setup = run::setup(seed);
        (setup.members, setup.hosts, setup.quorum) = (members, members, false);
        let world = World::new(setup, Rules::default(), false);
        // No record says who may do what here: what the oracles say of that is not asked.
        world.oracle.borrow_mut().put_back = true;
        let servers = (0..members).map(|member| {
            let container = Container::new(&world, member, &format!("u{member}"), format!("ip-{member}:5432"));
            container.deadline.set(Some(world.clock(container.place()).plus(FAR)));
            container
        });
        let servers = servers.collect();
        Solo { world, servers, epoch: Cell::new(Epoch(1)), chain: RefCell::default() }
    }

    /// A member's name.
    pub fn name(&self, member: usize) -> MemberName {
        self.world.setup.name(member)
    }

    fn source(&self, of: usize) -> Source {
        let address = self.servers.get(of).map_or_else(String::new, |server| server.address.clone());
        Source { epoch: self.epoch.get(), member: self.name(of), address }
    }

    fn others(&self, member: usize) -> BTreeSet<MemberName> {
        (0..self.servers.len()).filter(|other| *other != member).map(|other| self.name(other)).collect()
    }

    /// Carries an order out; false where it fails or does not end.
    fn run(&self, member: usize, job: Job) -> bool {
        let Some(server) = self.servers.get(member) else { return false };
        let ended: Rc<Cell<Option<bool>>> = Rc::default();
        let (tell, world, server) = (Rc::clone(&ended), Rc::clone(&self.world), Rc::clone(server));
        let task = self.world.exec.spawn(server.agent, async move {
            tell.set(Some(server::run(world, server, job).await.is_ok()));
        });
        self.until(|_| ended.get().is_some());
        if ended.get().is_none() {
            self.world.exec.abort(task);
        }
        ended.get().unwrap_or(false)
    }

    fn until(&self, done: impl Fn(&Solo) -> bool) {
        let end = self.world.now() + LONG;
        while !done(self) && self.world.exec.step(end) {}
    }

    /// Lets everything that is under way come to rest.
    pub fn settle(&self) {
        let end = self.world.now() + LONG;
        while self.world.exec.step(end) {}
    }

    fn phase(&self, member: usize) -> Phase {
        self.servers.get(member).map_or(Phase::Off, |server| server.server.borrow().phase)
    }

    /// initdb, and slots for the others.
    pub fn make(&self, member: usize) -> bool {
        self.run(member, Job::InitDb)
            && self.start(member, None)
            && self.run(member, Job::Slots { epoch: self.epoch.get(), members: self.others(member) })
    }

    /// Starts a server: as a standby of `follow`, else writable on its own timeline.
    pub fn start(&self, member: usize, follow: Option<usize>) -> bool {
        let follow = follow.map(|source| (self.source(source), self.chain.borrow().clone()));
        let writable = follow.is_none();
        let begun = self.run(member, Job::Start { writable, follow, names: Names::Nobody });
        self.until(|solo| solo.phase(member) != Phase::Starting);
        let is_up = begun && self.phase(member) != Phase::Off;
        is_up && (!writable || self.run(member, Job::Open))
    }

    /// Starts a server as a standby of nobody.
    pub fn start_alone(&self, member: usize) -> bool {
        let begun = self.run(member, Job::Start { writable: false, follow: None, names: Names::Nobody });
        self.until(|solo| solo.phase(member) != Phase::Starting);
        begun && self.phase(member) != Phase::Off
    }

    /// Every process of a server is killed.
    pub fn kill(&self, member: usize) {
        if let Some(server) = self.servers.get(member) {
            server::sweep(&self.world, server, false);
        }
    }

    /// A clean stop.
    pub fn stop(&self, member: usize) -> bool {
        self.run(member, Job::Stop { fast: true, diverged: false, reason: "asked for" })
    }

    /// A standby leaves its source and is promoted, with slots for the others. Gives its timeline.
    pub fn promote(&self, member: usize) -> Option<u32> {
        let epoch = self.epoch.get().next();
        let newest = self.chain.borrow().last().map_or(1, |last| last.timeline.0);
        self.epoch.set(epoch);
        let attempt = Promotion { epoch, member: self.name(member), timeline: Timeline(newest + 1), fork_lsn: None };
        let mut chain = self.chain.borrow().clone();
        chain.push(attempt.clone());
        let job = Job::Promote { attempt, chain: chain.clone(), names: Names::Nobody, slots: self.others(member) };
        let done = self.run(member, Job::Leave { epoch }) && self.run(member, job) && self.run(member, Job::Open);
        *self.chain.borrow_mut() = chain;
        done.then_some(newest + 1)
    }

    /// A standby that is up follows another source.
    pub fn follow(&self, member: usize, source: usize) -> bool {
        let epoch = self.epoch.get();
        let chain = self.chain.borrow().clone();
        self.run(member, Job::Leave { epoch }) && self.run(member, Job::Follow { source: self.source(source), chain })
    }

    /// A server that is stopped is rewound to `source`, which writes a checkpoint first.
    pub fn rewind(&self, member: usize, source: usize) -> bool {
        let chain = self.chain.borrow().clone();
        self.run(source, Job::Checkpoint { prepares: None }) && {
            self.run(member, Job::Rewind { source: self.source(source), chain })
        }
    }

    /// A server that is stopped, or has no data, gets a copy of `source`.
    pub fn copy(&self, member: usize, source: usize) -> bool {
        let chain = self.chain.borrow().clone();
        self.run(member, Job::Clone { source: self.source(source), chain })
    }

    /// Slots for these alone: who has none loses its stream.
    pub fn slots(&self, member: usize, of: &[usize]) -> bool {
        let members = of.iter().map(|other| self.name(*other)).collect();
        self.run(member, Job::Slots { epoch: self.epoch.get(), members })
    }

    /// `ANY 1` of these; of nobody commits wait for nobody.
    pub fn sync(&self, member: usize, of: &[usize]) -> bool {
        let members: BTreeSet<MemberName> = of.iter().map(|other| self.name(*other)).collect();
        let names = if members.is_empty() { Names::Nobody } else { Names::Any { k: 1, members } };
        self.run(member, Job::SetNames(names))
    }

    /// A client writes a row; true once that is acknowledged, false where it is still waited for.
    pub fn write(&self, member: usize, row: u32) -> bool {
        let Some(server) = self.servers.get(member) else { return false };
        let Some(session) = server::connect(&self.world, server) else { return false };
        let answer = server::statement(&self.world, server, session, Statement { write: row, busy: MS });
        let end = self.world.now() + PATIENCE;
        while answer.borrow().is_none() && self.world.exec.step(end) {}
        *answer.borrow() == Some(Answer::Done)
    }

    /// What is seen of a server now.
    pub fn seen(&self, member: usize) -> Seen {
        let nothing = Seen { role: Role::Off, timeline: None, streams: false, rows: BTreeSet::new() };
        let Some(server) = self.servers.get(member) else { return nothing };
        let (role, streams) = {
            let state = server.server.borrow();
            let role = match state.phase {
                Phase::Standby if state.answers() => Role::Standby,
                Phase::Writable if state.answers() => Role::Writable,
                _ => return nothing,
            };
            (role, state.streaming)
        };
        let data = server.data(&self.world, |data| {
            let there =
                data.log.iter().filter(|record| record.write != 0 && record.end <= data.replayed.max(data.flushed));
            (data.timeline(), there.map(|record| record.write).collect())
        });
        let Some((timeline, rows)) = data else { return nothing };
        Seen { role, timeline: Some(timeline), streams, rows }
    }
}

impl Drop for Solo {
    fn drop(&mut self) {
        self.world.exec.clear();
    }
}
