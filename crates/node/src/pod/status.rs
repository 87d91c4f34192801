//! The status that a pod's state amounts to. Pure.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus, ResourceRequirements,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Map, Value};

use super::{
    plan::{self, Outcome},
    state::{ContainerState, Kind, PodState, Run, StopReason, Terminated, spec},
};

/// The status of `state`; conditions that others wrote, and the moments of conditions that have not
/// changed, are kept from `previous`.
pub(crate) fn status(state: &PodState, previous: &PodStatus, now: Timestamp) -> PodStatus {
    let (init, apps): (Vec<_>, Vec<_>) = state.containers.iter().partition(|c| c.kind != Kind::App);
    let phase = phase(state);
    let statuses = |containers: Vec<&ContainerState>| {
        let list: Vec<_> = containers.into_iter().map(|c| container_status(state, c)).collect();
        (!list.is_empty()).then_some(list)
    };
    let (reason, message) = match state.stop {
        Some(StopReason::DeadlineExceeded) => (
            Some("DeadlineExceeded".to_owned()),
            Some("Pod was active on the node longer than the specified deadline".to_owned()),
        ),
        _ => (None, None),
    };
    PodStatus {
        conditions: Some(conditions(state, phase, previous, now)),
        container_statuses: statuses(apps),
        init_container_statuses: statuses(init),
        host_ip: Some(state.host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: state.host_ip.to_string() }]),
        phase: Some(phase.to_owned()),
        pod_ip: state.ip.map(|ip| ip.to_string()),
        pod_ips: state.ip.map(|ip| vec![PodIP { ip: ip.to_string() }]),
        qos_class: Some(qos_class(&state.pod).to_owned()),
        start_time: Some(Time(seconds(state.started_at))),
        reason,
        message,
        ..previous.clone()
    }
}

/// The conditions that the node writes; all others belong to somebody else.
const OWN_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// `written` with the conditions that others have put on the object since: a list is written whole.
pub(crate) fn with_foreign_conditions(mut written: PodStatus, seen: &Pod) -> PodStatus {
    let own = |c: &PodCondition| OWN_CONDITIONS.contains(&c.type_.as_str());
    let mut conditions = written.conditions.take().unwrap_or_default();
    let foreign = seen.status.iter().flat_map(|s| s.conditions.iter().flatten()).filter(|c| !own(c));
    conditions.retain(own);
    conditions.extend(foreign.cloned());
    written.conditions = Some(conditions);
    written
}

/// The API keeps moments to the second; a finer one would differ from its own echo for ever.
fn seconds(t: Timestamp) -> Timestamp {
    Timestamp::from_second(t.as_second()).unwrap_or(t)
}

fn phase(state: &PodState) -> &'static str {
    let all_down = state.containers.iter().all(|c| !c.is_running());
    if all_down && state.stop == Some(StopReason::DeadlineExceeded) {
        return "Failed";
    }
    if let Some(outcome) = plan::outcome(state)
        && all_down
    {
        return if outcome == Outcome::Succeeded { "Succeeded" } else { "Failed" };
    }
    let apps = || state.containers.iter().filter(|c| c.kind == Kind::App);
    // A deleted pod ends by what its containers said last, whatever its restart policy.
    if all_down && state.stop == Some(StopReason::Deleted) && apps().any(|c| matches!(c.run, Run::Terminated(_))) {
        let well = apps().all(|c| matches!(&c.run, Run::Terminated(t) if t.exit_code == 0));
        return if well { "Succeeded" } else { "Failed" };
    }
    let began = |c: &ContainerState| !matches!(c.run, Run::Waiting { .. }) || c.last.is_some();
    if apps().any(began) { "Running" } else { "Pending" }
}

