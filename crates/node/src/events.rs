//! Events about what the node did, for people who ask why.

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
            let recorder = Recorder::new(client, reporter);
            while let Some((event, about)) = waiting.recv().await {
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
