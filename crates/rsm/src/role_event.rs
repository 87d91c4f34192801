//! From role Events to role labels (rsm.md 4).
//!
//! Only pods of a set that has a role probe are labelled here: the labels of any other set belong to its owner
//! (failover.md F15). Neither label is ever a fence.

use std::sync::Arc;

use coregent_api::rsm::MemberLayout;
use coregent_api::{ReplicatedStateMachine, annotations, labels};
use coregent_core::rsm::report::{self, Claim, Ignored, Newness, PodSeen, Verdict};
use coregent_core::rsm::roles::{self, Role, member_number};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::controller::candidates;
use crate::names;
use crate::order::role;

/// How often a label write that met a newer pod is tried again before the Event is given back.
const ATTEMPTS: u32 = 5;
/// Claims to exclusive roles are taken one after another for each set; sets share this many locks.
const LOCKS: usize = 64;

/// Handles the role Events of pods.
#[derive(Clone)]
pub struct PodRoleEventHandler {
    client: Client,
    exclusive: Arc<Vec<Mutex<()>>>,
}

/// A claim about a pod, as it was found.
struct About<'a> {
    role: &'a str,
    uid: Option<String>,
    newness: Newness,
}

impl PodRoleEventHandler {
    /// A handler that reads and writes through `client`.
    #[must_use]
    pub fn new(client: Client) -> PodRoleEventHandler {
        PodRoleEventHandler { client, exclusive: Arc::new((0..LOCKS).map(|_| Mutex::new(())).collect()) }
    }

    /// Labels the pods that an Event speaks of, then notes on the Event that it was handled, so that it is handled once
    /// per count. An error leaves the Event unmarked: it will be handled again.
    pub async fn handle(&self, event: &Event) -> Result<(), kube::Error> {
        let path = event.involved_object.field_path.as_deref();
        if !report::is_role_event(path, event.reason.as_deref()) || is_handled(event) {
            return Ok(());
        }
        let version = version_of(event);
        for claim in report::read(event.message.as_deref().unwrap_or_default()).unwrap_or_default() {
            self.apply(event, &claim, claim.version.unwrap_or(version)).await?;
        }
        self.mark(event).await
    }

