//! Sessions and commits: what a client is told and when.

use super::{Container, Phase};
use crate::oracle::Acknowledged;
use crate::rules::Rule;
use crate::world::{MS, World};
use coregent_core::member::Names;
use std::cell::RefCell;
use std::rc::Rc;

/// How a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// `INSERT 0 1`.
    Done,
    /// It was refused, and nothing has happened.
    Refused,
    /// The connection is lost.
    Lost,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub(crate) write: u32,
    /// It is on the CPU for so many microseconds before its commit.
    pub(crate) busy: u64,
}

/// Opens a session as a client, if clients are let in.
pub(crate) fn connect(world: &World, container: &Container) -> Option<u32> {
    let mut server = container.server.borrow_mut();
    if !server.answers() || !server.open || container.frozen.get() > 0 {
        return None;
    }
    let session = world.next_serial();
    server.sessions.insert(session);
    Some(session)
}

/// Runs a statement in the server's own processes: they die and freeze with it.
pub(crate) fn statement(
    world: &Rc<World>,
    container: &Rc<Container>,
    session: u32,
    statement: Statement,
) -> Rc<RefCell<Option<Answer>>> {
    let answer: Rc<RefCell<Option<Answer>>> = Rc::default();
    let (tell, world_too, server) = (Rc::clone(&answer), Rc::clone(world), Rc::clone(container));
    let backends = container.server.borrow().backends;
    world.exec.spawn(backends, async move {
        let done = execute(&world_too, &server, session, statement).await;
        *tell.borrow_mut() = Some(done);
        server.commits.notify();
    });
    answer
}

async fn execute(world: &Rc<World>, container: &Rc<Container>, session: u32, statement: Statement) -> Answer {
    let run = {
        let mut server = container.server.borrow_mut();
        server.busy += 1;
        server.run
    };
    world.sleep(statement.busy).await;
    let inserted = insert(world, container, session, run, statement.write);
    {
        let mut server = container.server.borrow_mut();
        server.busy = server.busy.saturating_sub(1);
    }
    let Some(end) = inserted else { return Answer::Refused };
    let waits = container.server.borrow().waits;
    if !flush(world, container, run, end).await {
        return Answer::Lost;
    }
    let Some(by_quorum) = acknowledged(container, session, run, end, waits).await else { return Answer::Lost };
    let branch = container.data(world, |data| data.branch()).unwrap_or_default();
    let names = container.server.borrow().names.clone();
    world.acknowledge(Acknowledged {
        write: statement.write,
        container: container.serial,
        member: container.member,
        branch,
        end,
        by_quorum,
        names,
        at: world.now(),
    });
    Answer::Done
}

fn insert(world: &Rc<World>, container: &Rc<Container>, session: u32, run: u32, write: u32) -> Option<u64> {
    let server = container.server.borrow();
    if server.run != run || server.phase != Phase::Writable || !server.sessions.contains(&session) {
        return None;
    }
    drop(server);
    if world.volumes.get(container.member).is_some_and(|volume| volume.borrow().full) {
        // PANIC: could not write to file "pg_wal/…": No space left on device
        let (world, server) = (Rc::clone(world), Rc::clone(container));
        let exec = Rc::clone(&world.exec);
        exec.spawn(crate::exec::Proc::WORLD, async move { super::sweep(&world, &server, false) });
        return None;
    }
    container.server.borrow_mut().wrote_at = world.now();
    container.data(world, |data| data.append(write))
}

/// Waits until the log is durable to `end`. False when the server is another one by then.
pub(super) async fn flush(world: &Rc<World>, container: &Rc<Container>, run: u32, end: u64) -> bool {
    let span = world.chance(container.stream(), |rng| rng.between(300, 1_800));
    world.sleep(span).await;
    let stuck = world.volumes.get(container.member).map_or(0, |volume| volume.borrow().stuck_until);
    if stuck > world.now() {
        world.sleep(stuck - world.now()).await;
    }
    if container.server.borrow().run != run {
        return false;
    }
    container.data(world, |data| data.flushed = data.flushed.max(end));
    container.progress.notify();
    true
}

/// Waits as SyncRepWaitForLSN does. `None` without an acknowledgement, else whether a quorum has it.
async fn acknowledged(container: &Rc<Container>, session: u32, run: u32, end: u64, waited: bool) -> Option<bool> {
    loop {
        let seen = container.commits.version();
        {
            let server = container.server.borrow();
            if server.run != run || !server.sessions.contains(&session) {
                return None;
            }
            if !waited || !server.waits {
                return Some(false);
            }
            // A waiter sees the postmaster's death and drops its client (postgres-recipes.md 1).
            if server.orphaned {
                return None;
            }
            if server.released >= end {
                return Some(true);
            }
        }
        container.commits.since(seen).await;
    }
}

/// A transaction of the agent's own: committed and acknowledged, or not.
pub(super) async fn marker(world: &Rc<World>, container: &Rc<Container>) -> Result<(), String> {
    let (run, waits) = {
        let server = container.server.borrow();
        (server.run, server.waits)
    };
    let writable = container.server.borrow().phase == Phase::Writable && !container.server.borrow().orphaned;
    container.server.borrow_mut().wrote_at = world.now();
    let end = container.data(world, |data| data.append(0)).filter(|_| writable);
    let Some(end) = end else { return Err("the server does not answer".into()) };
    if !flush(world, container, run, end).await {
        return Err("the server ended".into());
    }
    let acknowledged = async {
        loop {
            let seen = container.commits.version();
            {
                let server = container.server.borrow();
                if server.run != run || server.orphaned || server.phase != Phase::Writable {
                    return false;
                }
                if !waits || !server.waits || server.released >= end {
                    return true;
                }
            }
            container.commits.since(seen).await;
        }
    };
    match world.within(3_000 * MS, acknowledged).await {
        Some(true) => Ok(()),
        _ => Err("no standby has acknowledged a marker commit in 3 s".into()),
    }
}

impl World {
    /// A standby has flushed up to `flush`: its walsender releases whom its own copy of the names lets it.
    pub(crate) fn replied(&self, container: &Container, from: &coregent_core::names::MemberName, flush: u64) {
        let now = self.now();
        let mut server = container.server.borrow_mut();
        let reloaded = server.reloaded;
        let Some(sender) = server.senders.get_mut(from) else { return };
        sender.flush = sender.flush.max(flush);
        // It handles the signal before any reply to log that was sent later (postgres-recipes.md 2).
        let due = sender.adopts.as_ref().is_some_and(|(at, _)| *at <= now || flush > reloaded);
        if due && let Some((_, names)) = sender.adopts.take() {
            sender.names = names;
        }
        let Names::Any { k, members } = sender.names.clone() else { return };
        if !members.contains(from) {
            return;
        }
        let mut flushed: Vec<u64> =
            server.senders.iter().filter(|(name, _)| members.contains(*name)).map(|(_, sender)| sender.flush).collect();
        flushed.sort_unstable_by(|a, b| b.cmp(a));
        let needed = (k.max(1) - 1) as usize;
        if let Some(released) = flushed.get(needed).copied().filter(|released| *released > server.released) {
            server.released = released;
            drop(server);
            container.commits.notify();
        }
    }

    /// Whether a rule about names is off for this container.
    pub(super) fn skips_proof(&self) -> bool {
        self.is_off(Rule::F8Prove)
    }
}
