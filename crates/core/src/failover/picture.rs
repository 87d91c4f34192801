//! What the status shows to people. Derived anew each time; nothing is decided from it.

use super::dead_end;
use super::labels;
use super::memory::Memory;
use super::world::{Member, Mode, World};
use crate::lsn::{Lsn, Timeline};
use crate::names::MemberName;
use crate::operation::{Outcome, StepId};
use crate::report::MemberState;
use std::collections::BTreeMap;

/// The picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// One word.
    pub phase: Phase,
    /// One line a member.
    pub members: Vec<MemberLine>,
    /// Conditions by type.
    pub conditions: BTreeMap<&'static str, Condition>,
}

/// One word for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Members are being made for the first time.
    Creating,
    /// Everything is as asked.
    Ready,
    /// It accepts writes with fewer members or less protection than asked for.
    Degraded,
    /// Another primary is being chosen.
    FailingOver,
    /// The primary is being handed over.
    SwitchingOver,
    /// It accepts no writes.
    Unavailable,
    /// It waits for something that is named in the conditions.
    Waiting,
    /// `spec.paused`.
    Paused,
    /// It is being deleted.
    Deleting,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLine {
    /// Its name.
    pub name: MemberName,
    /// `primary` or `replica`, from its label.
    pub role: Option<String>,
    /// It streams, or is the open primary.
    pub ready: bool,
    /// What it does.
    pub state: Option<String>,
    /// Its timeline.
    pub timeline: Option<Timeline>,
    /// Its position.
    pub position: Option<Lsn>,
    /// Bytes behind the primary.
    pub lag: Option<u64>,
    /// Its host.
    pub host: Option<String>,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

/// A condition without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether it holds.
    pub holds: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Picture {
    /// Draws the picture of `world`, as it will be once `memory` is written.
    pub(super) fn of(world: &World, memory: &Memory, diagnostics: &[String]) -> Picture {
        let primary = world.lease().and_then(|lease| labels::open_primary(world, lease));
        let members: Vec<MemberLine> =
            world.members.iter().map(|(name, member)| line(world, primary, name, member)).collect();
        let ready = members.iter().filter(|line| line.ready).count();
        let phase = phase(world, memory, primary.is_some(), ready);
        let mut conditions = conditions(world, memory, diagnostics, primary, ready);
        conditions.insert("MemberFailed", member_failed(world, &members));
        Picture { phase, members, conditions }
    }
}

fn line(world: &World, primary: Option<&MemberName>, name: &MemberName, member: &Member) -> MemberLine {
    let report = member.report.as_ref();
    let live = world.live_state(member);
    let silent = world.is_silent(name);
    let standby = primary
        .and_then(|primary| world.live_report(primary))
        .and_then(|report| report.standbys.iter().find(|standby| standby.member == *name));
    MemberLine {
        name: name.clone(),
        role: member.pod.as_ref().and_then(|pod| pod.role.clone()),
        ready: !silent && (Some(name) == primary || live == Some(MemberState::Streaming)),
        state: Some(match live {
            Some(_) if silent => "NotAnswering".to_owned(),
            Some(state) => format!("{state:?}"),
            None => "NotRunning".to_owned(),
        }),
        timeline: report.and_then(|report| report.position.as_ref()).map(|position| position.timeline),
        position: report.and_then(|report| report.position.as_ref()).map(|position| position.lsn),
        lag: standby.and_then(|standby| standby.lag_bytes),
        host: member.pod.as_ref().and_then(|pod| pod.host.clone()),
        last_error: said(world, name, member).or_else(|| report.and_then(|report| report.last_error.clone())),
    }
}

fn phase(world: &World, memory: &Memory, has_primary: bool, ready: usize) -> Phase {
    if world.cluster.deleting {
        return Phase::Deleting;
    }
    if world.cluster.paused {
        return Phase::Paused;
    }
    let first = memory.system_id.is_none();
    match memory.operations.step() {
        Some(StepId::PrimaryDbWaitingBeforeFailingOver | StepId::PrimaryDbFailingOver) => Phase::FailingOver,
        Some(StepId::PrimaryDbSwitchingOver) => Phase::SwitchingOver,
        _ if !world.cluster.waits_for.is_empty() && first => Phase::Waiting,
        _ if first => Phase::Creating,
        _ if !has_primary || commits_wait(world).is_some() => Phase::Unavailable,
        Some(StepId::ReplicaDbDeploying) if memory.last_failover.is_none() && ready < world.wanted() => Phase::Creating,
        _ if ready >= world.wanted() && !is_degraded(world) => Phase::Ready,
        _ => Phase::Degraded,
    }
}

/// Commits do not wait for others although they are asked to (F8).
fn is_degraded(world: &World) -> bool {
    world.lease().is_some_and(|lease| lease.fence.sync_sets.iter().any(|set| set.epoch == lease.epoch && set.degraded))
}

fn conditions(
    world: &World,
    memory: &Memory,
    diagnostics: &[String],
    primary: Option<&MemberName>,
    ready: usize,
) -> BTreeMap<&'static str, Condition> {
    let wanted = world.wanted();
    let why = diagnostics.join("; ");
    let mut conditions = BTreeMap::new();
    let mut set = |kind: &'static str, holds: bool, reason: &'static str, message: String| {
        conditions.insert(kind, Condition { holds, reason, message });
    };
    let waiting = commits_wait(world);
    match primary {
        Some(primary) if waiting.is_some() => {
            let message = format!("{primary} is primary, but {}", waiting.as_deref().unwrap_or_default());
            set("Ready", false, "CommitsWait", message);
        }
        Some(primary) if ready >= wanted => {
            set(
                "Ready",
                true,
                "AllMembersReady",
                format!("{primary} accepts writes, {ready} of {wanted} members ready"),
            );
        }
        Some(primary) => {
            let message = format!("{primary} accepts writes, {ready} of {wanted} members ready");
            set("Ready", false, "MembersMissing", message);
        }
        None => set("Ready", false, "NoPrimary", or(&why, "no member accepts writes yet")),
    }
    let step = memory.operations.active.as_ref();
    match step {
        Some(active) => set("Progressing", true, "OperationActive", active.step_id.to_string()),
        None => set("Progressing", false, "Idle", or(&why, "nothing is being changed")),
    }
    let waits = !world.cluster.waits_for.is_empty();
    let reason = if waits { "WaitsForNamedObject" } else { "Found" };
    set("Waiting", waits, reason, world.cluster.waits_for.join("; "));
    let failing = step.is_some_and(|active| active.step_id.is_change_of_primary());
    let reason = if failing { "OperationActive" } else { "Idle" };
    let message = if failing { or(&why, "another primary is being promoted") } else { String::new() };
    set("FailoverInProgress", failing, reason, message);
    let late = step.is_some_and(|active| active.outcome == Some(Outcome::TimedOut));
    let message = step.filter(|_| late).map(|active| format!("{} (id {})", active.step_id, active.id));
    set("OperationTimedOut", late, if late { "TimedOut" } else { "InTime" }, message.unwrap_or_default());
    let asks = diagnostics.iter().find(|line| line.starts_with(dead_end::FOR_A_PERSON));
    let reason = if asks.is_some() { "WritesCannotBeFound" } else { "NotNeeded" };
    set("DecisionNeeded", asks.is_some(), reason, asks.cloned().unwrap_or_default());
    let surplus = surplus(world);
    let reason = if surplus.is_some() { "ScaleDownNotSupported" } else { "AsAsked" };
    set("SurplusMembers", surplus.is_some(), reason, surplus.unwrap_or_default());
    let degraded = is_degraded(world);
    let reason = match &waiting {
        Some(_) => "CommitsWait",
        None if degraded => "TooFewStandbys",
        None => "InForce",
    };
    let message = waiting.unwrap_or_else(|| guarantee(world, degraded).to_owned());
    set("SyncDegraded", degraded, reason, message);
    let lacks = ready < wanted && memory.system_id.is_some();
    let reason = if lacks { "MembersMissing" } else { "AsAsked" };
    let message = if lacks { format!("{ready} of {wanted} members ready") } else { String::new() };
    set("Degraded", lacks || degraded, reason, message);
    let warnings = warnings(world);
    let reason = if warnings.is_empty() { "NoWarnings" } else { "MembersWarn" };
    set("Warnings", !warnings.is_empty(), reason, warnings);
    conditions
}

