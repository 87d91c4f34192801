//! Everything that there is in one seed's world, and the few things that everybody does in it.

use crate::cover::Coverage;
use crate::data::Volume;
use crate::exec::{Either, Exec, Micros, Notify, Proc, never, race};
use crate::net::{Blow, Net, PLACES, Place};
use crate::operator::Operator;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::rules::{Rule, Rules};
use crate::server::Container;
use crate::store::{Kind, Refusal, State, Store};
use coregent_core::member::{Timing, WhenTooFew};
use coregent_core::names::{MemberName, Monotonic};
use coregent_core::wallclock::Timestamp;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A millisecond.
pub(crate) const MS: Micros = 1_000;
/// `read_timeout` of the client that production uses (kube's default): an answer that is lost on the way without a word is
/// waited for so long by whoever sets no limit of their own.
const READ_TIMEOUT: Micros = 295_000 * MS;
/// Name of the cluster.
pub(crate) const CLUSTER: &str = "db";

/// What a seed's cluster is like.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) quorum: bool,
    pub(crate) when_too_few: WhenTooFew,
    pub(crate) members: usize,
    pub(crate) hosts: usize,
    pub(crate) operators: usize,
    pub(crate) clients: usize,
    /// `failover.delay`, milliseconds.
    pub(crate) delay: u64,
    pub(crate) max_lag: Option<u64>,
    /// A pod has an address of its own, else its member has.
    pub(crate) pod_addresses: bool,
    /// Clocks run at so many thousandths of the world's.
    pub(crate) rates: Vec<u64>,
    pub(crate) timing: Timing,
}

impl Setup {
    pub(crate) fn name(&self, member: usize) -> MemberName {
        MemberName::of(CLUSTER, u32::try_from(member + 1).unwrap_or(0))
    }

    /// Where a member's volume is.
    pub(crate) fn host_of(&self, member: usize) -> usize {
        member % self.hosts
    }
}

/// A host.
pub(crate) struct Host {
    pub(crate) up: Cell<bool>,
    pub(crate) frozen: Cell<u32>,
    /// The node agent's process.
    pub(crate) node: Cell<Proc>,
}

/// Failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The API answered.
    Refused(Refusal),
    /// No answer, or one that says nothing.
    Unavailable,
}

/// Streams of chance beside those of the places.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    World,
    Engine(usize),
    Clients,
}

/// See the module.
pub(crate) struct World {
    pub(crate) exec: Rc<Exec>,
    pub(crate) setup: Setup,
    pub(crate) off: Rules,
    rngs: RefCell<Vec<Rng>>,
    pub(crate) store: RefCell<Store>,
    pub(crate) changed: Vec<Notify>,
    pub(crate) net: RefCell<Net>,
    /// A link, a host or a process is not what it was.
    pub(crate) disturbed: Notify,
    pub(crate) volumes: Vec<RefCell<Volume>>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) containers: RefCell<Vec<Rc<Container>>>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) cover: RefCell<Coverage>,
    /// Copies of the store that may be put back.
    pub(crate) copies: RefCell<Vec<State>>,
    pub(crate) skew: RefCell<Vec<i64>>,
    pub(crate) last_calm: Cell<Micros>,
    serial: Cell<u32>,
    trace: RefCell<Option<String>>,
    digest: Cell<u64>,
}

impl World {
    pub(crate) fn new(setup: Setup, off: Rules, traced: bool) -> Rc<World> {
        let exec = Exec::new();
        let rngs = (0..PLACES as u64 + 16).map(|stream| Rng::new(setup.seed, stream + 1)).collect();
        let notify = || Notify::new(&exec);
        let hosts = (0..setup.hosts).map(|_| Host {
            up: Cell::new(true),
            frozen: Cell::new(0),
            node: Cell::new(exec.process()),
        });
        let mut store = Store::default();
        store.put_rest(|rest| rest.nodes = vec![true; setup.hosts]);
        Rc::new(World {
            rngs: RefCell::new(rngs),
            store: RefCell::new(store),
            changed: Kind::ALL.iter().map(|_| notify()).collect(),
            net: RefCell::default(),
            disturbed: notify(),
            volumes: (0..setup.members).map(|_| RefCell::default()).collect(),
            hosts: hosts.collect(),
            containers: RefCell::default(),
            operators: (0..setup.operators).map(|number| Operator::new(&exec, number)).collect(),
            oracle: RefCell::new(Oracle::new(&setup)),
            cover: RefCell::default(),
            copies: RefCell::default(),
            skew: RefCell::new(vec![0; PLACES]),
            last_calm: Cell::new(0),
            serial: Cell::new(0),
            trace: RefCell::new(traced.then(String::new)),
            digest: Cell::new(0),
            exec,
            setup,
            off,
        })
    }

    pub(crate) fn now(&self) -> Micros {
        self.exec.now()
    }