    async fn apply(&self, event: &Event, claim: &Claim, version: u64) -> Result<(), kube::Error> {
        let namespace = event.involved_object.namespace.clone().or_else(|| event.namespace()).unwrap_or_default();
        let reporter = event.involved_object.name.clone().unwrap_or_default();
        let name = claim.pod.clone().unwrap_or_else(|| reporter.clone());
        // What the Event itself is about it identifies; of every other pod only the claim can say which one it means.
        let uid = if name == reporter { event.involved_object.uid.clone() } else { claim.uid.clone() };
        let about = About { role: &claim.role, uid, newness: Newness { version, number: claim.number } };
        for attempt in 1..=ATTEMPTS {
            match self.apply_once(&namespace, &name, &about).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => {}
                answer => return answer,
            }
        }
        Ok(())
    }

    async fn apply_once(&self, namespace: &str, name: &str, about: &About<'_>) -> Result<(), kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let Some(pod) = pods.get_opt(name).await? else { return Ok(()) };
        let Some(set) = self.set_of(namespace, &pod).await? else { return Ok(()) };
        let declared: Vec<Role> = set.spec.roles.iter().map(role).collect();
        if !roles::find(&declared, about.role.trim()).is_some_and(|role| role.is_exclusive) {
            let verdict = report::judge(about.role, about.uid.as_deref(), about.newness, &seen(&pod), &[], &declared);
            return self.write(&pods, &pod, &verdict).await;
        }
        let lock = format!("{namespace}/{}", set.name_any()).bytes().map(usize::from).sum::<usize>() % LOCKS;
        let _one_at_a_time = match self.exclusive.get(lock) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        };
        self.apply_exclusive(&pods, &set, name, about, &declared).await
    }

    /// Whoever had the role loses it before the claimant gets it, so that never two have it; another controller that did
    /// the same at the same time is found out afterwards.
    async fn apply_exclusive(
        &self,
        pods: &Api<Pod>,
        set: &ReplicatedStateMachine,
        name: &str,
        about: &About<'_>,
        declared: &[Role],
    ) -> Result<(), kube::Error> {
        let (pod, peers) = members(pods, set, name).await?;
        let Some(pod) = pod else { return Ok(()) };
        let seen_peers: Vec<PodSeen> = peers.iter().map(seen).collect();
        let (uid, newness) = (about.uid.as_deref(), about.newness);
        let verdict = report::judge(about.role, uid, newness, &seen(&pod), &seen_peers, declared);
        let Some(role) = roles::find(declared, about.role.trim()).map(|role| role.name.as_str()) else { return Ok(()) };
        let holds = |pod: &Pod| pod.labels().get(labels::ROLE).is_some_and(|held| held == role);
        match &verdict {
            Verdict::Label { .. } => {
                for peer in &peers {
                    if let Some(verdict) = report::yields(role, newness, &seen(peer), declared) {
                        self.write(pods, peer, &verdict).await?;
                    }
                }
                self.write(pods, &pod, &verdict).await?;
            }
            // Taken in before, by a handler that perhaps ended before it could look at the others.
            Verdict::Ignore(Ignored::Stale) if holds(&pod) => {}
            _ => return self.write(pods, &pod, &verdict).await,
        }
        let (pod, peers) = members(pods, set, name).await?;
        let (Some(pod), Some(peer)) = (pod.filter(holds), peers.iter().find(|peer| holds(peer))) else { return Ok(()) };
        let (own, other) = (seen(&pod), seen(peer));
        match report::yields(role, own.newness(), &other, declared) {
            Some(verdict) => self.write(pods, peer, &verdict).await,
            None => self.write(pods, &pod, &report::outranked(&own, other.newness())).await,
        }
    }

    async fn write(&self, pods: &Api<Pod>, pod: &Pod, verdict: &Verdict) -> Result<(), kube::Error> {
        let Some(patch) = patch(verdict, pod) else { return Ok(()) };
        let params = PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
        match pods.patch(&pod.name_any(), &params, &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            answer => answer.map(|_| ()),
        }
    }

    /// The set that a pod belongs to, if its roles are probed.
    async fn set_of(&self, namespace: &str, pod: &Pod) -> Result<Option<ReplicatedStateMachine>, kube::Error> {
        let sets: Api<ReplicatedStateMachine> = Api::namespaced(self.client.clone(), namespace);
        for name in candidates(&pod.metadata) {
            let Some(set) = sets.get_opt(&name).await? else { continue };
            let instances = set.spec.member_layout == MemberLayout::Instances;
            if member_number(&name, &pod.name_any(), instances) >= 0 {
                return Ok(Some(set).filter(|set| set.spec.role_probe.is_some()));
            }
        }
        Ok(None)
    }

    async fn mark(&self, event: &Event) -> Result<(), kube::Error> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &event.namespace().unwrap_or_default());
        let patch = json!({"metadata": {"annotations": {annotations::ROLE_EVENT_HANDLED: handled(event)}}});
        match events.patch(&event.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

/// The pod of this name, and the others of its set.
async fn members(
    pods: &Api<Pod>,
    set: &ReplicatedStateMachine,
    name: &str,
) -> Result<(Option<Pod>, Vec<Pod>), kube::Error> {
    let selector = names::selector_text(&set.spec.selector.match_labels.clone().unwrap_or_default());
    let instances = set.spec.member_layout == MemberLayout::Instances;
    let of_set = |pod: &Pod| member_number(&set.name_any(), &pod.name_any(), instances) >= 0;
    let all = pods.list(&ListParams::default().labels(&selector)).await?.items.into_iter().filter(of_set);
    let (mut own, peers): (Vec<Pod>, Vec<Pod>) = all.partition(|pod| pod.name_any() == name);
    Ok((own.pop(), peers))
}

/// The write that a verdict calls for, on the version of the pod that it was decided on.
fn patch(verdict: &Verdict, pod: &Pod) -> Option<Value> {
    let (role, access_mode, newness, outranked) = match verdict {
        Verdict::Label { role, access_mode, newness } => {
            let mode = match access_mode {
                coregent_core::rsm::AccessMode::None => "None",
                coregent_core::rsm::AccessMode::Readonly => "Readonly",
                coregent_core::rsm::AccessMode::ReadWrite => "ReadWrite",
            };
            (json!(role), json!(mode), newness, None)
        }
        Verdict::Clear { newness, outranked } => (Value::Null, Value::Null, newness, *outranked),
        Verdict::Ignore(_) => return None,
    };
    let mut annotations = json!({annotations::LAST_ROLE_VERSION: newness.version.to_string()});
    if let Some(number) = newness.number {
        annotations[annotations::LAST_ROLE_NUMBER] = json!(number.to_string());
    }
    if let Some(by) = outranked {
        annotations[annotations::ROLE_OUTRANKED] = json!(by.to_string());
    }
    Some(json!({"metadata": {
        "resourceVersion": pod.metadata.resource_version,
        "uid": pod.metadata.uid,
        "labels": {labels::ROLE: role, labels::ACCESS_MODE: access_mode},
        "annotations": annotations,
    }}))
}

fn seen(pod: &Pod) -> PodSeen {
    PodSeen {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        stored_version: pod.annotations().get(annotations::LAST_ROLE_VERSION).cloned(),
        stored_number: pod.annotations().get(annotations::LAST_ROLE_NUMBER).cloned(),
        outranked: pod.annotations().get(annotations::ROLE_OUTRANKED).cloned(),
        role: pod.labels().get(labels::ROLE).cloned(),
        access_mode: pod.labels().get(labels::ACCESS_MODE).cloned(),
    }
}

fn version_of(event: &Event) -> u64 {
    let micros = event.event_time.as_ref().and_then(|time| u64::try_from(time.0.as_microsecond()).ok());
    let seconds = event.last_timestamp.as_ref().and_then(|time| u64::try_from(time.0.as_second()).ok());
    report::version_of(micros, seconds, u32::try_from(event.count.unwrap_or_default()).unwrap_or_default())
}

fn handled(event: &Event) -> String {
    format!("count-{}", event.count.unwrap_or_default())
}

fn is_handled(event: &Event) -> bool {
    event.annotations().get(annotations::ROLE_EVENT_HANDLED) == Some(&handled(event))
}

/// Watches Events and handles those about roles, until `shutdown`. An Event whose handling failed comes again with the
/// next list, and its pod's next report overtakes it.
pub(crate) async fn run(client: Client, shutdown: CancellationToken) {
    let handler = Arc::new(PodRoleEventHandler::new(client.clone()));
    let config = watcher::Config::default().fields("involvedObject.kind=Pod").timeout(200);
    let events: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<Event>(&()));
    let events = watcher(events, config).default_backoff().applied_objects();
    let handling = events.for_each_concurrent(8, |event| {
        let handler = handler.clone();
        async move {
            let result = match event.map(|event| event.try_parse::<Event>()) {
                Ok(Ok(event)) => handler.handle(&event).await.map_err(|error| error.to_string()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = result {
                tracing::debug!(error, "a role Event was not handled");
            }
        }
    });
    tokio::select! {
        () = handling => {}
        () = shutdown.cancelled() => {}
    }
}
