//! A modelled PostgreSQL in its container, as the real one was seen to behave (postgres-recipes.md).

mod commit;
mod jobs;
mod look;
mod make;
mod names;
mod stream;

pub(crate) use commit::{Answer, Statement, connect, statement};
pub(crate) use jobs::{Outcome, run};
pub(crate) use look::{Status, data, reach, status};
pub(crate) use make::drop_old_aside;

use crate::data::Data;
use crate::exec::{Exec, Micros, Notify, Proc};
use crate::net::Place;
use crate::world::{MS, Stream, World};
use coregent_core::member::{Names, Source};
use coregent_core::names::{Epoch, MemberName, Monotonic};
use coregent_core::position::Position;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What the processes of a server do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There are none.
    #[default]
    Off,
    /// It starts or recovers, and answers nobody.
    Starting,
    /// In recovery.
    Standby,
    /// Out of recovery.
    Writable,
}

/// One who streams from here: a walsender.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The container that it sends to.
    pub(crate) to: u32,
    pub(crate) epoch: Epoch,
    /// What the other side has flushed.
    pub(crate) flush: u64,
    pub(crate) caught_up: bool,
    /// Its own copy of the names, adopted late.
    pub(crate) names: Names,
    pub(crate) adopts: Option<(Micros, Names)>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) phase: Phase,
    /// Its first process is dead, and others live on (F3).
    pub(crate) orphaned: bool,
    pub(crate) run: u32,
    pub(crate) postmaster: Proc,
    pub(crate) backends: Proc,
    /// The agent has started one and has not swept it since.
    pub(crate) known: bool,
    pub(crate) source: Option<Source>,
    /// As the agent has put them in force.
    pub(crate) names: Names,
    pub(crate) proved: bool,
    pub(crate) open: bool,
    pub(crate) settled: bool,
    pub(crate) set_up: bool,
    pub(crate) since: Option<Monotonic>,
    pub(crate) seen: BTreeMap<MemberName, Monotonic>,
    pub(crate) admitted: (Epoch, BTreeSet<MemberName>),
    pub(crate) checkpointing: bool,
    pub(crate) prepared: Option<String>,
    /// Whom its receiver is connected to.
    pub(crate) receiver: Option<u32>,
    pub(crate) streaming: bool,
    pub(crate) paused: bool,
    pub(crate) senders: BTreeMap<MemberName, Sender>,
    /// What a new connection shows.
    pub(crate) shown: Names,
    /// The shared flag by which a commit knows that it has to wait; set by the checkpointer.
    pub(crate) waits: bool,
    /// Log behind this was written after the last reload was adopted.
    pub(crate) reloaded: u64,
    pub(crate) released: u64,
    /// When it last wrote to its log for a transaction.
    pub(crate) wrote_at: Micros,
    pub(crate) sessions: BTreeSet<u32>,
    /// Statements that are on the CPU.
    pub(crate) busy: u32,
    /// The end of the log, read while no process ran.
    pub(crate) end: Option<Position>,
    pub(crate) end_read: bool,
}

/// What an agent's endpoint shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    pub(crate) ready: bool,
    pub(crate) log_is_final: bool,
}

/// A database container: an agent, and under it a server.
pub(crate) struct Container {
    pub(crate) serial: u32,
    pub(crate) pod_uid: String,
    pub(crate) id: String,
    pub(crate) member: usize,
    pub(crate) name: MemberName,
    pub(crate) host: usize,
    pub(crate) address: String,
    pub(crate) agent: Proc,
    pub(crate) server: RefCell<Server>,
    pub(crate) health: Cell<Health>,
    pub(crate) deadline: Cell<Option<Monotonic>>,
    pub(crate) told: Cell<bool>,
    /// It is empty.
    pub(crate) gone: Cell<bool>,
    pub(crate) frozen: Cell<u32>,
    /// What its agent does, for the coverage of faults.
    pub(crate) doing: Cell<&'static str>,
    /// Something that the agent looks at has changed.
    pub(crate) changed: Notify,
    /// The first process of a server has ended.
    pub(crate) exited: Notify,
    /// More of the log is flushed.
    pub(crate) progress: Notify,
    /// Commits may be released.
    pub(crate) commits: Notify,
    /// The container or its orders have changed.
    pub(crate) orders: Notify,
    /// The agent's loop has something to look at.
    pub(crate) events: Notify,
    /// The deadline was set anew.
    pub(crate) armed: Notify,
}

impl Container {
    pub(crate) fn new(world: &World, member: usize, pod_uid: &str, address: String) -> Rc<Container> {
        let exec = &world.exec;
        let notify = || Notify::new(exec);
        let serial = world.next_serial();
        let container = Rc::new(Container {
            serial,
            pod_uid: pod_uid.to_owned(),
            id: format!("c{serial}"),
            member,
            name: world.setup.name(member),
            host: world.setup.host_of(member),
            address,
            agent: exec.process(),
            server: RefCell::new(Server::new(exec)),
            health: Cell::default(),
            deadline: Cell::new(None),
            told: Cell::new(false),
            gone: Cell::new(false),
            frozen: Cell::new(0),
            doing: Cell::new("starting"),
            changed: notify(),
            exited: notify(),
            progress: notify(),
            commits: notify(),
            orders: notify(),
            events: notify(),
            armed: notify(),
        });
        world.containers.borrow_mut().push(Rc::clone(&container));
        container
    }