    /// Whether a rule is switched off in this run.
    pub(crate) fn is_off(&self, rule: Rule) -> bool {
        self.off.has(rule)
    }

    /// A number that is never given twice.
    pub(crate) fn next_serial(&self) -> u32 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    fn draw<T>(&self, index: usize, draw: impl FnOnce(&mut Rng) -> T) -> T {
        let mut rngs = self.rngs.borrow_mut();
        let index = index.min(rngs.len() - 1);
        match rngs.get_mut(index) {
            Some(rng) => draw(rng),
            None => draw(&mut Rng::new(self.setup.seed, 0)),
        }
    }

    pub(crate) fn at_place<T>(&self, place: Place, draw: impl FnOnce(&mut Rng) -> T) -> T {
        self.draw(place.index(), draw)
    }

    pub(crate) fn chance<T>(&self, stream: Stream, draw: impl FnOnce(&mut Rng) -> T) -> T {
        let index = match stream {
            Stream::World => PLACES,
            Stream::Clients => PLACES + 1,
            Stream::Engine(member) => PLACES + 2 + member,
        };
        self.draw(index, draw)
    }

    /// CLOCK_BOOTTIME of a place.
    pub(crate) fn clock(&self, place: Place) -> Monotonic {
        let rate = self.setup.rates.get(place.index()).copied().unwrap_or(1_000);
        Monotonic(10_000 * (1 + place.index() as u64) + self.now() / 1_000 * rate / 1_000)
    }

    /// The world's time until a place's clock shows `at`.
    pub(crate) fn until(&self, place: Place, at: Monotonic) -> Micros {
        let rate = self.setup.rates.get(place.index()).copied().unwrap_or(1_000);
        at.since(self.clock(place)).saturating_mul(1_000).saturating_mul(1_000) / rate + MS
    }

    /// The wall clock of a place.
    pub(crate) fn wall(&self, place: Place) -> Timestamp {
        let skew = self.skew.borrow().get(place.index()).copied().unwrap_or(0);
        Timestamp(1_796_000_000_000 + i64::try_from(self.now() / 1_000).unwrap_or(0) + skew)
    }

    pub(crate) async fn sleep(&self, span: Micros) {
        self.exec.sleep(span).await;
    }

    /// Waits between so many milliseconds of chance.
    pub(crate) async fn takes(&self, stream: Stream, least: u64, most: u64) {
        let span = self.chance(stream, |rng| rng.between(least * MS, most * MS));
        self.sleep(span).await;
    }

    /// Waits for `what` at most so long.
    pub(crate) async fn within<T>(&self, span: Micros, what: impl Future<Output = T>) -> Option<T> {
        match race(what, self.exec.sleep(span)).await {
            Either::First(done) => Some(done),
            Either::Second(()) => None,
        }
    }

