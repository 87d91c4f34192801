//! Writing a pod's status: the newest counts, an unchanged one is not written.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::status::merge_diff;

/// Writes a pod's status from a task of its own, so that a slow API never holds up the pod.
#[derive(Debug)]
pub(crate) struct Publisher {
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<u64>,
}

/// What is to be written.
#[derive(Clone, Debug)]
struct Wanted {
    version: u64,
    status: PodStatus,
    /// What the API was seen to have instead of what was written.
    shown: Option<PodStatus>,
}

/// The pod that a status belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Publisher {
    /// Starts the writer. `current` is the status as the API has it.
    pub fn start(client: Client, pod: Identity, current: PodStatus) -> Self {
        // What the API has is taken here and not by the task: it may begin only after the first `publish`.
        let have = as_value(&current);
        let (wanted, updates) = watch::channel(Wanted { version: 0, status: current, shown: None });
        let (progress, written) = watch::channel(0);
        tokio::spawn(write_all(client, pod, have, updates, progress));
        Self { wanted, written }
    }

    /// The status that was asked for last.
    pub fn current(&self) -> PodStatus {
        self.wanted.borrow().status.clone()
    }

    /// Asks for `status` to be written, if it differs from the last.
    pub fn publish(&self, status: PodStatus) {
        self.wanted.send_if_modified(|wanted| {
            let changed = wanted.status != status;
            if changed {
                wanted.version += 1;
                wanted.status = status;
            }
            changed
        });
    }

    /// The API has `shown`. What was written is gone with it where an older copy of the store was put back, and is written
    /// again; an echo that comes late costs one write that changes nothing.
    pub fn shown(&self, shown: Option<&PodStatus>) {
        self.wanted.send_if_modified(|wanted| {
            let forgotten = wanted.version > 0 && essence(shown) != essence(Some(&wanted.status));
            if forgotten {
                wanted.version += 1;
                wanted.shown = Some(shown.cloned().unwrap_or_default());
            }
            forgotten
        });
    }

    /// Waits until everything asked for is written (or the pod is gone), at most for `longest`.
    pub async fn flush(&mut self, longest: Duration) {
        let version = self.wanted.borrow().version;
        let _ = tokio::time::timeout(longest, self.written.wait_for(|done| *done >= version)).await;
    }
}

async fn write_all(
    client: Client,
    pod: Identity,
    mut have: Value,
    mut updates: watch::Receiver<Wanted>,
    progress: watch::Sender<u64>,
) {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let mut adopted = 0;
    while updates.changed().await.is_ok() {
        let mut pause = Duration::from_millis(50);
        loop {
            let Wanted { version, status, shown } = updates.borrow_and_update().clone();
            let new = as_value(&status);
            if let Some(shown) = shown.filter(|_| version != adopted) {
                have = as_value(&shown);
                adopted = version;
            }
            match write(&api, &pod, &have, &new).await {
                Ok(()) => {
                    have = new;
                    progress.send_replace(version);
                    break;
                }
                Err(kube::Error::Api(e)) if matches!(e.code, 404 | 409) && is_gone(&api, &pod.name, &pod.uid).await => {
                    progress.send_replace(u64::MAX);
                    return;
                }
                Err(e) => {
                    tracing::warn!(pod = pod.name, "status not written, trying again: {e}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
            }
        }
    }
}

async fn write(api: &Api<Pod>, pod: &Identity, have: &Value, new: &Value) -> Result<(), kube::Error> {
    let Some(status) = merge_diff(have, new) else { return Ok(()) };
    // The uid makes the write conditional: a pod of the same name that came after this one is not touched.
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    api.patch_status(&pod.name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

/// Whether the pod is gone or another has its name: then nobody wants to know any more. A conflict alone may be
/// no more than somebody else's write at the same moment.
pub(super) async fn is_gone(api: &Api<Pod>, name: &str, uid: &str) -> bool {
    match api.get_opt(name).await {
        Ok(found) => found.and_then(|p| p.metadata.uid).as_deref() != Some(uid),
        Err(_) => false,
    }
}

/// What others go by: which container runs, is ready, or has ended. None of it is kept otherwise than it was written.
#[derive(PartialEq)]
struct Essence<'a> {
    name: &'a str,
    id: Option<&'a str>,
    ready: bool,
    running: bool,
    terminated: bool,
}

fn essence(status: Option<&PodStatus>) -> Vec<Essence<'_>> {
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    containers
        .iter()
        .map(|container| Essence {
            name: &container.name,
            id: container.container_id.as_deref(),
            ready: container.ready,
            running: container.state.as_ref().is_some_and(|state| state.running.is_some()),
            terminated: container.state.as_ref().is_some_and(|state| state.terminated.is_some()),
        })
        .collect()
}

fn as_value(status: &PodStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}
