//! Jobs: pods that run to their end.
//!
//! Each pod carries the finalizer `batch.kubernetes.io/job-tracking` until its end has been counted, so that none is
//! lost or counted twice: first its uid goes into `status.uncountedTerminatedPods`, then the finalizer goes, then the
//! uid becomes part of the count (Kubernetes, "Job tracking with finalizers"). Indexed completion is not served.

mod count;
mod pod;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;
use serde_json::json;

use super::selector::{PodFacts, controller_of};
use super::world::{Change, Now, Object, ObjectKey, World};
use super::write::{Decision, Propagation, Target, Write};
use count::Count;
use pod::{TRACKING, is_tracked};

/// First pause after a failure, doubled by each further one, as in Kubernetes.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(360);

/// The Jobs that a change concerns.
pub fn touched(change: &Change) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = change
        .versions()
        .filter_map(|version| match version {
            Object::Job(_) => Some(change.key.clone()),
            Object::Pod(pod) => {
                let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
                Some(ObjectKey::new(&change.key.namespace, &owner.name))
            }
            _ => None,
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// What to write for one Job.
pub fn decide(world: &World, key: &ObjectKey, now: Now) -> Decision {
    let job = world.tables.jobs.get(&key.namespace, &key.name);
    let uid = job.and_then(|job| job.metadata.uid.clone()).unwrap_or_default();
    let named = |pod: &&Arc<Pod>| {
        controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job" && owner.name == key.name)
    };
    let (own, stray): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = world
        .tables
        .pods
        .within(&key.namespace)
        .filter(named)
        .cloned()
        .partition(|pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid));
    let mut decision = match job {
        Some(job) if job.metadata.deletion_timestamp.is_none() => look(job, &own, now),
        // Nobody counts any more: the pods may go.
        _ => Decision::in_order(own.iter().filter_map(release).collect()),
    };
    decision.groups.extend(stray.iter().filter_map(|pod| release_stray(pod, &key.namespace)));
    decision
}

fn look(job: &Arc<Job>, pods: &[Arc<Pod>], now: Now) -> Decision {
    if count::is_finished(job) {
        let mut writes: Vec<Write> = pods.iter().filter_map(release).collect();
        let (delete, look_again) = expiry(job, now);
        writes.extend(delete);
        return Decision::in_order(writes).again_after(look_again);
    }
    let count = Count::of(job, pods, now);
    let mut writes = Vec::new();
    writes.extend(count.write(job));
    // Only ends that are on record may be forgotten.
    let recorded = job.status.as_ref().and_then(|status| status.uncounted_terminated_pods.clone()).unwrap_or_default();
    let recorded: Vec<String> = recorded.failed.into_iter().chain(recorded.succeeded).flatten().collect();
    let is_recorded = |pod: &&Arc<Pod>| pod.metadata.uid.as_ref().is_some_and(|uid| recorded.contains(uid));
    writes.extend(pods.iter().filter(is_recorded).filter_map(release));
    let look_again = manage(job, pods, &count, now, &mut writes);
    Decision::in_order(writes).again_after(count.look_again).again_after(look_again)
}

/// Makes or removes pods until as many are active as should be.
fn manage(job: &Arc<Job>, pods: &[Arc<Pod>], count: &Count, now: Now, writes: &mut Vec<Write>) -> Option<Duration> {
    let mut active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
    // Those that are furthest from ready go first.
    active.sort_by_key(|pod| (pod.is_ready(), pod.node().is_some()));
    let wanted = count.wanted(job);
    for pod in active.iter().take(active.len().saturating_sub(wanted)) {
        writes.push(Write::delete(&***pod));
    }
    let missing = wanted.saturating_sub(active.len());
    if missing == 0 {
        return None;
    }
    if let Some(left) = pause(pods, count, now) {
        return Some(left);
    }
    for name in pod::free_names(job, pods, count.started(pods)).take(missing) {
        writes.extend(Write::create(&pod::build(job, &name)));
        writes.push(Write::normal(&**job, "SuccessfulCreate", format!("Created pod: {name}")));
    }
    None
}

/// How long to wait after the latest failure.
fn pause(pods: &[Arc<Pod>], count: &Count, now: Now) -> Option<Duration> {
    let failed = u32::try_from(count.failed()).unwrap_or(u32::MAX).checked_sub(1)?;
    let last = pods.iter().filter(|pod| pod.phase() == "Failed").filter_map(|pod| pod::ended_at(pod)).max()?;
    let pause = FIRST_PAUSE.saturating_mul(1 << failed.min(10)).min(LONGEST_PAUSE);
    let left = Duration::try_from((last + pause).duration_since(now.wall)).unwrap_or_default();
    (!left.is_zero()).then_some(left)
}

fn expiry(job: &Arc<Job>, now: Now) -> (Option<Write>, Option<Duration>) {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let (Some(ttl), Some(finished)) = (ttl, count::finished_at(job)) else { return (None, None) };
    let end = finished + Duration::from_secs(u64::try_from(ttl).unwrap_or_default());
    let left = Duration::try_from(end.duration_since(now.wall)).unwrap_or_default();
    if !left.is_zero() {
        return (None, Some(left));
    }
    let target = Target::of(&**job);
    (Some(Write::Delete { target, propagation: Propagation::Foreground, grace: None }), None)
}

fn release(pod: &Arc<Pod>) -> Option<Write> {
    let left: Vec<&String> = pod.metadata.finalizers.iter().flatten().filter(|name| *name != TRACKING).collect();
    is_tracked(pod).then(|| Write::patch(&**pod, json!({ "metadata": { "finalizers": left } })))
}

fn release_stray(pod: &Arc<Pod>, namespace: &str) -> Option<Vec<Write>> {
    let owner = controller_of(&pod.metadata)?;
    let job = Target {
        resource: ApiResource::erase::<Job>(&()),
        namespace: namespace.to_owned(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        resource_version: String::new(),
    };
    Some(vec![Write::ConfirmGone { target: job }, release(pod)?])
}
