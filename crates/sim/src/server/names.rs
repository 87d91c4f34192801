//! `synchronous_standby_names` put in force and proved (F7, F8; postgres-recipes.md 2).

use super::commit::marker;
use super::{Container, Phase};
use crate::world::{MS, World};
use coregent_core::member::Names;
use std::rc::Rc;

/// A reload with new names: the postmaster, the checkpointer and each walsender adopt them in their own time.
pub(super) fn reload(world: &Rc<World>, container: &Rc<Container>) {
    let (run, postmaster, names) = {
        let server = container.server.borrow();
        (server.run, server.postmaster, server.names.clone())
    };
    let (world_too, server) = (Rc::clone(world), Rc::clone(container));
    let flagged = names.clone();
    world.exec.spawn(postmaster, async move {
        // In the middle of its syncs the checkpointer looks at no signal.
        let late = server.server.borrow().checkpointing && world_too.chance(server.stream(), |rng| rng.chance(500));
        let (least, most) = if late { (500, 5_000) } else { (1, 40) };
        world_too.takes(server.stream(), least, most).await;
        let mut state = server.server.borrow_mut();
        if state.run == run {
            state.waits = flagged != Names::Nobody;
            drop(state);
            server.commits.notify();
        }
    });
    let (world_too, server) = (Rc::clone(world), Rc::clone(container));
    world.exec.spawn(postmaster, async move {
        world_too.takes(server.stream(), 1, 8).await;
        let end = server.data(&world_too, |data| data.end()).unwrap_or_default();
        let now = world_too.now();
        let mut state = server.server.borrow_mut();
        if state.run != run {
            return;
        }
        state.shown = names.clone();
        state.reloaded = end;
        for sender in state.senders.values_mut() {
            let late = world_too.chance(server.stream(), |rng| rng.between(1, 60) * MS);
            sender.adopts = Some((now + late, names.clone()));
        }
        drop(state);
        server.changed.notify();
    });
}

/// Waits until a new connection shows them.
pub(super) async fn shown(world: &Rc<World>, container: &Rc<Container>, names: &Names) -> Result<(), String> {
    let adopted = async {
        loop {
            let (answers, is_shown) = {
                let server = container.server.borrow();
                (server.answers(), server.shown == *names)
            };
            if !answers {
                return Err("the server does not answer".to_owned());
            }
            if is_shown {
                return Ok(());
            }
            world.sleep(MS).await;
        }
    };
    world.within(5_000 * MS, adopted).await.unwrap_or_else(|| Err("the server does not adopt the names".into()))
}

async fn adopt(world: &Rc<World>, container: &Rc<Container>, names: &Names) -> Result<(), String> {
    {
        let mut server = container.server.borrow_mut();
        server.names = names.clone();
        server.proved = false;
    }
    reload(world, container);
    shown(world, container, names).await
}

/// Names that are recorded already.
pub(super) async fn set(world: &Rc<World>, container: &Rc<Container>, names: Names) -> Result<(), String> {
    adopt(world, container, &names).await?;
    if matches!(names, Names::Any { .. }) {
        // A kick: whoever waits is released by a standby's next reply.
        let run = container.server.borrow().run;
        if let Some(end) = container.data(world, |data| data.append(0)) {
            super::commit::flush(world, container, run, end).await;
        }
    }
    Ok(())
}

/// Stronger names: in force, shown, then a marker commit under them.
pub(super) async fn strengthen(world: &Rc<World>, container: &Rc<Container>, names: Names) -> Result<(), String> {
    let before = container.server.borrow().names.clone();
    adopt(world, container, &names).await?;
    if world.skips_proof() {
        container.server.borrow_mut().proved = true;
        return Ok(());
    }
    if before == Names::Nobody {
        // A checkpoint that begins now: the checkpointer has been at its signal before.
        let run = container.server.borrow().run;
        while !container.server.borrow().waits {
            if container.server.borrow().run != run || !container.server.borrow().answers() {
                return Err("the server does not answer".into());
            }
            world.sleep(5 * MS).await;
        }
    }
    await_sync_state(world, container, &names).await;
    match marker(world, container).await {
        Ok(()) => {
            container.server.borrow_mut().proved = true;
            Ok(())
        }
        Err(why) => {
            adopt(world, container, &before).await?;
            Err(why)
        }
    }
}

/// Nobody outside of the names counts any more.
async fn await_sync_state(world: &Rc<World>, container: &Rc<Container>, names: &Names) {
    let Names::Any { members, .. } = names else { return };
    let adopted = async {
        loop {
            let now = world.now();
            let foreign = {
                let mut server = container.server.borrow_mut();
                let mut foreign = false;
                for (name, sender) in &mut server.senders {
                    if sender.adopts.as_ref().is_some_and(|(at, _)| *at <= now)
                        && let Some((_, names)) = sender.adopts.take()
                    {
                        sender.names = names;
                    }
                    let counts = matches!(&sender.names, Names::Any { members, .. } if members.contains(name));
                    foreign |= counts && !members.contains(name);
                }
                foreign
            };
            if !foreign {
                return;
            }
            world.sleep(2 * MS).await;
        }
    };
    let _ = world.within(3_000 * MS, adopted).await;
}

/// A commit acknowledged under the names in force.
pub(super) async fn mark(world: &Rc<World>, container: &Rc<Container>) -> Result<(), String> {
    let names = container.server.borrow().names.clone();
    shown(world, container, &names).await?;
    marker(world, container).await?;
    let mut server = container.server.borrow_mut();
    if server.names == names && server.phase == Phase::Writable {
        server.proved = true;
    }
    Ok(())
}
