//! How far a Job has come: its status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::pod::{is_active, is_over, is_tracked};
use crate::controllers::selector::PodFacts;
use crate::controllers::world::Now;
use crate::controllers::write::Write;

/// Six, as in Kubernetes (JobSpec.backoffLimit).
const BACKOFF_LIMIT: i32 = 6;

/// A status under way.
pub struct Count {
    status: JobStatus,
    /// When the deadline of the Job is.
    pub look_again: Option<Duration>,
}

/// Whether a Job has come to its end.
pub fn is_finished(job: &Job) -> bool {
    has(&job.status.clone().unwrap_or_default(), &["Complete", "Failed"])
}

/// When a Job came to its end.
pub fn finished_at(job: &Job) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let end = conditions
        .iter()
        .find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")?;
    end.last_transition_time.as_ref().map(|time| time.0)
}

fn has(status: &JobStatus, types: &[&str]) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| types.contains(&condition.type_.as_str()) && condition.status == "True")
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

impl Count {
    /// Counts the pods of a Job that has not ended.
    pub fn of(job: &Arc<Job>, pods: &[Arc<Pod>], now: Now) -> Self {
        let mut status = job.status.clone().unwrap_or_default();
        let is_suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        if status.start_time.is_none() && !is_suspended {
            status.start_time = Some(whole(now.wall));
        }
        count_ends(&mut status, pods);
        let active = pods.iter().filter(|pod| is_active(pod)).count();
        let terminating = pods.iter().filter(|pod| pod.is_terminating() && !is_over(pod)).count();
        status.active = (active > 0).then_some(number(active));
        status.terminating = Some(number(terminating));
        status.ready = Some(number(pods.iter().filter(|pod| is_active(pod) && pod.is_ready()).count()));
        let mut count = Self { status, look_again: None };
        count.judge(job, pods, now);
        count
    }

    fn uncounted(&self) -> (usize, usize) {
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        (uncounted.succeeded.unwrap_or_default().len(), uncounted.failed.unwrap_or_default().len())
    }

    /// Pods that succeeded, counted or about to be.
    pub fn succeeded(&self) -> usize {
        usize::try_from(self.status.succeeded.unwrap_or_default()).unwrap_or_default() + self.uncounted().0
    }

    /// Pods that failed, counted or about to be.
    pub fn failed(&self) -> usize {
        usize::try_from(self.status.failed.unwrap_or_default()).unwrap_or_default() + self.uncounted().1
    }

    /// How many pods have been made so far.
    pub fn started(&self, pods: &[Arc<Pod>]) -> usize {
        self.succeeded() + self.failed() + pods.iter().filter(|pod| !is_over(pod)).count()
    }

    /// How many pods should be active.
    pub fn wanted(&self, job: &Job) -> usize {
        let spec = job.spec.clone().unwrap_or_default();
        let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or_default();
        if spec.suspend == Some(true) || has(&self.status, &["SuccessCriteriaMet", "FailureTarget"]) {
            return 0;
        }
        match completions(job) {
            Some(completions) => parallelism.min(completions.saturating_sub(self.succeeded())),
            // A work queue: once one has succeeded no new ones are made, but the others work on.
            None if self.succeeded() > 0 => usize::try_from(self.status.active.unwrap_or_default()).unwrap_or_default(),
            None => parallelism,
        }
    }

    /// Sets the conditions: first what the end will be, then, when every pod has ended and is counted, that it is.
    fn judge(&mut self, job: &Job, pods: &[Arc<Pod>], now: Now) {
        let is_decided = has(&self.status, &["SuccessCriteriaMet", "FailureTarget"]);
        if !is_decided {
            let met = match completions(job) {
                Some(completions) => self.succeeded() >= completions,
                None => self.succeeded() > 0 && self.status.active.is_none(),
            };
            if met {
                self.set("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", now);
            } else if let Some((reason, message)) = self.failure(job, pods, now) {
                self.set("FailureTarget", reason, message, now);
            }
        }
        let is_over = self.status.active.is_none() && self.status.terminating == Some(0) && self.uncounted() == (0, 0);
        if is_over && has(&self.status, &["SuccessCriteriaMet"]) {
            self.set("Complete", "CompletionsReached", "Reached expected number of succeeded pods", now);
            self.status.completion_time = Some(whole(now.wall));
        } else if is_over && let Some(target) = self.condition("FailureTarget").cloned() {
            let reason = target.reason.clone().unwrap_or_default();
            self.set("Failed", &reason, target.message.as_deref().unwrap_or_default(), now);
        }
    }

