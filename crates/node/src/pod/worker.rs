//! The worker of one pod: owns its state, carries out what `plan` says, and tells the API.

mod happened;
mod launch;
mod stop;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use coregent_process::ExitStatus;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
    time::Instant,
};

use super::{
    container::Running,
    plan::plan,
    probe::Answer,
    publish::{Identity, Publisher, is_gone},
    sandbox::Sandbox,
    state::{PodState, Run, StopReason, spec},
    status::{status, with_foreign_conditions},
    volumes::Volumes,
};
use crate::{events::about_pod, logs, node::Node};

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// The object changed.
    Changed(Arc<Pod>),
    /// The object is gone without our word: deleted by force.
    Vanished,
    /// The node stops; at most this long.
    Shutdown(Option<Duration>),
    /// A container is empty.
    Exited { index: usize, id: String, status: ExitStatus },
    /// A probe was answered.
    Probe { index: usize, id: String, answer: Answer },
    /// A `postStart` hook failed.
    HookFailed { index: usize, id: String, reason: String },
}

/// How long a final status may take before the pod is let go without it.
const LAST_WRITE: Duration = Duration::from_secs(10);
/// How soon something that is not there yet is looked for again, should no change announce it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A container that runs, and what hangs on it.
#[derive(Debug)]
struct Live {
    running: Arc<Running>,
    /// Probes and hooks: of no use once the container is gone.
    tasks: Vec<AbortHandle>,
    stopping: bool,
    /// When SIGKILL ends all patience.
    kill_at: Option<Instant>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    node: Arc<Node>,
    state: PodState,
    sandbox: Option<Sandbox>,
    volumes: Volumes,
    live: BTreeMap<usize, Live>,
    publisher: Publisher,
    inbox: UnboundedReceiver<Message>,
    own: UnboundedSender<Message>,
    /// Volumes have to be looked at again.
    stale: bool,
    stop_by: Option<Instant>,
    look_again: Option<Instant>,
    /// The status has been final since before this process: nothing of it is rewritten.
    frozen: bool,
}

/// Starts the worker of `pod`; it ends when the pod has.
pub(crate) fn start(node: Arc<Node>, pod: Arc<Pod>) -> (UnboundedSender<Message>, tokio::task::JoinHandle<()>) {
    let (own, inbox) = unbounded_channel();
    let current = pod.status.clone().unwrap_or_default();
    let identity = Identity {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
    };
    let publisher = Publisher::start(node.client.clone(), identity, current.clone());
    let mut state = PodState::adopt(pod, node.host_ip, Timestamp::now());
    let frozen = matches!(current.phase.as_deref(), Some("Succeeded" | "Failed"));
    state.stop = frozen.then_some(StopReason::Finished);
    let worker = Worker {
        node,
        state,
        sandbox: None,
        volumes: Volumes::default(),
        live: BTreeMap::new(),
        publisher,
        inbox,
        own: own.clone(),
        stale: true,
        stop_by: None,
        look_again: None,
        frozen,
    };
    (own, tokio::spawn(worker.run()))
}

