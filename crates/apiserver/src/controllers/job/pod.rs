//! The pods of a Job.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::controllers::selector::{PodFacts, controlled_by};

/// Kept on a pod until its end has been counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether the end of a pod has still to be counted.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|name| name == TRACKING)
}

/// Whether a pod has ended. One that its node has let go (grace period 0) has, whatever its phase says.
pub fn is_over(pod: &Pod) -> bool {
    let is_let_go = pod.is_terminating() && pod.metadata.deletion_grace_period_seconds.unwrap_or_default() == 0;
    pod.is_over() || is_let_go
}

/// Whether a pod works towards the Job's end.
pub fn is_active(pod: &Pod) -> bool {
    !is_over(pod) && !pod.is_terminating()
}

/// When the last container of a pod ended.
pub fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|time| time.0).max()
}

/// Names for new pods. They follow from the Job's uid and a number, so that a second try finds the pod of the first.
pub fn free_names<'a>(job: &'a Job, pods: &'a [Arc<Pod>], started: usize) -> impl Iterator<Item = String> + 'a {
    let is_free = |name: &String| pods.iter().all(|pod| pod.metadata.name.as_ref() != Some(name));
    (started..).map(|number| name(job, number)).filter(is_free)
}

fn name(job: &Job, number: usize) -> String {
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let digest = Sha256::digest(format!("{uid}/{number}").as_bytes());
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len()).copied().map_or('b', char::from);
    let suffix: String = digest.iter().take(5).map(letter).collect();
    format!("{}-{suffix}", job.metadata.name.as_deref().unwrap_or_default())
}

/// A new pod.
pub fn build(job: &Job, name: &str) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let (uid, job_name) = (job.metadata.uid.clone(), job.metadata.name.clone());
    let mut labels = meta.labels.unwrap_or_default();
    for prefix in ["", "batch.kubernetes.io/"] {
        labels.insert(format!("{prefix}controller-uid"), uid.clone().unwrap_or_default());
        labels.insert(format!("{prefix}job-name"), job_name.clone().unwrap_or_default());
    }
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: job.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations,
            finalizers: Some(vec![TRACKING.to_owned()]),
            owner_references: Some(vec![controlled_by(job)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}
