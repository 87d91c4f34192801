//! The loop of one member's agent: events in, a decision, its actions out.
//!
//! Everything that waits runs as a task and comes back as an [`Event`], so that a raise or a renewal is handled at once
//! whatever else goes on.

mod act;
mod events;
mod observe;

use crate::clock::Clock;
use crate::config::Config;
use crate::engine::{Engine, ServerEnd, Status};
use crate::health::{Health, Shown};
use crate::lease::{self, Seen, Written};
use crate::report::{Publisher, Wanted};
use coregent_core::member::{self, Data, Decision, Held, Job, JobKind, Purpose, Source, decide};
use coregent_core::names::{Epoch, HolderIdentity, Monotonic};
use coregent_core::report::{MemberReport, SourceReached};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// What an agent runs with.
pub struct Parts<E> {
    /// Whose agent it is.
    pub config: Config,
    /// This run of it.
    pub me: HolderIdentity,
    /// The Leases of its namespace.
    pub leases: Api<Lease>,
    /// Its server.
    pub engine: Rc<E>,
    /// Its clock.
    pub clock: Clock,
    /// What its endpoint shows.
    pub health: Health,
}

/// Runs a member's agent until it is told to end and has left cleanly. Everything that it waits for runs on the current
/// task set, which the caller drops when the agent is to be gone without a trace.
pub async fn run<E: Engine>(parts: Parts<E>, told_to_end: CancellationToken) {
    let (events, incoming) = mpsc::unbounded_channel();
    let request = Duration::from_millis(parts.config.settings.timing.request);
    let seen = events.clone();
    let primary = format!("{}-primary", parts.config.cluster);
    tokio::task::spawn_local(lease::watch(parts.leases.clone(), primary, parts.clock, request, move |what| {
        seen.send(Event::Seen(what)).is_ok()
    }));
    let (wanted, wanted_in) = watch::channel(Wanted::default());
    let (done, published) = watch::channel(None);
    let publisher = Publisher {
        api: parts.leases.clone(),
        name: format!("{}-member", parts.config.member),
        labels: Publisher::labels(&parts.config.cluster, parts.config.member.as_str()),
        request,
    };
    tokio::task::spawn_local(publisher.run(wanted_in, done));
    let told = events.clone();
    tokio::task::spawn_local(async move {
        told_to_end.cancelled().await;
        let _ = told.send(Event::Terminate); // the loop is gone only when the process ends
    });
    let outlets = Outlets { wanted, published, health: parts.health.clone() };
    Agent::new(parts, outlets, events).run(incoming).await;
}

/// What happens to an agent.
pub(crate) enum Event {
    Seen(Seen),
    Written {
        purpose: Purpose,
        sent: Monotonic,
        result: Written,
    },
    Granted(bool),
    Polled {
        generation: u64,
        status: Box<Status>,
    },
    Ended {
        serial: u64,
        result: Result<Option<ServerEnd>, String>,
        status: Box<Status>,
    },
    ServerExited {
        serial: u64,
        how: String,
    },
    /// What came of a connection to the source.
    Reached(SourceReached),
    Terminate,
}

/// The primary Lease as it was received last.
struct Received {
    lease: Lease,
    since: Monotonic,
    epoch_since: Monotonic,
}

struct Running {
    kind: JobKind,
    serial: u64,
    abort: AbortHandle,
}

/// Ends of the channels to the agent's other tasks.
pub(crate) struct Outlets {
    pub(crate) wanted: watch::Sender<Wanted>,
    pub(crate) published: watch::Receiver<Option<MemberReport>>,
    pub(crate) health: Health,
}

/// The agent of one member.
pub(crate) struct Agent<E: Engine> {
    config: Config,
    me: HolderIdentity,
    leases: Api<Lease>,
    engine: Rc<E>,
    clock: Clock,
    outlets: Outlets,
    events: mpsc::UnboundedSender<Event>,
    received: Option<Received>,
    /// A read asked before this instant may be older than the answer to our own write.
    answered: Monotonic,
    held: Option<Held>,
    released: Option<Epoch>,
    was_writable: bool,
    granted: bool,
    asking_for_grant: bool,
    writing: bool,
    retry_write_at: Option<Monotonic>,
    data: Data,
    leaving: bool,
    job: Option<Running>,
    /// Whom the newest start or follow that was begun is to stream from.
    towards: Option<Source>,
    serial: u64,
    server_serial: u64,
    /// Grows with every job that begins or ends: a poll that spans one says nothing.
    generation: Rc<Cell<u64>>,
    poll: Rc<Notify>,
    pace: Rc<Cell<Duration>>,
    status: Status,
    /// What came of the last connection to a source whose stream had ended.
    reached: Option<SourceReached>,
    reaching: bool,
    /// Since when something is expected to change soon.
    expecting_since: Monotonic,
    failures: Option<(JobKind, u32, Monotonic)>,
    failed_starts: u32,
    looked_at_data: Monotonic,
    jobs_failed: u64,
    last_error: Option<String>,
    last_wait: Option<String>,
    /// Its server was found writable without the Lease, and has not followed anybody since.
    unexpected_primary: bool,
    /// Interruptions of the watch.
    gaps: u64,
    exit: bool,
}