/// There are more members than asked for. To take one away means to take it out of the sync set, the record and the slots
/// before its data goes; until that is done nobody is removed, and nothing else may look at the lower number.
fn surplus(world: &World) -> Option<String> {
    let (asked, existing) = (world.cluster.replicas as usize, world.instances.as_ref()?);
    let names: Vec<String> =
        existing.iter().map(|index| MemberName::of(&world.cluster.name, *index).to_string()).collect();
    (existing.len() > asked).then(|| {
        format!(
            "spec.replicas is {asked}, and lowering it is not supported yet: all {} members go on ({}); set spec.replicas to {}",
            existing.len(),
            names.join(", "),
            existing.len()
        )
    })
}

fn or(text: &str, fallback: &str) -> String {
    if text.is_empty() { fallback.to_owned() } else { text.to_owned() }
}

/// What is said of a member that says nothing itself.
const SILENT: &str = "its pod runs and does not answer its readiness probe: it is frozen, or short of processor time";

/// What a member's agent says is wrong, or, while no agent runs, what keeps its pod from running. What an agent said before
/// it ended is history.
pub(super) fn said(world: &World, name: &MemberName, member: &Member) -> Option<String> {
    match world.live_report(name) {
        Some(_) if world.is_silent(name) => Some(SILENT.to_owned()),
        Some(report) => report.last_error.clone(),
        None => member.pod.as_ref().and_then(|pod| pod.trouble.clone()),
    }
}

