//! One task per cluster: look, decide, act, and again until there is nothing to do; then sleep until something that
//! the cluster depends on changes, or until the decision said to look again. No polling, no debounce: a failover does
//! its writes back to back.

use crate::act::{Actor, answered, digest};
use crate::error::Error;
use crate::objects;
use crate::observe::{Held, Key, Refusal, View};
use crate::refused::Refusals;
use crate::status;
use coregent_api::{DatabaseCluster, refusal};
use coregent_core::failover::{Decision, decide};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Looks at every cluster at least so often, whatever is or is not seen.
const RESYNC: Duration = Duration::from_secs(300);
/// First and longest wait after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// Rounds of look, decide, act in one go; more than any operation has steps, so that reaching it is a fault.
const ROUNDS: usize = 64;
/// What the spec asks of rendered objects is written at most so often: somebody else may write them as well, as an operator
/// of another version, and each would undo what the other did as fast as the API goes.
const RENDER_PAUSE: Duration = Duration::from_secs(1);
/// While a primary is being changed the picture in the status is drawn at most so often.
const PICTURE_PAUSE: Duration = Duration::from_millis(250);

/// Runs the controller under the name `instance` until `shutdown`.
pub(crate) async fn run(actor: Actor, instance: String, shutdown: CancellationToken) {
    let reporter = Reporter { controller: "coregent-operator".to_owned(), instance: Some(instance) };
    let (client, cache, metrics) = (actor.client.clone(), actor.cache.clone(), actor.metrics.clone());
    let mut tasks: BTreeMap<Key, JoinHandle<()>> = BTreeMap::new();
    loop {
        if cache.is_complete() {
            metrics.set_ready(true);
        }
        for key in cache.clusters() {
            tasks.entry(key.clone()).or_insert_with(|| {
                let reconciler = Reconciler::new(key, actor.clone(), client.clone(), reporter.clone());
                tokio::spawn(reconciler.run(shutdown.clone()))
            });
        }
        tokio::select! {
            () = cache.roster_changed() => {}
            () = shutdown.cancelled() => break,
        }
    }
    // A write that is under way is let through; the next leader must not meet half of a step.
    for (_, task) in tasks {
        let _ = task.await;
    }
}

struct Reconciler {
    key: Key,
    actor: Actor,
    client: Client,
    reporter: Reporter,
    /// For each reason what was said last, and who counts its repetitions. The Recorder would take any event of the same
    /// reason for a repetition and drop what the new one says.
    said: Mutex<BTreeMap<&'static str, (String, Recorder)>>,
    refusals: Refusals,
    held: Held,
    picture_at: Option<Instant>,
    rendered_at: Option<Instant>,
    retry: Duration,
}

