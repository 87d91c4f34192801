//! How each fault hits the world, and how it ends.

use crate::exec::{Micros, Proc};
use crate::faults::{Fault, Way, Who};
use crate::net::{Armed, Odds, Place};
use crate::server::{self, Container};
use crate::world::{MS, Stream, World};
use coregent_core::failover::SwitchoverRequest;
use std::rc::Rc;

impl World {
    /// The member that is meant.
    fn member(&self, who: Who) -> usize {
        match who {
            Who::Member(member) => member.min(self.setup.members - 1),
            Who::Primary => {
                let all = self.containers.borrow();
                let open = all.iter().rev().find(|container| {
                    let server = container.server.borrow();
                    !container.gone.get() && server.phase == server::Phase::Writable && server.open
                });
                open.map_or(0, |container| container.member)
            }
        }
    }

    fn hit(&self, step: &'static str, fault: &'static str) {
        self.cover.borrow_mut().hit(step, fault);
    }

    /// What an operator or the API could not do anything about until now.
    pub(crate) fn disturb(&self, until: Micros) {
        self.last_calm.set(self.last_calm.get().max(until));
        self.disturbed.notify();
    }
}

/// Undoes a fault after a while.
fn after(world: &Rc<World>, millis: u64, undo: impl FnOnce(&Rc<World>) + 'static) {
    let world_too = Rc::clone(world);
    world.exec.spawn(Proc::WORLD, async move {
        world_too.sleep(millis * MS).await;
        undo(&world_too);
    });
}

/// Kills the agent of some member on a host, as a crash in the middle of a request does.
pub(crate) fn kill_some_agent(world: &Rc<World>, host: usize) {
    let here: Vec<Rc<Container>> = {
        let all = world.containers.borrow();
        all.iter().filter(|container| container.host == host && !container.gone.get()).cloned().collect()
    };
    let chosen = world.chance(Stream::World, |rng| rng.pick(&here).cloned());
    if let Some(container) = chosen {
        kill_agent(world, &container);
    }
}

/// The agent alone dies; what it ran is swept a moment later by whoever is above it.
fn kill_agent(world: &Rc<World>, container: &Rc<Container>) {
    world.note(&container.name, || "the agent is killed".into());
    world.exec.kill(container.agent);
    if world.is_off(crate::rules::Rule::F3Empty) {
        let (name, uid, id) = (container.name.clone(), container.pod_uid.clone(), container.id.clone());
        let said = crate::store::Said::Terminated { container: id };
        let _ = world.write(|store| store.patch_pod(&name, &uid, |pod| pod.said = said));
    }
    let (world_too, dead) = (Rc::clone(world), Rc::clone(container));
    world.exec.spawn(Proc::WORLD, async move {
        // What nobody waits for any more lives as long as it has something to do.
        let most = if world_too.is_off(crate::rules::Rule::F3Empty) { 7_000 } else { 400 };
        world_too.takes(Stream::World, 1, most).await;
        while dead.frozen.get() > 0 && !dead.gone.get() {
            world_too.sleep(20 * MS).await;
        }
        crate::node::end(&world_too, &dead, false);
    });
}

pub(crate) fn freeze(world: &World, container: &Container) {
    container.frozen.set(container.frozen.get() + 1);
    let (postmaster, backends) = {
        let server = container.server.borrow();
        (server.postmaster, server.backends)
    };
    [container.agent, postmaster, backends].into_iter().for_each(|proc| world.exec.freeze(proc));
    world.disturbed.notify();
}

pub(crate) fn thaw(world: &Rc<World>, container: &Container) {
    if container.frozen.get() == 0 {
        return;
    }
    container.frozen.set(container.frozen.get() - 1);
    let (postmaster, backends) = {
        let server = container.server.borrow();
        (server.postmaster, server.backends)
    };
    [postmaster, backends].into_iter().for_each(|proc| world.exec.thaw(proc));
    // Whoever gets a processor first goes on first: what waited in a backend is done before the agent has looked at a clock.
    let (world_too, agent) = (Rc::clone(world), container.agent);
    world.exec.spawn(Proc::WORLD, async move {
        world_too.takes(Stream::World, 0, 20).await;
        world_too.exec.thaw(agent);
    });
    world.disturbed.notify();
}