impl Worker {
    async fn run(mut self) {
        let pod = Arc::clone(&self.state.pod);
        self.changed(pod);
        let mut secrets = self.node.secrets.changes();
        let mut config_maps = self.node.config_maps.changes();
        let mut claims = self.node.claims.changes();
        let mut volumes = self.node.volumes.changes();
        let mut accounts = self.node.accounts.changes();
        while !self.over() {
            let wake = self.step().await;
            if self.over() {
                break;
            }
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                _ = secrets.changed() => self.objects_changed(),
                _ = config_maps.changed() => self.objects_changed(),
                _ = claims.changed(), if !self.state.prepared => self.objects_changed(),
                _ = volumes.changed(), if !self.state.prepared => self.objects_changed(),
                _ = accounts.changed(), if !self.state.prepared => self.objects_changed(),
                () = tokio::time::sleep_until(wake.unwrap_or(far)) => {}
            }
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
        }
        self.end().await;
    }

    /// The pod needs its worker no more.
    fn over(&self) -> bool {
        let leaving =
            matches!(self.state.stop, Some(StopReason::Deleted | StopReason::Vanished | StopReason::NodeShutdown));
        leaving && self.live.is_empty()
    }

    /// Does what is due and says when to come back.
    async fn step(&mut self) -> Option<Instant> {
        // Before anything is started again: that a container ended is what others wait for (failover.md F4).
        self.publish();
        self.act().await;
        self.publish();
        let now = Instant::now();
        let kill_at = self.live.values().filter_map(|l| l.kill_at).min();
        let next = plan(&self.state, now).wake;
        let deadline = self.deadline().filter(|_| self.state.stop.is_none());
        let renew = self.volumes.renew_at().filter(|_| self.state.stop.is_none());
        [kill_at, next, deadline, renew, self.look_again].into_iter().flatten().min()
    }

    async fn act(&mut self) {
        let now = Instant::now();
        if self.deadline().is_some_and(|at| at <= now) && self.state.stop.is_none() {
            let grace = self.grace();
            self.stop(StopReason::DeadlineExceeded, grace);
        }
        self.kill_overdue(now);
        if self.state.stop.is_some() {
            self.look_again = None;
            self.stop_next_wave();
            return;
        }
        let renewal = self.volumes.renew_at().is_some_and(|at| at <= now);
        if self.stale || renewal || self.look_again.is_some_and(|at| at <= now) {
            self.prepare().await;
        }
        let next = plan(&self.state, now);
        if next.finished {
            self.stop(StopReason::Finished, self.grace());
            return;
        }
        for index in next.start {
            self.start_container(index).await;
        }
    }

    async fn prepare(&mut self) {
        self.stale = false;
        self.look_again = None;
        match self.try_prepare().await {
            Ok(()) => {
                self.state.prepared = true;
                self.state.obstacle = None;
            }
            Err(reason) => {
                if self.state.obstacle.as_ref() != Some(&reason) {
                    self.warn(None, "FailedMount", reason.clone());
                }
                self.state.obstacle = Some(reason);
                self.look_again = Some(Instant::now() + LOOK_AGAIN);
            }
        }
    }

    async fn try_prepare(&mut self) -> Result<(), String> {
        let pod = Arc::clone(&self.state.pod);
        let uid = pod.uid().unwrap_or_default();
        if self.sandbox.is_none() {
            let sandbox = Sandbox::create(&self.node.data_dir, &uid).map_err(|e| format!("the pod's folder: {e}"))?;
            if spec(&pod).host_network == Some(true) {
                self.state.ip = Some(self.node.host_ip);
            } else {
                let ip = self.node.address(&uid, self.state.ip);
                let ip = ip.ok_or("no address is left for a pod on this node (178 pods at most)")?;
                self.state.ip = Some(ip);
            }
            if let Some(ip) = self.state.ip {
                let added = self.node.hosts.add(&self.node, &pod, ip, sandbox.hosts());
                added.map_err(|e| format!("the pod's hosts file: {e}"))?;
            }
            self.sandbox = Some(sandbox);
        }
        let Some(sandbox) = &self.sandbox else { return Ok(()) };
        self.volumes.prepare(&self.node, &pod, sandbox, self.state.ip).await.map_err(|e| e.to_string())
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Changed(pod) => self.changed(pod),
            Message::Vanished => self.stop(StopReason::Vanished, Duration::ZERO),
            Message::Shutdown(longest) => {
                let grace = longest.map_or(self.grace(), |longest| longest.min(self.grace()));
                self.stop(StopReason::NodeShutdown, grace);
            }
            Message::Exited { index, id, status } => self.exited(index, &id, status),
            Message::Probe { index, id, answer } => self.answered(index, &id, answer),
            Message::HookFailed { index, id, reason } => {
                if self.is_current(index, &id) {
                    let name = self.state.containers[index].name.clone();
                    self.warn(Some(&name), "FailedPostStartHook", reason);
                    self.stop_container(index, self.grace(), true);
                }
            }
        }
    }

    fn changed(&mut self, pod: Arc<Pod>) {
        let deleted = pod.metadata.deletion_timestamp.is_some();
        let grace = pod.metadata.deletion_grace_period_seconds;
        let metadata_changed = pod.metadata.labels != self.state.pod.metadata.labels
            || pod.metadata.annotations != self.state.pod.metadata.annotations;
        self.stale |= metadata_changed;
        if !self.frozen {
            self.publisher.shown(pod.status.as_ref());
        }
        self.state.pod = pod;
        if deleted {
            let grace = grace.and_then(|g| u64::try_from(g).ok()).map_or(self.grace(), Duration::from_secs);
            self.stop(StopReason::Deleted, grace);
        }
    }

    fn objects_changed(&mut self) {
        self.stale = true;
        for container in &mut self.state.containers {
            if matches!(container.run, Run::Waiting { .. }) {
                container.retry_at = None;
            }
        }
    }

    fn publish(&mut self) {
        if self.frozen || self.state.stop == Some(StopReason::Vanished) {
            return;
        }
        let previous = with_foreign_conditions(self.publisher.current(), &self.state.pod);
        let status = status(&self.state, &previous, Timestamp::now());
        self.publisher.publish(status);
    }

    async fn end(mut self) {
        self.publish();
        let reason = self.state.stop;
        if reason != Some(StopReason::Vanished) {
            self.publisher.flush(LAST_WRITE).await;
        }
        let pod = Arc::clone(&self.state.pod);
        let uid = pod.uid().unwrap_or_default();
        if reason == Some(StopReason::NodeShutdown) {
            return;
        }
        self.node.hosts.remove(&uid);
        if reason == Some(StopReason::Deleted) {
            self.delete_object(&pod).await;
        }
        self.node.release_address(&uid);
        let removed = Sandbox::remove(&self.node.data_dir, &uid);
        let logs = logs::folder(&self.node.data_dir, &pod);
        if let Err(e) = removed.and_then(|()| if logs.exists() { std::fs::remove_dir_all(logs) } else { Ok(()) }) {
            tracing::warn!(uid, "leftovers of a pod stay: {e}");
        }
    }

    /// Nothing of the pod runs any more: only now may its name be free (failover.md F4).
    async fn delete_object(&self, pod: &Pod) {
        let api: Api<Pod> = Api::namespaced(self.node.client.clone(), &pod.namespace().unwrap_or_default());
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
        let mut pause = Duration::from_millis(50);
        loop {
            match api.delete(&pod.name_any(), &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(e))
                    if matches!(e.code, 404 | 409)
                        && is_gone(&api, &pod.name_any(), &pod.uid().unwrap_or_default()).await =>
                {
                    return;
                }
                Err(e) => tracing::warn!(pod = pod.name_any(), "pod not deleted, trying again: {e}"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    fn is_current(&self, index: usize, id: &str) -> bool {
        self.live.get(&index).is_some_and(|l| l.running.id == id)
    }

    fn grace(&self) -> Duration {
        let seconds = spec(&self.state.pod).termination_grace_period_seconds.unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(30))
    }

    /// When `activeDeadlineSeconds` is over.
    fn deadline(&self) -> Option<Instant> {
        let seconds = spec(&self.state.pod).active_deadline_seconds?;
        let used = Timestamp::now().duration_since(self.state.started_at).as_secs().max(0);
        let left = u64::try_from(seconds.saturating_sub(used)).unwrap_or(0);
        Some(Instant::now() + Duration::from_secs(left))
    }

    fn key(&self, container: &str) -> crate::node::ContainerKey {
        let pod = &self.state.pod;
        (pod.namespace().unwrap_or_default(), pod.name_any(), container.to_owned())
    }

    fn normal(&self, container: &str, reason: &str, note: String) {
        self.node.events.normal(&about_pod(&self.state.pod, Some(container)), reason, note);
    }

    fn warn(&self, container: Option<&str>, reason: &str, note: String) {
        self.node.events.warning(&about_pod(&self.state.pod, container), reason, note);
    }
}
