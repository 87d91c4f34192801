//! The controller: watches, and runs a plan for every RSM that something happened to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coregent_api::conditions::{READY, State, set_condition};
use coregent_api::{ReplicatedStateMachine, labels, refusal};
use coregent_core::rsm::roles::parent_and_ordinal;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::compatibility;
use crate::ownership::{controller_of, is_owned_by_rsm};
use crate::plan::ExecuteError;
use crate::transformer::Interrupt;
use crate::transformers::plan_builder;
use crate::world::{Tools, World};
use crate::{names, news};

/// RSMs reconciled at the same time. Each holds its observation in memory, hence a bound.
const CONCURRENCY: u16 = 16;
/// How soon a reconcile that met a newer object looks again.
const AFTER_CONFLICT: Duration = Duration::from_millis(10);
/// The wait after the first failure; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// No failure waits longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Every RSM is looked at again at least this often, in case a watch lost something.
const FALLBACK: Duration = Duration::from_secs(600);
/// Load balancers drop connections that are silent for longer (rust.md 3.3 no. 2).
const WATCH_SECONDS: u32 = 200;

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading failed.
    #[error("reading the set and what it generated: {0}")]
    Observe(#[source] Box<kube::Error>),
    /// A transformer failed.
    #[error("building the plan: {0}")]
    Build(#[source] Interrupt),
    /// A write failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

/// What a pass works with.
#[derive(Clone)]
pub struct Reconciler {
    client: Client,
    recorder: Recorder,
    compatibility: bool,
    tools: Tools,
}

impl Reconciler {
    /// A reconciler that reads and writes through `client`.
    #[must_use]
    pub fn new(client: Client) -> Reconciler {
        let reporter = Reporter { controller: names::MANAGER.to_owned(), instance: None };
        let (compatibility, tools) = (false, Tools::default());
        Reconciler { recorder: Recorder::new(client.clone(), reporter), client, compatibility, tools }
    }

    /// The same reconciler with or without `RSM_COMPATIBILITY_MODE`.
    #[must_use]
    pub fn compatible(self, compatibility: bool) -> Reconciler {
        Reconciler { compatibility, ..self }
    }

    /// With what pods are to get of ours, where it is not that of this version.
    #[must_use]
    pub fn with_tools(self, tools: Tools) -> Reconciler {
        Reconciler { tools, ..self }
    }
}

struct Context {
    reconciler: Reconciler,
    /// Failures in a row by object; the error policy has no memory of its own.
    failures: Mutex<BTreeMap<String, u32>>,
}

/// Who is told of a watch that cannot be begun.
pub type Broken = Arc<dyn Fn(&watcher::Error) + Send + Sync>;

/// Runs the RSM controller until `shutdown`; a reconcile that has begun is finished. Watches that cannot be begun are given
/// to `broken`, again and again while they cannot.
pub async fn run(client: Client, tools: Tools, broken: Broken, shutdown: CancellationToken) {
    let generated = watcher::Config::default()
        .labels(&format!("{}={}", labels::MANAGED_BY, labels::MANAGED_BY_RSM))
        .timeout(WATCH_SECONDS);
    let all = watcher::Config::default().timeout(WATCH_SECONDS);
    let controller = Controller::new(Api::<ReplicatedStateMachine>::all(client.clone()), all);
    let store = controller.store();
    let reconciler = Reconciler::new(client.clone()).compatible(compatibility::from_environment()).with_tools(tools);
    let context = Arc::new(Context { reconciler, failures: Mutex::default() });
    // Of generated objects only the owner matters, so they are watched untyped: one kind of watcher to compile, not four,
    // and no object of an unexpected shape can end a watch.
    let watched = |resource: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), resource);
    let (sets, services, config_maps, jobs, pods) = (
        ApiResource::erase::<StatefulSet>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Job>(&()),
        ApiResource::erase::<Pod>(&()),
    );
    let reconciling = controller
        .watches_with(watched(&sets), sets, generated.clone(), |set| generated_by(&set.metadata))
        .watches_with(watched(&services), services, generated.clone(), |service| generated_by(&service.metadata))
        .watches_with(watched(&config_maps), config_maps, generated.clone(), |map| generated_by(&map.metadata))
        .watches_with(watched(&jobs), jobs, generated.clone(), |job| generated_by(&job.metadata))
        .watches_with(watched(&pods), pods, generated, move |pod| sets_of(&pod.metadata, &store))
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(shutdown.clone().cancelled_owned())
        .run(reconcile, on_error, context)
        .for_each(|result| {
            match result {
                Ok((object, _)) => tracing::debug!(%object, "reconciled"),
                // Normal after a deletion (rust.md 3.3 no. 13).
                Err(kube::runtime::controller::Error::ObjectNotFound(object)) => tracing::debug!(%object, "gone"),
                Err(kube::runtime::controller::Error::QueueError(error)) => broken(&error),
                Err(error) => tracing::debug!(%error, "reconcile failed"),
            }
            std::future::ready(())
        });
    let roles = crate::role_event::run(client, shutdown);
    futures::join!(reconciling, roles);
}

/// The set that generated an object: its controller, or, in compatibility mode, which it is labelled with.
fn generated_by(meta: &ObjectMeta) -> Option<ObjectRef<ReplicatedStateMachine>> {
    let controller = controller_of(meta).filter(|_| is_owned_by_rsm(meta)).map(|owner| owner.name.as_str());
    let name = controller.or_else(|| meta.labels.as_ref()?.get(labels::INSTANCE).map(String::as_str))?;
    Some(ObjectRef::new(name).within(meta.namespace.as_deref().unwrap_or_default()))
}