fn conditions(state: &PodState, phase: &str, previous: &PodStatus, now: Timestamp) -> Vec<PodCondition> {
    let done = phase == "Succeeded";
    let unready: Vec<&str> =
        state.containers.iter().filter(|c| c.kind != Kind::Init && !c.ready).map(|c| c.name.as_str()).collect();
    let uninitialized: Vec<&str> = state
        .containers
        .iter()
        .filter(|c| match c.kind {
            Kind::Init => !matches!(&c.run, Run::Terminated(t) if t.exit_code == 0),
            Kind::Sidecar => !c.started,
            Kind::App => false,
        })
        .map(|c| c.name.as_str())
        .collect();
    let completed = || Some(("PodCompleted".to_owned(), None));
    let not_ready = (!unready.is_empty() || done).then(|| {
        if done {
            return completed();
        }
        let message = format!("containers with unready status: [{}]", unready.join(" "));
        Some(("ContainersNotReady".to_owned(), Some(message)))
    });
    let gates = spec(&state.pod).readiness_gates.iter().flatten();
    let closed: Vec<&str> = gates
        .map(|g| g.condition_type.as_str())
        .filter(|t| !previous.conditions.iter().flatten().any(|c| c.type_ == *t && c.status == "True"))
        .collect();
    let ready = not_ready.clone().or_else(|| {
        let message = format!("readiness gates not open: [{}]", closed.join(" "));
        (!closed.is_empty()).then_some(Some(("ReadinessGatesNotReady".to_owned(), Some(message))))
    });
    let initialized = (!uninitialized.is_empty()).then(|| {
        let message = format!("containers with incomplete status: [{}]", uninitialized.join(" "));
        Some(("ContainersNotInitialized".to_owned(), Some(message)))
    });
    let sandbox = (!state.prepared).then(|| state.obstacle.clone().map(|m| ("NotPrepared".to_owned(), Some(m))));
    let own = [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", not_ready),
        ("PodScheduled", None),
    ];
    let mut all: Vec<PodCondition> = previous.conditions.clone().unwrap_or_default();
    for (type_, failed) in own {
        let status = if failed.is_none() { "True" } else { "False" };
        let (reason, message) = failed.flatten().map_or((None, None), |(r, m)| (Some(r), m));
        let observed_generation = state.pod.metadata.generation;
        match all.iter_mut().find(|c| c.type_ == type_) {
            // Whether a pod is scheduled is the scheduler's word; it is only completed if nobody said it.
            Some(_) if type_ == "PodScheduled" => {}
            Some(have) => {
                if have.status != status {
                    have.last_transition_time = Some(Time(seconds(now)));
                    have.status = status.into();
                }
                (have.reason, have.message) = (reason, message);
            }
            None => all.push(PodCondition {
                type_: type_.into(),
                status: status.into(),
                reason,
                message,
                last_transition_time: Some(Time(seconds(now))),
                observed_generation,
                ..PodCondition::default()
            }),
        }
    }
    all
}

fn container_status(state: &PodState, container: &ContainerState) -> ContainerStatus {
    let mut last = container.last.as_ref().map(terminated);
    let mut id = container.id.clone();
    let run = match &container.run {
        Run::Waiting { reason, message } => waiting(reason, message.clone()),
        Run::Running { since } => ApiState {
            running: Some(ContainerStateRunning { started_at: Some(Time(seconds(*since))) }),
            ..ApiState::default()
        },
        Run::Terminated(ended) if plan::restarts(state, container) && container.retry_at.is_some() => {
            last = Some(terminated(ended));
            id.clone_from(&ended.id);
            waiting(
                "CrashLoopBackOff",
                Some(format!("back-off before restart {} of container {}", container.restarts + 1, container.name)),
            )
        }
        Run::Terminated(ended) => terminated(ended),
    };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        image_id: String::new(),
        container_id: id,
        ready: match container.kind {
            Kind::Init => matches!(&container.run, Run::Terminated(t) if t.exit_code == 0),
            _ => container.ready,
        },
        started: Some(container.started),
        restart_count: container.restarts,
        state: Some(run),
        last_state: Some(last.unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn waiting(reason: &str, message: Option<String>) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ApiState::default()
    }
}

