//! An operator, driven as `coregent-operator` drives it: watches feed a cache, one leader looks, decides by the real
//! function, and carries the steps out one write at a time.

mod act;
mod cache;
mod reconcile;

use crate::exec::{Exec, Notify, Proc};
use crate::net::Place;
use crate::store::Kind;
use crate::watch::{Manner, follow};
use crate::world::{MS, World};
use cache::Cache;
use coregent_core::names::Monotonic;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Duration of a primary Lease, and of the operators' own.
pub(crate) const DURATION: u64 = 6_000;
/// Between two renewals of the seat.
const RENEW: u64 = 1_000;
/// A leader that could not renew for so long stops by itself.
const STOP: u64 = 4_000;

/// An operator process and what outlives it.
pub(crate) struct Operator {
    pub(crate) number: usize,
    pub(crate) proc: Cell<Proc>,
    pub(crate) leads: Cell<bool>,
    runs: Cell<u32>,
}

/// One run of it.
pub(crate) struct Run {
    world: Rc<World>,
    place: Place,
    number: usize,
    identity: String,
    proc: Proc,
    cache: RefCell<Cache>,
    wake: Notify,
    /// Grows when the leadership ends.
    term: Cell<u32>,
}

impl Operator {
    pub(crate) fn new(exec: &Exec, number: usize) -> Operator {
        Operator { number, proc: Cell::new(exec.process()), leads: Cell::new(false), runs: Cell::new(0) }
    }

    pub(crate) fn place(&self) -> Place {
        Place::Controller(self.number)
    }
}

/// Starts the process.
pub(crate) fn start(world: &Rc<World>, number: usize) {
    let Some(operator) = world.operators.get(number) else { return };
    operator.proc.set(world.exec.process());
    operator.runs.set(operator.runs.get() + 1);
    operator.leads.set(false);
    let place = operator.place();
    let run = Rc::new(Run {
        world: Rc::clone(world),
        place,
        number,
        identity: format!("{place}.{}", operator.runs.get()),
        proc: operator.proc.get(),
        cache: RefCell::default(),
        wake: Notify::new(&world.exec),
        term: Cell::new(0),
    });
    for kind in [Kind::Cluster, Kind::Leases, Kind::Pods, Kind::Rest] {
        let manner =
            Manner { kind, label: "operator.watch", request: 10_000 * MS, silence: None, pause: (50 * MS, 5_000 * MS) };
        let fed = Rc::clone(&run);
        let seen = move |what| {
            let now = fed.world.clock(fed.place);
            fed.cache.borrow_mut().take(&fed.world, kind, what, now);
            fed.wake.notify();
        };
        world.exec.spawn(run.proc, follow(Rc::clone(world), place, manner, seen));
    }
    world.exec.spawn(run.proc, lead(run));
}

/// SIGKILL; it starts again by itself.
pub(crate) fn crash(world: &Rc<World>, number: usize) {
    let Some(operator) = world.operators.get(number) else { return };
    if world.exec.is_dead(operator.proc.get()) {
        return;
    }
    world.note(operator.place(), || "crashes".into());
    world.exec.kill(operator.proc.get());
    operator.leads.set(false);
    let world_too = Rc::clone(world);
    world.exec.spawn(Proc::WORLD, async move {
        world_too.takes(crate::world::Stream::World, 200, 4_000).await;
        start(&world_too, number);
    });
}

/// What is known of the seat.
#[derive(Clone, Debug)]
struct Observed {
    version: u64,
    holder: String,
    since: Monotonic,
}

/// Waits for the seat, works while it is held, and again. A world with one operator has no seat.
async fn lead(run: Rc<Run>) {
    let mut seen: Option<Observed> = None;
    loop {
        if run.world.setup.operators > 1 {
            while run.world.within(act::ANSWER, sit(&run, &mut seen)).await.flatten() != Some(true) {
                run.world.sleep(RENEW * MS).await;
            }
        }
        run.world.note(&run.identity, || "leads".into());
        run.term.set(run.term.get() + 1);
        if let Some(operator) = run.world.operators.get(run.number) {
            operator.leads.set(true);
        }
        let term = run.term.get();
        let work = run.world.exec.spawn(run.proc, reconcile::work(Rc::clone(&run), term));
        if run.world.setup.operators == 1 {
            crate::exec::never().await;
        }
        keep(&run, &mut seen).await;
        run.world.note(&run.identity, || "leads no longer".into());
        // What was begun is drained: the task itself sees that its term is over and stops after a write.
        run.term.set(run.term.get() + 1);
        if let Some(operator) = run.world.operators.get(run.number) {
            operator.leads.set(false);
        }
        run.wake.notify();
        run.world.sleep(500 * MS).await;
        run.world.exec.abort(work);
    }
}

/// Renews until that no longer succeeds.
async fn keep(run: &Rc<Run>, seen: &mut Option<Observed>) {
    let mut renewed = run.world.clock(run.place);
    loop {
        run.world.sleep(RENEW * MS).await;
        let asked = run.world.clock(run.place);
        match run.world.within(RENEW * MS, sit(run, seen)).await.flatten() {
            Some(true) => renewed = asked,
            Some(false) => return,
            None if run.world.clock(run.place).since(renewed) >= STOP => return,
            None => {}
        }
    }
}

/// One look and, where it is called for, one write.
async fn sit(run: &Rc<Run>, seen: &mut Option<Observed>) -> Option<bool> {
    let found = run.world.call(run.place, "operator.seat", |store| Ok(store.state.seat.clone())).await.ok()?;
    let now = run.world.clock(run.place);
    let known = seen.clone().filter(|known| known.version == found.version);
    let observed = known.unwrap_or(Observed { version: found.version, holder: found.holder.clone(), since: now });
    *seen = Some(observed.clone());
    let takes = observed.holder == run.identity || observed.holder.is_empty() || now.since(observed.since) >= DURATION;
    if !takes {
        return Some(false);
    }
    let identity = run.identity.clone();
    let written = run.world.call(run.place, "operator.seat", move |store| {
        if store.state.seat.version != found.version {
            return Err(crate::store::Refusal::Conflict);
        }
        store.state.seat.version += 1;
        store.state.seat.holder = identity;
        Ok(())
    });
    Some(written.await.is_ok())
}
