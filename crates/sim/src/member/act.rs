//! Carrying a decision out; and what the rules that are switched off make of it.

use super::{Agent, Event, Running, Written};
use crate::rules::Rule;
use crate::server::{self, Phase};
use crate::world::{Failure, MS};
use coregent_core::fence::Fence;
use coregent_core::member::{self, Action, Decision, Engine, Job, JobKind, LeaseWrite, Names, Purpose, Source, World};
use coregent_core::names::{Epoch, Monotonic};
use coregent_core::position::Promotion;
use coregent_core::report::SourceReached;
use std::rc::Rc;

impl Agent {
    pub(super) fn act(&mut self, world: &World, decision: &Decision) {
        for action in &decision.actions {
            match action {
                Action::PersistEpoch(epoch) => self.persist_epoch(*epoch),
                Action::PersistWin(won) => {
                    if let Some(volume) = self.world.volumes.get(self.container.member) {
                        let kept = &mut volume.borrow_mut().kept;
                        kept.attempt_recorded = kept.attempt.as_ref() == Some(won);
                    }
                    self.container.changed.notify();
                    self.container.events.notify();
                }
                Action::Lease(write) => self.write(write),
                Action::Engine(job) => self.begin(job.clone()),
                Action::Exit => self.exit = true,
            }
        }
        self.ask_for_grant(world);
    }

    fn persist_epoch(&mut self, epoch: Epoch) {
        if self.world.is_off(Rule::Durable) {
            super::forget_durably(&self.world, &self.container, epoch);
        } else if let Some(volume) = self.world.volumes.get(self.container.member) {
            volume.borrow_mut().kept.epoch = epoch;
        }
        self.container.changed.notify();
        self.container.events.notify();
    }

    fn ask_for_grant(&mut self, world: &World) {
        let needed = world.is_target()
            && !self.granted
            && world.fence().is_some_and(|fence| fence.history.is_empty() && fence.system_id.is_none());
        if !needed || self.asking {
            return;
        }
        self.asking = true;
        let (world, container, inbox) = (Rc::clone(&self.world), Rc::clone(&self.container), Rc::clone(&self.inbox));
        self.world.exec.spawn(self.container.agent, async move {
            let request = world.call(container.place(), "agent.grant", |store| Ok(store.state.grant.clone()));
            let found = world.within(1_000 * MS, request).await;
            let granted = matches!(found, Some(Ok(Some(member))) if member == container.name);
            if !granted {
                world.sleep(200 * MS).await;
            }
            inbox.borrow_mut().push_back(Event::Granted(granted));
            container.events.notify();
        });
    }