    pub(crate) fn place(&self) -> Place {
        Place::Host(self.host)
    }

    pub(crate) fn stream(&self) -> Stream {
        Stream::Engine(self.member)
    }

    /// Some process of its server lives.
    pub(crate) fn has_processes(&self) -> bool {
        let server = self.server.borrow();
        server.phase != Phase::Off || server.orphaned
    }

    /// Changes the data folder under it.
    pub(crate) fn data<T>(&self, world: &World, change: impl FnOnce(&mut Data) -> T) -> Option<T> {
        let mut volume = world.volumes.get(self.member)?.borrow_mut();
        volume.data.as_mut().map(change)
    }
}

impl Server {
    fn new(exec: &Exec) -> Server {
        Server {
            phase: Phase::Off,
            orphaned: false,
            run: 0,
            postmaster: exec.process(),
            backends: exec.process(),
            known: false,
            source: None,
            names: Names::Placeholder,
            proved: false,
            open: false,
            settled: false,
            set_up: false,
            since: None,
            seen: BTreeMap::new(),
            admitted: (Epoch(0), BTreeSet::new()),
            checkpointing: false,
            prepared: None,
            receiver: None,
            streaming: false,
            paused: false,
            senders: BTreeMap::new(),
            shown: Names::Placeholder,
            waits: true,
            reloaded: 0,
            released: 0,
            wrote_at: 0,
            sessions: BTreeSet::new(),
            busy: 0,
            end: None,
            end_read: false,
        }
    }

    /// It answers connections.
    pub(crate) fn answers(&self) -> bool {
        !self.orphaned && matches!(self.phase, Phase::Standby | Phase::Writable)
    }
}

/// Both may be reached by whom they would be reached, and neither is frozen.
pub(crate) fn reaches(world: &World, from: &Container, to: &Container) -> bool {
    from.frozen.get() == 0 && to.frozen.get() == 0 && world.net.borrow().connects(from.place(), to.place())
}

/// Ends every process of a server: SIGKILL until nothing is left. What was not flushed may be lost.
pub(crate) fn sweep(world: &Rc<World>, container: &Rc<Container>, power: bool) {
    lose_stream(world, container, !power);
    let (postmaster, backends, had) = {
        let mut server = container.server.borrow_mut();
        let had = server.phase != Phase::Off || server.orphaned;
        let procs = (server.postmaster, server.backends);
        server.phase = Phase::Off;
        server.orphaned = false;
        server.receiver = None;
        server.streaming = false;
        server.senders.clear();
        server.sessions.clear();
        server.busy = 0;
        server.checkpointing = false;
        (procs.0, procs.1, had)
    };
    world.exec.kill(postmaster);
    world.exec.kill(backends);
    if had {
        lose_unflushed(world, container, power);
        container.exited.notify();
        container.changed.notify();
        container.progress.notify();
        container.commits.notify();
        world.disturbed.notify();
    }
}

/// The receiver's end of the connection is gone.
pub(crate) fn lose_stream(world: &Rc<World>, container: &Rc<Container>, at_once: bool) {
    let source = container.server.borrow().receiver;
    let source = source.and_then(|serial| world.containers.borrow().iter().find(|c| c.serial == serial).cloned());
    if let Some(source) = source {
        let at_once = at_once && world.net.borrow().connects(container.place(), source.place());
        stream::lose_sender(world, container, &source, at_once);
    }
}

fn lose_unflushed(world: &World, container: &Container, power: bool) {
    let keep = world.chance(container.stream(), |rng| rng.below(1_000));
    container.data(world, |data| {
        let unflushed = data.end().saturating_sub(data.flushed);
        let kept = if power { 0 } else { unflushed * keep / 1_000 };
        let end = data.flushed + kept;
        data.truncate(end);
        // What the files hold is what the next start finds; a later power loss does not take it away again.
        data.flushed = data.end();
    });
}

/// SIGKILL of the first process alone. Who waits is gone in a moment; who is on the CPU goes on (F3).
pub(crate) fn kill_postmaster(world: &Rc<World>, container: &Rc<Container>) -> bool {
    let (postmaster, run, busy) = {
        let mut server = container.server.borrow_mut();
        if server.phase == Phase::Off || server.orphaned {
            return false;
        }
        server.orphaned = true;
        server.streaming = false;
        server.senders.clear();
        (server.postmaster, server.run, server.busy)
    };
    lose_stream(world, container, true);
    container.server.borrow_mut().receiver = None;
    world.exec.kill(postmaster);
    world.note(&container.name, || format!("postmaster killed, {busy} statements on the CPU"));
    container.exited.notify();
    container.changed.notify();
    container.progress.notify();
    container.commits.notify();
    world.disturbed.notify();
    let backends = container.server.borrow().backends;
    let (weak, orphans) = (Rc::clone(world), Rc::clone(container));
    world.exec.spawn(backends, async move {
        weak.takes(orphans.stream(), 20, 80).await;
        loop {
            let left = {
                let server = orphans.server.borrow();
                if server.run != run || !server.orphaned {
                    return;
                }
                server.busy
            };
            if left == 0 {
                break;
            }
            weak.sleep(20 * MS).await;
        }
        let world = Rc::clone(&weak);
        let gone = Rc::clone(&orphans);
        weak.exec.spawn(Proc::WORLD, async move {
            if gone.server.borrow().run == run && gone.server.borrow().orphaned {
                sweep(&world, &gone, false);
            }
        });
    });
    true
}
