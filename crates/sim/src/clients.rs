//! Who uses the database: writers that go through the Service or straight to a member, and keep their sessions.

use crate::net::Place;
use crate::server::{self, Answer, Container, Phase, Statement};
use crate::store::Said;
use crate::world::{MS, Stream, World};
use coregent_core::failover::Role;
use std::rc::Rc;

/// How long a client waits for an answer.
const PATIENCE: u64 = 3_000 * MS;

/// One client, until the world ends.
pub(crate) async fn run(world: Rc<World>, number: usize) {
    // The first goes straight to members, the others through the Service.
    let direct = number == 0;
    let mut session: Option<(Rc<Container>, u32)> = None;
    loop {
        let pause = world.chance(Stream::Clients, |rng| rng.between(25 * MS, 110 * MS));
        world.sleep(pause).await;
        let Some((container, id)) = session.clone().or_else(|| connect(&world, direct)) else { continue };
        session = Some((Rc::clone(&container), id));
        if !write(&world, &container, id).await {
            session = None;
        }
    }
}

fn reaches(world: &World, container: &Container) -> bool {
    container.frozen.get() == 0 && world.net.borrow().connects(Place::Client, container.place())
}

fn connect(world: &Rc<World>, direct: bool) -> Option<(Rc<Container>, u32)> {
    let container = if direct {
        let member = world.chance(Stream::Clients, |rng| rng.below(world.setup.members as u64));
        world.container_of(usize::try_from(member).unwrap_or(0))?
    } else {
        let uid = {
            let store = world.store.borrow();
            let serves = |pod: &crate::store::PodObject| {
                pod.role == Some(Role::Primary) && matches!(pod.said, Said::Running { ready: true, .. })
            };
            store.state.pods.values().find(|pod| serves(pod)).map(|pod| pod.uid.clone())?
        };
        let containers = world.containers.borrow();
        containers.iter().rev().find(|container| container.pod_uid == uid && !container.gone.get()).cloned()?
    };
    if !reaches(world, &container) {
        return None;
    }
    let session = server::connect(world, &container)?;
    Some((container, session))
}

/// Whether the session goes on.
async fn write(world: &Rc<World>, container: &Rc<Container>, session: u32) -> bool {
    let (there, busy, back) = world.chance(Stream::Clients, |rng| {
        let busy = if rng.chance(15) { rng.between(300 * MS, 6_000 * MS) } else { rng.between(100, 2_000) };
        (rng.between(100, 1_500), busy, rng.between(100, 1_500))
    });
    world.sleep(there).await;
    let writes = container.server.borrow().phase == Phase::Writable;
    if !reaches(world, container) || !writes {
        // A session of reads on a standby stays: it lives through a promotion (F11).
        world.sleep(200 * MS).await;
        let stays = world.chance(Stream::Clients, |rng| rng.chance(950));
        return stays && !writes && container.server.borrow().sessions.contains(&session);
    }
    let write = world.next_serial();
    let answer = server::statement(world, container, session, Statement { write, busy });
    let answered = async {
        loop {
            let seen = container.commits.version();
            if let Some(answer) = *answer.borrow() {
                return answer;
            }
            if container.gone.get() || container.server.borrow().phase == Phase::Off {
                return Answer::Lost;
            }
            container.commits.since(seen).await;
        }
    };
    let answer = world.within(PATIENCE + busy, answered).await.unwrap_or(Answer::Lost);
    world.sleep(back).await;
    answer == Answer::Done
}
