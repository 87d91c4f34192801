//! The status of a StatefulSet.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::pod;
use super::revision::History;
use crate::controllers::selector::PodFacts;
use crate::controllers::world::Now;
use crate::controllers::write::Write;

/// A status, and when it may change by the passing of time alone.
pub struct Computed {
    /// The status.
    pub status: StatefulSetStatus,
    /// When the next pod becomes available.
    pub look_again: Option<Duration>,
}

/// Whether a pod counts as available, and if not yet, after how long it will.
pub fn availability(set: &StatefulSet, pod: &Pod, now: Now) -> (bool, Option<Duration>) {
    if !is_running_and_ready(pod) {
        return (false, None);
    }
    let wanted = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let Some(since) = pod.ready_since().filter(|_| wanted > 0) else {
        return (wanted <= 0, None);
    };
    let left = since + Duration::from_secs(u64::try_from(wanted).unwrap_or_default());
    let left = Duration::try_from(left.duration_since(now.wall)).unwrap_or_default();
    (left.is_zero(), (!left.is_zero()).then_some(left))
}

/// Whether a pod runs and is ready.
pub fn is_running_and_ready(pod: &Pod) -> bool {
    pod.phase() == "Running" && pod.is_ready()
}

/// Counts the pods as Kubernetes does.
pub fn compute(set: &StatefulSet, pods: &[Arc<Pod>], revisions: &History, now: Now) -> Computed {
    let count =
        |fact: &dyn Fn(&Pod) -> bool| i32::try_from(pods.iter().filter(|pod| fact(pod)).count()).unwrap_or(i32::MAX);
    let of = |name: &str| {
        let name = name.to_owned();
        count(&move |pod: &Pod| !pod.is_terminating() && pod::revision(pod) == name)
    };
    let known = set.status.clone().unwrap_or_default();
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|_| true),
        ready_replicas: Some(count(&is_running_and_ready)),
        available_replicas: Some(count(&|pod| availability(set, pod, now).0)),
        current_replicas: Some(of(&revisions.current.name)),
        updated_replicas: Some(of(&revisions.update.name)),
        current_revision: Some(revisions.current.name.clone()),
        update_revision: Some(revisions.update.name.clone()),
        collision_count: Some(known.collision_count.unwrap_or_default()),
        conditions: known.conditions,
    };
    complete_rolling_update(set, &mut status);
    let look_again = pods.iter().filter_map(|pod| availability(set, pod, now).1).min();
    Computed { status, look_again }
}

/// The update is over, and becomes the current revision, when every pod has it and is ready.
fn complete_rolling_update(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let is_rolling =
        strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate") == "RollingUpdate";
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let all = Some(wanted);
    if is_rolling && status.replicas == wanted && status.updated_replicas == all && status.ready_replicas == all {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
}

impl Computed {
    /// The write that makes the status known, if it is not.
    pub fn write(&self, set: &StatefulSet) -> Option<Write> {
        let known = set.status.clone().unwrap_or_default();
        (self.status != known).then(|| Write::patch_status(set, json!(self.status)))
    }
}
