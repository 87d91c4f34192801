//! Streaming replication: a receiver on one side, a walsender on the other.

use super::{Container, Phase, Sender, reaches};
use crate::data::Data;
use crate::exec::{Proc, race};
use crate::rules::Rule;
use crate::world::{MS, World};
use coregent_core::member::Source;
use coregent_core::names::MemberName;
use std::rc::Rc;

/// `wal_receiver_timeout`.
const SILENCE: u64 = 2_000 * MS;

/// Why a receiver does not stream.
enum Trouble {
    /// It is told to stop.
    Over,
    /// It tries again.
    Again,
}

/// Starts the receiver that the configuration asks for; one that runs for another source ends by itself.
pub(super) fn start_receiver(world: &Rc<World>, me: &Rc<Container>) {
    let (postmaster, run, source) = {
        let server = me.server.borrow();
        (server.postmaster, server.run, server.source.clone())
    };
    let Some(source) = source else { return };
    let (world_too, mine) = (Rc::clone(world), Rc::clone(me));
    world.exec.spawn(postmaster, async move { receive(&world_too, &mine, run, &source).await });
}

/// The server is still to stream from `source`.
fn wanted(me: &Container, run: u32, source: &Source) -> bool {
    let server = me.server.borrow();
    server.run == run && server.source.as_ref() == Some(source) && server.phase != Phase::Writable
}

async fn receive(world: &Rc<World>, me: &Rc<Container>, run: u32, source: &Source) {
    let mut pause = 10 * MS;
    while wanted(me, run, source) {
        let latency = world.chance(me.stream(), |rng| rng.between(200, 3_000));
        world.sleep(latency).await;
        if !wanted(me, run, source) {
            return;
        }
        let Some(theirs) = connect(world, me, source) else {
            let seen = world.disturbed.version();
            let mine = me.changed.version();
            let something = race(world.disturbed.since(seen), me.changed.since(mine));
            let _ = world.within(pause, something).await;
            pause = (pause * 2).min(400 * MS);
            continue;
        };
        pause = 10 * MS;
        let ended = stream(world, me, run, source, &theirs).await;
        let at_once = reaches(world, me, &theirs);
        lose_sender(world, me, &theirs, at_once);
        {
            let mut server = me.server.borrow_mut();
            if server.run == run {
                server.receiver = None;
                server.streaming = false;
            }
        }
        me.changed.notify();
        if matches!(ended, Trouble::Over) {
            return;
        }
    }
}

/// The walsender of a receiver that is gone ends: at once where the connection is closed, else when it has heard nothing
/// for `wal_sender_timeout`.
pub(super) fn lose_sender(world: &Rc<World>, me: &Rc<Container>, theirs: &Rc<Container>, at_once: bool) {
    let (world_too, name, to, source) = (Rc::clone(world), me.name.clone(), me.serial, Rc::clone(theirs));
    let span = if at_once { (5, 60) } else { (2_500, 5_000) };
    world.exec.spawn(Proc::WORLD, async move {
        world_too.takes(source.stream(), span.0, span.1).await;
        end_sender(&world_too, &source, &name, to);
    });
}

fn end_sender(world: &World, theirs: &Container, name: &MemberName, to: u32) {
    let now = world.clock(theirs.place());
    let mut server = theirs.server.borrow_mut();
    if server.senders.get(name).is_some_and(|sender| sender.to == to) {
        if server.senders.remove(name).is_some_and(|sender| sender.caught_up) {
            server.seen.insert(name.clone(), now);
        }
        drop(server);
        theirs.changed.notify();
    }
}

/// A connection, a slot of this epoch, and a history that goes on from here.
fn connect(world: &World, me: &Container, source: &Source) -> Option<Rc<Container>> {
    let theirs = world.at_address(&source.address)?;
    if theirs.serial == me.serial || !reaches(world, me, &theirs) || !theirs.server.borrow().answers() {
        return None;
    }
    let mine = world.volumes.get(me.member)?.borrow().data.clone_shallow()?;
    let admitted = theirs.data(world, |data| {
        let slot = world.is_off(Rule::F6Epoch) || data.slots.contains(&(me.name.clone(), source.epoch));
        let legal = data.leaves(mine.timeline).is_some_and(|end| mine.end <= end);
        slot && legal && data.system_id == mine.system_id
    })?;
    if !admitted {
        return None;
    }
    let names = theirs.server.borrow().shown.clone();
    let sender = Sender { to: me.serial, epoch: source.epoch, flush: mine.end, caught_up: false, names, adopts: None };
    theirs.server.borrow_mut().senders.insert(me.name.clone(), sender);
    me.server.borrow_mut().receiver = Some(theirs.serial);
    world.note(&me.name, || format!("streams from {} at {} under epoch {}", theirs.name, mine.end, source.epoch));
    Some(theirs)
}

/// What connecting needs of a data folder.
struct Shallow {
    system_id: String,
    timeline: u32,
    end: u64,
}

trait CloneShallow {
    fn clone_shallow(&self) -> Option<Shallow>;
}

