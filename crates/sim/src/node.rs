//! Node agents, which run pods, and the API's own controllers, which make them.

use crate::exec::{Proc, race};
use crate::member;
use crate::net::Place;
use crate::server::{Container, sweep};
use crate::store::{Kind, Object, PodObject, Refusal, Said};
use crate::watch::{Manner, Seen, follow};
use crate::world::{Failure, MS, Stream, World};
use coregent_core::names::MemberName;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Between two signs of life of a node.
const HEARTBEAT: u64 = 5_000 * MS;
/// Without one for so long it is NotReady.
const GRACE: u64 = 20_000 * MS;
/// Period of the readiness probe.
const PROBE: u64 = 1_000 * MS;

/// What a pod's worker is told.
struct Orders {
    pod: RefCell<Rc<PodObject>>,
    gone: Cell<bool>,
    /// Its worker has ended: should the object be there again, in an older store, it gets another.
    done: Cell<bool>,
    changed: crate::exec::Notify,
}

type Workers = Rc<RefCell<BTreeMap<String, Rc<Orders>>>>;

/// Starts a host's node agent.
pub(crate) fn start(world: &Rc<World>, host: usize) {
    let Some(known) = world.hosts.get(host) else { return };
    let proc = world.exec.process();
    known.node.set(proc);
    for _ in 0..known.frozen.get() {
        world.exec.freeze(proc);
    }
    let workers: Workers = Rc::default();
    let place = Place::Host(host);
    world.exec.spawn(proc, heartbeat(Rc::clone(world), host));
    let manner = Manner {
        kind: Kind::Pods,
        label: "node.watch",
        request: 10_000 * MS,
        silence: None,
        pause: (50 * MS, 2_000 * MS),
    };
    let (world_too, fed) = (Rc::clone(world), Rc::clone(&workers));
    let seen = move |what| take(&world_too, host, proc, &fed, what);
    world.exec.spawn(proc, follow(Rc::clone(world), place, manner, seen));
}

/// The node agent crashes; what it ran lives on, and its successor finds it.
pub(crate) fn restart(world: &Rc<World>, host: usize) {
    let Some(known) = world.hosts.get(host).filter(|host| host.up.get()) else { return };
    world.exec.kill(known.node.get());
    let world_too = Rc::clone(world);
    world.exec.spawn(Proc::WORLD, async move {
        world_too.takes(Stream::World, 100, 3_000).await;
        if world_too.hosts.get(host).is_some_and(|host| host.up.get() && world_too.exec.is_dead(host.node.get())) {
            start(&world_too, host);
        }
    });
}

async fn heartbeat(world: Rc<World>, host: usize) {
    loop {
        let beat = world.call(Place::Host(host), "node.heartbeat", move |store| {
            let now = store.now;
            store.heard.insert(host, now);
            if store.state.rest.nodes.get(host) == Some(&false) {
                store.put_rest(|rest| {
                    if let Some(ready) = rest.nodes.get_mut(host) {
                        *ready = true;
                    }
                });
            }
            Ok(())
        });
        match world.within(3_000 * MS, beat).await {
            Some(Ok(())) => world.sleep(HEARTBEAT).await,
            _ => world.sleep(1_000 * MS).await,
        }
    }
}

fn take(world: &Rc<World>, host: usize, proc: Proc, workers: &Workers, seen: Seen) {
    match seen {
        Seen::Listed(objects, _) => {
            let listed: Vec<String> = objects
                .iter()
                .filter_map(|object| match object {
                    Object::Pod(pod) => Some(pod.uid.clone()),
                    _ => None,
                })
                .collect();
            for (uid, orders) in workers.borrow().iter() {
                if !listed.contains(uid) {
                    orders.gone.set(true);
                    orders.changed.notify();
                }
            }
            // What runs here and is in no list has no pod any more.
            let strays: Vec<Rc<Container>> = {
                let all = world.containers.borrow();
                let here = all.iter().filter(|container| container.host == host && !container.gone.get());
                here.filter(|container| !listed.contains(&container.pod_uid)).cloned().collect()
            };
            let known = workers.borrow();
            for stray in strays.iter().filter(|stray| !known.contains_key(&stray.pod_uid)) {
                end(world, stray, false);
            }
            drop(known);
            for object in objects {
                if let Object::Pod(pod) = object {
                    order(world, host, proc, workers, pod);
                }
            }
        }
        Seen::Changed(Object::Pod(pod)) => order(world, host, proc, workers, pod),
        Seen::Changed(Object::PodGone(pod)) => {
            if let Some(orders) = workers.borrow().get(&pod.uid) {
                orders.gone.set(true);
                orders.changed.notify();
            }
        }
        Seen::Changed(_) | Seen::Listing | Seen::Gap => {}
    }
}