    /// Writes a line of the trace; what it says is made only where one is kept.
    pub(crate) fn note(&self, who: impl std::fmt::Display, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            use std::fmt::Write as _;
            let now = self.now();
            let _ = writeln!(trace, "{:>5}.{:06} {who:<12} {}", now / 1_000_000, now % 1_000_000, what());
        }
    }

    pub(crate) fn take_trace(&self) -> String {
        self.trace.borrow_mut().take().unwrap_or_default()
    }

    /// Folds a fact into the number that two runs of a seed are compared by.
    pub(crate) fn fold(&self, fact: u64) {
        self.digest.set((self.digest.get() ^ fact).wrapping_mul(0x0100_0000_01B3).rotate_left(5));
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.get()
    }

    /// Changes the store and wakes who watches.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let (result, touched) = {
            let mut store = self.store.borrow_mut();
            store.now = self.now();
            let result = change(&mut store);
            (result, std::mem::take(&mut store.touched))
        };
        for (notify, touched) in self.changed.iter().zip(touched) {
            if touched {
                notify.notify();
            }
        }
        self.fold(self.store.borrow().state.revision);
        if touched[Kind::Primary.index()] {
            self.check_lease();
        }
        if touched[Kind::Cluster.index()] {
            self.check_status();
        }
        result
    }

    /// One request to the API, with everything that can happen to one.
    pub(crate) async fn call<T: 'static>(
        self: &Rc<Self>,
        place: Place,
        label: &'static str,
        request: impl FnOnce(&mut Store) -> Result<T, Refusal> + 'static,
    ) -> Result<T, Failure> {
        let odds = self.net.borrow().odds(place);
        let armed = self.net.borrow_mut().take_armed(place, label);
        if let Some(blow) = armed {
            self.cover.borrow_mut().hit(label, blow.name());
            self.note(place, || format!("FAULT {} at {label}", blow.name()));
        }
        let (mut delay, dice) = self.at_place(place, |rng| (rng.between(200, 2_500), rng.below(1_000)));
        if odds.latency > 0 {
            delay += self.at_place(place, |rng| rng.below(odds.latency * MS));
        }
        if let Some(Blow::Slow(millis)) = armed {
            delay += millis * MS;
        }
        if armed == Some(Blow::CrashBefore) {
            self.crash_caller(place, label).await;
        }
        self.exec.sleep(delay).await;
        if self.net.borrow().api_down > 0 {
            self.cover.borrow_mut().hit(label, "api-down");
            return Err(Failure::Unavailable);
        }
        self.sent(place, Place::Api, label, "cut-before").await;
        let (error, lost) = (dice < odds.error, dice >= 500 && dice < 500 + odds.lost);
        let silent = dice >= 800 && dice < 800 + odds.silent;
        if error || armed == Some(Blow::ErrorBefore) {
            if error {
                self.cover.borrow_mut().hit(label, "error-before");
            }
            return Err(Failure::Unavailable);
        }
        if armed == Some(Blow::Conflict) {
            return Err(Failure::Refused(Refusal::Conflict));
        }
        let incarnation = self.store.borrow().incarnation;
        if let Some(Blow::Late(millis)) = armed {
            self.land_late(place, label, millis, incarnation, request);
            self.exec.sleep(READ_TIMEOUT).await;
            return Err(Failure::Unavailable);
        }
        let result = self.write(request).map_err(Failure::Refused);
        if armed == Some(Blow::CrashAfter) {
            self.crash_caller(place, label).await;
        }
        let back = self.at_place(place, |rng| rng.between(200, 2_500) + rng.below(odds.latency * MS));
        self.exec.sleep(back).await;
        self.sent(Place::Api, place, label, "cut-after").await;
        // An answer ends with the API that gave it.
        if self.store.borrow().incarnation != incarnation {
            return Err(Failure::Unavailable);
        }
        if silent || armed == Some(Blow::AnswerSilent) {
            if silent {
                self.cover.borrow_mut().hit(label, "answer-silent");
            }
            self.exec.sleep(READ_TIMEOUT).await;
            return Err(Failure::Unavailable);
        }
        if lost || armed == Some(Blow::AnswerLost) {
            if lost {
                self.cover.borrow_mut().hit(label, "answer-lost");
            }
            return Err(Failure::Unavailable);
        }
        result
    }

    /// What was on its way is carried out whoever still waits for it, unless the API that it was sent to has ended.
    fn land_late<T: 'static>(
        self: &Rc<Self>,
        place: Place,
        label: &'static str,
        millis: u64,
        incarnation: u64,
        request: impl FnOnce(&mut Store) -> Result<T, Refusal> + 'static,
    ) {
        let world = Rc::clone(self);
        self.exec.spawn(Proc::WORLD, async move {
            world.sleep(millis * MS).await;
            if world.net.borrow().api_down == 0 && world.store.borrow().incarnation == incarnation {
                let landed = world.write(request).is_ok();
                world.note(place, || format!("{label} lands late: {landed}"));
            }
        });
    }

    /// A packet gets there: now, or some time after the link is mended, since it is sent again and again.
    async fn sent(&self, from: Place, to: Place, label: &'static str, fault: &'static str) {
        let mut cut = false;
        loop {
            let seen = self.disturbed.version();
            if self.net.borrow().passes(from, to) {
                break;
            }
            if !cut {
                self.cover.borrow_mut().hit(label, fault);
                cut = true;
            }
            self.disturbed.since(seen).await;
        }
        if cut {
            let again = self.at_place(to, |rng| rng.between(50 * MS, 3_000 * MS));
            self.exec.sleep(again).await;
        }
    }

    /// Ends the process that makes a request, in the middle of it.
    async fn crash_caller(self: &Rc<Self>, place: Place, label: &'static str) {
        let world = Rc::clone(self);
        self.exec.spawn(Proc::WORLD, async move {
            match place {
                Place::Controller(number) => crate::operator::crash(&world, number),
                Place::Host(host) if label.starts_with("pod.") || label.starts_with("node.") => {
                    crate::node::restart(&world, host);
                }
                Place::Host(host) => crate::strike::kill_some_agent(&world, host),
                Place::Api | Place::Client => {}
            }
        });
        never().await;
    }

    /// Whether a member's data can be read by itself.
    pub(crate) fn is_readable(&self, member: usize) -> bool {
        self.volumes
            .get(member)
            .map(|volume| volume.borrow())
            .is_some_and(|volume| volume.data.is_some() && volume.kept.unusable.is_none() && !volume.kept.inconsistent)
    }

    /// The container that answers at an address.
    pub(crate) fn at_address(&self, address: &str) -> Option<Rc<Container>> {
        let containers = self.containers.borrow();
        containers.iter().rev().find(|container| !container.gone.get() && container.address == address).cloned()
    }

    /// The container of a member that runs, the newest if there are several.
    pub(crate) fn container_of(&self, member: usize) -> Option<Rc<Container>> {
        let containers = self.containers.borrow();
        containers.iter().rev().find(|container| !container.gone.get() && container.member == member).cloned()
    }
}