    fn write(&mut self, write: &LeaseWrite) {
        let Some(received) = &self.received else { return };
        let now = self.now();
        self.retry_write_at.take_if(|at| *at <= now);
        if self.writing || (self.retry_write_at.is_some() && write.purpose != Purpose::Renew) {
            return;
        }
        self.writing = true;
        self.retry_write_at = None;
        let version = (!self.world.is_off(Rule::F1Version)).then_some(received.lease.version);
        let (world, container, inbox) = (Rc::clone(&self.world), Rc::clone(&self.container), Rc::clone(&self.inbox));
        let (purpose, fence, me) = (write.purpose, Rc::new(write.fence.clone()), self.me.to_string());
        let epoch = received.lease.epoch;
        if purpose != Purpose::Renew {
            self.world.note(&self.me.member, || format!("writes the Lease of epoch {epoch}: {purpose:?}"));
        }
        self.world.exec.spawn(self.container.agent, async move {
            let label = match purpose {
                Purpose::Take => "lease.take",
                Purpose::Renew => "lease.renew",
                Purpose::Release => "lease.release",
            };
            let request = world.call(container.place(), label, move |store| {
                let stamp = store.stamp();
                store.replace_lease(version, |lease| {
                    match purpose {
                        Purpose::Take => lease.holder = me,
                        Purpose::Renew => {}
                        Purpose::Release => lease.holder.clear(),
                    }
                    if version.is_none() {
                        lease.epoch = epoch;
                    }
                    lease.renewed = stamp;
                    lease.fence = fence;
                })
            });
            let limit = world.setup.timing.request * MS;
            let written = match world.within(limit, request).await {
                Some(Ok(lease)) => Written::Done(lease),
                Some(Err(Failure::Refused(_))) => {
                    let asked = world.clock(container.place());
                    let read = world.call(container.place(), "lease.read", |store| Ok(store.state.lease.clone()));
                    match world.within(limit, read).await {
                        Some(Ok(lease)) => Written::Conflict(lease, asked),
                        _ => Written::Failed,
                    }
                }
                _ => Written::Failed,
            };
            inbox.borrow_mut().push_back(Event::Written(purpose, now, written));
            container.events.notify();
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
            self.world.exec.abort(running.task);
        }
        if kind == JobKind::Promote {
            self.was_writable = true;
        }
        if let Some(towards) = job.towards() {
            self.towards = towards.cloned();
        }
        self.container.doing.set(name_of(kind));
        self.world.note(&self.me.member, || format!("begins {kind:?}"));
        self.serial += 1;
        self.generation.set(self.generation.get() + 1);
        let (world, container, inbox) = (Rc::clone(&self.world), Rc::clone(&self.container), Rc::clone(&self.inbox));
        let serial = self.serial;
        let task = self.world.exec.spawn(self.container.agent, async move {
            let result = server::run(Rc::clone(&world), Rc::clone(&container), job).await;
            let status = Box::new(server::status(&world, &container));
            container.doing.set("idle");
            inbox.borrow_mut().push_back(Event::Ended(serial, result, status));
            container.events.notify();
        });
        self.job = Some(Running { kind, serial, task });
    }

    /// Whom it is to stream from, while it does not.
    pub(super) fn source_without_stream(&self) -> Option<&Source> {
        match &self.status.engine {
            Engine::Standby(standby) if !standby.streaming => standby.source.as_ref(),
            _ => None,
        }
    }

    /// What comes of a connection to the agent of a source whose stream has ended.
    pub(super) fn look_for_source(&mut self) {
        let Some(source) = self.source_without_stream().filter(|_| !self.reaching).cloned() else { return };
        let answered = self.reached.as_ref().is_some_and(|reached| reached.member == source.member);
        self.reaching = true;
        let (world, container, inbox) = (Rc::clone(&self.world), Rc::clone(&self.container), Rc::clone(&self.inbox));
        self.world.exec.spawn(self.container.agent, async move {
            if answered {
                world.sleep(250 * MS).await;
            }
            let reach = server::reach(&world, &container, &source).await;
            inbox.borrow_mut().push_back(Event::Reached(SourceReached { member: source.member, reach }));
            container.events.notify();
        });
    }

    pub(super) fn listen_for_exit(&mut self) {
        self.server_serial += 1;
        let (container, inbox, serial) = (Rc::clone(&self.container), Rc::clone(&self.inbox), self.server_serial);
        let run = container.server.borrow().run;
        self.world.exec.spawn(self.container.agent, async move {
            loop {
                let seen = container.exited.version();
                {
                    let server = container.server.borrow();
                    if server.run != run {
                        return;
                    }
                    if server.phase == Phase::Off || server.orphaned {
                        break;
                    }
                }
                container.exited.since(seen).await;
            }
            inbox.borrow_mut().push_back(Event::Exited(serial));
            container.events.notify();
        });
    }

    /// What is observed where a rule is off.
    pub(super) fn forged(&self, mut world: World) -> World {
        if self.world.off == crate::rules::Rules::default() {
            return world;
        }
        let is_off = |rule| self.world.is_off(rule);
        if let Some(lease) = &mut world.lease
            && let Ok(fence) = &mut lease.fence
        {
            if is_off(Rule::F2Duration) {
                lease.since = Monotonic(lease.since.0.saturating_sub(4_000));
            }
            if is_off(Rule::F2Candidate) {
                lease.since = Monotonic(0);
            }
            let free = lease.holder.is_none();
            if is_off(Rule::F1Target)
                && free
                && let Some(target) = &mut fence.target
            {
                target.member = world.me.member.clone();
            }
            if is_off(Rule::F10Reach)
                && let Some(target) = &mut fence.target
            {
                target.must_reach_lsn = None;
                target.rest_of_log = None;
            }
            if is_off(Rule::F7EmptySet) {
                for set in &mut fence.sync_sets {
                    set.degraded |= set.members.is_empty() && Some(set.epoch) == Some(lease.epoch);
                }
            }
            if is_off(Rule::F9FreshCopy) {
                world.volume.attempt_recorded = true;
                let chain = fence.chain.clone();
                let known = |promotion: &Promotion| chain.iter().any(|other| other.timeline == promotion.timeline);
                match &mut world.engine {
                    Engine::Stopped { position: Some(position) } => position.chain.retain(known),
                    Engine::Standby(standby) => standby.position.chain.retain(known),
                    _ => {}
                }
            }
            if is_off(Rule::F14Restored) {
                fence.restored = false;
            }
        }
        if is_off(Rule::F2Deadline) {
            world.settings.timing.stop_by = 1_000_000;
        }
        if is_off(Rule::F11Renewal)
            && let (Some(held), Engine::Writable(writable)) = (&mut world.held, &world.engine)
        {
            held.sent = held.sent.max(writable.since);
        }
        if let Engine::Writable(writable) = &mut world.engine {
            writable.proved |= is_off(Rule::F8Prove) && matches!(writable.names, Names::Any { .. });
        }
        world
    }

    /// What is done where a rule is off.
    pub(super) fn tampered(&self, world: &World, mut decision: Decision) -> Decision {
        if self.world.off == crate::rules::Rules::default() {
            return decision;
        }
        let is_off = |rule| self.world.is_off(rule);
        for action in &mut decision.actions {
            match action {
                Action::Lease(write) => self.tamper_write(world, write),
                Action::Engine(Job::Rewind { source, chain }) if is_off(Rule::F12Rewind) => {
                    let (follow, names) = (Some((source.clone(), chain.clone())), Names::Placeholder);
                    *action = Action::Engine(Job::Start { writable: false, follow, names });
                }
                _ => {}
            }
        }
        if is_off(Rule::F11Unexpected) {
            let kills = |action: &Action| {
                matches!(action, Action::Engine(Job::Stop { reason: member::UNEXPECTED_PRIMARY, .. }))
            };
            decision.actions.retain(|action| !kills(action));
        }
        if is_off(Rule::F8RecordFirst) {
            self.weaken_first(world, &mut decision);
        }
        if is_off(Rule::EffectAfterIntent) {
            self.promote_first(world, &mut decision);
        }
        decision
    }

    fn tamper_write(&self, world: &World, write: &mut LeaseWrite) {
        if self.world.is_off(Rule::F10End)
            && let Some(release) = write.fence.release.as_mut().filter(|_| write.purpose == Purpose::Release)
        {
            release.end_lsn.0 = release.end_lsn.0.saturating_sub(3_000);
        }
        if self.world.is_off(Rule::F7EmptySet) {
            // Only what runs is empty, not what is recorded.
            let empty = write.fence.sync_sets.iter_mut().filter(|set| set.members.is_empty());
            empty.for_each(|set| set.degraded &= Some(set.epoch) != world.epoch());
        }
        if self.world.is_off(Rule::F7Complete) {
            for set in &mut write.fence.sync_sets {
                set.complete |= Some(set.epoch) == world.epoch();
            }
            let epoch = world.epoch();
            write.fence.sync_sets.retain(|set| Some(set.epoch) >= epoch);
        }
    }

    /// Names that are about to be recorded are in force before.
    fn weaken_first(&self, world: &World, decision: &mut Decision) {
        let Engine::Writable(writable) = &world.engine else { return };
        let written = decision.actions.iter().find_map(|action| match action {
            Action::Lease(write) => {
                write.fence.sync_sets.iter().find(|set| Some(set.epoch) == world.epoch() && set.degraded)
            }
            _ => None,
        });
        if written.is_some() && writable.names != Names::Nobody {
            decision.actions.retain(|action| !matches!(action, Action::Lease(_)));
            decision.actions.push(Action::Engine(Job::SetNames(Names::Nobody)));
        }
    }

    /// The promotion is asked for although the attempt is not written yet.
    fn promote_first(&self, world: &World, decision: &mut Decision) {
        let take = decision.actions.iter().find_map(|action| match action {
            Action::Lease(write) if write.purpose == Purpose::Take => Some(write.fence.clone()),
            _ => None,
        });
        if let (Some(fence), Engine::Standby(_), None) = (take, &world.engine, world.job) {
            let last: Option<&coregent_core::fence::Attempt> = fence.history.last();
            if let Some(attempt) = last.map(|attempt| attempt.promotion.clone()) {
                let deadline = self.now().plus(5_000);
                self.container.deadline.set(Some(deadline));
                let (names, slots) = (names_of(&fence, attempt.epoch), fence.members.clone());
                let chain = fence.chain.clone();
                decision.actions.insert(0, Action::Engine(Job::Promote { attempt, chain, names, slots }));
            }
        }
    }
}

fn names_of(fence: &Fence, epoch: Epoch) -> Names {
    match fence.sync_sets.iter().find(|set| set.epoch == epoch) {
        None => Names::Nobody,
        Some(set) if set.members.is_empty() => Names::Placeholder,
        Some(set) => Names::Any { k: set.k, members: set.members.clone() },
    }
}

/// For the coverage of faults.
fn name_of(kind: JobKind) -> &'static str {
    match kind {
        JobKind::InitDb => "job.initdb",
        JobKind::Clone => "job.clone",
        JobKind::Rewind => "job.rewind",
        JobKind::Start => "job.start",
        JobKind::SetUp => "job.set-up",
        JobKind::Leave => "job.leave",
        JobKind::Fetch => "job.fetch",
        JobKind::Follow => "job.follow",
        JobKind::Promote => "job.promote",
        JobKind::Open => "job.open",
        JobKind::Checkpoint => "job.checkpoint",
        JobKind::SetNames => "job.set-names",
        JobKind::Strengthen => "job.strengthen",
        JobKind::Marker => "job.marker",
        JobKind::Slots => "job.slots",
        JobKind::Stop => "job.stop",
    }
}
