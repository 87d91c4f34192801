//! A member's agent, driven as `coregent-agent` drives it: events in, the real decision, its actions out.

mod act;
mod events;
mod report;

use crate::rules::Rule;
use crate::server::{self, Container, Outcome, Status};
use crate::store::{Kind, LeaseObject, Object};
use crate::watch::{Manner, Seen, follow};
use crate::world::{MS, World};
use coregent_core::fence::Fence;
use coregent_core::member::{
    self, Data, Decision, Engine, Held, Job, JobKind, Mode, PrimaryLease, Purpose, Settings, Source, Timing, Volume,
    decide,
};
use coregent_core::names::{Epoch, HolderIdentity, Monotonic};
use coregent_core::report::SourceReached;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What happens to an agent.
enum Event {
    Seen(Rc<LeaseObject>, Option<Monotonic>),
    Gap,
    Written(Purpose, Monotonic, Written),
    Granted(bool),
    Polled(u64, Box<Status>),
    Ended(u64, Outcome, Box<Status>),
    Exited(u64),
    Reached(SourceReached),
    Terminate,
}

/// How a write of the Lease ended.
enum Written {
    Done(Rc<LeaseObject>),
    Conflict(Option<Rc<LeaseObject>>, Monotonic),
    Failed,
}

struct Received {
    lease: Rc<LeaseObject>,
    since: Monotonic,
    epoch_since: Monotonic,
}

struct Running {
    kind: JobKind,
    serial: u64,
    task: crate::exec::TaskId,
}

type Inbox = Rc<RefCell<VecDeque<Event>>>;

struct Agent {
    world: Rc<World>,
    me: HolderIdentity,
    container: Rc<Container>,
    settings: Settings,
    inbox: Inbox,
    outlet: Rc<report::Outlet>,
    epoch_at_start: Epoch,
    received: Option<Received>,
    answered: Monotonic,
    held: Option<Held>,
    released: Option<Epoch>,
    was_writable: bool,
    granted: bool,
    asking: bool,
    writing: bool,
    retry_write_at: Option<Monotonic>,
    data: Data,
    leaving: bool,
    job: Option<Running>,
    /// Whom the newest start or follow that was begun is to stream from.
    towards: Option<Source>,
    serial: u64,
    server_serial: u64,
    generation: Rc<std::cell::Cell<u64>>,
    pace: Rc<std::cell::Cell<u64>>,
    status: Status,
    expecting_since: Monotonic,
    failures: Option<(JobKind, u32, Monotonic)>,
    failed_starts: u32,
    looked_at_data: Monotonic,
    reached: Option<SourceReached>,
    reaching: bool,
    exit: bool,
}

/// Where writes may be lost, the epoch is not on the disk until the next agent has looked.
pub(crate) fn forget_durably(world: &World, container: &Container, epoch: Epoch) {
    if let Some(volume) = world.volumes.get(container.member) {
        let mut volume = volume.borrow_mut();
        let known = volume.kept.epoch;
        volume.epoch_on_disk.get_or_insert(known);
        volume.kept.epoch = known.max(epoch);
    }
}