fn freeze_host(world: &Rc<World>, host: usize, millis: u64) {
    let Some(known) = world.hosts.get(host).filter(|known| known.up.get()) else { return };
    known.frozen.set(known.frozen.get() + 1);
    world.exec.freeze(known.node.get());
    let frozen: Vec<Rc<Container>> = {
        let all = world.containers.borrow();
        all.iter().filter(|container| container.host == host && !container.gone.get()).cloned().collect()
    };
    frozen.iter().for_each(|container| freeze(world, container));
    after(world, millis, move |world| {
        world.oracle.borrow_mut().thawed(host, world.now());
        frozen.iter().for_each(|container| thaw(world, container));
        if let Some(known) = world.hosts.get(host) {
            // It may be another process than the one that was frozen: one that starts on a frozen host is frozen too.
            world.exec.thaw(known.node.get());
            known.frozen.set(known.frozen.get().saturating_sub(1));
        }
        world.note(Place::Host(host), || "thaws".into());
    });
}

fn power_loss(world: &Rc<World>, host: usize, millis: u64) {
    let Some(known) = world.hosts.get(host).filter(|known| known.up.get()) else { return };
    known.up.set(false);
    world.exec.kill(known.node.get());
    let dead: Vec<Rc<Container>> = {
        let all = world.containers.borrow();
        all.iter().filter(|container| container.host == host && !container.gone.get()).cloned().collect()
    };
    dead.iter().for_each(|container| crate::node::end(world, container, true));
    after(world, millis.max(500), move |world| {
        if let Some(known) = world.hosts.get(host) {
            known.up.set(true);
            crate::node::start(world, host);
            world.note(Place::Host(host), || "has power again".into());
        }
    });
}

fn cut(world: &Rc<World>, a: Place, b: Place, way: Way, millis: u64) {
    let pairs: Vec<(Place, Place)> = match way {
        Way::Out => vec![(a, b)],
        Way::In => vec![(b, a)],
        Way::Both => vec![(a, b), (b, a)],
    };
    {
        let mut net = world.net.borrow_mut();
        pairs.iter().for_each(|(from, to)| net.cut(*from, *to));
    }
    world.disturbed.notify();
    after(world, millis, move |world| {
        {
            let mut net = world.net.borrow_mut();
            pairs.iter().for_each(|(from, to)| net.heal(*from, *to));
        }
        world.note("net", || format!("{a} and {b} are linked again"));
        world.disturb(world.now());
    });
}

