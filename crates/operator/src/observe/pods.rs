//! Pods, and which of their database containers their node reported terminated, in a status of which version (F4).

use super::cache::{Change, Key, Ours, key_of, version_of};
use coregent_api::labels;
use coregent_core::failover::Termination;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The container that the database runs in.
const CONTAINER: &str = "postgresql";
/// Removed pods whose end is remembered.
const REMEMBERED: usize = 256;

#[derive(Default)]
pub(super) struct Pods {
    pods: BTreeMap<Key, Pod>,
    terminated: BTreeMap<String, Termination>,
    removed: VecDeque<String>,
    ours: Ours,
}

impl Pods {
    pub(super) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.iter().filter(move |((of, _), _)| of == namespace).map(|(_, pod)| pod)
    }

    /// Whether there is a pod of this member.
    pub(super) fn has_instance(&self, namespace: &str, member: &str) -> bool {
        self.in_namespace(namespace).any(|pod| pod.labels().get(labels::INSTANCE).is_some_and(|of| of == member))
    }

    pub(super) fn terminated(&self) -> &BTreeMap<String, Termination> {
        &self.terminated
    }

    /// Takes in the metadata of a write of ours.
    pub(super) fn put_metadata(&mut self, pod: Pod) {
        // One that is not taken in protects nothing from a list: after an older store was put back what is held has never
        // been.
        if let Some(held) = self.pods.get_mut(&key_of(&pod))
            && held.uid() == pod.uid()
            && version_of(held) < version_of(&pod)
        {
            self.ours.wrote(key_of(&pod));
            held.metadata = pod.metadata;
        }
    }

    pub(super) fn take(&mut self, change: Change<Pod>, mut touched: impl FnMut(&Pod)) {
        match change {
            Change::Listing => self.ours.list_begins(),
            Change::Applied(pod) => {
                touched(&pod);
                self.judge(&pod, true);
                self.put(pod);
            }
            Change::Deleted(pod) => {
                touched(&pod);
                self.judge(&pod, true);
                let key = key_of(&pod);
                if self.pods.get(&key).is_some_and(|held| held.uid() == pod.uid()) {
                    self.pods.remove(&key);
                    self.forget_later(&pod);
                }
            }
            Change::Listed(pods) => {
                let ours = self.ours.list_ends();
                let listed: BTreeSet<Key> = pods.iter().map(key_of).collect();
                let gone: Vec<Key> = self.pods.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                for key in gone {
                    if let Some(pod) = self.pods.remove(&key) {
                        touched(&pod);
                        self.forget_later(&pod);
                    }
                }
                for pod in pods {
                    touched(&pod);
                    self.judge(&pod, false);
                    if ours.contains(&key_of(&pod)) {
                        self.put(pod);
                    } else {
                        self.pods.insert(key_of(&pod), pod);
                    }
                }
            }
            Change::Broken => {}
        }
    }

    fn put(&mut self, pod: Pod) {
        let key = key_of(&pod);
        // Equal versions too: the answer of our own write has brought the metadata, this brings the status.
        if self.pods.get(&key).is_none_or(|held| version_of(held) <= version_of(&pod)) {
            self.pods.insert(key, pod);
        }
    }

    /// Notes the end of a container with the version of the status that first said so. `in_order` is false for a list,
    /// which may have skipped versions: then the status may be older than its version, and proves nothing by it.
    fn judge(&mut self, pod: &Pod, in_order: bool) {
        let Some(uid) = pod.uid() else { return };
        match ended(pod) {
            None => {
                self.terminated.remove(&uid);
            }
            Some((container_id, how)) => {
                let known = self.terminated.get(&uid).is_some_and(|known| known.container_id == container_id);
                if !known {
                    let version = if in_order { version_of(pod) } else { 0 };
                    self.terminated.insert(uid, Termination { container_id, how, version });
                }
            }
        }
    }

    /// What is known about the end of a removed pod is kept for a while: its holder may still stand in a Lease.
    fn forget_later(&mut self, pod: &Pod) {
        self.removed.extend(pod.uid());
        while self.removed.len() > REMEMBERED {
            if let Some(uid) = self.removed.pop_front() {
                self.terminated.remove(&uid);
            }
        }
    }
}