/// Runs the agent of a container until it has left cleanly.
pub(crate) async fn run(world: Rc<World>, container: Rc<Container>) {
    take_lock(&world, &container).await;
    let nonce = if world.is_off(Rule::F5Nonce) { "n".to_owned() } else { format!("n{}", container.serial) };
    let me = HolderIdentity { member: container.name.clone(), pod_uid: container.pod_uid.clone(), nonce };
    let epoch_at_start = world.volumes.get(container.member).map_or(Epoch(0), |volume| {
        let mut volume = volume.borrow_mut();
        if let Some(epoch) = volume.epoch_on_disk.take() {
            volume.kept.epoch = epoch;
        }
        volume.kept.epoch
    });
    let inbox: Inbox = Rc::default();
    let outlet = Rc::new(report::Outlet::new(&world));
    spawn_watch(&world, &container, &inbox);
    world.exec.spawn(container.agent, report::publish(Rc::clone(&world), Rc::clone(&container), Rc::clone(&outlet)));
    world.exec.spawn(container.agent, watchdog(Rc::clone(&world), Rc::clone(&container)));
    world.exec.spawn(container.agent, hear_orders(Rc::clone(&container), Rc::clone(&inbox)));
    let settings = Settings {
        mode: if world.setup.quorum && world.setup.members > 1 { Mode::Quorum } else { Mode::Async },
        when_too_few: world.setup.when_too_few,
        timing: match world.is_off(Rule::F2Margin) {
            // Later than the last that could wait for its end does.
            true => Timing { stop_by: 30_000, ..world.setup.timing },
            false => world.setup.timing,
        },
    };
    let now = world.clock(container.place());
    let agent = Agent {
        me,
        settings,
        inbox,
        outlet,
        epoch_at_start,
        received: None,
        answered: Monotonic(0),
        held: None,
        released: None,
        was_writable: false,
        granted: false,
        asking: false,
        writing: false,
        retry_write_at: None,
        data: Data::Absent,
        leaving: false,
        job: None,
        towards: None,
        serial: 0,
        server_serial: 0,
        generation: Rc::default(),
        pace: Rc::new(std::cell::Cell::new(1_000)),
        status: Status { engine: Engine::Stopped { position: None }, standbys: Vec::new() },
        expecting_since: now,
        failures: None,
        failed_starts: 0,
        looked_at_data: Monotonic(0),
        reached: None,
        reaching: false,
        exit: false,
        world,
        container,
    };
    agent.run().await;
}

/// The lock is held as long as any process of its holder lives (F5).
async fn take_lock(world: &Rc<World>, container: &Rc<Container>) {
    loop {
        let holder = world.volumes.get(container.member).and_then(|volume| volume.borrow().lock);
        let held = holder.is_some_and(|serial| {
            world.containers.borrow().iter().any(|other| other.serial == serial && !other.gone.get())
        });
        if !held || world.is_off(Rule::F5Lock) {
            break;
        }
        world.sleep(50 * MS).await;
    }
    if let Some(volume) = world.volumes.get(container.member) {
        volume.borrow_mut().lock = Some(container.serial);
    }
}

fn spawn_watch(world: &Rc<World>, container: &Rc<Container>, inbox: &Inbox) {
    let manner = Manner {
        kind: Kind::Primary,
        label: "agent.watch",
        request: world.setup.timing.request * MS,
        silence: Some(3_000 * MS),
        pause: (50 * MS, 1_000 * MS),
    };
    let (events, tell) = (container.events.clone(), Rc::clone(inbox));
    let seen = move |what: Seen| {
        let mut inbox = tell.borrow_mut();
        match what {
            Seen::Listing => return,
            Seen::Listed(objects, asked) => {
                for object in objects {
                    if let Object::Lease(lease) = object {
                        inbox.push_back(Event::Seen(lease, Some(asked)));
                    }
                }
            }
            Seen::Changed(Object::Lease(lease)) => inbox.push_back(Event::Seen(lease, None)),
            Seen::Changed(_) => return,
            Seen::Gap => inbox.push_back(Event::Gap),
        }
        drop(inbox);
        events.notify();
    };
    world.exec.spawn(container.agent, follow(Rc::clone(world), container.place(), manner, seen));
}

/// A thread of its own: whatever the loop waits for, the engine is killed at the deadline (F2).
async fn watchdog(world: Rc<World>, container: Rc<Container>) {
    loop {
        let seen = container.armed.version();
        let Some(at) = container.deadline.get() else {
            container.armed.since(seen).await;
            continue;
        };
        let now = world.clock(container.place());
        if now >= at {
            if !world.is_off(Rule::F2Deadline) {
                server::sweep(&world, &container, false);
            }
            container.armed.since(seen).await;
            continue;
        }
        let left = world.until(container.place(), at);
        let _ = world.within(left, container.armed.since(seen)).await;
    }
}

async fn hear_orders(container: Rc<Container>, inbox: Inbox) {
    loop {
        let seen = container.orders.version();
        if container.told.get() {
            inbox.borrow_mut().push_back(Event::Terminate);
            container.events.notify();
            return;
        }
        container.orders.since(seen).await;
    }
}

impl Agent {
    fn now(&self) -> Monotonic {
        self.world.clock(self.container.place())
    }

