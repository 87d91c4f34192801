//! What an agent sees of its server and of the folder under it.

use super::{Container, Phase};
use crate::data::{Data, Volume};
use crate::exec::Micros;
use crate::net::Place;
use crate::rules::Rule;
use crate::world::MS;
use crate::world::World;
use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::member::{self, Names, Source, Standby, StandbySeen, Writable};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::report;
use std::collections::BTreeSet;

/// How long a connection may take before nothing comes back.
const CONNECT: Micros = 400 * MS;

/// The engine with what only the report needs.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) engine: member::Engine,
    pub(crate) standbys: Vec<report::Standby>,
}

/// The server now.
pub(crate) fn status(world: &World, container: &Container) -> Status {
    let only = |engine| Status { engine, standbys: Vec::new() };
    let Some(volume) = world.volumes.get(container.member) else { return only(member::Engine::Starting) };
    let volume = volume.borrow();
    let (phase, answers, known) = {
        let server = container.server.borrow();
        (server.phase, server.answers(), server.known)
    };
    if !known {
        return only(member::Engine::Stopped { position: container.server.borrow().end.clone() });
    }
    match (&volume.data, phase) {
        (Some(data), Phase::Standby) if answers => only(standby(world, container, &volume, data)),
        (Some(data), Phase::Writable) if answers => writable(world, container, &volume, data),
        _ => only(member::Engine::Starting),
    }
}

fn standby(world: &World, container: &Container, volume: &Volume, data: &Data) -> member::Engine {
    let mut server = container.server.borrow_mut();
    server.since = None;
    let left_early = world.is_off(Rule::F6Left);
    member::Engine::Standby(Standby {
        source: server.source.clone().filter(|_| !(left_early && server.settled)),
        receiver: server.receiver.is_some() && !left_early,
        streaming: server.streaming,
        settled: server.settled,
        cut: false,
        replayed: Lsn(data.replayed),
        position: data.position(data.end().max(data.replayed), &volume.kept.chain),
        open: server.open,
        next_slots: admitted(&server, data, volume.kept.epoch.next()),
    })
}

/// The members that a slot of `epoch` was made for by this agent, and has not been lost.
fn admitted(server: &super::Server, data: &Data, epoch: Epoch) -> BTreeSet<MemberName> {
    if server.admitted.0 != epoch {
        return BTreeSet::new();
    }
    server.admitted.1.iter().filter(|name| data.slots.contains(&((*name).clone(), epoch))).cloned().collect()
}

fn writable(world: &World, container: &Container, volume: &Volume, data: &Data) -> Status {
    let now = world.clock(container.place());
    let mut server = container.server.borrow_mut();
    let since = *server.since.get_or_insert(now);
    let epoch = volume.kept.epoch;
    let is_sync =
        |name: &MemberName, names: &Names| matches!(names, Names::Any { members, .. } if members.contains(name));
    let instant = world.now();
    let streaming: Vec<(MemberName, bool, u64, bool)> = server
        .senders
        .iter_mut()
        .map(|(name, sender)| {
            if sender.adopts.as_ref().is_some_and(|(at, _)| *at <= instant)
                && let Some((_, names)) = sender.adopts.take()
            {
                sender.names = names;
            }
            (name.clone(), is_sync(name, &sender.names), sender.flush, sender.caught_up)
        })
        .collect();
    for (name, _, _, caught_up) in &streaming {
        if *caught_up || world.is_off(Rule::F8CaughtUp) {
            server.seen.insert(name.clone(), now);
        }
    }
    let seen = server.seen.iter().map(|(name, at)| {
        let found = streaming
            .iter()
            .find(|(other, _, _, caught_up)| other == name && (*caught_up || world.is_off(Rule::F8CaughtUp)));
        let seen =
            StandbySeen { caught_up: found.is_some(), sync: found.is_some_and(|(_, sync, ..)| *sync), seen: *at };
        (name.clone(), seen)
    });
    let engine = member::Engine::Writable(Writable {
        since,
        position: data.position(data.flushed, &volume.kept.chain),
        checkpoint_timeline: Timeline(if server.checkpointing { data.timeline() } else { data.control }),
        checkpointing: server.checkpointing,
        prepared: server.prepared.clone(),
        set_up: server.set_up,
        open: server.open,
        names: server.names.clone(),
        proved: server.proved,
        slots: admitted(&server, data, epoch),
        standbys: seen.collect(),
    });
    let standbys = streaming
        .iter()
        .map(|(name, sync, flush, caught_up)| report::Standby {
            member: name.clone(),
            streaming: *caught_up,
            sync: *sync,
            lag_bytes: Some(data.flushed.saturating_sub(*flush)),
        })
        .collect();
    Status { engine, standbys }
}

/// What comes of a connection to the agent of a source: the kernel of its host answers for a process that stands still.
pub(crate) async fn reach(world: &World, container: &Container, source: &Source) -> report::Reach {
    let latency = world.chance(container.stream(), |rng| rng.between(200, 2_000));
    world.sleep(latency).await;
    let host = (0..world.setup.members).find(|member| world.setup.name(*member) == source.member);
    let host = host.map(|member| world.setup.host_of(member)).unwrap_or_default();
    let up = world.hosts.get(host).is_some_and(|host| host.up.get() && host.frozen.get() == 0);
    let linked = world.net.borrow().connects(container.place(), Place::Host(host));
    match world.at_address(&source.address) {
        Some(_) if up && linked => report::Reach::Answers,
        None if up && linked => report::Reach::Refuses,
        _ => {
            world.sleep(CONNECT).await;
            report::Reach::Silent
        }
    }
}

/// The data folder as it lies there.
pub(crate) fn data(world: &World, container: &Container) -> member::Data {
    let Some(volume) = world.volumes.get(container.member) else { return member::Data::Absent };
    let volume = volume.borrow();
    match (&volume.data, &volume.kept.unusable) {
        (None, _) => member::Data::Absent,
        (Some(_), Some(why)) => member::Data::Unusable(why.clone()),
        (Some(data), None) => member::Data::Present { system_id: data.system_id.clone() },
    }
}
