//! Events about what the node did, for people who ask why.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::mpsc;

/// More than this many unwritten events are dropped: an event may never hold up a pod.
const BACKLOG: usize = 256;

/// Writes events in the background.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
}

impl Events {
    /// Starts the writer; it ends when the last handle is dropped.
    pub fn start(client: Client, node: &str) -> Self {
        let (queue, mut waiting) = mpsc::channel::<(Event, ObjectReference)>(BACKLOG);
        let reporter = Reporter { controller: "coregent-node".into(), instance: Some(node.to_owned()) };
        tokio::spawn(async move {
            let mut series = Series::default();
            while let Some((event, about)) = waiting.recv().await {
                let recorder = series.of(&event, &about, || Recorder::new(client.clone(), reporter.clone()));
                if let Err(e) = recorder.publish(&event, &about).await {
                    tracing::debug!(reason = event.reason, "event not written: {e}");
                }
            }
        });
        Self { queue }
    }

    /// Something went as it should.
    pub fn normal(&self, about: &ObjectReference, reason: &str, note: String) {
        self.publish(about, EventType::Normal, reason, note);
    }

    /// Something a person may have to act on.
    pub fn warning(&self, about: &ObjectReference, reason: &str, note: String) {
        tracing::info!(object = about.name.as_deref(), reason, "{note}");
        self.publish(about, EventType::Warning, reason, note);
    }

    fn publish(&self, about: &ObjectReference, type_: EventType, reason: &str, mut note: String) {
        // The API refuses notes over 1 KiB.
        if note.len() > 1000 {
            let end = (0..=1000).rev().find(|i| note.is_char_boundary(*i)).unwrap_or(0);
            note.truncate(end);
        }
        let event = Event { type_, reason: reason.into(), note: Some(note), action: reason.into(), secondary: None };
        if self.queue.try_send((event, about.clone())).is_err() {
            tracing::debug!(reason, "event dropped: too many are waiting");
        }
    }
}

/// More series than this are forgotten: what goes on is a new one then.
const MOST_SERIES: usize = 1024;

/// The newest series of events about each thing. A recorder counts an event on whatever it says, with the words of the
/// first; a kubelet counts only what says the same, and a role probe speaks through these words.
struct Series<R>(BTreeMap<[String; 3], (Option<String>, R)>);

impl<R> Default for Series<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R> Series<R> {
    /// The recorder that an event is counted by.
    fn of(&mut self, event: &Event, about: &ObjectReference, begin: impl FnOnce() -> R) -> &R {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = [text(&about.uid), text(&about.field_path), event.reason.clone()];
        if self.0.len() >= MOST_SERIES && !self.0.contains_key(&key) {
            self.0.clear();
        }
        if self.0.get(&key).is_some_and(|(note, _)| *note != event.note) {
            self.0.remove(&key);
        }
        &self.0.entry(key).or_insert_with(|| (event.note.clone(), begin())).1
    }
}

/// What an event about a pod, or about one of its containers, points to.
pub(crate) fn about_pod(pod: &Pod, container: Option<&str>) -> ObjectReference {
    ObjectReference { field_path: container.map(|name| format!("spec.containers{{{name}}}")), ..pod.object_ref(&()) }
}

/// What an event about a Node points to. Its uid is its name, as with a kubelet.
pub(crate) fn about_node(name: &str) -> ObjectReference {
    let node = k8s_openapi::api::core::v1::Node {
        metadata: ObjectMeta { name: Some(name.into()), uid: Some(name.into()), ..Default::default() },
        ..Default::default()
    };
    node.object_ref(&())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_something_else_is_an_event_of_its_own() {
        let event = |note: &str| Event {
            type_: EventType::Warning,
            reason: "Unhealthy".into(),
            note: Some(note.into()),
            action: "Unhealthy".into(),
            secondary: None,
        };
        let about = |uid: &str| ObjectReference { uid: Some(uid.into()), ..ObjectReference::default() };
        let mut begun = 0..;
        let mut series = Series::default();
        let mut of = |note: &str, uid: &str| *series.of(&event(note), &about(uid), || begun.next().unwrap_or_default());
        let recorders = [of("a", "u"), of("a", "u"), of("b", "u"), of("b", "v"), of("b", "u"), of("a", "u")];
        assert_eq!(recorders, [0, 0, 1, 2, 1, 3]);
    }
}