    async fn run(mut self) {
        self.start_polling();
        self.begin(Job::Stop { fast: false, diverged: false, reason: "the agent starts" });
        while !self.exit {
            let seen = self.container.events.version();
            let decision = self.turn();
            let now = self.now();
            self.retry_write_at.take_if(|at| *at <= now);
            let place = self.container.place();
            let wake = [decision.wake, self.retry_write_at].into_iter().flatten();
            let wake = wake.map(|at| self.world.until(place, at)).fold(5_000 * MS, u64::min);
            let events = self.container.events.clone();
            let _ = self.world.within(wake, events.since(seen)).await;
            loop {
                let event = self.inbox.borrow_mut().pop_front();
                match event {
                    Some(event) => self.apply(event),
                    None => break,
                }
            }
        }
        let said = self.outlet.said(&self.container);
        let _ = self.world.within(1_000 * MS, said).await;
    }

    fn turn(&mut self) -> Decision {
        self.forget_what_was_lost();
        self.look_at_unusable_data();
        let world = self.observe();
        let decision = decide(&world);
        let decision = self.tampered(&world, decision);
        let deadline = world.deadline();
        if self.container.deadline.replace(deadline) != deadline {
            self.container.armed.notify();
        }
        self.act(&world, &decision);
        self.say(&world, &decision);
        self.container.health.set(server::Health {
            ready: decision.ready,
            log_is_final: matches!(world.engine, Engine::Stopped { .. }) && self.job.is_none(),
        });
        decision
    }

    /// Another holds the Lease and every process here is gone: there is nothing left to release.
    fn forget_what_was_lost(&mut self) {
        let others = self
            .received
            .as_ref()
            .is_some_and(|received| !received.lease.holder.is_empty() && received.lease.holder != self.me.to_string());
        if others && self.held.is_some() && self.job.is_none() && matches!(self.status.engine, Engine::Stopped { .. }) {
            self.held = None;
            self.was_writable = false;
        }
    }

    fn observe(&self) -> member::World {
        let kept = self.world.volumes.get(self.container.member).map(|volume| volume.borrow().kept.clone());
        let kept = kept.unwrap_or_default();
        let world = member::World {
            now: self.now(),
            me: self.me.clone(),
            address: self.container.address.clone(),
            settings: self.settings.clone(),
            lease: self.received.as_ref().map(|received| PrimaryLease {
                epoch: received.lease.epoch,
                holder: (!received.lease.holder.is_empty()).then(|| received.lease.holder.clone()),
                fence: Ok(Fence::clone(&received.lease.fence)),
                since: received.since,
                epoch_since: received.epoch_since,
            }),
            bootstrap_grant: self.granted,
            held: self.held,
            released: self.released,
            volume: Volume {
                epoch: kept.epoch,
                epoch_at_start: self.epoch_at_start,
                attempt: kept.attempt,
                attempt_recorded: kept.attempt_recorded,
                data: self.data.clone(),
                inconsistent: kept.inconsistent,
            },
            engine: self.status.engine.clone(),
            was_writable: self.was_writable,
            job: self.job.as_ref().map(|job| job.kind),
            towards: self.towards.clone(),
            retry: self.failures.map(|(kind, _, at)| (kind, at)),
            failing: self.failed_starts >= events::FAILED_STARTS,
            writing: self.writing,
            leaving: self.leaving,
        };
        self.forged(world)
    }

    /// Looks at the server when something about it has changed, and now and then.
    fn start_polling(&self) {
        let (world, container) = (Rc::clone(&self.world), Rc::clone(&self.container));
        let (generation, pace, inbox) = (Rc::clone(&self.generation), Rc::clone(&self.pace), Rc::clone(&self.inbox));
        self.world.exec.spawn(self.container.agent, async move {
            loop {
                let (seen, progress) = (container.changed.version(), container.progress.version());
                let changed = async {
                    // The successor of a planned hand-over watches its replay.
                    if pace.get() <= 5 {
                        let _ =
                            crate::exec::race(container.changed.since(seen), container.progress.since(progress)).await;
                    } else {
                        container.changed.since(seen).await;
                    }
                };
                let _ = world.within(1_000 * MS, changed).await;
                let late = world.chance(container.stream(), |rng| rng.below(pace.get() * MS + 1));
                world.sleep(late).await;
                let before = generation.get();
                let status = Box::new(server::status(&world, &container));
                inbox.borrow_mut().push_back(Event::Polled(before, status));
                container.events.notify();
            }
        });
    }
}
