//! What a pod needs next. Pure.

use tokio::time::Instant;

use super::state::{ContainerState, Kind, PodState, Run, spec};

/// What to do now and when to look again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Next {
    /// Containers to start, as indexes of [`PodState::containers`].
    pub start: Vec<usize>,
    /// The next moment at which time alone changes the answer.
    pub wake: Option<Instant>,
    /// Everything that counts has ended for good.
    pub finished: bool,
}

/// Decides the next step of a pod.
pub(crate) fn plan(state: &PodState, now: Instant) -> Next {
    let mut next = Next::default();
    if state.stop.is_some() || !state.prepared {
        return next;
    }
    if outcome(state).is_some() {
        next.finished = true;
        return next;
    }
    let apps_began = state.containers.iter().any(|c| c.kind == Kind::App && (c.is_running() || c.last.is_some()));
    for (index, container) in state.containers.iter().enumerate() {
        let due = !container.is_running() && wants_to_run(state, container);
        if due {
            match container.retry_at.filter(|at| *at > now) {
                Some(at) => next.wake = Some(next.wake.map_or(at, |wake| wake.min(at))),
                None => next.start.push(index),
            }
        }
        let holds_back = match container.kind {
            Kind::App => false,
            Kind::Init => !succeeded(container),
            // Once the pod has come up, a restarting sidecar does not hold back the others.
            Kind::Sidecar => !container.started && !apps_began,
        };
        if holds_back {
            break;
        }
    }
    next
}

/// Whether a container that does not run should.
fn wants_to_run(state: &PodState, container: &ContainerState) -> bool {
    let Run::Terminated(ended) = &container.run else { return true };
    match container.kind {
        Kind::Init => ended.exit_code != 0 && policy(state) != "Never",
        Kind::Sidecar => true,
        Kind::App => match policy(state) {
            "Never" => false,
            "OnFailure" => ended.exit_code != 0,
            _ => true,
        },
    }
}

/// Whether a container that ended will be started again (shown as `CrashLoopBackOff` while it waits).
pub(crate) fn restarts(state: &PodState, container: &ContainerState) -> bool {
    state.stop.is_none() && wants_to_run(state, container)
}

fn succeeded(container: &ContainerState) -> bool {
    matches!(&container.run, Run::Terminated(ended) if ended.exit_code == 0)
}

fn policy(state: &PodState) -> &str {
    spec(&state.pod).restart_policy.as_deref().unwrap_or("Always")
}

/// How a pod whose containers run no more, and never will, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
}

/// The end of a pod by its own containers, if it has come.
pub(crate) fn outcome(state: &PodState) -> Option<Outcome> {
    let ended_for_good =
        |c: &ContainerState| matches!(c.run, Run::Terminated(_)) && !wants_to_run(state, c) && !c.is_running();
    if state.containers.iter().any(|c| c.kind == Kind::Init && ended_for_good(c) && !succeeded(c)) {
        return Some(Outcome::Failed);
    }
    let mut apps = state.containers.iter().filter(|c| c.kind == Kind::App).peekable();
    apps.peek()?;
    if !apps.clone().all(ended_for_good) {
        return None;
    }
    Some(if apps.all(succeeded) { Outcome::Succeeded } else { Outcome::Failed })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::pod::state::Terminated;

    fn pod(policy: &str) -> PodState {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {
            "restartPolicy": policy,
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}, {"name": "b"}],
        }});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        PodState { prepared: true, ..PodState::adopt(pod, [127, 0, 0, 1].into(), Timestamp::UNIX_EPOCH) }
    }

    fn ended(exit_code: i32) -> Run {
        Run::Terminated(Terminated {
            exit_code,
            signal: None,
            reason: "Completed".into(),
            message: None,
            started_at: None,
            finished_at: Timestamp::UNIX_EPOCH,
            id: None,
        })
    }

    /// w: waiting, r: running, R: running and started, 0: ended well, 1: ended badly.
    fn next(policy: &str, containers: &str) -> (Vec<usize>, bool) {
        let mut state = pod(policy);
        for (container, letter) in state.containers.iter_mut().zip(containers.chars()) {
            match letter {
                'r' => container.run = Run::Running { since: Timestamp::UNIX_EPOCH },
                'R' => {
                    container.run = Run::Running { since: Timestamp::UNIX_EPOCH };
                    container.started = true;
                }
                '0' => container.run = ended(0),
                '1' => container.run = ended(1),
                _ => {}
            }
        }
        let next = plan(&state, Instant::now());
        (next.start, next.finished)
    }

    #[test]
    fn containers_start_in_order_and_by_policy() {
        for (policy, containers, start, finished) in [
            ("Always", "wwww", vec![0], false),
            ("Always", "rwww", vec![], false),
            ("Always", "1www", vec![0], false),
            ("Never", "1www", vec![], true),
            ("Always", "0www", vec![1], false),
            ("Always", "0rww", vec![], false),
            ("Always", "0Rww", vec![2, 3], false),
            ("Always", "0RRR", vec![], false),
            ("Always", "0RR0", vec![3], false),
            ("OnFailure", "0R01", vec![3], false),
            ("OnFailure", "0R00", vec![], true),
            ("Never", "0R10", vec![], true),
            ("Never", "0RR1", vec![], false),
            ("Always", "01Rw", vec![1, 3], false),
        ] {
            assert_eq!(next(policy, containers), (start, finished), "{policy} {containers}");
        }
    }

    #[test]
    fn outcome_is_success_only_if_every_container_succeeded() {
        for (containers, expected) in [("0R00", Some(Outcome::Succeeded)), ("0R01", Some(Outcome::Failed))] {
            let mut state = pod("Never");
            for (container, letter) in state.containers.iter_mut().zip(containers.chars()) {
                container.run = if letter == '1' { ended(1) } else { ended(0) };
            }
            assert_eq!(outcome(&state), expected, "{containers}");
        }
    }

    #[test]
    fn a_container_in_back_off_waits_for_its_moment() {
        let mut state = pod("Always");
        let now = Instant::now();
        state.containers[0].run = ended(1);
        state.containers[0].retry_at = Some(now + Duration::from_secs(4));
        assert_eq!(plan(&state, now), Next { wake: Some(now + Duration::from_secs(4)), ..Next::default() });
        assert_eq!(plan(&state, now + Duration::from_secs(4)).start, [0]);
    }

    #[test]
    fn nothing_starts_in_a_pod_that_is_stopped_or_not_prepared() {
        let mut state = pod("Always");
        state.prepared = false;
        assert_eq!(plan(&state, Instant::now()), Next::default());
        state.prepared = true;
        state.stop = Some(crate::pod::state::StopReason::Deleted);
        assert_eq!(plan(&state, Instant::now()), Next::default());
    }
}