impl<E: Engine> Agent<E> {
    fn new(parts: Parts<E>, outlets: Outlets, events: mpsc::UnboundedSender<Event>) -> Agent<E> {
        let Parts { config, me, leases, engine, clock, .. } = parts;
        Agent {
            config,
            me,
            leases,
            engine,
            clock,
            outlets,
            events,
            received: None,
            answered: Monotonic(0),
            held: None,
            released: None,
            was_writable: false,
            granted: false,
            asking_for_grant: false,
            writing: false,
            retry_write_at: None,
            data: Data::Absent,
            leaving: false,
            job: None,
            towards: None,
            serial: 0,
            server_serial: 0,
            generation: Rc::new(Cell::new(0)),
            poll: Rc::new(Notify::new()),
            pace: Rc::new(Cell::new(Duration::from_secs(1))),
            status: Status {
                engine: member::Engine::Stopped { position: None },
                standbys: Vec::new(),
                warnings: BTreeSet::new(),
            },
            unexpected_primary: false,
            reached: None,
            reaching: false,
            gaps: 0,
            expecting_since: clock.now(),
            failures: None,
            failed_starts: 0,
            looked_at_data: Monotonic(0),
            jobs_failed: 0,
            last_error: None,
            last_wait: None,
            exit: false,
        }
    }

    /// Runs until a clean leave is done.
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        self.start_polling();
        // Whatever a predecessor left running ends first, and the end of the local log is read.
        self.begin(Job::Stop { fast: false, diverged: false, reason: "the agent starts" });
        while !self.exit {
            let decision = self.turn();
            // A retry that is due and not taken up is not needed any more.
            let now = self.clock.now();
            self.retry_write_at.take_if(|at| *at <= now);
            let wake = [decision.wake, self.retry_write_at]
                .into_iter()
                .flatten()
                .map(|at| self.clock.until(at))
                .fold(Duration::from_secs(5), Duration::min);
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.apply(event),
                    None => break,
                },
                () = tokio::time::sleep(wake) => {}
            }
            while let Ok(event) = events.try_recv() {
                self.apply(event);
            }
        }
        self.say_goodbye().await;
    }

    /// One look at the world, and what follows from it.
    fn turn(&mut self) -> Decision {
        self.forget_what_was_lost();
        self.look_at_unusable_data();
        let world = self.observe();
        let decision = decide(&world);
        self.engine.arm(world.deadline());
        if decision.waiting_for != self.last_wait {
            if let Some(what) = &decision.waiting_for {
                tracing::info!("waits for {what}");
            }
            self.last_wait.clone_from(&decision.waiting_for);
        }
        if decision.ready {
            self.last_error = None; // whatever it was, it is over
        }
        self.act(&world, &decision);
        self.publish(&world, &decision);
        let position = observe::position(&world.engine);
        self.outlets.health.show(Shown {
            turned: self.clock.now(),
            ready: decision.ready,
            state: format!("{:?}", decision.state),
            epoch: world.volume.epoch.0,
            timeline: position.map_or(0, |position| position.timeline.0),
            lsn: position.map_or(0, |position| position.lsn.0),
            holding: world.holding(),
            log_is_final: matches!(world.engine, member::Engine::Stopped { .. }) && self.job.is_none(),
            jobs_failed: self.jobs_failed,
        });
        decision
    }

    /// Another holds the Lease and every process here is gone: there is nothing left to release.
    fn forget_what_was_lost(&mut self) {
        let others = self.received.as_ref().is_some_and(|received| {
            let holder = received.lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
            holder.is_some_and(|holder| *holder != self.me.to_string())
        });
        if others
            && self.held.is_some()
            && self.job.is_none()
            && matches!(self.status.engine, member::Engine::Stopped { .. })
        {
            tracing::info!("another has taken the Lease");
            self.held = None;
            self.was_writable = false;
        }
    }

    /// The last report goes out before the process ends, if the API answers.
    async fn say_goodbye(&mut self) {
        let wanted = self.outlets.wanted.borrow().report.clone();
        let said = self.outlets.published.wait_for(|published| *published == wanted);
        if tokio::time::timeout(Duration::from_secs(1), said).await.is_err() {
            tracing::info!("the last report could not be published in a second");
        }
    }
}