impl Reconciler {
    fn new(key: Key, actor: Actor, client: Client, reporter: Reporter) -> Reconciler {
        Reconciler {
            key,
            actor,
            client,
            reporter,
            said: Mutex::default(),
            refusals: Refusals::default(),
            held: Held::default(),
            picture_at: None,
            rendered_at: None,
            retry: RETRY.0,
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let waker = self.actor.cache.waker(&self.key);
        loop {
            let started = Instant::now();
            let wait = match self.reconcile(&stop).await {
                Ok(wait) => {
                    self.retry = RETRY.0;
                    wait
                }
                Err(error) => {
                    self.actor.metrics.failed(error.reason());
                    tracing::warn!(cluster = %self.key.1, %error, "a step failed; trying again");
                    let wait = self.retry;
                    self.retry = (self.retry * 2).min(RETRY.1);
                    wait
                }
            };
            self.actor.metrics.reconciled(started.elapsed());
            tokio::select! {
                () = waker.notified() => {}
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Goes on until there is nothing to do; how long to sleep then.
    async fn reconcile(&mut self, stop: &CancellationToken) -> Result<Duration, Error> {
        for _ in 0..ROUNDS {
            if stop.is_cancelled() {
                return Ok(RESYNC);
            }
            if !self.actor.cache.is_complete() {
                return self.wait_for_lists().await;
            }
            let Some(mut view) = self.actor.cache.view(&self.key, &mut self.held) else {
                // Gone. The task stays: a cluster may be made anew under this name before anybody could notice.
                return Ok(RESYNC);
            };
            let decision = decide(&view.world);
            self.remember_facts(&view, &decision);
            self.take_refusals(&mut view, &decision);
            if decision.steps.is_empty() {
                return self.rest(view, &decision).await;
            }
            let free = self.free_steps(&decision);
            if free == 0 {
                self.show_refusals(view, &decision).await;
                return Ok(self.refusals.wait(Instant::now()).unwrap_or(RETRY.1));
            }
            let now = Decision { steps: decision.steps.iter().take(free).cloned().collect(), ..decision.clone() };
            match self.actor.act(&view, &now).await {
                Ok(()) => {
                    now.steps.iter().for_each(|step| self.refusals.carried_out(step.id()));
                    if free == decision.steps.len() {
                        self.publish(&view, &decision);
                    }
                }
                Err(error) if error.is_conflict() => {
                    self.actor.metrics.failed(error.reason());
                    tracing::debug!(cluster = %self.key.1, %error, "somebody was faster; deciding again");
                    // What was faster is on its way through the watch; without it the next look would be the same.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err(error) => {
                    self.refusals.failed(&error, Instant::now());
                    self.show_refusals(view, &decision).await;
                    return Err(error);
                }
            }
        }
        tracing::error!(cluster = %self.key.1, "{ROUNDS} decisions in a row have not come to rest");
        Ok(RETRY.1)
    }

    /// Nothing is decided before everything was listed. Where a list is refused, that is all there is to say.
    async fn wait_for_lists(&mut self) -> Result<Duration, Error> {
        let refused = self.actor.cache.unheard();
        let cluster = self.actor.cache.cluster(&self.key).filter(|_| !refused.is_empty());
        let Some(cluster) = cluster else { return Ok(RESYNC) };
        self.say(&cluster, &refused);
        let actor = self.actor.clone();
        let said = self.attempt("status.blocked", actor.say_blocked(&cluster, &refused)).await;
        match said {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(RETRY.1),
        }
    }

    /// The steps before the first that was refused a moment ago.
    fn free_steps(&self, decision: &Decision) -> usize {
        let now = Instant::now();
        decision.steps.iter().take_while(|step| !self.refusals.bars(step.id(), now)).count()
    }

    /// What is refused to this cluster's steps goes with what is refused elsewhere.
    fn take_refusals(&mut self, view: &mut View, decision: &Decision) {
        let wanted = |step: &str| decision.steps.iter().any(|wanted| wanted.id() == step);
        self.refusals.keep(|step| !step.starts_with("failover.") || wanted(step));
        view.refused.extend(self.refusals.shown());
        self.say(&view.cluster, &view.refused);
    }

    /// Draws what is refused. Nothing else of the decision has become true.
    async fn show_refusals(&mut self, mut view: View, decision: &Decision) {
        view.refused.extend(self.refusals.shown());
        self.say(&view.cluster, &view.refused);
        if view.refused.is_empty() {
            return;
        }
        let decision = Decision { memory: view.world.memory.clone(), ..decision.clone() };
        if let Err(error) = self.draw(&view, &decision, false, RESYNC).await {
            tracing::debug!(cluster = %self.key.1, %error, "what is refused could not be drawn");
        }
    }

    /// Says each refusal once, as an event and in the log: it may be the status that cannot be written.
    fn say(&mut self, cluster: &Arc<DatabaseCluster>, refused: &[Refusal]) {
        for news in self.refusals.news(refused) {
            let line = news.line();
            tracing::warn!(cluster = %self.key.1, reason = news.reason, "{line}");
            // Nothing is created any more in a namespace that is being deleted.
            if news.reason != refusal::NAMESPACE_TERMINATING {
                self.event(cluster, true, news.reason, line);
            }
        }
    }

    /// Makes a write unless it was refused a moment ago.
    async fn attempt(
        &mut self,
        step: &'static str,
        write: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        if self.refusals.bars(step, Instant::now()) {
            return Ok(());
        }
        let done = answered(step, write).await;
        match &done {
            Ok(()) => self.refusals.carried_out(step),
            Err(error) => self.refusals.failed(error, Instant::now()),
        }
        done
    }

    /// Facts are counted from when they were first named, for as long as every decision names them.
    fn remember_facts(&mut self, view: &View, decision: &Decision) {
        let now = view.world.now;
        self.held.facts.retain(|fact, _| decision.holding.contains(fact));
        for fact in &decision.holding {
            self.held.facts.entry(fact.clone()).or_insert(now);
        }
    }

    /// Nothing is urgent: what a spec change asks of the rendered objects, then the picture for people. What is refused
    /// holds up nothing that comes after it.
    async fn rest(&mut self, view: View, decision: &Decision) -> Result<Duration, Error> {
        let wait = decision.requeue_after.map_or(RESYNC, Duration::from_millis).min(RESYNC);
        let cluster = &view.world.cluster;
        let (works, problems) = (!cluster.deleting && !cluster.paused, !view.problems.is_empty());
        let busy = view.world.memory.operations.step().is_some_and(|step| step.is_change_of_primary());
        // What is as it should be is refused to nobody.
        let settled = [
            ("render.rsm", self.rendered_rsm(&view).is_none()),
            ("render.config", !self.is_config_outdated(&view)),
            ("render.budget", view.budgets.is_empty()),
        ];
        settled.into_iter().filter(|(_, holds)| *holds).for_each(|(step, _)| self.refusals.carried_out(step));
        let mut failed = None;
        let mut wait = wait;
        if works && !busy && !problems && cluster.deployable() && self.is_to_be_rendered(&view) {
            match RENDER_PAUSE.checked_sub(self.rendered_at.map_or(RENDER_PAUSE, |at| at.elapsed())) {
                Some(left) if !left.is_zero() => wait = wait.min(left),
                _ => failed = self.render(&view).await.err(),
            }
        }
        let drawn = self.draw(&view, decision, busy, wait).await;
        if works {
            failed = failed.or(self.apply_budgets(&view).await.err());
        }
        if let Some(error) = failed {
            self.show_refusals(view, decision).await;
            return Err(error);
        }
        drawn.map(|wait| self.refusals.wait(Instant::now()).map_or(wait, |again| again.min(wait)))
    }

    async fn apply_budgets(&mut self, view: &View) -> Result<(), Error> {
        let actor = self.actor.clone();
        for budget in view.budgets.clone() {
            self.attempt("render.budget", actor.apply_budget(view, budget)).await?;
        }
        Ok(())
    }

    fn is_to_be_rendered(&self, view: &View) -> bool {
        self.rendered_rsm(view).is_some() || self.is_config_outdated(view)
    }

    /// The members of an RSM that is not as the spec asks.
    fn rendered_rsm<'v>(&self, view: &'v View) -> Option<&'v [u32]> {
        let (rsm, instances) = (view.rsm.as_ref()?, view.world.instances.as_ref()?);
        let wanted = digest(&objects::rsm(&view.cluster, instances, &self.actor.image));
        (rsm.annotations().get(objects::RENDERED) != Some(&wanted)).then_some(instances)
    }

    fn is_config_outdated(&self, view: &View) -> bool {
        let wanted = objects::config_map(&view.cluster, view.custom_config.as_ref()).data;
        view.config.is_some() && view.config != wanted
    }

    /// Brings the RSM and the configuration to the spec; an unchanged spec writes nothing.
    async fn render(&mut self, view: &View) -> Result<(), Error> {
        self.rendered_at = Some(Instant::now());
        let actor = self.actor.clone();
        if let Some(instances) = self.rendered_rsm(view) {
            self.attempt("render.rsm", actor.apply_rsm(view, instances, "render.rsm")).await?;
        }
        if self.is_config_outdated(view) {
            self.attempt("render.config", actor.apply_config(view, "render.config")).await?;
        }
        Ok(())
    }

    /// Draws the picture. In a failover no report waits behind such a write for long.
    async fn draw(&mut self, view: &View, decision: &Decision, busy: bool, wait: Duration) -> Result<Duration, Error> {
        let now = self.actor.cache.clock().wall();
        let wanted = status::status(view, decision, now);
        if view.cluster.status.as_ref() == Some(&wanted) {
            self.refusals.carried_out("status.picture");
            return Ok(wait);
        }
        if let Some(drawn) = self.picture_at.filter(|drawn| busy && drawn.elapsed() < PICTURE_PAUSE) {
            return Ok(wait.min(PICTURE_PAUSE.saturating_sub(drawn.elapsed())));
        }
        if self.refusals.bars("status.picture", Instant::now()) {
            return Ok(wait);
        }
        self.picture_at = Some(Instant::now());
        let actor = self.actor.clone();
        match self.attempt("status.picture", actor.write_status(view, decision, "status.picture")).await {
            Err(error) if !error.is_conflict() => Err(error),
            // A conflict has been read again; the next look draws it.
            Err(_) => Ok(Duration::from_millis(5)),
            Ok(()) => {
                self.announce(view, &wanted);
                Ok(wait)
            }
        }
    }

    /// A problem or an absent object is an event when it appears, not on every look.
    fn announce(&self, view: &View, wanted: &coregent_api::DatabaseClusterStatus) {
        let before = view.cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        for (kind, bad, reason) in [
            ("Waiting", "True", "WaitsForNamedObject"),
            (coregent_api::conditions::SPEC_VALID, "False", "SpecInvalid"),
            (coregent_api::conditions::MEMBER_FAILED, "True", "MemberFailed"),
            (coregent_api::conditions::SURPLUS_MEMBERS, "True", "ScaleDownNotSupported"),
            (coregent_api::conditions::ADDRESS_UNAVAILABLE, "True", "AddressUnavailable"),
            (coregent_api::conditions::WARNINGS, "True", "MemberWarns"),
        ] {
            let now = coregent_api::conditions::find(&wanted.conditions, kind).filter(|now| now.status == bad);
            let known = coregent_api::conditions::find(before, kind);
            if let Some(now) = now
                && known.is_none_or(|known| known.status != bad || known.message != now.message)
            {
                self.event(&view.cluster, true, reason, now.message.clone());
            }
        }
    }

    fn publish(&self, view: &View, decision: &Decision) {
        for event in &decision.events {
            self.event(&view.cluster, event.warning, event.reason, event.note.clone());
        }
    }

    fn recorder(&self, reason: &'static str, note: &str) -> Recorder {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match said.get(reason) {
            Some((before, recorder)) if before == note => recorder.clone(),
            _ => {
                let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
                said.insert(reason, (note.to_owned(), recorder.clone()));
                recorder
            }
        }
    }

    /// Publishes beside the work: no step waits for an event.
    fn event(&self, cluster: &Arc<DatabaseCluster>, warning: bool, reason: &'static str, note: String) {
        let recorder = self.recorder(reason, &note);
        let reference = cluster.object_ref(&());
        tokio::spawn(async move {
            let event = Event {
                type_: if warning { EventType::Warning } else { EventType::Normal },
                reason: reason.to_owned(),
                note: Some(note),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            if let Err(error) = recorder.publish(&event, &reference).await {
                tracing::debug!(%error, reason, "the event could not be published");
            }
        });
    }
}
