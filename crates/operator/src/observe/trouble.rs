//! Why a member's pod does not run, in the words of whoever keeps it from running: the scheduler, the node, or the program
//! itself with the last it said.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// Characters that are kept of what a program said.
const LENGTH: usize = 400;
/// Reasons to wait that are part of every start.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// In one line; `None` while nothing stands in the way.
pub(super) fn of(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unplaced = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(why) = unplaced.and_then(|condition| condition.message.clone()) {
        return Some(format!("it is not placed: {why}"));
    }
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.find_map(|container| Some(format!("container {}: {}", container.name, of_container(container)?)))
}

fn of_container(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    if let Some(ended) = state.terminated.as_ref() {
        return of_end(ended);
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    if USUAL.contains(&reason) && waiting.message.is_none() {
        return None;
    }
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref()).and_then(of_end);
    // A back-off says nothing about why; the end before it does.
    before.or_else(|| waiting.message.clone().map(|message| format!("{reason}: {message}")))
}

/// What a program said that ended by itself. One that was killed had nothing to say about it.
fn of_end(ended: &ContainerStateTerminated) -> Option<String> {
    if ended.exit_code == 0 || ended.exit_code >= 128 || ended.signal.is_some() {
        return None;
    }
    let said = last_words(ended.message.as_deref().unwrap_or_default());
    Some(if said.is_empty() { format!("exit code {}", ended.exit_code) } else { said })
}

/// The three lines of a failure where there are, else the last line.
fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.iter().rposition(|line| line.starts_with("error:")).unwrap_or(lines.len().saturating_sub(1));
    let mut words = lines.get(from..).unwrap_or_default().join("; ");
    if let Some((end, _)) = words.char_indices().nth(LENGTH) {
        words.truncate(end);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(status: Value) -> Option<String> {
        of(&serde_json::from_value(json!({"metadata": {"name": "orders-1-0"}, "status": status})).unwrap())
    }

    fn container(state: Value, last: Value) -> Value {
        json!({"containerStatuses": [{"name": "postgresql", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": state, "lastState": last}]})
    }

    #[test]
    fn what_keeps_a_pod_from_running_is_told_in_the_words_of_whoever_keeps_it() {
        let failed = "2026 INFO begins\nerror: cannot copy\n  why: No space left on device\n  do:  make room\n";
        let words = "container postgresql: error: cannot copy; why: No space left on device; do:  make room";
        let ended = |code: i32, message: &str| json!({"terminated": {"exitCode": code, "message": message}});
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 1s"}});
        let table = [
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]}),
                Some("it is not placed: no node"),
            ),
            (container(json!({"waiting": {"reason": "ContainerCreating"}}), json!({})), None),
            (
                container(json!({"waiting": {"reason": "ErrImagePull", "message": "install it"}}), json!({})),
                Some("container postgresql: ErrImagePull: install it"),
            ),
            (container(ended(1, failed), json!({})), Some(words)),
            (container(back_off.clone(), ended(1, failed)), Some(words)),
            (container(back_off.clone(), ended(1, "")), Some("container postgresql: exit code 1")),
            (
                container(back_off, ended(137, "the last line")),
                Some("container postgresql: CrashLoopBackOff: back-off 1s"),
            ),
            (container(json!({"running": {}}), ended(1, failed)), None),
            (container(ended(0, "done"), json!({})), None),
        ];
        for (status, expected) in table {
            assert_eq!(said(status.clone()).as_deref(), expected, "{status}");
        }
    }
}
