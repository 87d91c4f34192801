//! What an event changes.

use super::{Agent, Event, Received, Written};
use crate::server::{self, Outcome, Status};
use crate::store::LeaseObject;
use coregent_core::member::{Data, Engine, Held, Job, JobKind, Purpose};
use coregent_core::names::{MemberName, Monotonic};
use std::rc::Rc;

/// The server ended this often while it was starting: until the next try it is no candidate.
pub(super) const FAILED_STARTS: u32 = 3;
/// Time between two looks at a data folder that cannot be used.
const LOOK_AGAIN: u64 = 2_000;

impl Agent {
    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Seen(lease, asked) => self.receive(lease, asked),
            Event::Gap => {
                self.outlet.doubt();
                let now = self.now();
                if let Some(received) = &mut self.received
                    && !self.world.is_off(crate::rules::Rule::F2Gap)
                {
                    received.since = now;
                }
            }
            Event::Written(purpose, sent, written) => self.written(purpose, sent, written),
            Event::Granted(granted) => {
                self.granted = granted;
                self.asking = false;
            }
            Event::Polled(generation, status) => {
                if generation == self.generation.get() && !self.busy_with(JobKind::Stop) {
                    self.observed(*status);
                }
            }
            Event::Ended(serial, result, status) => self.ended(serial, result, *status),
            Event::Exited(serial) => self.exited(serial),
            Event::Reached(reached) => {
                self.reaching = false;
                if self.may_speak_of(&reached.member) {
                    self.reached = Some(reached);
                }
            }
            Event::Terminate => self.leaving = true,
        }
    }

    /// It may stream again meanwhile, or from somebody else.
    fn may_speak_of(&self, member: &MemberName) -> bool {
        match &self.status.engine {
            Engine::Standby(standby) if !standby.streaming => {
                standby.source.as_ref().is_none_or(|source| source.member == *member)
            }
            _ => false,
        }
    }

    fn busy_with(&self, kind: JobKind) -> bool {
        self.job.as_ref().is_some_and(|job| job.kind == kind)
    }

    /// Takes in a state of the Lease unless it is older than what is known.
    fn receive(&mut self, lease: Rc<LeaseObject>, asked: Option<Monotonic>) {
        let now = self.now();
        let mut epoch_since = now;
        if let Some(known) = &self.received {
            if known.lease.version == lease.version {
                return;
            }
            let older = lease.version < known.lease.version;
            if older && asked.is_none_or(|asked| asked <= self.answered) {
                return;
            }
            if known.lease.epoch == lease.epoch {
                epoch_since = known.epoch_since;
            }
        }
        let differs = |known: &LeaseObject| known.fence != lease.fence || known.holder != lease.holder;
        let news = epoch_since == now || self.received.as_ref().is_some_and(|known| differs(&known.lease));
        self.received = Some(Received { lease, since: now, epoch_since });
        if news {
            self.expecting_since = now;
            self.set_pace();
        }
    }

    fn written(&mut self, purpose: Purpose, sent: Monotonic, written: Written) {
        self.writing = false;
        self.answered = self.now();
        match written {
            Written::Done(lease) => {
                match purpose {
                    Purpose::Take | Purpose::Renew => {
                        self.held = Some(Held { epoch: lease.epoch, sent, tried: sent, failed: false });
                    }
                    Purpose::Release => {
                        self.released = self.held.as_ref().map(|held| held.epoch).or(self.released);
                        self.held = None;
                        self.was_writable = false;
                    }
                }
                if purpose == Purpose::Take {
                    self.was_writable = false;
                }
                self.receive(lease, Some(self.answered.plus(1)));
            }
            Written::Conflict(lease, asked) => {
                let renew = self.settings.timing.renew;
                if let Some(held) = &mut self.held {
                    held.tried = Monotonic(sent.0.saturating_sub(renew));
                    held.failed = false;
                }
                if let Some(lease) = lease {
                    self.receive(lease, Some(asked.plus(1)));
                }
            }
            Written::Failed => {
                if let Some(held) = &mut self.held {
                    held.tried = sent;
                    held.failed = true;
                }
                self.retry_write_at = Some(self.now().plus(200));
            }
        }
    }

    fn ended(&mut self, serial: u64, result: Outcome, status: Status) {
        let Some(job) = self.job.take_if(|job| job.serial == serial) else { return };
        self.generation.set(self.generation.get() + 1);
        match result {
            Ok(started) => {
                if started {
                    self.listen_for_exit();
                }
                let over = |kind| kind == job.kind || (kind == JobKind::Fetch && job.kind == JobKind::Leave);
                if self.failures.is_some_and(|(kind, ..)| over(kind)) {
                    self.failures = None;
                }
            }
            Err(error) => {
                let count = self.failures.filter(|(kind, ..)| *kind == job.kind).map_or(0, |(_, count, _)| count);
                let pause = (100_u64 << count.min(7)).min(10_000);
                self.failures = Some((job.kind, count + 1, self.now().plus(pause)));
                self.world.note(&self.me.member, || format!("{:?} failed: {error}", job.kind));
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
        if std::mem::discriminant(&status.engine) != std::mem::discriminant(&self.status.engine) {
            self.expecting_since = self.now();
        }
        match &status.engine {
            Engine::Standby(standby) => {
                self.server_answered(false);
                let streamed = matches!(&self.status.engine, Engine::Standby(before) if before.streaming);
                if standby.streaming {
                    self.reached = None;
                }
                if standby.streaming && !streamed {
                    server::drop_old_aside(&self.world, &self.container);
                }
            }
            Engine::Writable(_) => {
                self.server_answered(true);
                self.was_writable = true;
                self.reached = None;
            }
            Engine::Stopped { .. } | Engine::Starting => {}
        }
        self.status = status;
        self.set_pace();
        self.look_for_source();
    }

    fn server_answered(&mut self, writable: bool) {
        self.failed_starts = 0;
        if let Some(volume) = self.world.volumes.get(self.container.member)
            && !writable
        {
            volume.borrow_mut().kept.inconsistent = false;
        }
    }

    fn exited(&mut self, serial: u64) {
        if serial != self.server_serial || self.busy_with(JobKind::Stop) {
            return;
        }
        let starting = matches!(self.status.engine, Engine::Starting | Engine::Stopped { .. });
        if starting && !self.leaving {
            self.failed_starts += 1;
            let pause = (250_u64 << self.failed_starts.min(7)).min(30_000);
            self.failures = Some((JobKind::Start, self.failed_starts, self.now().plus(pause)));
            if self.failed_starts >= FAILED_STARTS {
                self.was_writable = true;
            }
        }
        self.begin(Job::Stop { fast: false, diverged: false, reason: "the server ended by itself" });
    }

    pub(super) fn look_at_data(&mut self) {
        self.data = server::data(&self.world, &self.container);
        self.looked_at_data = self.now();
    }

    pub(super) fn look_at_unusable_data(&mut self) {
        let unusable = matches!(self.data, Data::Broken(_) | Data::Unusable(_));
        let stopped = self.job.is_none() && matches!(self.status.engine, Engine::Stopped { .. });
        if !unusable || !stopped || self.now().since(self.looked_at_data) < LOOK_AGAIN {
            return;
        }
        self.look_at_data();
        if matches!(self.data, Data::Present { .. }) {
            self.begin(Job::Stop { fast: false, diverged: false, reason: "the data folder has been mended" });
        }
    }

    /// How soon a change of the server is seen, milliseconds.
    fn set_pace(&mut self) {
        let recent = self.now().since(self.expecting_since) < 30_000;
        let epoch = self.received.as_ref().map(|received| received.lease.epoch);
        let pace = match &self.status.engine {
            Engine::Starting => 10,
            Engine::Standby(standby) if standby.source.as_ref().is_some_and(|source| Some(source.epoch) < epoch) => 5,
            Engine::Standby(standby) if standby.source.is_some() && !standby.streaming && recent => 20,
            Engine::Writable(_) if recent => 20,
            _ => 1_000,
        };
        if pace < self.pace.replace(pace) {
            self.container.changed.notify();
        }
    }
}
