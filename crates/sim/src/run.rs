//! One seed: a cluster is made, has its bad day, is healed, and must be well again.

use crate::cover::Coverage;
use crate::exec::{Micros, Proc};
use crate::faults::{self, Planned};
use crate::net::PLACES;
use crate::rng::Rng;
use crate::rules::Rules;
use crate::server::Phase;
use crate::strike;
use crate::world::{MS, Setup, World};
use coregent_core::failover::{SwitchoverRequest, repair};
use coregent_core::member::{Timing, WhenTooFew};
use coregent_core::names::MemberName;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A cluster that nothing disturbs is made in this time.
const CREATED: Micros = 90_000 * MS;
/// Everything is well again in this time once nothing goes wrong any more.
const RECOVERED: Micros = 240_000 * MS;
/// Between two looks at what must hold for a while only.
const TICK: Micros = 500 * MS;

/// What one run of a seed came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What the oracles found, the first first.
    pub violations: Vec<String>,
    /// Faults that took effect.
    pub faults: u64,
    /// Completed changes of the primary.
    pub changes: u32,
    /// Acknowledged writes.
    pub writes: u64,
    /// Virtual milliseconds.
    pub millis: u64,
    /// Looks at a task: how much happened.
    pub polls: u64,
    /// A number that two runs of the same seed agree on.
    pub digest: u64,
    /// Which step met which fault.
    pub coverage: Coverage,
    /// Who did what when, if it was asked for.
    pub trace: String,
}

impl Report {
    /// Whether the day was bad enough to count: fifty faults that took effect and two completed changes of primary.
    pub fn counts(&self) -> bool {
        self.faults >= 50 && self.changes >= 2
    }

    /// What was found that breaks a promise, and not only the lack of progress.
    pub fn broken(&self) -> Option<&String> {
        let soft = ["no progress", "the cluster is not made", "only a person can decide"];
        self.violations.iter().find(|what| !soft.iter().any(|start| what.starts_with(start)))
    }
}

/// How a run is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rules that are off.
    pub off: Rules,
    /// Keep a trace.
    pub traced: bool,
    /// Only these of the planned faults happen, by their number.
    pub only: Option<Vec<usize>>,
}

/// What a seed's cluster is like.
pub(crate) fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed, 0x5E70);
    let members = *rng.pick(&[3, 3, 3, 3, 3, 3, 3, 2, 4, 5]).unwrap_or(&3);
    let hosts = if rng.chance(120) { 1 + usize::try_from(rng.below(2)).unwrap_or(0) } else { members };
    let rates = (0..PLACES).map(|_| if rng.chance(300) { rng.between(960, 1_040) } else { 1_000 }).collect();
    Setup {
        seed,
        quorum: rng.chance(700),
        when_too_few: if rng.chance(400) { WhenTooFew::Degrade } else { WhenTooFew::Block },
        members,
        hosts: hosts.min(members),
        operators: if rng.chance(700) { 2 } else { 1 },
        clients: 3,
        delay: *rng.pick(&[30_000, 5_000, 1_000, 0]).unwrap_or(&30_000),
        max_lag: None,
        pod_addresses: rng.chance(500),
        rates,
        timing: Timing::default(),
    }
}

/// The faults that a seed plans, one line each.
pub fn plan(seed: u64) -> Vec<String> {
    faults::draw(&setup(seed)).iter().map(ToString::to_string).collect()
}

/// How many faults a seed plans.
pub(crate) fn planned_count(seed: u64) -> usize {
    faults::draw(&setup(seed)).len()
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    let setup = setup(seed);
    let planned: Vec<Planned> = faults::draw(&setup)
        .into_iter()
        .enumerate()
        .filter(|(number, _)| options.only.as_ref().is_none_or(|only| only.contains(number)))
        .map(|(_, planned)| planned)
        .collect();
    let world = World::new(setup, options.off, options.traced);
    world.note("world", || format!("{:?}", world.setup));
    begin(&world);
    if until(&world, CREATED, is_well) {
        suffer(&world, &planned);
        let disaster = planned.iter().any(|planned| matches!(planned.fault, faults::Fault::Disaster));
        recover(&world, disaster);
    } else {
        world.violation(format!("the cluster is not made: {}", ill(&world)));
    }
    let report = Report {
        seed,
        violations: world.oracle.borrow().violations.clone(),
        faults: world.cover.borrow().total(),
        changes: world.oracle.borrow().changes.saturating_sub(1),
        writes: world.oracle.borrow().acknowledged() as u64,
        millis: world.now() / MS,
        polls: world.exec.polls(),
        digest: world.digest(),
        coverage: world.cover.borrow().clone(),
        trace: world.take_trace(),
    };
    world.exec.clear();
    report
}