fn order(world: &Rc<World>, host: usize, proc: Proc, workers: &Workers, pod: Rc<PodObject>) {
    if pod.host != host {
        return;
    }
    let mut all = workers.borrow_mut();
    if let Some(orders) = all.get(&pod.uid).filter(|orders| !orders.gone.get() && !orders.done.get()) {
        let news = orders.pod.borrow().deleting != pod.deleting || orders.pod.borrow().said != pod.said;
        orders.pod.replace(pod);
        if news {
            orders.changed.notify();
        }
        return;
    }
    let orders = Rc::new(Orders {
        pod: RefCell::new(Rc::clone(&pod)),
        gone: Cell::new(false),
        done: Cell::new(false),
        changed: crate::exec::Notify::new(&world.exec),
    });
    all.insert(pod.uid.clone(), Rc::clone(&orders));
    let world = Rc::clone(world);
    let exec = Rc::clone(&world.exec);
    exec.spawn(proc, async move {
        work(world, host, Rc::clone(&orders)).await;
        orders.done.set(true);
    });
}

/// Ends everything in a container at once.
pub(crate) fn end(world: &Rc<World>, container: &Rc<Container>, power: bool) {
    if container.gone.get() {
        return;
    }
    world.note(&container.name, || {
        format!("container {} is empty{}", container.id, if power { ": no power" } else { "" })
    });
    world.exec.kill(container.agent);
    sweep(world, container, power);
    container.gone.set(true);
    container.orders.notify();
    world.disturbed.notify();
}

/// Runs one pod.
async fn work(world: Rc<World>, host: usize, orders: Rc<Orders>) {
    let place = Place::Host(host);
    let uid = orders.pod.borrow().uid.clone();
    let of_pod = |world: &World| {
        let all = world.containers.borrow();
        all.iter().rev().find(|container| container.pod_uid == uid && !container.gone.get()).cloned()
    };
    // What an earlier run of this node agent, or of the host, left: it lives and is found, or it has ended.
    let said = orders.pod.borrow().said.clone();
    let mut found = of_pod(&world);
    if let (None, Said::Running { container, .. }) = (&found, said) {
        say(&world, place, &orders, Said::Terminated { container }).await;
    }
    loop {
        if orders.gone.get() {
            if let Some(container) = found.take() {
                // The object is gone: it is ended without a word, when the node gets to it.
                world.takes(Stream::World, 10, 1_500).await;
                end(&world, &container, false);
            }
            return;
        }
        if orders.pod.borrow().deleting.is_some() && found.is_none() {
            return remove(&world, place, &orders).await;
        }
        let container = match found.take() {
            Some(container) => container,
            None => {
                world.takes(Stream::World, 50, 400).await;
                run(&world, &orders)
            }
        };
        look_on(&world, place, &orders, &container).await;
        if orders.gone.get() {
            found = (!container.gone.get()).then_some(container);
            continue;
        }
        // It is reported only when it is empty (F3).
        say(&world, place, &orders, Said::Terminated { container: container.id.clone() }).await;
        world.sleep(200 * MS).await;
    }
}

fn run(world: &Rc<World>, orders: &Orders) -> Rc<Container> {
    let pod = orders.pod.borrow();
    let member = (0..world.setup.members).find(|member| world.setup.name(*member) == pod.member).unwrap_or(0);
    let address =
        if world.setup.pod_addresses { format!("ip-{}:5432", pod.uid) } else { format!("ip-{}:5432", pod.member) };
    let container = Container::new(world, member, &pod.uid, address);
    world.note(&container.name, || format!("container {} of pod {} starts", container.id, pod.uid));
    let (world_too, agent) = (Rc::clone(world), Rc::clone(&container));
    let proc = container.agent;
    world.exec.spawn(proc, async move {
        member::run(Rc::clone(&world_too), Rc::clone(&agent)).await;
        // Process 1 of its namespace ends, and everything with it.
        let (world, container) = (Rc::clone(&world_too), Rc::clone(&agent));
        world_too.exec.spawn(Proc::WORLD, async move { end(&world, &container, false) });
    });
    container
}

