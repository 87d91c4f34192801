//! The picture itself: a pure function of the object and the time.

use crate::output::{age, columns};
use coregent_api::DatabaseCluster;
use coregent_api::database::{DatabaseClusterStatus, LastFailover, Lossless, Member, ReplicationMode};
use coregent_core::operation::{BlockingOperation, Outcome};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::fmt::Write;

/// Draws one cluster: a headline, its members as a tree, the active operation, the last failover, warnings.
pub fn draw(cluster: &DatabaseCluster, now: Timestamp) -> String {
    let status = cluster.status.clone().unwrap_or_default();
    let mut text = headline(cluster, &status);
    text.push_str(&members(&status));
    if let Some(operation) = &status.blocking_operation {
        let _ = writeln!(text, "operation: {}", describe_operation(operation, now));
    }
    // One that ended well shows in what it did.
    if let Some(ended) = &status.previous_blocking_operation
        && let Some(outcome) = ended.outcome.filter(|outcome| *outcome != Outcome::Completed)
    {
        let _ = writeln!(text, "last operation: {}", describe_end(ended, outcome));
    }
    if let Some(failover) = &status.last_failover {
        let _ = writeln!(text, "last failover: {}", describe_failover(failover, now));
    }
    for warning in warnings(&status) {
        let _ = writeln!(text, "warning: {warning}");
    }
    text.push('\n');
    text
}

fn headline(cluster: &DatabaseCluster, status: &DatabaseClusterStatus) -> String {
    let phase = status.phase.map_or("not looked at yet".into(), |phase| format!("{phase:?}"));
    // Lowering `replicas` removes nobody, and a write waits for as many as before.
    let members = cluster.spec.replicas.max(status.enforced_replicas.unwrap_or(0));
    let mode = match cluster.spec.replication.mode {
        ReplicationMode::Async => "async".to_owned(),
        ReplicationMode::Quorum => format!("quorum k={}", cluster.spec.k_among(members)),
    };
    let epoch = status
        .primary
        .as_ref()
        .and_then(|primary| primary.epoch)
        .map_or(String::new(), |epoch| format!("  epoch {epoch}"));
    let ready = status.ready.as_deref().unwrap_or("0");
    format!("{}  {phase}  {ready} ready  {}  {mode}{epoch}\n", cluster.name_any(), cluster.spec.database_image())
}

fn members(status: &DatabaseClusterStatus) -> String {
    let last = status.members.len().saturating_sub(1);
    let rows: Vec<_> = status.members.iter().enumerate().map(|(index, member)| row(member, index == last)).collect();
    let header =
        ["   MEMBER", "ROLE", "READY", "STATE", "TIMELINE", "POSITION", "LAG", "HOST", "LAST ERROR"].map(String::from);
    if rows.is_empty() { String::new() } else { columns(&header, &rows) }
}

fn row(member: &Member, last: bool) -> Vec<String> {
    let branch = if last { "└─" } else { "├─" };
    let dash = || "-".to_owned();
    vec![
        format!("{branch} {}", member.name),
        member.role.clone().unwrap_or_else(dash),
        if member.ready { "yes".into() } else { "no".into() },
        member.state.clone().unwrap_or_else(dash),
        member.timeline.map_or_else(dash, |timeline| timeline.to_string()),
        member.position.clone().unwrap_or_else(dash),
        member.lag.map_or_else(dash, bytes),
        member.host.clone().unwrap_or_else(dash),
        member.last_error.clone().unwrap_or_default(),
    ]
}

fn bytes(count: i64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", count / 1024),
        _ => format!("{} MiB", count / 1_048_576),
    }
}

fn describe_operation(operation: &BlockingOperation, now: Timestamp) -> String {
    let seconds_until = |text: &str| text.parse::<Timestamp>().ok().map(|time| time.duration_since(now).as_secs());
    let since = seconds_until(&operation.started_at).map_or("?".into(), |seconds| age(-seconds));
    let left = match seconds_until(&operation.deadline) {
        Some(left) if left >= 0 => format!("deadline in {}", age(left)),
        Some(over) => format!("deadline passed {} ago", age(-over)),
        None => "no deadline".into(),
    };
    let subject = operation.subject.as_deref().map_or(String::new(), |subject| format!(" [{subject}]"));
    let mut text = format!("{}{subject}, for {since}, {left}, attempt {}", operation.step_id, operation.attempt);
    if let Some(message) = &operation.message {
        let _ = write!(text, ": {message}");
    }
    text
}

fn describe_end(operation: &BlockingOperation, outcome: Outcome) -> String {
    let subject = operation.subject.as_deref().map_or(String::new(), |subject| format!(" [{subject}]"));
    let ended = match outcome {
        Outcome::Completed => "completed",
        Outcome::TimedOut => "timed out",
        Outcome::Undone => "undone",
        Outcome::Cleared => "cleared by a person",
        Outcome::Refused => "refused",
        Outcome::PreEmpted => "gave way to a failover",
    };
    let why = operation.message.as_deref().map_or(String::new(), |message| format!(": {message}"));
    format!("{}{subject}, {ended}{why}", operation.step_id)
}

