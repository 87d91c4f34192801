//! What somebody is refused: this operator its watches, or Kubernetes the pods of a member.

use super::cache::{Change, Key};
use super::pods::Pods;
use coregent_api::{labels, refusal};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::runtime::watcher;
use std::collections::BTreeMap;

/// The reason of the events by which the StatefulSet controller tells of a pod or claim that it could not make.
pub(super) const FAILED_CREATE: &str = "FailedCreate";

/// Something that is refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// One of [`coregent_api::refusal`].
    pub reason: &'static str,
    /// The verb, the object and the words of whoever refuses.
    pub what: String,
}

impl Refusal {
    /// What is refused, and what to do about it.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}; {}", self.what, refusal::remedy(self.reason))
    }

    /// Why a watch could not be begun. `None` for what passes, as a connection that broke.
    pub(super) fn of_watch(kind: &str, error: &watcher::Error) -> Option<Refusal> {
        let (verb, source) = match error {
            watcher::Error::InitialListFailed(source) => ("list", source),
            watcher::Error::WatchStartFailed(source) => ("watch", source),
            _ => return None,
        };
        let missing = matches!(source, kube::Error::Api(status) if status.code == 404);
        let reason = if missing { Some(refusal::KIND_MISSING) } else { refusal::reason(source) };
        let reason = reason.filter(|reason| !refusal::is_passing(reason))?;
        Some(Refusal { reason, what: format!("the operator cannot {verb} objects of kind {kind}: {}", said(source)) })
    }
}

/// What the API server said, without the client's own words about it.
#[must_use]
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}

/// Members whose pods Kubernetes could not make, in the words of its event. What is told of a pod is over once there is one.
#[derive(Default)]
pub(super) struct Unmade {
    told: BTreeMap<Key, String>,
}

impl Unmade {
    /// Of the members of a namespace, by the name of their StatefulSet.
    pub(super) fn of(&self, namespace: &str, set: &str) -> Option<Refusal> {
        let what = self.told.get(&(namespace.to_owned(), set.to_owned()))?;
        // «Create Pod a in StatefulSet b failed error: …».
        let said = what.replacen("Create ", "create ", 1).replacen(" failed error: ", ": ", 1);
        Some(Refusal { reason: refusal::reason_of_text(what), what: format!("Kubernetes cannot {said}") })
    }

    pub(super) fn made(&mut self, pod: &Pod) {
        if let Some(set) = pod.labels().get(labels::INSTANCE) {
            self.told.remove(&(pod.namespace().unwrap_or_default(), set.clone()));
        }
    }

    pub(super) fn take(&mut self, change: Change<Event>, pods: &Pods, touched: impl Fn(&str)) {
        let events = match change {
            Change::Applied(event) => vec![event],
            Change::Listed(events) => events,
            Change::Listing | Change::Deleted(_) | Change::Broken => return,
        };
        for event in events {
            let namespace = event.namespace().unwrap_or_default();
            let (Some(set), Some(message)) = (event.involved_object.name, event.message) else { continue };
            if !pods.has_instance(&namespace, &set) {
                self.told.insert((namespace.clone(), set), message);
                touched(&namespace);
            }
        }
    }
}