    fn failure(&mut self, job: &Job, pods: &[Arc<Pod>], now: Now) -> Option<(&'static str, &'static str)> {
        let spec = job.spec.clone().unwrap_or_default();
        let limit = usize::try_from(spec.backoff_limit.unwrap_or(BACKOFF_LIMIT)).unwrap_or_default();
        let restarts_in_place =
            spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure");
        let is_restarted_out = restarts_in_place && restarts(pods) > limit;
        if self.failed() > limit || is_restarted_out {
            return Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let deadline = u64::try_from(spec.active_deadline_seconds?).ok().map(Duration::from_secs)?;
        let end = self.status.start_time.as_ref()?.0 + deadline;
        let left = Duration::try_from(end.duration_since(now.wall)).unwrap_or_default();
        if left.is_zero() {
            return Some(("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        self.look_again = Some(left);
        None
    }

    fn condition(&self, type_: &str) -> Option<&JobCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
    }

    fn set(&mut self, type_: &str, reason: &str, message: &str, now: Now) {
        self.status.conditions.get_or_insert_default().push(JobCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(whole(now.wall)),
            last_transition_time: Some(whole(now.wall)),
        });
    }

    /// The write that makes the status known, if it is not, with the event that tells the end.
    pub fn write(&self, job: &Job) -> Vec<Write> {
        if Some(&self.status) == job.status.as_ref() {
            return Vec::new();
        }
        let mut status = json!(self.status);
        // A merge patch takes away only what it names.
        if self.status.active.is_none() {
            status["active"] = serde_json::Value::Null;
        }
        let mut writes = vec![Write::patch_status(job, status)];
        if has(&self.status, &["Complete"]) {
            writes.push(Write::normal(job, "Completed", "Job completed".to_owned()));
        }
        if let Some(failed) = self.condition("Failed") {
            let note = failed.message.clone().unwrap_or_default();
            let reason = match failed.reason.as_deref() {
                Some("DeadlineExceeded") => "DeadlineExceeded",
                _ => "BackoffLimitExceeded",
            };
            writes.push(Write::warning(job, reason, note));
        }
        writes
    }
}

/// Moves ends through the two stages of being counted.
fn count_ends(status: &mut JobStatus, pods: &[Arc<Pod>]) {
    let tracked = |uid: &String| pods.iter().any(|pod| is_tracked(pod) && pod.metadata.uid.as_ref() == Some(uid));
    let known = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let (mut succeeded, done): (Vec<String>, Vec<String>) =
        known.succeeded.unwrap_or_default().into_iter().partition(&tracked);
    add(&mut status.succeeded, done.len());
    let (mut failed, done): (Vec<String>, Vec<String>) =
        known.failed.unwrap_or_default().into_iter().partition(&tracked);
    add(&mut status.failed, done.len());
    for pod in pods.iter().filter(|pod| is_over(pod) && is_tracked(pod)) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let list = if pod.phase() == "Succeeded" { &mut succeeded } else { &mut failed };
        if !list.contains(&uid) {
            list.push(uid);
        }
    }
    status.uncounted_terminated_pods =
        Some(UncountedTerminatedPods { succeeded: Some(succeeded), failed: Some(failed) });
}

fn add(count: &mut Option<i32>, more: usize) {
    if more > 0 {
        *count = Some(count.unwrap_or_default().saturating_add(number(more)));
    }
}

/// Neither number given means one; parallelism alone means a work queue (JobSpec.completions).
fn completions(job: &Job) -> Option<usize> {
    let spec = job.spec.as_ref()?;
    let given =
        spec.completions.or_else(|| spec.parallelism.is_none_or(|parallelism| parallelism == 1).then_some(1))?;
    usize::try_from(given).ok()
}

fn restarts(pods: &[Arc<Pod>]) -> usize {
    let statuses = pods.iter().filter(|pod| is_active(pod)).flat_map(|pod| &pod.status);
    let containers = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| usize::try_from(container.restart_count).unwrap_or_default()).sum()
}

/// `Time` fields hold whole seconds; anything finer would differ from what is read back.
fn whole(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
