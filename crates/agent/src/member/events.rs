//! What an event changes.

use super::{Agent, Event, Received, observe};
use crate::engine::{Engine, ServerEnd, Status};
use crate::lease::{Seen, Written};
use coregent_core::member::{self, Data, Held, JobKind, Purpose};
use coregent_core::names::{MemberName, Monotonic};
use k8s_openapi::api::coordination::v1::Lease;

/// The server ended this often while it was starting: until the next try it is no candidate.
pub(super) const FAILED_STARTS: u32 = 3;

/// Time between two looks at a data folder that cannot be used.
const LOOK_AGAIN_MILLIS: u64 = 2_000;

impl<E: Engine> Agent<E> {
    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Seen(Seen::Lease { lease, asked }) => self.receive(*lease, asked),
            Event::Seen(Seen::Absent) => {} // nothing is granted by an absent object, and nothing taken away (F4)
            Event::Seen(Seen::Gap(reason)) => {
                tracing::info!(reason, "the watch of the primary Lease was interrupted");
                self.gaps += 1;
                if let Some(received) = &mut self.received {
                    received.since = self.clock.now();
                }
            }
            Event::Written { purpose, sent, result } => self.written(purpose, sent, result),
            Event::Granted(granted) => {
                self.granted = granted;
                self.asking_for_grant = false;
            }
            Event::Polled { generation, status } => {
                if generation == self.generation.get() && !self.busy_with(JobKind::Stop) {
                    self.observed(*status);
                }
            }
            Event::Ended { serial, result, status } => self.ended(serial, result, *status),
            Event::ServerExited { serial, how } => self.server_exited(serial, &how),
            Event::Reached(reached) => {
                self.reaching = false;
                if self.may_speak_of(&reached.member) {
                    self.reached = Some(reached);
                }
            }
            Event::Terminate => {
                tracing::info!("told to end: leaves cleanly");
                self.leaving = true;
            }
        }
    }

    /// Whether what came of a connection to `member` still says something: it may stream again meanwhile, or from somebody
    /// else. Who has left for a round since has no source, and its word on the last one is what that round goes by.
    fn may_speak_of(&self, member: &MemberName) -> bool {
        match &self.status.engine {
            member::Engine::Standby(standby) if !standby.streaming => {
                standby.source.as_ref().is_none_or(|source| source.member == *member)
            }
            _ => false,
        }
    }

    /// Takes in a state of the Lease unless it is older than what is known.
    fn receive(&mut self, lease: Lease, asked: Option<Monotonic>) {
        let version =
            |lease: &Lease| lease.metadata.resource_version.as_ref().and_then(|text| text.parse::<u64>().ok());
        let now = self.clock.now();
        let mut epoch_since = now;
        if let Some(known) = &self.received {
            let (old, new) = (version(&known.lease), version(&lease));
            if old == new && known.lease.metadata.uid == lease.metadata.uid {
                return; // the same state: its age counts on
            }
            let older = known.lease.metadata.uid == lease.metadata.uid && new < old;
            // A restored store shows lower versions; a late answer does too, but was asked for earlier.
            if older && asked.is_none_or(|asked| asked <= self.answered) {
                return;
            }
            if observe::epoch(&known.lease) == observe::epoch(&lease) {
                epoch_since = known.epoch_since;
            }
        }
        let news = epoch_since == now || self.received.as_ref().is_some_and(|known| differs(&known.lease, &lease));
        self.received = Some(Received { lease, since: now, epoch_since });
        if news {
            self.expecting_since = now;
            self.set_pace();
        }
    }

    fn written(&mut self, purpose: Purpose, sent: Monotonic, result: Written) {
        self.writing = false;
        self.answered = self.clock.now();
        match result {
            Written::Done(lease) => {
                let epoch = observe::epoch(&lease);
                match purpose {
                    Purpose::Take | Purpose::Renew => {
                        self.held = Some(Held { epoch, sent, tried: sent, failed: false });
                    }
                    Purpose::Release => {
                        tracing::info!(%epoch, "released the Lease");
                        // The epoch in which it held: named again after a raise, it takes the Lease like anybody else.
                        self.released = self.held.as_ref().map(|held| held.epoch).or(self.released);
                        self.held = None;
                        self.was_writable = false;
                    }
                }
                if purpose == Purpose::Take {
                    tracing::info!(%epoch, "took the Lease");
                    self.was_writable = false;
                }
                self.receive(*lease, Some(self.answered.plus(1)));
            }
            Written::Conflict(lease, asked) => {
                if let Some(held) = &mut self.held {
                    // Due again at once, on the state that was read since.
                    held.tried = Monotonic(sent.0.saturating_sub(self.config.settings.timing.renew));
                    held.failed = false;
                }
                if let Some(lease) = lease {
                    self.receive(*lease, Some(asked.plus(1)));
                }
            }
            Written::Failed(reason) => {
                tracing::warn!(reason, ?purpose, "a write of the Lease failed");
                if let Some(held) = &mut self.held {
                    held.tried = sent;
                    held.failed = true;
                }
                self.retry_write_at = Some(self.clock.now().plus(200));
            }
        }
    }

    fn ended(&mut self, serial: u64, result: Result<Option<ServerEnd>, String>, status: Status) {
        let Some(job) = self.job.take_if(|job| job.serial == serial) else { return };
        self.generation.set(self.generation.get() + 1);
        match result {
            Ok(server) => {
                if let Some(server) = server {
                    self.listen_for_exit(server);
                }
                tracing::debug!(kind = ?job.kind, "done");
                // A fetch that failed is a matter of its round.
                let over = |kind| kind == job.kind || (kind == JobKind::Fetch && job.kind == JobKind::Leave);
                if self.failures.is_some_and(|(kind, ..)| over(kind)) {
                    self.failures = None;
                    self.last_error = None;
                }
            }
            Err(error) => {
                let count = self.failures.filter(|(kind, ..)| *kind == job.kind).map_or(0, |(_, count, _)| count);
                let pause = (100_u64 << count.min(7)).min(10_000);
                self.failures = Some((job.kind, count + 1, self.clock.now().plus(pause)));
                self.jobs_failed += 1;
                self.last_error = Some(format!("{:?}: {error}", job.kind));
                tracing::warn!(kind = ?job.kind, %error, retry_in_ms = pause, "a job failed");
            }
        }
        if job.kind == JobKind::Promote {
            self.was_writable = true;
        }
        self.look_at_data();
        self.observed(status);
    }

    /// Takes in what the engine says.
    pub(super) fn observed(&mut self, status: Status) {
        let changed = std::mem::discriminant(&status.engine) != std::mem::discriminant(&self.status.engine);
        if changed {
            self.expecting_since = self.clock.now();
        }
        match &status.engine {
            member::Engine::Standby(standby) => {
                self.server_answered(false);
                let streamed =
                    |before: &member::Engine| matches!(before, member::Engine::Standby(before) if before.streaming);
                if standby.streaming {
                    self.reached = None;
                }
                if standby.streaming && !streamed(&self.status.engine) {
                    self.unexpected_primary = false;
                    self.engine.remove_old_set_aside();
                }
            }
            member::Engine::Writable(_) => {
                self.server_answered(true);
                self.reached = None;
                self.was_writable = true;
            }
            member::Engine::Stopped { .. } | member::Engine::Starting => {}
        }
        if !matches!(status.engine, member::Engine::Stopped { .. }) {
            self.engine.take_back_own_settings();
        }
        self.status = status;
        self.set_pace();
        self.look_for_source();
    }

    fn server_answered(&mut self, writable: bool) {
        self.failed_starts = 0;
        if self.engine.durable().inconsistent && !writable {
            // A hot standby answers only once it is consistent.
            if let Err(error) = self.engine.mark_consistent() {
                self.last_error = Some(error.to_string());
            }
        }
    }

    fn server_exited(&mut self, serial: u64, how: &str) {
        if serial != self.server_serial || self.busy_with(JobKind::Stop) {
            return;
        }
        let starting = matches!(self.status.engine, member::Engine::Starting | member::Engine::Stopped { .. });
        tracing::warn!(how, starting, "the server ended by itself");
        if starting && !self.leaving {
            self.failed_starts += 1;
            self.jobs_failed += 1;
            let pause = (250_u64 << self.failed_starts.min(7)).min(30_000);
            self.failures = Some((JobKind::Start, self.failed_starts, self.clock.now().plus(pause)));
            self.last_error = Some(format!("the server ended while it was starting: {how}"));
            if self.failed_starts >= FAILED_STARTS {
                self.was_writable = true; // as holder it holds for nothing: another may do better
            }
        }
        self.engine.server_exited();
        self.begin(member::Job::Stop { fast: false, diverged: false, reason: "the server ended by itself" });
    }

    /// Reads what the data folder is; only jobs change it.
    pub(super) fn look_at_data(&mut self) {
        let data = self.engine.data();
        if data != self.data {
            if let Data::Broken(why) | Data::Unusable(why) = &data {
                tracing::warn!(why, "the data folder cannot be used");
            }
            self.data = data;
        }
        self.looked_at_data = self.clock.now();
    }

    /// A folder that cannot be used is looked at again now and then: a person may have mended it, or taken it away.
    pub(super) fn look_at_unusable_data(&mut self) {
        let unusable = matches!(self.data, Data::Broken(_) | Data::Unusable(_));
        let stopped = self.job.is_none() && matches!(self.status.engine, member::Engine::Stopped { .. });
        if !unusable || !stopped || self.clock.now().since(self.looked_at_data) < LOOK_AGAIN_MILLIS {
            return;
        }
        self.look_at_data();
        if matches!(self.data, Data::Present { .. }) {
            // Where its log ends is read as at the start.
            self.begin(member::Job::Stop { fast: false, diverged: false, reason: "the data folder has been mended" });
        }
    }
}

/// More than a renewal has changed.
fn differs(known: &Lease, lease: &Lease) -> bool {
    let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    known.metadata.annotations != lease.metadata.annotations || holder(known) != holder(lease)
}