/// The sets that a pod may belong to: its StatefulSet is that of the set, or that of one member of it.
fn sets_of(pod: &ObjectMeta, known: &Store<ReplicatedStateMachine>) -> Vec<ObjectRef<ReplicatedStateMachine>> {
    let namespace = pod.namespace.clone().unwrap_or_default();
    candidates(pod)
        .into_iter()
        .map(|name| ObjectRef::new(&name).within(&namespace))
        .filter(|set| known.get(set).is_some())
        .collect()
}

/// Names of the sets that a pod may belong to.
pub(crate) fn candidates(pod: &ObjectMeta) -> Vec<String> {
    let Some(owner) = controller_of(pod).filter(|owner| owner.kind == "StatefulSet") else {
        return Vec::new();
    };
    let (parent, number) = parent_and_ordinal(&owner.name);
    let of_member = (number >= 0).then(|| parent.to_owned());
    std::iter::once(owner.name.clone()).chain(of_member).collect()
}

async fn reconcile(rsm: Arc<ReplicatedStateMachine>, context: Arc<Context>) -> Result<Action, Error> {
    let (namespace, name) = (rsm.namespace().unwrap_or_default(), rsm.name_any());
    match pass(&context.reconciler, &namespace, &name).await {
        Err(Error::Execute(error)) if error.is_conflict() => Ok(Action::requeue(AFTER_CONFLICT)),
        Err(error) => Err(error),
        Ok(requeue) => {
            context.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(&namespace, &name));
            Ok(Action::requeue(requeue.unwrap_or(FALLBACK)))
        }
    }
}

/// One pass over one RSM: observe, plan, carry out. Gives the time after which to look again, where something is known to
/// need it.
pub async fn pass(reconciler: &Reconciler, namespace: &str, name: &str) -> Result<Option<Duration>, Error> {
    let Reconciler { client, recorder, compatibility, tools } = reconciler;
    let now = Time(Timestamp::now());
    let observed = match World::observe_with(client, namespace, name, now.clone(), *compatibility).await {
        Ok(observed) => observed,
        Err(error) => {
            report_unread(reconciler, namespace, name, &now, &error).await;
            return Err(Error::Observe(Box::new(error)));
        }
    };
    let Some(mut world) = observed else { return Ok(None) };
    world.tools = tools.clone();
    let before = conditions_of(&world.rsm);
    let plan = plan_builder(world.clone()).build().await.map_err(Error::Build)?;
    match plan.execute(client).await {
        Ok(done) => {
            let root = plan.dag().root().and_then(|step| step.object.clone().try_parse().ok());
            let after = root.as_ref().map(conditions_of).unwrap_or_default();
            if let Some(news) = news::between(&before, &after) {
                news::publish(recorder, &world.rsm, news).await;
            }
            Ok(done.requeue)
        }
        Err(error) => {
            if let Some(reason) = error.refusal() {
                report(reconciler, world.rsm.clone(), &world.now, reason, &error.to_string()).await;
            }
            Err(error.into())
        }
    }
}

fn conditions_of(rsm: &ReplicatedStateMachine) -> Vec<Condition> {
    rsm.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
}

/// Notes in the status that what was generated cannot be read, where somebody has to do something about it.
async fn report_unread(reconciler: &Reconciler, namespace: &str, name: &str, now: &Time, error: &kube::Error) {
    let Some(reason) = refusal::reason(error).filter(|reason| !refusal::is_passing(reason)) else { return };
    let api: Api<ReplicatedStateMachine> = Api::namespaced(reconciler.client.clone(), namespace);
    if let Ok(Some(rsm)) = api.get_opt(name).await {
        report(reconciler, rsm, now, reason, &format!("reading what it generated: {error}")).await;
    }
}

/// Notes in the status that an object of somebody else is in the way, or that the API refuses. Whatever happens to that
/// write, the error that is reported stays the first one.
async fn report(reconciler: &Reconciler, mut rsm: ReplicatedStateMachine, now: &Time, reason: &str, message: &str) {
    let before = conditions_of(&rsm);
    let generation = rsm.metadata.generation;
    let conditions = &mut rsm.status.get_or_insert_default().conditions;
    if !set_condition(conditions, READY, State::False, reason, message, generation, now) {
        return;
    }
    rsm.metadata.managed_fields = None;
    let api: Api<ReplicatedStateMachine> =
        Api::namespaced(reconciler.client.clone(), &rsm.namespace().unwrap_or_default());
    let params = PostParams { field_manager: Some(names::MANAGER.to_owned()), ..PostParams::default() };
    match api.replace_status(&rsm.name_any(), &params, &rsm).await {
        Ok(_) => {
            if let Some(news) = news::between(&before, &conditions_of(&rsm)) {
                news::publish(&reconciler.recorder, &rsm, news).await;
            }
        }
        Err(error) => tracing::debug!(%error, "the status could not be written"),
    }
}

fn on_error(rsm: Arc<ReplicatedStateMachine>, error: &Error, context: Arc<Context>) -> Action {
    let key = key(&rsm.namespace().unwrap_or_default(), &rsm.name_any());
    let mut failures = context.failures.lock().unwrap_or_else(PoisonError::into_inner);
    let count = failures.entry(key.clone()).or_default();
    let wait = FIRST_WAIT.saturating_mul(1 << (*count).min(16)).min(LONGEST_WAIT);
    *count = count.saturating_add(1);
    tracing::warn!(set = key, %error, ?wait, "could not be brought to its spec; trying again");
    Action::requeue(wait)
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