fn begin(world: &Rc<World>) {
    for host in 0..world.setup.hosts {
        crate::node::start(world, host);
    }
    for number in 0..world.setup.operators {
        crate::operator::start(world, number);
    }
    world.exec.spawn(Proc::WORLD, crate::node::controllers(Rc::clone(world)));
    for number in 0..world.setup.clients {
        world.exec.spawn(Proc::WORLD, crate::clients::run(Rc::clone(world), number));
    }
}

/// Goes on until `done`, at most so long. A violation ends it as well.
fn until(world: &Rc<World>, span: Micros, done: impl Fn(&Rc<World>) -> bool) -> bool {
    let end = world.now() + span;
    while world.now() < end {
        let tick = (world.now() + TICK).min(end);
        while world.exec.step(tick) {
            if !world.oracle.borrow().violations.is_empty() {
                return false;
            }
        }
        world.check_the_time();
        if !world.oracle.borrow().violations.is_empty() {
            return false;
        }
        if done(world) {
            return true;
        }
    }
    false
}

fn suffer(world: &Rc<World>, planned: &[Planned]) {
    let begun = world.now();
    for fault in planned {
        let at = begun + fault.at;
        if at > world.now() {
            until(world, at - world.now(), |_| false);
        }
        if !world.oracle.borrow().violations.is_empty() {
            return;
        }
        strike::strike(world, &fault.fault);
    }
    until(world, 3_000 * MS, |_| false);
}

/// Nothing goes wrong any more: within a bound everybody is back. Then the changes of primary that the day lacked.
fn recover(world: &Rc<World>, disaster: bool) {
    heal(world);
    let mut last = disaster.then_some(());
    for round in 0..4 {
        if !world.oracle.borrow().violations.is_empty() {
            return;
        }
        if !until(world, RECOVERED, is_well) {
            if world.oracle.borrow().violations.is_empty() {
                match (is_for_a_person(world), asks(world)) {
                    (true, true) => {}
                    (true, false) => {
                        world.violation(format!(
                            "only a person can decide, and the status does not say so: {}",
                            ill(world)
                        ));
                    }
                    (false, asks) => {
                        let asks = if asks { ", and a person is asked for" } else { "" };
                        world.violation(format!("no progress: {}{asks}", ill(world)));
                    }
                }
            }
            return;
        }
        if last.take().is_some() {
            strike::disaster(world);
            until(world, 6_000 * MS, |_| false);
            continue;
        }
        if world.oracle.borrow().changes > 2 || world.setup.members < 2 {
            break;
        }
        let request = SwitchoverRequest { id: format!("last-{round}"), to: None };
        let _ = world.write(|store| store.put_cluster(None, |cluster| cluster.switchover = Some(request)));
        until(world, 3_000 * MS, |_| false);
    }
    compare(world);
}

fn heal(world: &Rc<World>) {
    world.note("world", || "is healed".into());
    // What lasts ends by itself; what a request was to meet is forgotten, and links are mended now.
    world.net.borrow_mut().calm();
    world.disturb(world.now());
}

