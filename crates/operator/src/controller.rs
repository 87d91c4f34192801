//! One task per cluster: look, decide, act, and again until there is nothing to do; then sleep until something that
//! the cluster depends on changes, or until the decision said to look again. No polling, no debounce: a failover does
//! its writes back to back.

use crate::act::{Actor, answered, digest};
use crate::error::Error;
use crate::objects;
use crate::observe::{Held, Key, View};
use crate::status;
use coregent_api::DatabaseCluster;
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
            for key in cache.clusters() {
                tasks.entry(key.clone()).or_insert_with(|| {
                    let reconciler = Reconciler::new(key, actor.clone(), client.clone(), reporter.clone());
                    tokio::spawn(reconciler.run(shutdown.clone()))
                });
            }
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
    held: Held,
    picture_at: Option<Instant>,
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
            held: Held::default(),
            picture_at: None,
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
            let Some(view) = self.actor.cache.view(&self.key, &mut self.held) else {
                // Gone. The task stays: a cluster may be made anew under this name before anybody could notice.
                return Ok(RESYNC);
            };
            let decision = decide(&view.world);
            self.remember_facts(&view, &decision);
            if decision.steps.is_empty() {
                return self.rest(&view, &decision).await;
            }
            match self.actor.act(&view, &decision).await {
                Ok(()) => self.publish(&view, &decision),
                Err(error) if error.is_conflict() => {
                    self.actor.metrics.failed(error.reason());
                    tracing::debug!(cluster = %self.key.1, %error, "somebody was faster; deciding again");
                    // What was faster is on its way through the watch; without it the next look would be the same.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err(error) => return Err(error),
            }
        }
        tracing::error!(cluster = %self.key.1, "{ROUNDS} decisions in a row have not come to rest");
        Ok(RETRY.1)
    }

    /// Facts are counted from when they were first named, for as long as every decision names them.
    fn remember_facts(&mut self, view: &View, decision: &Decision) {
        let now = view.world.now;
        self.held.facts.retain(|fact, _| decision.holding.contains(fact));
        for fact in &decision.holding {
            self.held.facts.entry(fact.clone()).or_insert(now);
        }
    }

    /// Nothing is urgent: what a spec change asks of the rendered objects, then the picture for people.
    async fn rest(&mut self, view: &View, decision: &Decision) -> Result<Duration, Error> {
        let wait = decision.requeue_after.map_or(RESYNC, Duration::from_millis).min(RESYNC);
        let cluster = &view.world.cluster;
        let busy = view.world.memory.operations.step().is_some_and(|step| step.is_change_of_primary());
        if !cluster.deleting && !cluster.paused && !busy && view.problems.is_empty() && cluster.deployable() {
            self.render(view).await?;
        }
        let wait = self.draw(view, decision, busy, wait).await?;
        // Last: a right that is missing for it holds nothing else up.
        if !cluster.deleting && !cluster.paused {
            for budget in view.budgets.clone() {
                answered("render.budget", self.actor.apply_budget(view, budget)).await?;
            }
        }
        Ok(wait)
    }

    /// Brings the RSM and the configuration to the spec; an unchanged spec writes nothing.
    async fn render(&self, view: &View) -> Result<(), Error> {
        if let (Some(rsm), Some(instances)) = (&view.rsm, &view.world.instances) {
            let wanted = digest(&objects::rsm(&view.cluster, instances, &self.actor.image));
            if rsm.annotations().get(objects::RENDERED) != Some(&wanted) {
                answered("render.rsm", self.actor.apply_rsm(view, instances, "render.rsm")).await?;
            }
        }
        let wanted = objects::config_map(&view.cluster, view.custom_config.as_ref()).data;
        if view.config.is_some() && view.config != wanted {
            answered("render.config", self.actor.apply_config(view, "render.config")).await?;
        }
        Ok(())
    }

    /// Draws the picture. In a failover no report waits behind such a write for long.
    async fn draw(&mut self, view: &View, decision: &Decision, busy: bool, wait: Duration) -> Result<Duration, Error> {
        let now = self.actor.cache.clock().wall();
        let wanted = status::status(view, decision, now);
        if view.cluster.status.as_ref() == Some(&wanted) {
            return Ok(wait);
        }
        if let Some(drawn) = self.picture_at.filter(|drawn| busy && drawn.elapsed() < PICTURE_PAUSE) {
            return Ok(wait.min(PICTURE_PAUSE.saturating_sub(drawn.elapsed())));
        }
        self.picture_at = Some(Instant::now());
        match answered("status.picture", self.actor.write_status(view, decision, "status.picture")).await {
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