/// Lets a fault happen.
pub(crate) fn strike(world: &Rc<World>, fault: &Fault) {
    world.note("FAULT", || format!("{fault:?}"));
    let until = |millis: u64| world.now() + millis * MS;
    match fault {
        Fault::KillPostmaster(who) => on_container(world, *who, "kill-postmaster", |world, container| {
            server::kill_postmaster(world, container);
        }),
        Fault::KillAgent(who) => on_container(world, *who, "kill-agent", kill_agent),
        Fault::KillContainer(who) => {
            on_container(world, *who, "kill-container", |world, container| crate::node::end(world, container, false));
        }
        Fault::FreezePod(who, millis) => {
            let millis = *millis;
            on_container(world, *who, "freeze-pod", move |world, container| {
                freeze(world, container);
                let (frozen, since) = (Rc::clone(container), world.now());
                after(world, millis, move |world| {
                    // Nobody could stop it first: it is as if its whole host had stood still (F4, F16).
                    if world.oracle.borrow().was_unheard(frozen.host, since) {
                        world.oracle.borrow_mut().thawed(frozen.host, world.now());
                    }
                    thaw(world, &frozen);
                });
            });
        }
        Fault::FreezeHost(who, millis) => {
            let member = world.member(*who);
            world.hit(doing(world, member), "freeze-host");
            freeze_host(world, world.setup.host_of(member), *millis);
        }
        Fault::PowerLoss(who, millis) => {
            let member = world.member(*who);
            world.hit(doing(world, member), "power-loss");
            power_loss(world, world.setup.host_of(member), *millis);
        }
        Fault::RestartNode(who) => {
            world.hit("node", "restart-node");
            crate::node::restart(world, world.setup.host_of(world.member(*who)));
        }
        Fault::CutApi(place, way, millis) => {
            world.hit(place_name(*place), if *way == Way::Both { "cut-api" } else { "cut-api-one-way" });
            world.disturb(until(*millis));
            cut(world, *place, Place::Api, *way, *millis);
        }
        Fault::CutHosts(a, b, way, millis) => {
            let (a, b) = (world.member(*a), world.member(*b));
            let (first, second) = (world.setup.host_of(a), world.setup.host_of(b));
            if first != second {
                world.hit(doing(world, a), if *way == Way::Both { "cut-members" } else { "cut-members-one-way" });
                cut(world, Place::Host(first), Place::Host(second), *way, *millis);
            }
        }
        Fault::CutClients(who, millis) => {
            let host = world.setup.host_of(world.member(*who));
            world.hit("client", "cut-clients");
            cut(world, Place::Client, Place::Host(host), Way::Both, *millis);
        }
        Fault::VolumeLost(who) => lose_volume(world, world.member(*who)),
        Fault::DiskFull(who, millis) => disk(world, *who, *millis, true),
        Fault::DiskStuck(who, millis) => disk(world, *who, *millis, false),
        Fault::PauseReplay(who) => on_container(world, *who, "pause-replay", |_, container| {
            container.server.borrow_mut().paused = true;
        }),
        Fault::Switchover(_) | Fault::SwitchoverAndKill(_) => switch_over(world, fault),
        Fault::DeletePod(..) | Fault::ForceDelete(_) => delete(world, fault),
        Fault::ForceDeleteUnseen(who, millis) => {
            let member = world.member(*who);
            world.disturb(until(*millis));
            cut(world, Place::Host(world.setup.host_of(member)), Place::Api, Way::Both, *millis);
            let wait = world.chance(Stream::World, |rng| rng.between(100, 2_500));
            after(world, wait, move |world| delete(world, &Fault::ForceDelete(Who::Member(member))));
        }
        _ => strike_control(world, fault),
    }
}