/// Why the cluster is not well; empty when it is.
fn ill(world: &Rc<World>) -> String {
    let cluster = Rc::clone(&world.store.borrow().state.cluster);
    if let Some(active) = &cluster.memory.operations.active {
        return format!("the operation {:?} is active ({:?})", active.step_id, active.reason);
    }
    let Some(primary) = cluster.memory.primary.current.clone() else { return "the status names no primary".into() };
    let Some(lease) = world.store.borrow().state.lease.clone() else { return "there is no Lease".into() };
    if lease.fence.target.as_ref().is_none_or(|target| target.member != primary) {
        return format!("{primary} is not the target");
    }
    let member = (0..world.setup.members).find(|member| world.setup.name(*member) == primary).unwrap_or(0);
    let Some(container) = world.container_of(member) else { return format!("{primary} does not run") };
    let server = container.server.borrow();
    if server.phase != Phase::Writable || !server.open || server.orphaned {
        return format!("{primary} is not open for writes");
    }
    let streaming = server.senders.values().filter(|sender| sender.caught_up).count();
    if streaming + 1 < world.setup.members {
        return format!("{} of {} members stream from {primary}", streaming, world.setup.members - 1);
    }
    drop(server);
    if world.now().saturating_sub(world.oracle.borrow().last_ack) > 3_000 * MS {
        return format!("no write is acknowledged by {primary}");
    }
    String::new()
}

/// What acknowledged writes there are cannot be told from the volumes that are left, whoever judges: so many of them are
/// empty or given up to a primary that is gone that a set which counts has lost its quorum, or, where the record is older than
/// its members, that not everybody's end is known (F7, F14).
fn is_for_a_person(world: &World) -> bool {
    let readable = |member: usize| world.is_readable(member);
    let given_up = |member: usize| world.volumes.get(member).is_some_and(|volume| volume.borrow().kept.inconsistent);
    let members = 0..world.setup.members;
    let names: BTreeSet<MemberName> =
        members.clone().filter(|member| readable(*member)).map(|member| world.setup.name(member)).collect();
    let repairs = {
        let store = world.store.borrow();
        let active = &store.state.cluster.memory.operations.active;
        active.as_ref().and_then(|active| active.reason.clone()).is_some_and(|why| why == repair::OLDER_STORE)
    };
    let unheard = repairs && members.into_iter().any(|member| !readable(member) && !given_up(member));
    let Some(lease) = world.store.borrow().state.lease.clone() else { return false };
    let complete = lease.fence.sync_sets.iter().filter(|set| set.complete && set.epoch < lease.epoch);
    let complete = complete.map(|set| set.epoch).max().unwrap_or_default();
    let mut counting = lease.fence.sync_sets.iter().filter(|set| set.epoch < lease.epoch && set.epoch >= complete);
    let lost = counting.any(|set| {
        let left = set.members.intersection(&names).count();
        let primary = set.primary.as_ref().is_some_and(|primary| names.contains(primary));
        !set.degraded && !primary && left < (set.members.len() + 1).saturating_sub(set.k as usize)
    });
    names.is_empty() || unheard || lost
}

/// The status asks for a person.
fn asks(world: &World) -> bool {
    let cluster = Rc::clone(&world.store.borrow().state.cluster);
    let asked = cluster.picture.as_ref().and_then(|picture| picture.conditions.get("DecisionNeeded"));
    asked.is_some_and(|condition| condition.holds)
}

fn is_well(world: &Rc<World>) -> bool {
    ill(world).is_empty()
}

/// At the end everybody's log is a beginning of the primary's, whatever it is called.
fn compare(world: &Rc<World>) {
    let primary = world.store.borrow().state.cluster.memory.primary.current.clone();
    let Some(primary) = primary else { return };
    let mut wrong = None;
    {
        let volumes: Vec<_> = world.volumes.iter().map(|volume| volume.borrow()).collect();
        let of = |member: usize| volumes.get(member).and_then(|volume| volume.data.as_ref());
        let best = (0..world.setup.members).find(|member| world.setup.name(*member) == primary).and_then(of);
        for member in 0..world.setup.members {
            if let (Some(mine), Some(best)) = (of(member), best)
                && !mine.is_prefix_of(best)
            {
                wrong = Some(world.setup.name(member));
            }
        }
    }
    if let Some(name) = wrong {
        world.violation(format!("{name} streams from {primary} and holds other rows"));
    }
    world.check_copies("the day");
}