fn describe_failover(failover: &LastFailover, now: Timestamp) -> String {
    let name = |member: &Option<String>| member.clone().unwrap_or_else(|| "?".into());
    let mut text = format!("{} → {}", name(&failover.from), name(&failover.to));
    if let Some(reason) = &failover.reason {
        let _ = write!(text, " ({reason})");
    }
    let at = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    if let Some(completed) = at(&failover.completed_at) {
        let _ = write!(text, ", {} ago", age(now.duration_since(completed).as_secs()));
        if let Some(detected) = at(&failover.detected_at) {
            // The status keeps whole seconds.
            match completed.duration_since(detected).as_secs() {
                0 | 1 => text.push_str(", took less than 2s"),
                seconds => {
                    let _ = write!(text, ", took {}", age(seconds));
                }
            }
        }
    }
    if let Some(loss) = &failover.data_loss {
        text.push_str(match loss.lossless {
            Lossless::True => ", nothing lost",
            Lossless::False => ", acknowledged writes were lost",
            Lossless::Unknown => ", not known whether something was lost",
        });
        if let (false, Some(from)) = (loss.lossless == Lossless::True, &loss.from_lsn) {
            let _ = write!(text, " above {from}");
        }
    }
    text
}

/// Conditions that a person should read: whatever is not as it should be.
fn warnings(status: &DatabaseClusterStatus) -> Vec<String> {
    let positive = ["Ready", "SpecValid", "Available"];
    let bad = |kind: &str, value: &str| if positive.contains(&kind) { value == "False" } else { value == "True" };
    let conditions = status.conditions.iter().filter(|condition| condition.type_ != "Progressing");
    conditions
        .filter(|condition| bad(&condition.type_, &condition.status))
        .map(|condition| format!("{}: {} ({})", condition.type_, condition.message, condition.reason))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lowered_number_of_replicas_is_not_shown_as_a_lower_quorum() {
        let cluster: DatabaseCluster = serde_json::from_value(json!({
            "apiVersion": "coregent.io/v1alpha1", "kind": "DatabaseCluster", "metadata": {"name": "orders"},
            "spec": {"replicas": 1, "engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
            "status": {"enforcedReplicas": 3},
        }))
        .unwrap();
        let text = draw(&cluster, Timestamp::UNIX_EPOCH);
        assert!(text.contains("quorum k=1"), "{text}");
    }

    #[test]
    fn the_picture_shows_members_operation_failover_and_what_is_wrong() {
        let cluster: DatabaseCluster = serde_json::from_value(json!({
            "apiVersion": "coregent.io/v1alpha1", "kind": "DatabaseCluster",
            "metadata": {"name": "orders", "generation": 1},
            "spec": {"replicas": 3, "engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
            "status": {
                "phase": "FailingOver", "ready": "2/3",
                "primary": {"target": "orders-2", "current": "orders-2", "epoch": 2},
                "members": [
                    {"name": "orders-1", "ready": false, "state": "Stopped", "host": "local", "lastError": "the server ended with signal 9"},
                    {"name": "orders-2", "role": "primary", "ready": true, "state": "Primary", "timeline": 2, "position": "0/3000148", "host": "local"},
                    {"name": "orders-3", "role": "replica", "ready": true, "state": "Streaming", "timeline": 2, "position": "0/3000100", "lag": 72, "host": "local"},
                ],
                "blockingOperation": {"id": "1", "operationId": "PrimaryDbCountSpecEnforcement", "stepId": "PrimaryDbFailingOver",
                    "startedAt": "2026-11-30T10:00:00Z", "deadline": "2026-11-30T10:01:00Z", "attempt": 1, "subject": "orders-2", "epoch": 2},
                "previousBlockingOperation": {"id": "0", "operationId": "PrimaryDbCountSpecEnforcement", "stepId": "PrimaryDbSwitchingOver",
                    "startedAt": "2026-11-30T08:00:00Z", "deadline": "2026-11-30T08:00:30Z", "attempt": 1, "subject": "orders-1", "epoch": 1,
                    "outcome": "Undone", "message": "orders-3 did not take over in time"},
                "lastFailover": {"from": "orders-1", "to": "orders-2", "reason": "EngineDied", "epoch": 2,
                    "detectedAt": "2026-11-30T09:00:00.100Z", "completedAt": "2026-11-30T09:00:00.350Z",
                    "dataLoss": {"fromLSN": "0/3000000", "lossless": "true"}},
                "conditions": [{"type": "Ready", "status": "False", "reason": "FailingOver", "message": "orders-2 is being promoted",
                    "lastTransitionTime": "2026-11-30T10:00:00Z"}],
            },
        }))
        .unwrap();
        insta::assert_snapshot!(draw(&cluster, "2026-11-30T10:00:05Z".parse().unwrap()));
    }
}