fn terminated(ended: &Terminated) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            container_id: ended.id.clone(),
            exit_code: ended.exit_code,
            signal: ended.signal,
            reason: Some(ended.reason.clone()),
            message: ended.message.clone(),
            started_at: ended.started_at.map(|t| Time(seconds(t))),
            finished_at: Some(Time(seconds(ended.finished_at))),
        }),
        ..ApiState::default()
    }
}

/// Guaranteed, Burstable or BestEffort, by the rules of Kubernetes for CPU and memory.
fn qos_class(pod: &Pod) -> &'static str {
    let spec = spec(pod);
    let all = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let none = ResourceRequirements::default();
    let mut guaranteed = true;
    let mut any = false;
    for container in all() {
        let resources = container.resources.as_ref().unwrap_or(&none);
        for name in ["cpu", "memory"] {
            let limit = resources.limits.as_ref().and_then(|l| l.get(name));
            let request = resources.requests.as_ref().and_then(|r| r.get(name)).or(limit);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// The JSON merge patch (RFC 7396) that turns `old` into `new`; `None` if they are the same. Lists are
/// replaced whole.
pub(crate) fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(was) => merge_diff(was, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod() -> PodState {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {
            "initContainers": [{"name": "init", "image": "busybox"}],
            "containers": [{"name": "main", "image": "busybox"}],
        }});
        let mut state = PodState::adopt(Arc::new(serde_json::from_value(pod).unwrap()), [127, 64, 0, 1].into(), at(1));
        state.prepared = true;
        state.ip = Some([127, 64, 0, 2].into());
        state
    }

    fn ended(exit_code: i32, id: &str) -> Run {
        Run::Terminated(Terminated {
            exit_code,
            signal: None,
            reason: if exit_code == 0 { "Completed".into() } else { "Error".into() },
            message: None,
            started_at: Some(at(2)),
            finished_at: at(3),
            id: Some(id.into()),
        })
    }

    /// Phase, conditions that are not true, containers: as a person would read them.
    fn summary(state: &PodState) -> String {
        let status = status(state, &PodStatus::default(), at(9));
        let mut text = status.phase.clone().unwrap();
        for condition in status.conditions.iter().flatten().filter(|c| c.status != "True") {
            text.push_str(&format!(" !{}", condition.type_));
            if let Some(reason) = &condition.reason {
                text.push_str(&format!("({reason})"));
            }
        }
        for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
            text.push_str(&format!(" | {} {}", container.name, words(container.state.as_ref())));
            if container.last_state.as_ref().is_some_and(|s| *s != ApiState::default()) {
                text.push_str(&format!(", before {}", words(container.last_state.as_ref())));
            }
        }
        text
    }

    fn words(state: Option<&ApiState>) -> String {
        match state {
            Some(ApiState { waiting: Some(w), .. }) => w.reason.clone().unwrap(),
            Some(ApiState { running: Some(_), .. }) => "runs".into(),
            Some(ApiState { terminated: Some(t), .. }) => {
                format!("{} {} {}", t.reason.as_ref().unwrap(), t.exit_code, t.container_id.as_ref().unwrap())
            }
            _ => "nothing".into(),
        }
    }

    #[test]
    fn the_life_of_a_pod_as_its_status_tells_it() {
        let mut story = Vec::new();
        let mut state = pod();
        state.prepared = false;
        story.push(summary(&state));
        state.prepared = true;
        state.containers[0].run = Run::Running { since: at(1) };
        story.push(summary(&state));
        state.containers[0].run = ended(0, "i0");
        story.push(summary(&state));
        state.containers[1].run = Run::Running { since: at(2) };
        story.push(summary(&state));
        state.containers[1].ready = true;
        story.push(summary(&state));
        state.containers[1].ready = false;
        state.containers[1].run = ended(137, "m0");
        story.push(summary(&state));
        state.containers[1].retry_at = Some(Instant::now());
        story.push(summary(&state));
        state.stop = Some(StopReason::NodeShutdown);
        story.push(summary(&state));
        state.stop = Some(StopReason::Deleted);
        story.push(summary(&state));
        insta::assert_snapshot!(story.join("\n"), @"
        Pending !PodReadyToStartContainers !Initialized(ContainersNotInitialized) !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init PodInitializing | main ContainerCreating
        Pending !Initialized(ContainersNotInitialized) !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init runs | main ContainerCreating
        Pending !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init Completed 0 i0 | main ContainerCreating
        Running !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init Completed 0 i0 | main runs
        Running | init Completed 0 i0 | main runs
        Running !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init Completed 0 i0 | main Error 137 m0
        Running !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init Completed 0 i0 | main CrashLoopBackOff, before Error 137 m0
        Running !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init Completed 0 i0 | main Error 137 m0
        Failed !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init Completed 0 i0 | main Error 137 m0
        ");
    }

    #[test]
    fn an_unchanged_state_gives_an_unchanged_status() {
        let state = pod();
        let first = status(&state, &PodStatus::default(), at(5));
        let second = status(&state, &first, at(50));
        assert_eq!(first, second);
        let values = [&first, &second].map(|s| serde_json::to_value(s).unwrap());
        assert_eq!(merge_diff(&values[0], &values[1]), None);
    }

    #[test]
    fn conditions_of_others_are_kept_and_a_gate_holds_back_readiness() {
        let mut state = pod();
        let mut object = (*state.pod).clone();
        object.spec.as_mut().unwrap().readiness_gates =
            Some(vec![k8s_openapi::api::core::v1::PodReadinessGate { condition_type: "example.com/gate".into() }]);
        state.containers[0].run = ended(0, "i0");
        state.containers[1].run = Run::Running { since: at(2) };
        state.containers[1].ready = true;
        let mut ready = |gate: &str| {
            object.status = Some(
                serde_json::from_value(json!({"conditions": [{"type": "example.com/gate", "status": gate}]})).unwrap(),
            );
            state.pod = Arc::new(object.clone());
            let previous = with_foreign_conditions(PodStatus::default(), &state.pod);
            let status = status(&state, &previous, at(5));
            let of = |t: &str| status.conditions.iter().flatten().find(|c| c.type_ == t).unwrap().status.clone();
            (of("Ready"), of("ContainersReady"), of("example.com/gate"))
        };
        let text = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(ready("False"), text("False", "True", "False"));
        assert_eq!(ready("True"), text("True", "True", "True"));
    }

    #[test]
    fn a_container_that_ran_when_the_node_died_is_told_as_ended() {
        let mut object = (*pod().pod).clone();
        let status = json!({"podIP": "127.64.0.9", "startTime": "1970-01-01T00:00:01Z",
            "initContainerStatuses": [{"name": "init", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "containerID": "i0"}}}],
            "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 4,
                "containerID": "m4", "state": {"running": {"startedAt": "1970-01-01T00:00:02Z"}}}]});
        object.status = Some(serde_json::from_value(status).unwrap());
        let state = PodState::adopt(Arc::new(object), [127, 64, 0, 1].into(), at(7));
        assert_eq!(state.ip, Some([127, 64, 0, 9].into()));
        assert_eq!(state.containers[1].restarts, 4);
        insta::assert_snapshot!(
            summary(&state),
            @"Running !PodReadyToStartContainers !Initialized(ContainersNotInitialized) !Ready(ContainersNotReady) !ContainersReady(ContainersNotReady) | init PodInitializing, before Completed 0 i0 | main NodeRestarted 137 m4"
        );
    }

    #[test]
    fn merge_patches_hold_only_what_differs() {
        for (old, new, expected) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), Some(json!({"b": 3}))),
            (json!({"a": 1}), json!({}), Some(json!({"a": null}))),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1}}), Some(json!({"a": {"y": null}}))),
            (json!({"l": [1, 2]}), json!({"l": [1]}), Some(json!({"l": [1]}))),
            (json!({"a": 1}), json!({"a": 1}), None),
        ] {
            assert_eq!(merge_diff(&old, &new), expected, "{old} {new}");
        }
    }

    #[test]
    fn qos_follows_requests_and_limits() {
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable"),
        ] {
            let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
            assert_eq!(qos_class(&serde_json::from_value(pod).unwrap()), expected, "{resources}");
        }
    }
}
