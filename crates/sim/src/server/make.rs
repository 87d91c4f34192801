//! Making a data folder: initdb, a base copy, a rewind.

use super::{Container, Phase, reaches};
use crate::data::{Data, Volume};
use crate::exec::Micros;
use crate::oracle;
use crate::rules::Rule;
use crate::world::{MS, World};
use coregent_core::member::Source;
use coregent_core::position::Promotion;
use std::rc::Rc;

/// Data folders that are kept beside the one in use: the newest alone (F12).
const KEPT_ASIDE: usize = 1;

/// The log writer has written out everything after so long: three times `wal_writer_delay`.
const WRITTEN_OUT: Micros = 600 * MS;

/// Changes the volume of a container's member.
pub(super) fn volume<T>(
    world: &World,
    container: &Container,
    change: impl FnOnce(&mut Volume) -> T,
) -> Result<T, String> {
    let volume = world.volumes.get(container.member).ok_or("no volume")?;
    Ok(change(&mut volume.borrow_mut()))
}

/// Reads where the log ends; only while no process runs.
pub(super) fn read_end(world: &World, container: &Container) {
    let position = world.volumes.get(container.member).and_then(|volume| {
        let volume = volume.borrow();
        volume.data.as_ref().map(|data| data.position(data.end(), &volume.kept.chain))
    });
    let mut server = container.server.borrow_mut();
    server.end = position;
    server.end_read = true;
}

/// What was there is set aside, and the new folder takes its place.
fn put_in_place(volume: &mut Volume, data: Data, keeps: bool) {
    if let Some(old) = volume.data.replace(data)
        && keeps
    {
        volume.aside.push(old);
    }
}

pub(super) async fn init_db(world: &Rc<World>, container: &Rc<Container>) -> Result<(), String> {
    world.takes(container.stream(), 200, 600).await;
    if volume(world, container, |volume| volume.full)? {
        return Err("initdb failed: no space left on device".into());
    }
    let branch = world.next_serial();
    let system_id = format!("7{branch:06}");
    oracle::initialised(world, container.member, branch, &system_id);
    volume(world, container, |volume| {
        put_in_place(volume, Data::new(system_id, branch), true);
        volume.kept.chain.clear();
        volume.kept.attempt = None;
        volume.kept.unusable = None;
    })?;
    read_end(world, container);
    Ok(())
}

/// The holder, if a connection to it gets through and it is out of recovery.
fn source_of(world: &World, me: &Container, source: &Source) -> Result<Rc<Container>, String> {
    let theirs = world.at_address(&source.address).ok_or("nobody listens there")?;
    let answers = theirs.server.borrow().answers();
    if !answers || !reaches(world, me, &theirs) {
        return Err(format!("{} does not answer", source.member));
    }
    Ok(theirs)
}

/// Its data as it is flushed now, without slots.
fn snapshot(world: &World, theirs: &Container) -> Result<Data, String> {
    let volume = world.volumes.get(theirs.member).ok_or("no volume")?.borrow();
    let mut data = volume.data.clone().ok_or("it has no data")?;
    data.truncate(data.flushed);
    data.replayed = data.end();
    data.slots.clear();
    data.clean = false;
    data.unfinished = false;
    Ok(data)
}

pub(super) async fn copy(
    world: &Rc<World>,
    me: &Rc<Container>,
    source: &Source,
    chain: Vec<Promotion>,
) -> Result<(), String> {
    world.takes(me.stream(), 2, 20).await;
    source_of(world, me, source)?;
    world.takes(me.stream(), 200, 1_500).await;
    let theirs = source_of(world, me, source)?;
    let data = snapshot(world, &theirs)?;
    if volume(world, me, |volume| volume.full)? {
        return Err("pg_basebackup failed: no space left on device".into());
    }
    let why = "a base copy was being put into place when the agent ended";
    volume(world, me, |volume| volume.kept.unusable = Some(why.into()))?;
    world.takes(me.stream(), 1, 10).await;
    oracle::replaces(world, me.member, "copy");
    let keeps = !world.is_off(Rule::F12Aside);
    let held = volume(world, me, |volume| world.held_by(volume.data.as_ref()))?;
    volume(world, me, |volume| {
        put_in_place(volume, data, keeps);
        volume.kept.chain = chain;
        volume.kept.attempt = None;
        volume.kept.unusable = None;
        volume.kept.inconsistent = false;
    })?;
    oracle::replaced(world);
    world.check_set_aside(&held);
    read_end(world, me);
    Ok(())
}

pub(super) async fn rewind(
    world: &Rc<World>,
    me: &Rc<Container>,
    source: &Source,
    chain: Vec<Promotion>,
) -> Result<(), String> {
    let newest = chain.last().map_or(1, |last| last.timeline.0);
    let checkpointed = async {
        for _ in 0..1_000 {
            let theirs = source_of(world, me, source)?;
            if world.is_off(Rule::F12Checkpoint) || theirs.data(world, |data| data.control).unwrap_or(0) >= newest {
                return Ok(());
            }
            world.sleep(10 * MS).await;
        }
        Err(format!("{} has not written a checkpoint on timeline {newest} in 10 s", source.member))
    };
    checkpointed.await?;
    volume(world, me, |volume| {
        volume.kept.unusable = Some("a rewind was interrupted or failed".into());
        volume.kept.inconsistent = true;
    })?;
    world.takes(me.stream(), 100, 400).await;
    let theirs = source_of(world, me, source)?;
    if theirs.server.borrow().phase != Phase::Writable {
        return Err("pg_rewind failed: the source is in recovery".into());
    }
    let control = theirs.data(world, |data| data.control).unwrap_or(1);
    let mine = volume(world, me, |volume| volume.data.as_ref().map(Data::timeline))?.unwrap_or(1);
    // «no rewind required»: the control files show the same timeline, and divergent rows stay where they are (F12).
    if control != mine {
        // What it is to be consistent at is where its source writes just now, and the copied log ends where that is written
        // out: of a source at rest both are the same (seen by the differential test).
        let unfinished = world.now().saturating_sub(theirs.server.borrow().wrote_at) < WRITTEN_OUT;
        let data = Data { unfinished, ..snapshot(world, &theirs)? };
        oracle::replaces(world, me.member, "rewind");
        volume(world, me, |volume| volume.data = Some(data))?;
        oracle::replaced(world);
    }
    volume(world, me, |volume| {
        volume.kept.chain = chain;
        volume.kept.attempt = None;
        volume.kept.unusable = None;
    })?;
    read_end(world, me);
    Ok(())
}

/// It streams: what an earlier copy set aside is removed, but the newest.
pub(crate) fn drop_old_aside(world: &World, container: &Container) {
    if let Some(volume) = world.volumes.get(container.member) {
        let mut volume = volume.borrow_mut();
        let surplus = volume.aside.len().saturating_sub(KEPT_ASIDE);
        volume.aside.drain(..surplus);
    }
}
