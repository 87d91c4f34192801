//! The jobs of a member's decision, as the agent's driver carries them out.

use super::make::{copy, init_db, read_end, rewind, volume};
use super::{Container, Phase, names, stream, sweep};
use crate::exec::Proc;
use crate::oracle;
use crate::rules::Rule;
use crate::world::{MS, World};
use coregent_core::fence::RestOfLog;
use coregent_core::lsn::Lsn;
use coregent_core::member::{Job, Names, Source};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Promotion;
use std::collections::BTreeSet;
use std::rc::Rc;

/// How a job ended; `true` where a server was started.
pub(crate) type Outcome = Result<bool, String>;

/// Time that must be left to the deadline for a promotion (F11).
const ENOUGH: u64 = 1_000;

/// Carries a job out. Dropped, it stops wherever it waits.
pub(crate) async fn run(world: Rc<World>, me: Rc<Container>, job: Job) -> Outcome {
    let (world, me) = (&world, &me);
    let done = match job {
        Job::Start { writable, follow, names } => return start(world, me, writable, follow, names),
        Job::InitDb => init_db(world, me).await,
        Job::Clone { source, chain } => copy(world, me, &source, chain).await,
        Job::Rewind { source, chain } => rewind(world, me, &source, chain).await,
        Job::SetUp => {
            world.takes(me.stream(), 5, 30).await;
            me.server.borrow_mut().set_up = true;
            Ok(())
        }
        Job::Leave { epoch } => leave(world, me, epoch).await,
        Job::Fetch { rest, within } => fetch(world, me, &rest, within).await,
        Job::Follow { source, chain } => follow(world, me, source, chain).await,
        Job::Promote { attempt, chain, names, slots } => promote(world, me, attempt, chain, names, slots).await,
        Job::Open => {
            open(world, me);
            Ok(())
        }
        Job::Checkpoint { prepares } => {
            checkpoint(world, me, prepares);
            Ok(())
        }
        Job::SetNames(wanted) => names::set(world, me, wanted).await,
        Job::Strengthen(wanted) => names::strengthen(world, me, wanted).await,
        Job::Marker => names::mark(world, me).await,
        Job::Slots { epoch, members } => slots(world, me, epoch, members).await,
        Job::Stop { fast, diverged, reason } => stop(world, me, fast, diverged, reason).await,
    };
    done.map(|()| false)
}

/// Starts the server: it recovers, and then it is what it was started as.
fn start(
    world: &Rc<World>,
    me: &Rc<Container>,
    writable: bool,
    follow: Option<(Source, Vec<Promotion>)>,
    names: Names,
) -> Outcome {
    if me.has_processes() {
        return Err("pre-existing shared memory block is still in use".into());
    }
    if let Some((_, chain)) = &follow {
        let chain = chain.clone();
        volume(world, me, |volume| volume.kept.chain = chain)?;
    }
    oracle::starts(world, me, writable);
    let source = follow.map(|(source, _)| source);
    let (clean, full) = volume(world, me, |volume| {
        let clean = volume.data.as_ref().is_some_and(|data| data.clean);
        if let Some(data) = &mut volume.data {
            data.clean = false;
        }
        (clean, volume.full)
    })?;
    let run = {
        let mut server = me.server.borrow_mut();
        server.run += 1;
        server.phase = Phase::Starting;
        server.orphaned = false;
        server.known = true;
        server.postmaster = world.exec.process();
        server.backends = world.exec.process();
        for _ in 0..me.frozen.get() {
            world.exec.freeze(server.postmaster);
            world.exec.freeze(server.backends);
        }
        server.source = source;
        server.waits = names != Names::Nobody;
        server.shown = names.clone();
        server.names = names;
        server.proved = false;
        server.open = false;
        server.settled = false;
        server.since = None;
        server.seen.clear();
        server.checkpointing = false;
        server.paused = false;
        server.released = 0;
        server.reloaded = 0;
        server.sessions.clear();
        server.busy = 0;
        server.run
    };
    let dice = world.chance(me.stream(), |rng| rng.below(1_000));
    let recovery = match (clean, dice) {
        (true, _) => (40, 150),
        // A bulk load before the crash: recovery takes long and makes progress all the time.
        (false, 0..40) => (4_000, 14_000),
        (false, _) => (80, 1_200),
    };
    let (world_too, mine) = (Rc::clone(world), Rc::clone(me));
    let postmaster = me.server.borrow().postmaster;
    world.exec.spawn(postmaster, async move { recover(&world_too, &mine, run, writable, full, recovery).await });
    Ok(true)
}