/// The status of the database container.
pub(super) fn database_container(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == CONTAINER)
}

/// The containerID of the database container that ended last, if none runs, and how it ended. A container that never ran
/// has not ended.
fn ended(pod: &Pod) -> Option<(String, String)> {
    let status = database_container(pod)?;
    let state = status.state.as_ref()?;
    if state.running.is_some() {
        return None;
    }
    let ended = state.terminated.as_ref();
    let ended = ended.or_else(|| status.last_state.as_ref().and_then(|last| last.terminated.as_ref()))?;
    let container_id = ended.container_id.clone().or_else(|| status.container_id.clone()).unwrap_or_default();
    // Kubernetes rarely fills in the signal: a shell's convention of 128 more is all there is then.
    let how = match (ended.signal, ended.exit_code) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code @ 129..=192) => format!("signal {}", code - 128),
        (None, code) => format!("exit code {code}"),
    };
    Some((container_id, how))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(version: u64, state: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "orders-1-0", "namespace": "d", "uid": "u", "resourceVersion": version.to_string()},
            "status": {"containerStatuses": [{
                "name": "postgresql", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            }]},
        }))
        .unwrap()
    }

    fn running() -> serde_json::Value {
        json!({"running": {}})
    }

    fn terminated() -> serde_json::Value {
        json!({"terminated": {"exitCode": 137, "containerID": "c1"}})
    }

    #[test]
    fn the_version_of_an_end_is_that_of_the_status_that_first_said_so_not_of_a_later_stamp() {
        let mut pods = Pods::default();
        pods.take(Change::Applied(pod(5, running())), |_| ());
        pods.take(Change::Applied(pod(9, terminated())), |_| ());
        pods.take(Change::Applied(pod(14, terminated())), |_| ());
        assert_eq!(pods.terminated().get("u").map(|end| end.version), Some(9));
    }

    #[test]
    fn an_end_found_in_a_list_proves_nothing_by_its_version() {
        let mut pods = Pods::default();
        pods.take(Change::Listed(vec![pod(40, terminated())]), |_| ());
        assert_eq!(pods.terminated().get("u").map(|end| end.version), Some(0));
    }

    #[test]
    fn a_container_that_runs_again_has_not_ended() {
        let mut pods = Pods::default();
        pods.take(Change::Applied(pod(9, terminated())), |_| ());
        pods.take(Change::Applied(pod(11, running())), |_| ());
        assert!(pods.terminated().is_empty());
    }

    #[test]
    fn the_end_of_a_removed_pod_is_remembered() {
        let mut pods = Pods::default();
        pods.take(Change::Applied(pod(5, running())), |_| ());
        pods.take(Change::Deleted(pod(9, terminated())), |_| ());
        assert_eq!(pods.in_namespace("d").count(), 0);
        assert_eq!(pods.terminated().get("u").map(|end| end.version), Some(9));
    }

    /// What an API server says whose store is an older copy (failover.md F14).
    #[test]
    fn a_list_replaces_a_pod_that_is_newer_by_its_version_unless_our_write_was_taken_in_meanwhile() {
        for (written, expected) in [(None, 30), (Some(20), 30), (Some(60), 60)] {
            let mut pods = Pods::default();
            pods.take(Change::Applied(pod(50, running())), |_| ());
            pods.take(Change::Listing, |_| ());
            if let Some(version) = written {
                pods.put_metadata(pod(version, running()));
            }
            pods.take(Change::Listed(vec![pod(30, running())]), |_| ());
            let held: Vec<u64> = pods.in_namespace("d").map(version_of).collect();
            assert_eq!(held, [expected], "written: {written:?}");
        }
    }
}
