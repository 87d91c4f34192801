//! Between the status of a DatabaseCluster and what deciding remembers and draws.

use crate::observe::{Refusal, View};
use coregent_api::conditions::{self, State, set_condition};
use coregent_api::database::{
    DataLoss as ApiDataLoss, LastFailover as ApiLastFailover, Lossless as ApiLossless, Member, Phase, PrimaryStatus,
};
use coregent_api::{DatabaseCluster, DatabaseClusterStatus, labels};
use coregent_core::failover::picture::{self, Condition, MemberLine, Picture};
use coregent_core::failover::{DataLoss, Decision, LastFailover, Lossless, Memory, PrimaryCopy};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::operation::Operations;
use coregent_core::wallclock::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as ApiCondition, Time};
use kube::ResourceExt;

/// What the status remembers.
#[must_use]
pub fn memory(cluster: &DatabaseCluster) -> Memory {
    let Some(status) = &cluster.status else { return Memory::default() };
    let primary = status.primary.clone().unwrap_or_default();
    Memory {
        operations: Operations {
            active: status.blocking_operation.clone(),
            previous: status.previous_blocking_operation.clone(),
        },
        primary: PrimaryCopy {
            target: primary.target.map(MemberName),
            current: primary.current.map(MemberName),
            epoch: Epoch(primary.epoch.unwrap_or(0)),
            since: primary.since.as_ref().map(moment),
        },
        last_created_index: status.last_created_instance_index.and_then(|index| u32::try_from(index).ok()).unwrap_or(0),
        system_id: status.system_id.clone(),
        handled_request: status.handled_request.clone(),
        last_failover: status.last_failover.as_ref().and_then(last_failover),
    }
}

fn moment(time: &Time) -> Timestamp {
    Timestamp(time.0.as_millisecond())
}

fn time(moment: Timestamp) -> Option<Time> {
    jiff::Timestamp::from_millisecond(moment.0).ok().map(Time)
}

fn last_failover(last: &ApiLastFailover) -> Option<LastFailover> {
    let loss = last.data_loss.clone().unwrap_or_default();
    Some(LastFailover {
        from: last.from.clone().map(MemberName),
        to: MemberName(last.to.clone()?),
        reason: last.reason.clone().unwrap_or_default(),
        epoch: Epoch(last.epoch.unwrap_or(0)),
        detected_at: last.detected_at.as_ref().map(moment).unwrap_or_default(),
        completed_at: last.completed_at.as_ref().map(moment),
        data_loss: DataLoss {
            from_lsn: loss.from_lsn.and_then(|lsn| lsn.parse().ok()),
            last_seen_primary_lsn: loss.last_seen_primary_lsn.and_then(|lsn| lsn.parse().ok()),
            unseen_for: loss.unseen_for.and_then(|text| seconds(&text)),
            lossless: match loss.lossless {
                ApiLossless::True => Lossless::Yes,
                ApiLossless::False => Lossless::No,
                ApiLossless::Unknown => Lossless::Unknown,
            },
        },
    })
}

/// Reads `1.250s` as milliseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, millis) = text.strip_suffix('s')?.split_once('.')?;
    Some(whole.parse::<u64>().ok()?.checked_mul(1_000)?.saturating_add(millis.parse().ok()?))
}

/// The status as it is to be. Everything in it is ours; only the times of unchanged conditions are taken over.
#[must_use]
pub fn status(view: &View, decision: &Decision, now: Timestamp) -> DatabaseClusterStatus {
    let (cluster, memory, problems) = (&view.cluster, &decision.memory, view.problems.as_slice());
    let picture = with_addresses(&decision.picture, &view.unserved);
    let old = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let mut conditions = old.conditions;
    let now = time(now).unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH));
    for (kind, condition) in &picture.conditions {
        let state = State::from(condition.holds);
        set_condition(&mut conditions, kind, state, condition.reason, &condition.message, generation, &now);
    }
    let (reason, message) = match problems {
        [] => ("Valid", String::new()),
        problems => ("Invalid", problems.join("; ")),
    };
    let valid = State::from(problems.is_empty());
    set_condition(&mut conditions, conditions::SPEC_VALID, valid, reason, &message, generation, &now);
    blocked(&mut conditions, &view.refused, generation, &now);
    let ready = picture.members.iter().filter(|member| member.ready).count();
    let created = memory.system_id.is_some();
    DatabaseClusterStatus {
        phase: Some(if problems.is_empty() || created { phase(picture.phase) } else { Phase::Invalid }),
        observed_generation: generation,
        conditions,
        primary: primary(&memory.primary),
        members: picture.members.iter().map(member).collect(),
        ready: Some(format!("{ready}/{}", view.world.wanted())),
        replicas: i32::try_from(picture.members.len()).ok(),
        ready_replicas: i32::try_from(ready).ok(),
        selector: Some(format!("{}={}", labels::CLUSTER, cluster.name_any())),
        last_created_instance_index: i32::try_from(memory.last_created_index).ok().filter(|index| *index > 0),
        enforced_replicas: i32::try_from(picture.members.len()).ok(),
        blocking_operation: memory.operations.active.clone(),
        previous_blocking_operation: memory.operations.previous.clone(),
        last_failover: memory.last_failover.as_ref().map(api_last_failover),
        system_id: memory.system_id.clone(),
        handled_request: memory.handled_request.clone(),
    }
}