async fn recover(world: &Rc<World>, me: &Rc<Container>, run: u32, writable: bool, full: bool, span: (u64, u64)) {
    world.takes(me.stream(), span.0, span.1).await;
    if full || me.data(world, |_| ()).is_none() {
        let (world_too, mine) = (Rc::clone(world), Rc::clone(me));
        world.exec.spawn(Proc::WORLD, async move { sweep(&world_too, &mine, false) });
        return;
    }
    let unfinished = me.data(world, |data| data.unfinished).unwrap_or(false);
    stream::start_receiver(world, me);
    if unfinished && !writable {
        // A hot standby answers only once it is consistent, for which it needs its source.
        loop {
            let seen = me.changed.version();
            if me.server.borrow().streaming {
                break;
            }
            me.changed.since(seen).await;
        }
    }
    me.data(world, |data| {
        data.unfinished = false;
        data.replayed = data.end();
        if writable {
            data.control = data.timeline();
        }
    });
    {
        let mut server = me.server.borrow_mut();
        if server.run != run || server.phase != Phase::Starting {
            return;
        }
        server.phase = if writable { Phase::Writable } else { Phase::Standby };
    }
    if writable {
        oracle::writable(world, me);
    }
    me.changed.notify();
    world.disturbed.notify();
}

fn answers(me: &Container) -> Result<(), String> {
    if me.server.borrow().answers() { Ok(()) } else { Err("the server does not answer".into()) }
}

/// Persists the epoch, streams from nobody, replays what is there.
async fn leave(world: &Rc<World>, me: &Rc<Container>, epoch: Epoch) -> Result<(), String> {
    if !world.is_off(Rule::Durable) {
        volume(world, me, |volume| volume.kept.epoch = volume.kept.epoch.max(epoch))?;
    } else {
        crate::member::forget_durably(world, me, epoch);
    }
    if world.is_off(Rule::F6Left) {
        // It says that it has left, and streams on.
        me.server.borrow_mut().settled = true;
        me.changed.notify();
        return Ok(());
    }
    {
        let mut server = me.server.borrow_mut();
        server.source = None;
        server.settled = false;
        server.paused = false;
    }
    me.changed.notify();
    world.takes(me.stream(), 9, 30).await;
    answers(me)?;
    loop {
        let (phase, receiver) = {
            let server = me.server.borrow();
            (server.phase, server.receiver)
        };
        if phase != Phase::Standby {
            return Err("the server left recovery while it was to leave its source".into());
        }
        if receiver.is_none() {
            break;
        }
        let seen = me.changed.version();
        let _ = world.within(20 * MS, me.changed.since(seen)).await;
        answers(me)?;
    }
    me.data(world, |data| data.replayed = data.end());
    me.server.borrow_mut().settled = true;
    Ok(())
}

/// Gets the end of the old primary's log from its agent (F10).
async fn fetch(world: &Rc<World>, me: &Rc<Container>, rest: &RestOfLog, within: Option<u64>) -> Result<(), String> {
    let fetched = async {
        world.takes(me.stream(), 50, 900).await;
        answers(me)?;
        let theirs = world.at_address(&rest.agent).ok_or("nobody listens there")?;
        if !super::reaches(world, me, &theirs) || !theirs.health.get().log_is_final {
            return Err(format!("the agent of {} does not give its log", rest.member));
        }
        let theirs = world.volumes.get(theirs.member).ok_or("no volume")?.borrow();
        let theirs = theirs.data.as_ref().ok_or("it has no data")?;
        let mut mine = world.volumes.get(me.member).ok_or("no volume")?.borrow_mut();
        let mine = mine.data.as_mut().ok_or("no data")?;
        if theirs.timeline() != rest.timeline.0 || mine.timeline() != rest.timeline.0 || theirs.end() < rest.end_lsn.0 {
            return Err("replay of the fetched log stands still".to_owned());
        }
        let more = theirs.between(mine.end(), rest.end_lsn.0).to_vec();
        mine.log.extend(more);
        mine.flushed = mine.end();
        mine.replayed = mine.end();
        Ok(())
    };
    match within {
        None => fetched.await,
        Some(millis) => {
            world.within(millis * MS, fetched).await.unwrap_or_else(|| Err("it was not here in time".into()))
        }
    }
}

