//! What the worker knows of its pod.

use std::{net::Ipv4Addr, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec};
use tokio::time::Instant;

use super::backoff::Backoff;

/// Everything that decides a pod's next step and its status.
#[derive(Clone, Debug)]
pub(crate) struct PodState {
    /// The newest version seen of the object.
    pub pod: Arc<Pod>,
    /// The pod's own address, once it has one.
    pub ip: Option<Ipv4Addr>,
    /// The node's address.
    pub host_ip: Ipv4Addr,
    /// When the node first saw the pod.
    pub started_at: Timestamp,
    /// Volumes and address are there; until then nothing starts.
    pub prepared: bool,
    /// Why not, if it takes longer than it should.
    pub obstacle: Option<String>,
    /// Init containers in order, then the others.
    pub containers: Vec<ContainerState>,
    /// Set once the pod is to end; nothing starts any more.
    pub stop: Option<StopReason>,
}

/// Why a pod is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The API asks for it (`deletionTimestamp`).
    Deleted,
    /// The object is gone already: it was deleted by force.
    Vanished,
    /// `activeDeadlineSeconds` is over.
    DeadlineExceeded,
    /// The containers that count have ended for good; sidecars have no purpose left.
    Finished,
    /// The node stops; the pod runs again when it is back.
    NodeShutdown,
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs to success before the next starts.
    Init,
    /// An init container with `restartPolicy: Always`: the next starts once it has started.
    Sidecar,
    /// One of `spec.containers`.
    App,
}

/// One container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerState {
    pub name: String,
    pub image: String,
    pub kind: Kind,
    pub run: Run,
    /// How the run before this one ended.
    pub last: Option<Terminated>,
    pub restarts: i32,
    /// Id of the newest run.
    pub id: Option<String>,
    /// The start-up probe passed, or there is none and the container runs.
    pub started: bool,
    /// The readiness probe passes, or there is none and the container has started.
    pub ready: bool,
    pub backoff: Backoff,
    /// Not to be started before.
    pub retry_at: Option<Instant>,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Waiting { reason: String, message: Option<String> },
    Running { since: Timestamp },
    Terminated(Terminated),
}

impl Run {
    /// Waiting, for no reason that needs words.
    pub fn waiting(reason: &str) -> Self {
        Self::Waiting { reason: reason.into(), message: None }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terminated {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    pub id: Option<String>,
}

impl ContainerState {
    /// Whether a process of it is there.
    pub fn is_running(&self) -> bool {
        matches!(self.run, Run::Running { .. })
    }
}

/// The spec of a pod, as a pod without one has it.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

/// A pod's containers in the order of [`PodState::containers`].
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = (Kind, &Container)> {
    let spec = spec(pod);
    let init = spec.init_containers.iter().flatten().map(|c| match c.restart_policy.as_deref() {
        Some("Always") => (Kind::Sidecar, c),
        _ => (Kind::Init, c),
    });
    init.chain(spec.containers.iter().map(|c| (Kind::App, c)))
}

impl PodState {
    /// The state of a pod that this process has not run yet. What an earlier process left in the status
    /// is taken over: counts go on, and a container that was running has died with its node.
    pub fn adopt(pod: Arc<Pod>, host_ip: Ipv4Addr, now: Timestamp) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let known: Vec<ContainerStatus> =
            status.init_container_statuses.into_iter().chain(status.container_statuses).flatten().collect();
        let states = containers(&pod)
            .map(|(kind, c)| adopt_container(kind, c, known.iter().find(|s| s.name == c.name), now))
            .collect();
        Self {
            ip: status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()),
            host_ip,
            started_at: status.start_time.map_or(now, |t| t.0),
            prepared: false,
            obstacle: None,
            containers: states,
            stop: None,
            pod,
        }
    }
}

fn adopt_container(kind: Kind, spec: &Container, known: Option<&ContainerStatus>, now: Timestamp) -> ContainerState {
    let mut state = ContainerState {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        kind,
        run: Run::waiting(if kind == Kind::App { "ContainerCreating" } else { "PodInitializing" }),
        last: None,
        restarts: 0,
        id: None,
        started: false,
        ready: false,
        backoff: Backoff::default(),
        retry_at: None,
    };
    let Some(known) = known else { return state };
    state.restarts = known.restart_count;
    state.id.clone_from(&known.container_id);
    state.last = known.last_state.as_ref().and_then(|s| s.terminated.as_ref()).map(from_api);
    let Some(run) = &known.state else { return state };
    // As after a reboot of a Kubernetes node, init containers run again: what they prepared may be gone.
    if kind == Kind::Init {
        if let Some(terminated) = &run.terminated {
            state.last = Some(from_api(terminated));
            state.restarts += 1;
        }
        return state;
    }
    if let Some(terminated) = &run.terminated {
        state.run = Run::Terminated(from_api(terminated));
    } else if let Some(running) = &run.running {
        state.run = Run::Terminated(Terminated {
            exit_code: 137,
            signal: Some(9),
            reason: "NodeRestarted".into(),
            message: Some("the node's process ended, and everything that it ran with it".into()),
            started_at: running.started_at.as_ref().map(|t| t.0),
            finished_at: now,
            id: known.container_id.clone(),
        });
    }
    state
}

fn from_api(t: &k8s_openapi::api::core::v1::ContainerStateTerminated) -> Terminated {
    Terminated {
        exit_code: t.exit_code,
        signal: t.signal,
        reason: t.reason.clone().unwrap_or_default(),
        message: t.message.clone(),
        started_at: t.started_at.as_ref().map(|t| t.0),
        finished_at: t.finished_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        id: t.container_id.clone(),
    }
}