impl CloneShallow for Option<Data> {
    fn clone_shallow(&self) -> Option<Shallow> {
        let data = self.as_ref()?;
        Some(Shallow { system_id: data.system_id.clone(), timeline: data.timeline(), end: data.end() })
    }
}

async fn stream(world: &Rc<World>, me: &Rc<Container>, run: u32, source: &Source, theirs: &Rc<Container>) -> Trouble {
    let their_run = theirs.server.borrow().run;
    let mut silent_since = None;
    let slow_until = world.now() + how_slow(world, me);
    loop {
        let (progress, disturbed) = (theirs.progress.version(), world.disturbed.version());
        if !wanted(me, run, source) {
            return Trouble::Over;
        }
        let alive = {
            let server = theirs.server.borrow();
            server.run == their_run
                && server.answers()
                && server.senders.get(&me.name).is_some_and(|s| s.to == me.serial)
        };
        if !alive {
            // The other side is closed at once where its host lives.
            world.takes(me.stream(), 20, 70).await;
            return Trouble::Again;
        }
        if !reaches(world, me, theirs) {
            let since = *silent_since.get_or_insert(world.now());
            let left = (since + SILENCE).saturating_sub(world.now());
            if left == 0 {
                return Trouble::Again;
            }
            let _ = world.within(left, world.disturbed.since(disturbed)).await;
            continue;
        }
        silent_since = None;
        if behind(world, me, theirs) {
            let is_slow = world.now() < slow_until;
            let (least, most) = if is_slow { (150 * MS, 400 * MS) } else { (400, 3_000) };
            let latency = world.chance(me.stream(), |rng| rng.between(least, most));
            world.sleep(latency).await;
            let still =
                theirs.server.borrow().run == their_run && reaches(world, me, theirs) && wanted(me, run, source);
            let most = if is_slow { 2 } else { usize::MAX };
            if still && let Some(flushed) = copy(world, me, theirs, most) {
                me.progress.notify();
                let back = world.chance(me.stream(), |rng| rng.between(200, 1_500));
                world.sleep(back).await;
                if reaches(world, me, theirs) && theirs.server.borrow().run == their_run {
                    world.replied(theirs, &me.name, flushed);
                }
            }
            continue;
        }
        caught_up(world, me, theirs);
        let more = race(theirs.progress.since(progress), world.disturbed.since(disturbed));
        let mine = me.changed.version();
        let _ = race(more, me.changed.since(mine)).await;
    }
}

fn caught_up(world: &World, me: &Container, theirs: &Container) {
    let news = {
        let mut server = theirs.server.borrow_mut();
        match server.senders.get_mut(&me.name) {
            Some(sender) if !sender.caught_up => {
                sender.caught_up = true;
                true
            }
            _ => false,
        }
    };
    let end = world.volumes.get(me.member).and_then(|volume| volume.borrow().data.as_ref().map(Data::end));
    let mut server = me.server.borrow_mut();
    let streams = !server.streaming;
    server.streaming = true;
    drop(server);
    if news {
        world.oracle.borrow_mut().caught_up(theirs.serial, &me.name);
        theirs.changed.notify();
        world.replied(theirs, &me.name, end.unwrap_or_default());
    }
    if streams {
        me.changed.notify();
    }
}

fn limit(data: &Data) -> u64 {
    data.flushed
}

fn behind(world: &World, me: &Container, theirs: &Container) -> bool {
    let end = world.volumes.get(me.member).and_then(|volume| volume.borrow().data.as_ref().map(Data::end));
    let available = theirs.data(world, |data| limit(data));
    matches!((end, available), (Some(end), Some(available)) if available > end)
}

/// Now and then a standby has hours of log to get, and does not catch up before it has.
fn how_slow(world: &World, me: &Container) -> u64 {
    let slow = world.chance(me.stream(), |rng| (rng.chance(25), rng.between(5_000 * MS, 30_000 * MS)));
    if slow.0 { slow.1 } else { 0 }
}

/// Takes over what is there, timelines included, at most so many records; gives what is flushed then.
fn copy(world: &World, me: &Container, theirs: &Container, most: usize) -> Option<u64> {
    let paused = me.server.borrow().paused;
    let theirs = world.volumes.get(theirs.member)?.borrow();
    let theirs = theirs.data.as_ref()?;
    let mut mine = world.volumes.get(me.member)?.borrow_mut();
    let stuck = mine.stuck_until > world.now() || mine.full;
    let mine = mine.data.as_mut().filter(|_| !stuck)?;
    let from = mine.end();
    // The history goes on only from where this log has not passed the fork.
    if theirs.leaves(mine.timeline()).is_none_or(|end| from > end) {
        return None;
    }
    let there = theirs.between(from, limit(theirs));
    mine.log.extend_from_slice(there.get(..most.min(there.len())).unwrap_or_default());
    let end = mine.end();
    mine.flushed = end;
    if !paused {
        mine.replayed = end;
    }
    let passed = theirs.forks.iter().filter(|fork| fork.at < end).count();
    if mine.timeline() != theirs.timeline() || mine.forks.len() < passed {
        mine.forks = theirs.forks.get(..passed).unwrap_or(&theirs.forks).to_vec();
        mine.control = mine.control.max(1);
    }
    Some(end)
}