/// Streams by reload, once the source listens.
async fn follow(world: &Rc<World>, me: &Rc<Container>, source: Source, chain: Vec<Promotion>) -> Result<(), String> {
    loop {
        let seen = world.disturbed.version();
        let listens = world
            .at_address(&source.address)
            .is_some_and(|theirs| super::reaches(world, me, &theirs) && theirs.server.borrow().answers());
        if listens {
            break;
        }
        let _ = world.within(300 * MS, world.disturbed.since(seen)).await;
        answers(me)?;
    }
    volume(world, me, |volume| volume.kept.chain = chain)?;
    {
        let mut server = me.server.borrow_mut();
        server.source = Some(source);
        server.settled = false;
    }
    me.changed.notify();
    world.takes(me.stream(), 1, 8).await;
    answers(me)?;
    stream::start_receiver(world, me);
    Ok(())
}

/// Exactly these slots of this epoch; a receiver of another loses its stream.
async fn slots(
    world: &Rc<World>,
    me: &Rc<Container>,
    epoch: Epoch,
    members: BTreeSet<MemberName>,
) -> Result<(), String> {
    world.takes(me.stream(), 1, 20).await;
    answers(me)?;
    let wanted: BTreeSet<(MemberName, Epoch)> = members.iter().map(|name| (name.clone(), epoch)).collect();
    me.data(world, |data| data.slots.clone_from(&wanted));
    {
        let mut server = me.server.borrow_mut();
        if !world.is_off(Rule::F6Epoch) {
            server.senders.retain(|name, sender| wanted.contains(&(name.clone(), sender.epoch)));
        }
        server.admitted = (epoch, members);
    }
    world.disturbed.notify();
    me.changed.notify();
    Ok(())
}

async fn promote(
    world: &Rc<World>,
    me: &Rc<Container>,
    attempt: Promotion,
    chain: Vec<Promotion>,
    names: Names,
    members: BTreeSet<MemberName>,
) -> Result<(), String> {
    {
        let mut server = me.server.borrow_mut();
        server.names = names.clone();
        server.proved = false;
        server.open = false;
        server.seen.clear();
    }
    names::reload(world, me);
    volume(world, me, |volume| {
        volume.kept.attempt = Some(attempt.clone());
        volume.kept.attempt_recorded = false;
        volume.kept.chain = chain;
    })?;
    slots(world, me, attempt.epoch, members).await?;
    if !world.is_off(Rule::F11Unexpected) {
        me.server.borrow_mut().sessions.clear();
        me.commits.notify();
    }
    names::shown(world, me, &names).await?;
    let left = me.deadline.get().map_or(0, |at| at.since(world.clock(me.place())));
    if left <= ENOUGH {
        return Err(format!("only {left} ms to the deadline: a promotion cannot be ended"));
    }
    // Asked for once, nothing but SIGKILL ends it: it goes on when this job is dropped.
    let run = me.server.borrow().run;
    let postmaster = me.server.borrow().postmaster;
    let (world_too, mine, asked) = (Rc::clone(world), Rc::clone(me), attempt.clone());
    world.exec.spawn(postmaster, async move {
        world_too.takes(mine.stream(), 20, 150).await;
        end_recovery(&world_too, &mine, run, &asked);
    });
    loop {
        let seen = me.changed.version();
        {
            let server = me.server.borrow();
            if server.run != run || !server.answers() {
                return Err("the server ended in its promotion".into());
            }
            if server.phase == Phase::Writable {
                return Ok(());
            }
        }
        me.changed.since(seen).await;
    }
}