/// Sets the condition that says what is refused; whether that changes anything.
pub(crate) fn set_blocked(
    conditions: &mut Vec<ApiCondition>,
    refused: &[Refusal],
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    blocked(conditions, refused, generation, &time(now).unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)))
}

fn blocked(conditions: &mut Vec<ApiCondition>, refused: &[Refusal], generation: Option<i64>, now: &Time) -> bool {
    // The same thing may be refused for every member: said once each, in one order.
    let lines: std::collections::BTreeSet<String> = refused.iter().map(Refusal::line).collect();
    let message = lines.into_iter().collect::<Vec<_>>().join(" | ");
    let reason = refused.first().map_or("NothingRefused", |first| first.reason);
    let holds = State::from(!refused.is_empty());
    set_condition(conditions, conditions::BLOCKED, holds, reason, &message, generation, now)
}

/// An address that nobody can reach is no readiness, however well the members are.
fn with_addresses(picture: &Picture, unserved: &[String]) -> Picture {
    let mut picture = picture.clone();
    let holds = !unserved.is_empty();
    let message = unserved.join("; ");
    let reason = if holds { "PortTaken" } else { "AddressesServed" };
    picture.conditions.insert(conditions::ADDRESS_UNAVAILABLE, Condition { holds, reason, message: message.clone() });
    if let Some(ready) = picture.conditions.get_mut(conditions::READY).filter(|ready| holds && ready.holds) {
        *ready = Condition { holds: false, reason: "AddressUnavailable", message };
    }
    if holds && picture.phase == picture::Phase::Ready {
        picture.phase = picture::Phase::Degraded;
    }
    picture
}

fn primary(copy: &PrimaryCopy) -> Option<PrimaryStatus> {
    let known = *copy != PrimaryCopy::default();
    known.then(|| PrimaryStatus {
        target: copy.target.as_ref().map(ToString::to_string),
        current: copy.current.as_ref().map(ToString::to_string),
        epoch: Some(copy.epoch.0),
        since: copy.since.and_then(time),
    })
}

fn member(line: &MemberLine) -> Member {
    Member {
        name: line.name.to_string(),
        role: line.role.clone(),
        ready: line.ready,
        state: line.state.clone(),
        timeline: line.timeline.map(|timeline| i64::from(timeline.0)),
        position: line.position.map(|lsn| lsn.to_string()),
        lag: line.lag.and_then(|lag| i64::try_from(lag).ok()),
        host: line.host.clone(),
        last_error: line.last_error.clone(),
    }
}

fn api_last_failover(last: &LastFailover) -> ApiLastFailover {
    let loss = &last.data_loss;
    ApiLastFailover {
        from: last.from.as_ref().map(ToString::to_string),
        to: Some(last.to.to_string()),
        reason: Some(last.reason.clone()),
        epoch: Some(last.epoch.0),
        detected_at: time(last.detected_at),
        completed_at: last.completed_at.and_then(time),
        data_loss: Some(ApiDataLoss {
            from_lsn: loss.from_lsn.map(|lsn| lsn.to_string()),
            last_seen_primary_lsn: loss.last_seen_primary_lsn.map(|lsn| lsn.to_string()),
            unseen_for: loss.unseen_for.map(|millis| format!("{}.{:03}s", millis / 1_000, millis % 1_000)),
            lossless: match loss.lossless {
                Lossless::Yes => ApiLossless::True,
                Lossless::No => ApiLossless::False,
                Lossless::Unknown => ApiLossless::Unknown,
            },
        }),
    }
}

fn phase(phase: picture::Phase) -> Phase {
    match phase {
        picture::Phase::Creating => Phase::Creating,
        picture::Phase::Ready => Phase::Ready,
        picture::Phase::Degraded => Phase::Degraded,
        picture::Phase::FailingOver => Phase::FailingOver,
        picture::Phase::SwitchingOver => Phase::SwitchingOver,
        picture::Phase::Unavailable => Phase::Unavailable,
        picture::Phase::Waiting => Phase::Waiting,
        picture::Phase::Paused => Phase::Paused,
        picture::Phase::Deleting => Phase::Deleting,
    }
}
