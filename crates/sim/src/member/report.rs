//! Publishing the member's report: at once on a change of state, the bare position at most every 10 s (F6).

use super::Agent;
use crate::exec::{Notify, race};
use crate::server::Container;
use crate::world::{MS, World};
use coregent_core::lsn::Lsn;
use coregent_core::member::{self, Decision, Engine};
use coregent_core::position::Position;
use coregent_core::report::{MemberReport, VERSION};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A position that changes alone is published this often.
const POSITION_PERIOD: u64 = 10_000 * MS;

/// What is to be published, and what has been.
pub(super) struct Outlet {
    wanted: RefCell<Option<Rc<MemberReport>>>,
    published: RefCell<Option<Rc<MemberReport>>>,
    gaps: Cell<u64>,
    changed: Notify,
    done: Notify,
}

impl Outlet {
    pub(super) fn new(world: &World) -> Outlet {
        Outlet {
            wanted: RefCell::default(),
            published: RefCell::default(),
            gaps: Cell::new(0),
            changed: Notify::new(&world.exec),
            done: Notify::new(&world.exec),
        }
    }

    /// The watch was interrupted: what was published may have gone with an older store.
    pub(super) fn doubt(&self) {
        self.gaps.set(self.gaps.get() + 1);
        self.changed.notify();
    }

    /// Resolves when the last report is out.
    pub(super) async fn said(&self, _: &Container) {
        loop {
            let seen = self.done.version();
            if *self.wanted.borrow() == *self.published.borrow() {
                return;
            }
            self.done.since(seen).await;
        }
    }
}

/// Publishes until its process ends.
pub(super) async fn publish(world: Rc<World>, container: Rc<Container>, outlet: Rc<Outlet>) {
    let mut at = world.now();
    let mut gaps = 0;
    loop {
        let seen = outlet.changed.version();
        if outlet.gaps.get() != gaps && outlet.published.borrow().is_some() {
            let doubted = outlet.gaps.get();
            let name = container.name.clone();
            let read = world.call(container.place(), "agent.report", move |store| {
                Ok(store.state.reports.get(&name).map(|found| Rc::clone(&found.report)))
            });
            match world.within(world.setup.timing.request * MS, read).await {
                Some(Ok(found)) => {
                    gaps = doubted;
                    if *outlet.published.borrow() != found {
                        outlet.published.replace(None);
                    }
                }
                _ => world.sleep(200 * MS).await,
            }
            continue;
        }
        let next = outlet.wanted.borrow().clone();
        let (urgent, changed) = {
            let published = outlet.published.borrow();
            match (&*published, &next) {
                (Some(published), Some(next)) => (differs(published, next), published != next),
                (None, Some(_)) => (true, true),
                _ => (false, false),
            }
        };
        let elapsed = world.now() - at;
        if let Some(next) = next.filter(|_| urgent || (changed && elapsed >= POSITION_PERIOD)) {
            let put = Rc::clone(&next);
            let request = world.call(container.place(), "agent.report", move |store| {
                store.put_report(put);
                Ok(())
            });
            match world.within(world.setup.timing.request * MS, request).await {
                Some(Ok(())) => {
                    at = world.now();
                    outlet.published.replace(Some(next));
                    outlet.done.notify();
                }
                _ => world.sleep(200 * MS).await,
            }
            continue;
        }
        let later = if changed { POSITION_PERIOD.saturating_sub(elapsed) } else { 3_600_000 * MS };
        let _ = race(outlet.changed.since(seen), world.exec.sleep(later)).await;
    }
}

/// In more than a position that moves while nothing else happens.
fn differs(published: &MemberReport, next: &MemberReport) -> bool {
    stripped(published) != stripped(next)
}

fn stripped(report: &MemberReport) -> MemberReport {
    let mut report = report.clone();
    report.flushed_lsn = None;
    for standby in &mut report.standbys {
        standby.lag_bytes = None;
    }
    if report.left.is_none()
        && let Some(position) = &mut report.position
    {
        position.lsn = Lsn(0);
    }
    report
}

fn position(engine: &Engine) -> Option<&Position> {
    match engine {
        Engine::Stopped { position } => position.as_ref(),
        Engine::Starting => None,
        Engine::Standby(standby) => Some(&standby.position),
        Engine::Writable(writable) => Some(&writable.position),
    }
}

impl Agent {
    /// Hands the report to the publisher.
    pub(super) fn say(&self, world: &member::World, decision: &Decision) {
        let writable = match &world.engine {
            Engine::Writable(writable) => Some(writable),
            _ => None,
        };
        let report = MemberReport {
            version: VERSION,
            member: self.me.member.clone(),
            pod_uid: self.me.pod_uid.clone(),
            nonce: self.me.nonce.clone(),
            address: self.container.address.clone(),
            agent: self.container.address.clone(),
            epoch: world.volume.epoch,
            left: decision.left,
            state: decision.state,
            position: position(&world.engine).filter(|_| !world.volume.inconsistent).cloned(),
            unrecorded_attempt: world.unrecorded_attempt().cloned(),
            inconsistent: world.volume.inconsistent,
            system_id: match &world.volume.data {
                member::Data::Present { system_id } => Some(system_id.clone()),
                _ => None,
            },
            standbys: self.status.standbys.clone(),
            flushed_lsn: writable.map(|writable| writable.position.lsn),
            ready: decision.ready,
            warnings: BTreeSet::new(),
            source: self.reached.clone(),
            last_error: decision.trouble.clone(),
            prepared: writable.and_then(|writable| writable.prepared.clone()),
            handled_request: None,
        };
        let same = self.outlet.wanted.borrow().as_ref().is_some_and(|wanted| **wanted == report);
        if !same {
            let news = self.outlet.wanted.borrow().as_ref().is_none_or(|wanted| differs(wanted, &report));
            if news {
                self.world.note(&self.me.member, || {
                    let position = report.position.as_ref().map(|p| (p.timeline.0, p.lsn.0));
                    format!("is {:?}, left {:?}, epoch {}, at {position:?}", report.state, report.left, report.epoch)
                });
            }
            self.outlet.wanted.replace(Some(Rc::new(report)));
            self.outlet.changed.notify();
        }
    }
}
