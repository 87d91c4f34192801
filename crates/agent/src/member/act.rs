//! Carrying out a decision.

use super::{Agent, Event, Running};
use crate::engine::{Engine, ServerEnd};
use crate::lease;
use coregent_core::member::{self, Action, Decision, Job, JobKind, LeaseWrite, Purpose, Source, World};
use coregent_core::names::Epoch;
use coregent_core::report::SourceReached;
use std::rc::Rc;
use std::time::Duration;

/// Looks at the server while nothing is expected of it.
const SLOW: Duration = Duration::from_secs(1);

/// Pause between two tries to connect to a source.
const REACH_AGAIN: Duration = Duration::from_millis(250);

/// For so long after a change the engine is looked at often.
const EXPECTING_MILLIS: u64 = 30_000;

impl<E: Engine> Agent<E> {
    pub(super) fn act(&mut self, world: &World, decision: &Decision) {
        for action in &decision.actions {
            match action {
                Action::PersistEpoch(epoch) => {
                    tracing::info!(%epoch, "persists the epoch");
                    let persisted = self.engine.persist_epoch(*epoch);
                    self.persisted("the epoch", persisted);
                }
                Action::PersistWin(won) => {
                    let persisted = self.engine.persist_win(won);
                    self.persisted("that its promotion is recorded", persisted);
                }
                Action::Lease(write) => self.write((**write).clone()),
                Action::Engine(job) => self.begin(job.clone()),
                Action::Exit => self.exit = true,
            }
        }
        self.ask_for_grant(world);
    }

    /// What has been made durable is decided upon at once; what could not be is tried again with the next look.
    fn persisted(&mut self, what: &str, outcome: Result<(), E::Error>) {
        match outcome {
            Ok(()) => self.poll.notify_one(),
            Err(error) => {
                tracing::error!(%error, "cannot persist {what}");
                self.last_error = Some(format!("cannot persist {what}: {error}"));
            }
        }
    }