/// Faults of the API, of operators and of clocks.
fn strike_control(world: &Rc<World>, fault: &Fault) {
    let until = |millis: u64| world.now() + millis * MS;
    match fault {
        Fault::ApiDown(millis) => {
            world.hit("api", "api-outage");
            world.net.borrow_mut().api_down += 1;
            world.disturb(until(*millis));
            after(world, *millis, |world| {
                let mut net = world.net.borrow_mut();
                net.api_down = net.api_down.saturating_sub(1);
                drop(net);
                world.disturbed.notify();
            });
        }
        Fault::Weather(place, odds, millis) => {
            world.hit(place_name(*place), "bad-weather");
            world.disturb(until(*millis));
            let place = *place;
            world.net.borrow_mut().odds[place.index()] = *odds;
            after(world, *millis, move |world| world.net.borrow_mut().odds[place.index()] = Odds::default());
        }
        Fault::WatchLag(place, lag, millis) => {
            world.hit(place_name(*place), "stale-cache");
            world.disturb(until(*millis + *lag));
            let place = *place;
            world.net.borrow_mut().watch_lag[place.index()] = *lag;
            after(world, *millis, move |world| world.net.borrow_mut().watch_lag[place.index()] = 0);
        }
        Fault::WatchCut(place) => {
            world.hit(place_name(*place), "watch-cut");
            world.net.borrow_mut().watch_cuts[place.index()] += 1;
            world.disturbed.notify();
        }
        Fault::CrashOperator(number) => {
            world.hit("operator", "crash-operator");
            world.disturb(until(5_000));
            crate::operator::crash(world, *number);
        }
        Fault::FreezeOperator(number, millis) => {
            let Some(operator) = world.operators.get(*number) else { return };
            world.hit("operator", "freeze-operator");
            world.disturb(until(*millis + 3_000));
            let proc = operator.proc.get();
            world.exec.freeze(proc);
            after(world, *millis, move |world| world.exec.thaw(proc));
        }
        Fault::NodeNotReady(who, millis) => {
            let host = world.setup.host_of(world.member(*who));
            world.hit("node", "false-alarm");
            let set = move |world: &Rc<World>, ready: bool| {
                world.write(|store| {
                    store.put_rest(|rest| {
                        if let Some(node) = rest.nodes.get_mut(host) {
                            *node = ready;
                        }
                    });
                });
            };
            set(world, false);
            after(world, *millis, move |world| set(world, true));
        }
        Fault::ClockJump(place, jump) => {
            world.hit(place_name(*place), "clock-jump");
            if let Some(skew) = world.skew.borrow_mut().get_mut(place.index()) {
                *skew = *jump;
            }
        }
        Fault::Arm(place, label, blow) => {
            world.net.borrow_mut().armed.push(Armed { place: *place, label, blow: *blow });
        }
        Fault::Copy => {
            let state = world.store.borrow().state.clone();
            world.copies.borrow_mut().push(state);
        }
        Fault::PutBack(millis) => put_back(world, *millis),
        // Comes once everybody is well.
        Fault::Disaster => {}
        _ => {}
    }
}

fn doing(world: &World, member: usize) -> &'static str {
    world.container_of(member).map_or("no-container", |container| container.doing.get())
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Api => "api",
        Place::Host(_) => "host",
        Place::Controller(_) => "operator",
        Place::Client => "client",
    }
}

fn on_container(world: &Rc<World>, who: Who, name: &'static str, strike: impl FnOnce(&Rc<World>, &Rc<Container>)) {
    if let Some(container) = world.container_of(world.member(who)) {
        world.hit(container.doing.get(), name);
        strike(world, &container);
    }
}

/// The volume is there and empty: whoever ran on it is dead.
fn lose_volume(world: &Rc<World>, member: usize) {
    if let Some(container) = world.container_of(member) {
        world.hit(container.doing.get(), "volume-lost");
        crate::node::end(world, &container, true);
    }
    if let Some(volume) = world.volumes.get(member) {
        volume.replace(crate::data::Volume::default());
    }
    world.excuse_lost();
}

fn disk(world: &Rc<World>, who: Who, millis: u64, full: bool) {
    let member = world.member(who);
    world.hit(doing(world, member), if full { "disk-full" } else { "disk-stuck" });
    let Some(volume) = world.volumes.get(member) else { return };
    if full {
        volume.borrow_mut().full = true;
        after(world, millis, move |world| {
            if let Some(volume) = world.volumes.get(member) {
                volume.borrow_mut().full = false;
            }
        });
    } else {
        volume.borrow_mut().stuck_until = world.now() + millis * MS;
        after(world, millis, |world| world.disturbed.notify());
    }
}

fn delete(world: &Rc<World>, fault: &Fault) {
    let (who, grace) = match fault {
        Fault::DeletePod(who, grace) => (*who, Some(*grace)),
        Fault::ForceDelete(who) => (*who, None),
        _ => return,
    };
    let member = world.member(who);
    let name = world.setup.name(member);
    let Some(uid) = world.store.borrow().state.pods.get(&name).map(|pod| pod.uid.clone()) else { return };
    world.hit(doing(world, member), if grace.is_some() { "delete-pod" } else { "force-delete" });
    world
        .write(|store| match grace {
            Some(grace) => store.delete_pod(&name, &uid, None, grace),
            None => store.remove_pod(&name, &uid),
        })
        .unwrap_or_default();
}