/// What keeps members from being ready, each in its agent's words.
fn member_failed(world: &World, members: &[MemberLine]) -> Condition {
    let troubled = members.iter().filter(|line| !line.ready);
    let lines = troubled.filter_map(|line| {
        let said = said(world, &line.name, world.members.get(&line.name)?)?;
        Some(format!("{}: {said}", line.name))
    });
    let message = lines.collect::<Vec<_>>().join("; ");
    let holds = !message.is_empty();
    Condition { holds, reason: if holds { "MemberReportsError" } else { "NoErrors" }, message }
}

/// What this mode promises and what it does not (F16).
/// Why commits do not come back, when fewer members acknowledge than must (F7 with `whenTooFew: Block`).
fn commits_wait(world: &World) -> Option<String> {
    let lease = world.lease()?;
    let primary = labels::open_primary(world, lease)?;
    let set = lease.fence.sync_sets.iter().find(|set| set.epoch == lease.epoch)?;
    let standbys = &world.live_report(primary)?.standbys;
    let acknowledging =
        standbys.iter().filter(|standby| standby.streaming && set.members.contains(&standby.member)).count();
    let applies = world.cluster.mode == Mode::Quorum && !set.degraded && !set.members.is_empty();
    (applies && acknowledging < set.k as usize).then(|| {
        format!(
            "commits wait: {} of the members {} must have each of them, and {acknowledging} of these stream; none is \
             lost by waiting. They go on as soon as one is back",
            set.k,
            set.members.iter().map(MemberName::as_str).collect::<Vec<_>>().join(", ")
        )
    })
}

fn guarantee(world: &World, degraded: bool) -> &'static str {
    match world.cluster.mode {
        Mode::Quorum if degraded => {
            "commits do not wait for other members now: a failover goes by the Lease alone and may lose the newest \
             writes"
        }
        Mode::Quorum => "a commit is acknowledged once enough other members have it: a failover loses none of them",
        Mode::Async => {
            "a commit is acknowledged once the primary has it: a lost host loses what was not sent yet, and a whole \
             host that freezes and thaws can acknowledge a write just before its agent looks at the clock"
        }
    }
}

fn warnings(world: &World) -> String {
    let of_members =
        world.members.iter().filter_map(|(name, member)| member.report.as_ref().map(|report| (name, report)));
    let lines = of_members.flat_map(|(name, report)| report.warnings.iter().map(move |line| format!("{name}: {line}")));
    lines.collect::<Vec<_>>().join("; ")
}