    /// The bootstrap grant is read only by a target without data (F14).
    fn ask_for_grant(&mut self, world: &World) {
        let needed = world.is_target()
            && !self.granted
            && world.fence().is_some_and(|fence| fence.history.is_empty() && fence.system_id.is_none());
        let Some(name) = self.config.bootstrap_lease.clone().filter(|_| needed && !self.asking_for_grant) else {
            return;
        };
        self.asking_for_grant = true;
        let (leases, events, member) = (self.leases.clone(), self.events.clone(), self.me.member.clone());
        tokio::task::spawn_local(async move {
            let granted = grant(&leases, &name, member.as_str()).await;
            if !granted {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            let _ = events.send(Event::Granted(granted)); // the loop is gone only when the process ends
        });
    }

    fn write(&mut self, write: LeaseWrite) {
        let Some(received) = &self.received else { return };
        if self.retry_write_at.is_some_and(|at| at <= self.clock.now()) {
            self.retry_write_at = None;
        }
        if self.writing
            || self.retry_write_at.is_some_and(|at| self.clock.now() < at && write.purpose != Purpose::Renew)
        {
            return;
        }
        self.writing = true;
        self.retry_write_at = None;
        if write.purpose != Purpose::Renew {
            tracing::info!(purpose = ?write.purpose, "writes the Lease");
        }
        let purpose = write.purpose;
        let (leases, base, me) = (self.leases.clone(), received.lease.clone(), self.me.to_string());
        let request = Duration::from_millis(self.config.settings.timing.request);
        let (clock, events) = (self.clock, self.events.clone());
        // F2: the deadline counts from before the request.
        let sent = self.clock.now();
        tokio::task::spawn_local(async move {
            let result = lease::write(leases, base, me, write, clock, request).await;
            let _ = events.send(Event::Written { purpose, sent, result }); // see above
        });
    }

    /// Starts a job. Only a stop displaces another; what waits for another member gives way to the next round.
    pub(super) fn begin(&mut self, job: Job) {
        let kind = job.kind();
        if let Some(running) = &self.job {
            let gives_way = (kind == JobKind::Leave && running.kind.gives_way())
                || (kind == JobKind::Follow && running.kind == JobKind::Follow);
            if !gives_way && (kind != JobKind::Stop || running.kind == JobKind::Stop) {
                return;
            }
            running.abort.abort();
        }
        if kind == JobKind::Promote {
            self.was_writable = true;
        }
        if let Some(towards) = job.towards() {
            self.towards = towards.cloned();
        }
        if let Job::Stop { reason: member::UNEXPECTED_PRIMARY, .. } = &job {
            self.unexpected_primary = true;
        }
        tracing::info!(?kind, "begins");
        self.serial += 1;
        self.generation.set(self.generation.get() + 1);
        let (serial, engine, events) = (self.serial, Rc::clone(&self.engine), self.events.clone());
        let task = tokio::task::spawn_local(async move {
            let result = engine.run(job).await.map_err(|error| error.to_string());
            let status = Box::new(engine.status().await);
            let _ = events.send(Event::Ended { serial, result, status }); // see above
        });
        self.job = Some(Running { kind, serial, abort: task.abort_handle() });
    }

    pub(super) fn listen_for_exit(&mut self, server: ServerEnd) {
        self.server_serial += 1;
        let (serial, events) = (self.server_serial, self.events.clone());
        tokio::task::spawn_local(async move {
            let how = server.await;
            let _ = events.send(Event::ServerExited { serial, how }); // see above
        });
    }

    /// Whom it is to stream from, while it does not.
    pub(super) fn source_without_stream(&self) -> Option<&Source> {
        match &self.status.engine {
            member::Engine::Standby(standby) if !standby.streaming => standby.source.as_ref(),
            _ => None,
        }
    }

    /// A stream that has ended may be all that is seen of the end of its source: what comes of a connection there tells a
    /// dead agent and a pulled cable from a server that only starts anew, long before anybody else does.
    pub(super) fn look_for_source(&mut self) {
        let Some(source) = self.source_without_stream().filter(|_| !self.reaching).cloned() else { return };
        let answered = self.reached.as_ref().is_some_and(|reached| reached.member == source.member);
        self.reaching = true;
        let (engine, events) = (Rc::clone(&self.engine), self.events.clone());
        tokio::task::spawn_local(async move {
            if answered {
                tokio::time::sleep(REACH_AGAIN).await;
            }
            let reach = engine.reach(&source).await;
            let _ = events.send(Event::Reached(SourceReached { member: source.member, reach })); // see above
        });
    }

    /// Looks at the server in the pace that `set_pace` says.
    pub(super) fn start_polling(&self) {
        let (engine, events) = (Rc::clone(&self.engine), self.events.clone());
        let (generation, poll, pace) = (Rc::clone(&self.generation), Rc::clone(&self.poll), Rc::clone(&self.pace));
        tokio::task::spawn_local(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(pace.get()) => {}
                    () = poll.notified() => {}
                    () = engine.stream_ended() => {}
                }
                let before = generation.get();
                let status = Box::new(engine.status().await);
                if events.send(Event::Polled { generation: before, status }).is_err() {
                    return;
                }
            }
        });
    }

    pub(super) fn set_pace(&mut self) {
        let recent = self.clock.now().since(self.expecting_since) < EXPECTING_MILLIS;
        let members = self.received.as_ref().map_or(0, |_| self.expected_standbys());
        let epoch = self.received.as_ref().map_or(Epoch(0), |received| super::observe::epoch(&received.lease));
        let pace = match &self.status.engine {
            member::Engine::Starting => Duration::from_millis(10),
            // The successor of a planned hand-over watches its replay.
            member::Engine::Standby(standby) if standby.source.as_ref().is_some_and(|source| source.epoch < epoch) => {
                Duration::from_millis(5)
            }
            member::Engine::Standby(standby) if standby.source.is_some() && !standby.streaming && recent => {
                Duration::from_millis(20)
            }
            member::Engine::Writable(writable)
                if recent
                    && writable.standbys.values().filter(|seen| seen.caught_up && seen.sync).count() < members =>
            {
                Duration::from_millis(20)
            }
            // Whoever waits for it waits to hand over.
            member::Engine::Writable(writable) if recent && writable.checkpointing => Duration::from_millis(20),
            _ => SLOW,
        };
        if pace < self.pace.replace(pace) {
            self.poll.notify_one();
        }
    }

    fn expected_standbys(&self) -> usize {
        self.observe().fence().map_or(0, |fence| fence.members.len().saturating_sub(1))
    }
}

async fn grant(leases: &kube::Api<k8s_openapi::api::coordination::v1::Lease>, name: &str, member: &str) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(1), leases.get_opt(name)).await;
    let Ok(Ok(Some(lease))) = read else { return false };
    let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(BOOTSTRAP)).cloned().unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    value.get("member").and_then(serde_json::Value::as_str) == Some(member)
}

/// Annotation of the bootstrap grant.
const BOOTSTRAP: &str = "coregent.io/bootstrap";