/// Returns when the container is empty, or the pod's object is gone.
async fn look_on(world: &Rc<World>, place: Place, orders: &Rc<Orders>, container: &Rc<Container>) {
    let (mut said, mut said_at) = (None, 0);
    loop {
        let (seen, mine) = (orders.changed.version(), container.orders.version());
        if container.gone.get() || orders.gone.get() {
            return;
        }
        let ready = container.health.get().ready && container.frozen.get() == 0;
        let running = Said::Running { container: container.id.clone(), ready };
        // What the API shows differs where an older store was put back: it is said again, as a kubelet does.
        let forgotten = orders.pod.borrow().said != running && world.now().saturating_sub(said_at) >= PROBE;
        if said != Some(ready) || forgotten {
            if try_to_say(world, place, orders, running).await {
                (said, said_at) = (Some(ready), world.now());
            }
            if said.is_none() || container.gone.get() {
                world.sleep(50 * MS).await;
                continue;
            }
        }
        let grace = orders.pod.borrow().deleting;
        if let Some(grace) = grace {
            container.told.set(true);
            container.orders.notify();
            let left = async {
                while !container.gone.get() {
                    let seen = container.orders.version();
                    container.orders.since(seen).await;
                }
            };
            let _ = world.within(grace * MS, left).await;
            end(world, container, false);
            return;
        }
        let something = race(orders.changed.since(seen), container.orders.since(mine));
        let _ = world.within(PROBE, something).await;
    }
}

async fn try_to_say(world: &Rc<World>, place: Place, orders: &Rc<Orders>, said: Said) -> bool {
    let (member, uid) = (orders.pod.borrow().member.clone(), orders.pod.borrow().uid.clone());
    let put = world.call(place, "pod.status", move |store| store.patch_pod(&member, &uid, |pod| pod.said = said));
    matches!(world.within(2_000 * MS, put).await, Some(Ok(_) | Err(Failure::Refused(_))))
}

async fn say(world: &Rc<World>, place: Place, orders: &Rc<Orders>, said: Said) {
    while !orders.gone.get() && !try_to_say(world, place, orders, said.clone()).await {
        world.sleep(200 * MS).await;
    }
}

async fn remove(world: &Rc<World>, place: Place, orders: &Rc<Orders>) {
    while !orders.gone.get() {
        let (member, uid) = (orders.pod.borrow().member.clone(), orders.pod.borrow().uid.clone());
        let gone = world.call(place, "pod.remove", move |store| store.remove_pod(&member, &uid));
        match world.within(2_000 * MS, gone).await {
            Some(Ok(()) | Err(Failure::Refused(Refusal::NotFound))) => return,
            _ => world.sleep(200 * MS).await,
        }
    }
}

/// The API's own controllers: pods for the members that there are to be, and nodes that are silent.
pub(crate) async fn controllers(world: Rc<World>) {
    loop {
        let pods = world.changed[Kind::Pods.index()].clone();
        let rest = world.changed[Kind::Rest.index()].clone();
        let (seen_pods, seen_rest) = (pods.version(), rest.version());
        if world.net.borrow().api_down == 0 {
            make_pods(&world);
            judge_nodes(&world);
        }
        let changed = race(pods.since(seen_pods), rest.since(seen_rest));
        let _ = world.within(1_000 * MS, changed).await;
        world.takes(Stream::World, 5, 120).await;
    }
}

fn make_pods(world: &Rc<World>) {
    let missing: Vec<u32> = {
        let store = world.store.borrow();
        let wanted = store.state.rest.instances.iter().flatten();
        wanted
            .filter(|index| !store.state.pods.contains_key(&MemberName::of(crate::world::CLUSTER, **index)))
            .copied()
            .collect()
    };
    for index in missing {
        let member = usize::try_from(index).unwrap_or(1).saturating_sub(1);
        if member >= world.setup.members {
            world.violation(format!("a member {index} is asked for, of {}", world.setup.members));
            continue;
        }
        let uid = format!("u{}", world.next_serial());
        let name = world.setup.name(member);
        world.write(|store| {
            if !store.state.rest.claims.contains(&name) {
                store.put_rest(|rest| {
                    rest.claims.insert(name.clone());
                });
            }
            store.put_pod(PodObject {
                version: 0,
                member: name.clone(),
                uid,
                host: world.setup.host_of(member),
                deleting: None,
                role: None,
                stamp: None,
                said: Said::Waiting,
            });
        });
    }
}

fn judge_nodes(world: &Rc<World>) {
    let now = world.now();
    world.write(|store| {
        for host in 0..store.state.rest.nodes.len() {
            let heard = store.heard.get(&host).copied().unwrap_or(0);
            if now.saturating_sub(heard) > GRACE && store.state.rest.nodes.get(host) == Some(&true) {
                store.put_rest(|rest| {
                    if let Some(ready) = rest.nodes.get_mut(host) {
                        *ready = false;
                    }
                });
            }
        }
    });
}
