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
    wanted: watch::Sender<(u64, PodStatus)>,
    written: watch::Receiver<u64>,
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
        let (wanted, updates) = watch::channel((0, current));
        let (progress, written) = watch::channel(0);
        tokio::spawn(write_all(client, pod, have, updates, progress));
        Self { wanted, written }
    }

    /// The status that was asked for last.
    pub fn current(&self) -> PodStatus {
        self.wanted.borrow().1.clone()
    }

    /// Asks for `status` to be written, if it differs from the last.
    pub fn publish(&self, status: PodStatus) {
        self.wanted.send_if_modified(|(version, have)| {
            let changed = *have != status;
            if changed {
                *version += 1;
                *have = status;
            }
            changed
        });
    }

    /// Waits until everything asked for is written (or the pod is gone), at most for `longest`.
    pub async fn flush(&mut self, longest: Duration) {
        let version = self.wanted.borrow().0;
        let _ = tokio::time::timeout(longest, self.written.wait_for(|done| *done >= version)).await;
    }
}

async fn write_all(
    client: Client,
    pod: Identity,
    mut have: Value,
    mut updates: watch::Receiver<(u64, PodStatus)>,
    progress: watch::Sender<u64>,
) {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    while updates.changed().await.is_ok() {
        let mut pause = Duration::from_millis(50);
        loop {
            let (version, status) = updates.borrow_and_update().clone();
            let new = as_value(&status);
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

fn as_value(status: &PodStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}