fn switch_over(world: &Rc<World>, fault: &Fault) {
    let (to, kill) = match fault {
        Fault::Switchover(to) => (to.map(|who| world.member(who)), None),
        Fault::SwitchoverAndKill(who) => (Some(world.member(*who)), Some(world.member(*who))),
        _ => return,
    };
    world.hit("operator", if kill.is_some() { "switchover-and-kill" } else { "switchover" });
    let id = format!("r{}", world.next_serial());
    let request = SwitchoverRequest { id, to: to.map(|member| world.setup.name(member)) };
    let _ = world.write(|store| store.put_cluster(None, |cluster| cluster.switchover = Some(request)));
    if let Some(member) = kill {
        let millis = world.chance(Stream::World, |rng| rng.between(50, 1_500));
        after(world, millis, move |world| {
            if let Some(container) = world.container_of(member) {
                world.hit(container.doing.get(), "target-dies");
                crate::node::end(world, &container, false);
            }
        });
    }
}

/// How long before the end of everything a link may go.
const FIRST_SIGNS: u64 = 2_500;

/// A link goes, and a moment later every host loses power, while everybody was well. Where somebody has been made primary since the copy of the API was taken,
/// the API comes back as that copy, and nothing in it says so: only the members' volumes do (F14).
pub(crate) fn disaster(world: &Rc<World>) {
    let (primary, other) =
        (world.member(Who::Primary), world.chance(Stream::World, |rng| rng.below(world.setup.members as u64)));
    let (first, second) = (world.setup.host_of(primary), world.setup.host_of(usize::try_from(other).unwrap_or(0)));
    let signs = world.chance(Stream::World, |rng| rng.between(300, FIRST_SIGNS));
    if first != second {
        cut(world, Place::Host(first), Place::Host(second), Way::Both, signs);
    }
    after(world, signs, end_everything);
}

fn end_everything(world: &Rc<World>) {
    world.note("FAULT", || "every host loses power, and the API with them".into());
    world.hit("api", "disaster");
    let epoch = |lease: &Option<Rc<crate::store::LeaseObject>>| lease.as_ref().map(|lease| lease.epoch);
    let older = world.copies.borrow_mut().pop();
    let older = older.filter(|older| {
        epoch(&older.lease).is_some() && epoch(&older.lease) < epoch(&world.store.borrow().state.lease)
    });
    world.net.borrow_mut().api_down += 1;
    for host in 0..world.setup.hosts {
        let millis = world.chance(Stream::World, |rng| rng.between(500, 4_000));
        power_loss(world, host, millis);
    }
    let millis = world.chance(Stream::World, |rng| rng.between(300, 3_000));
    world.disturb(world.now() + 20_000 * MS);
    after(world, millis, move |world| {
        if let Some(older) = older {
            world.note("FAULT", || "an older copy of the API is put back without a mark".into());
            replace_store(world, older, false);
        }
        let mut net = world.net.borrow_mut();
        net.api_down = net.api_down.saturating_sub(1);
        drop(net);
        world.disturbed.notify();
    });
}

fn replace_store(world: &Rc<World>, older: crate::store::State, marks: bool) {
    world.oracle.borrow_mut().put_back = true;
    let hosts = world.setup.hosts;
    world.write(|store| {
        let mut older = older;
        let mut rest = crate::store::RestObject::clone(&older.rest);
        rest.nodes = vec![true; hosts];
        older.rest = Rc::new(rest);
        store.put_back(older, marks);
    });
}

/// The API stops, yesterday's copy is put back, and it starts again (F14).
fn put_back(world: &Rc<World>, millis: u64) {
    let Some(older) = world.copies.borrow_mut().pop() else { return };
    world.hit("api", "store-put-back");
    world.net.borrow_mut().api_down += 1;
    world.disturb(world.now() + (millis + 20_000) * MS);
    after(world, millis, move |world| {
        replace_store(world, older, true);
        let mut net = world.net.borrow_mut();
        net.api_down = net.api_down.saturating_sub(1);
        drop(net);
        world.disturbed.notify();
    });
}
