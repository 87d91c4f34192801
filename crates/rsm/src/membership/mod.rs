//! Changes of membership: what is seen of them, who carries actions out, and what people are told (rsm.md 6).

mod agent;
mod job;

use coregent_api::ReplicatedStateMachine;
use coregent_api::rsm::{
    ActionKind, ActionVia, MemberAction, MemberLayout, MemberOperation, MemberStatus, OperationCause, OperationPhase,
    ReplicatedStateMachineStatus,
};
use coregent_core::rsm::membership::{self, Begun, Member, Phase, Seen};
use coregent_core::rsm::request::Place;
use coregent_core::rsm::roles::member_number;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::dag::Dag;
use crate::names;
use crate::operation::{Bounds, Outcome};
use crate::transformer::Interrupt;
use crate::world::World;

pub(crate) use job::list as list_jobs;

/// Whether the members of a set come and go by actions: its roles are probed, and actions are defined.
pub(crate) fn is_by_actions(rsm: &ReplicatedStateMachine) -> bool {
    rsm.metadata.deletion_timestamp.is_none()
        && !rsm.spec.roles.is_empty()
        && rsm.spec.role_probe.is_some()
        && rsm.spec.membership_reconfiguration.is_some()
        && rsm.spec.member_layout == MemberLayout::StatefulSet
}

/// Whether a member is coming or going at this moment.
pub(crate) fn is_changing(world: &World) -> bool {
    let operation = world.rsm.status.as_ref().and_then(|status| status.member_operation.as_ref());
    operation.is_some_and(|operation| {
        operation.cause == OperationCause::Scale
            && matches!(operation.phase, OperationPhase::Running | OperationPhase::BackingOff)
    })
}

/// What the decision needs.
pub(crate) fn seen(world: &World, status: &ReplicatedStateMachineStatus, members: &[MemberStatus]) -> Seen {
    let rsm = &world.rsm;
    let live = world.stateful_sets.first().and_then(|set| set.spec.as_ref()?.replicas);
    let defined = ALL.into_iter().filter(|kind| action(rsm, *kind).is_some()).map(core_kind).collect();
    Seen {
        wanted: rsm.spec.replicas,
        running: live.unwrap_or_default(),
        joined: status.joined_members.iter().copied().collect(),
        members: world.pods.iter().filter_map(|pod| member(world, pod, members)).collect(),
        defined,
        last: status.member_operation.as_ref().and_then(|operation| begun(rsm, operation)),
    }
}

const ALL: [ActionKind; 5] =
    [ActionKind::Switchover, ActionKind::MemberJoin, ActionKind::MemberLeave, ActionKind::LogSync, ActionKind::Promote];

fn member(world: &World, pod: &Pod, members: &[MemberStatus]) -> Option<Member> {
    let number = i32::try_from(world.number(pod)).ok()?;
    let role = members.iter().find(|member| member.pod_name == pod.name_any()).map(|member| &member.role);
    Some(Member {
        number,
        is_running: is_running(pod),
        has_role: role.is_some(),
        leads: role.is_some_and(|role| role.is_leader),
        votes: role.is_some_and(|role| role.can_vote),
    })
}

/// Whether every container runs: a member that is to be let in need not be ready, and mostly cannot be.
pub(crate) fn is_running(pod: &Pod) -> bool {
    let wanted = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let running = statuses.filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some())).count();
    pod.metadata.deletion_timestamp.is_none() && wanted > 0 && running >= wanted
}

fn begun(rsm: &ReplicatedStateMachine, operation: &MemberOperation) -> Option<Begun> {
    let number = i32::try_from(member_number(&rsm.name_any(), &operation.member, false)).ok()?;
    let phase = match operation.phase {
        OperationPhase::Running | OperationPhase::BackingOff => Phase::UnderWay,
        // A rollout goes on without a switchover that failed; that is for the update to decide (rsm.md 5.7).
        _ if operation.cause == OperationCause::Update => return None,
        OperationPhase::Failed => Phase::Failed,
        OperationPhase::Succeeded | OperationPhase::Skipped => Phase::Over,
    };
    Some(Begun { action: core_kind(operation.action), number, phase })
}

fn core_kind(kind: ActionKind) -> membership::ActionKind {
    match kind {
        ActionKind::Switchover => membership::ActionKind::Switchover,
        ActionKind::MemberJoin => membership::ActionKind::MemberJoin,
        ActionKind::MemberLeave => membership::ActionKind::MemberLeave,
        ActionKind::LogSync => membership::ActionKind::LogSync,
        ActionKind::Promote => membership::ActionKind::Promote,
    }
}

/// The same, as the API has it.
pub(crate) fn api_kind(kind: membership::ActionKind) -> ActionKind {
    match kind {
        membership::ActionKind::Switchover => ActionKind::Switchover,
        membership::ActionKind::MemberJoin => ActionKind::MemberJoin,
        membership::ActionKind::MemberLeave => ActionKind::MemberLeave,
        membership::ActionKind::LogSync => ActionKind::LogSync,
        membership::ActionKind::Promote => ActionKind::Promote,
    }
}

/// The action of a kind, where the set defines it.
pub(crate) fn action(rsm: &ReplicatedStateMachine, kind: ActionKind) -> Option<&MemberAction> {
    rsm.spec.membership_reconfiguration.as_ref()?.action(kind)
}

/// How often and how long the actions of a set are tried.
pub(crate) fn bounds(rsm: &ReplicatedStateMachine) -> Bounds {
    let actions = rsm.spec.membership_reconfiguration.clone().unwrap_or_default();
    Bounds { timeout_seconds: actions.timeout_seconds, max_attempts: actions.max_attempts }
}

/// What came of the attempt that the status records.
pub(crate) fn outcome(world: &World, operation: &MemberOperation) -> Outcome {
    match action(&world.rsm, operation.action).map(|action| action.via) {
        Some(ActionVia::Agent) => agent::outcome(world, operation),
        Some(ActionVia::Job) => job::outcome(world, operation),
        Some(ActionVia::Exec) => {
            Outcome::Failed("via: Exec is not carried out by this version; use via: Agent or via: Job".to_owned())
        }
        None => Outcome::Failed("the set does not define this action any more".to_owned()),
    }
}

/// Adds what lets somebody carry the action out; nothing when that is there already.
pub(crate) fn carry_out(world: &World, operation: &MemberOperation, dag: &mut Dag) -> Result<(), Interrupt> {
    match action(&world.rsm, operation.action) {
        Some(action) if action.via == ActionVia::Agent => agent::ask(world, operation, action, dag),
        Some(action) if action.via == ActionVia::Job => job::create(world, operation, action, dag),
        _ => Ok(()),
    }
}

/// A member and the name that it has among the others.
fn place(rsm: &ReplicatedStateMachine, pod: &str) -> Place {
    Place { pod: pod.to_owned(), host: format!("{pod}.{}", names::headless_service(&rsm.name_any())) }
}

/// Pod of the member that leads, if exactly one does.
fn leader(world: &World) -> Option<String> {
    let members = crate::status::members(world);
    let mut leaders = members.iter().filter(|member| member.role.is_leader);
    let leader = leaders.next()?.pod_name.clone();
    leaders.next().is_none().then_some(leader)
}