/// The server leaves recovery on a timeline that its history files leave free.
fn end_recovery(world: &Rc<World>, me: &Rc<Container>, run: u32, attempt: &Promotion) {
    {
        let mut server = me.server.borrow_mut();
        if server.run != run || server.phase != Phase::Standby {
            return;
        }
        server.phase = Phase::Writable;
        server.source = None;
        server.settled = false;
        server.receiver = None;
        server.streaming = false;
        server.released = 0;
    }
    let branch = world.next_serial();
    let made = me.data(world, |data| {
        // Dummies keep it from any number below the allotted one (F9).
        let timeline = if world.is_off(Rule::F9Timeline) { data.timeline() + 1 } else { attempt.timeline.0 };
        let at = data.end();
        data.forks.push(crate::data::Fork { timeline, at, branch });
        data.append(0);
        data.flushed = data.end();
        data.replayed = data.end();
        (timeline, at)
    });
    if let Some((timeline, at)) = made {
        oracle::promoted(world, me, attempt, timeline, Lsn(at), branch);
    }
    me.changed.notify();
    me.progress.notify();
    world.disturbed.notify();
}

/// Lets clients in.
fn open(world: &Rc<World>, me: &Rc<Container>) {
    let writable = {
        let mut server = me.server.borrow_mut();
        server.open = true;
        server.phase == Phase::Writable
    };
    if writable {
        oracle::opened(world, me);
    }
}

/// Begins a checkpoint; the control file names the timeline when it is done.
fn checkpoint(world: &Rc<World>, me: &Rc<Container>, prepares: Option<String>) {
    let (run, postmaster) = {
        let mut server = me.server.borrow_mut();
        server.checkpointing = true;
        (server.run, server.postmaster)
    };
    let (world_too, mine) = (Rc::clone(world), Rc::clone(me));
    world.exec.spawn(postmaster, async move {
        let long = world_too.chance(mine.stream(), |rng| rng.chance(60));
        let (least, most) = if long { (2_000, 9_000) } else { (20, 700) };
        world_too.takes(mine.stream(), least, most).await;
        if mine.server.borrow().run != run {
            return;
        }
        mine.data(&world_too, |data| data.control = data.timeline());
        let mut server = mine.server.borrow_mut();
        server.checkpointing = false;
        if prepares.is_some() {
            server.prepared = prepares;
        }
        drop(server);
        mine.changed.notify();
    });
}

/// Ends every process and reads where the log ends (F3, F10).
async fn stop(
    world: &Rc<World>,
    me: &Rc<Container>,
    fast: bool,
    diverged: bool,
    reason: &'static str,
) -> Result<(), String> {
    if diverged {
        volume(world, me, |volume| volume.kept.unusable = Some(reason.into()))?;
    }
    let mut clean = false;
    if fast && me.server.borrow().answers() {
        // Clients end; then everything that streams gets the shutdown's record, and the last of it is written out.
        let hangs = world.chance(me.stream(), |rng| rng.chance(60));
        {
            let mut server = me.server.borrow_mut();
            server.open = false;
            server.sessions.clear();
        }
        me.commits.notify();
        if hangs {
            world.sleep(1_000 * MS).await;
        } else {
            let writable = me.server.borrow().phase == Phase::Writable;
            let run = me.server.borrow().run;
            world.takes(me.stream(), 10, 60).await;
            if writable && me.server.borrow().answers() {
                let end = me.data(world, |data| data.append(0)).unwrap_or_default();
                super::commit::flush(world, me, run, end).await;
            }
            world.takes(me.stream(), 10, 80).await;
            clean = me.server.borrow().answers();
        }
    }
    if world.is_off(Rule::F3Sweep) {
        super::kill_postmaster(world, me);
        world.takes(me.stream(), 2, 10).await;
        pretend_stopped(world, me);
    } else {
        world.takes(me.stream(), 2, 40).await;
        sweep(world, me, false);
    }
    me.data(world, |data| data.clean = clean);
    {
        let mut server = me.server.borrow_mut();
        server.known = false;
        server.since = None;
    }
    read_end(world, me);
    Ok(())
}

/// Without F3: the first process is dead, and that is taken for the whole.
fn pretend_stopped(world: &Rc<World>, me: &Rc<Container>) {
    if !me.server.borrow().orphaned {
        sweep(world, me, false);
    }
}
