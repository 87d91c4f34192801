//! Following the store: a list, then changes in order, late, interrupted or silent.

use crate::exec::{Micros, race};
use crate::net::Place;
use crate::store::{Kind, Object};
use crate::world::{MS, World};
use coregent_core::names::Monotonic;
use std::rc::Rc;

/// What a watch says.
pub(crate) enum Seen {
    /// A complete list is about to be asked for.
    Listing,
    /// It, and the time before the request.
    Listed(Vec<Object>, Monotonic),
    /// One change.
    Changed(Object),
    /// Nothing is known of the time since the last answer.
    Gap,
}

/// How a follower differs from others.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) kind: Kind,
    pub(crate) label: &'static str,
    /// A list is given up after this.
    pub(crate) request: Micros,
    /// Silence after which the stream itself is doubted and the object is read again.
    pub(crate) silence: Option<Micros>,
    /// First and longest pause after a failure.
    pub(crate) pause: (Micros, Micros),
}

/// How a stream ended.
enum End {
    Again,
    Gap,
}

/// Follows for ever.
pub(crate) async fn follow(world: Rc<World>, place: Place, manner: Manner, mut seen: impl FnMut(Seen)) {
    let mut pause = manner.pause.0;
    loop {
        seen(Seen::Listing);
        match read(&world, place, manner).await {
            Some((objects, cursor, asked)) => {
                pause = manner.pause.0;
                let absent = objects.is_empty() && manner.kind == Kind::Primary;
                seen(Seen::Listed(objects, asked));
                if absent {
                    world.sleep(200 * MS).await;
                    continue;
                }
                match stream(&world, place, manner, cursor, &mut seen).await {
                    End::Again => continue,
                    End::Gap => seen(Seen::Gap),
                }
            }
            None => seen(Seen::Gap),
        }
        world.sleep(pause).await;
        pause = (pause * 2).min(manner.pause.1);
    }
}

async fn read(world: &Rc<World>, place: Place, manner: Manner) -> Option<(Vec<Object>, usize, Monotonic)> {
    let asked = world.clock(place);
    let list = world.call(place, manner.label, move |store| Ok(store.list(manner.kind)));
    let (objects, cursor) = world.within(manner.request, list).await?.ok()?;
    Some((objects, cursor, asked))
}

async fn stream(
    world: &Rc<World>,
    place: Place,
    manner: Manner,
    mut cursor: usize,
    seen: &mut impl FnMut(Seen),
) -> End {
    let incarnation = world.store.borrow().incarnation;
    let cuts = world.net.borrow().watch_cuts[place.index()];
    let changed = world.changed[manner.kind.index()].clone();
    let mut heard = world.now();
    loop {
        let (version, disturbed) = (changed.version(), world.disturbed.version());
        let passes = {
            let net = world.net.borrow();
            if world.store.borrow().incarnation != incarnation
                || net.watch_cuts[place.index()] != cuts
                || net.api_down > 0
            {
                return End::Gap;
            }
            net.passes(Place::Api, place)
        };
        let next = world.store.borrow().entry(manner.kind, cursor).map(|(at, object)| (*at, object.clone()));
        let doubt = manner.silence.map(|silence| (heard + silence).saturating_sub(world.now()));
        if doubt == Some(0) {
            match read(world, place, manner).await {
                None => return End::Gap,
                Some((objects, ..)) if objects.is_empty() => return End::Again,
                Some((objects, at, asked)) => {
                    heard = world.now();
                    let news = at != cursor;
                    seen(Seen::Listed(objects, asked));
                    if news {
                        return End::Again;
                    }
                }
            }
            continue;
        }
        match next.filter(|_| passes) {
            Some((at, object)) => {
                let lag = world.net.borrow().watch_lag[place.index()] * MS;
                let base = world.at_place(place, |rng| rng.between(300, 3_000));
                let due = (at + base + lag).max(world.now());
                if due > world.now() {
                    let wait = (due - world.now()).min(doubt.unwrap_or(u64::MAX));
                    let _ = world.within(wait, world.disturbed.since(disturbed)).await;
                    // Whatever was disturbed is judged again before anything is said.
                    if world.now() < due || !world.net.borrow().passes(Place::Api, place) {
                        continue;
                    }
                }
                if world.store.borrow().incarnation != incarnation {
                    return End::Gap;
                }
                cursor += 1;
                heard = world.now();
                seen(Seen::Changed(object));
            }
            None => {
                let something = race(changed.since(version), world.disturbed.since(disturbed));
                let _ = world.within(doubt.unwrap_or(600_000 * MS), something).await;
            }
        }
    }
}
