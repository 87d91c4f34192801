//! Members that come and go by actions (rsm.md 6).

use std::time::Duration;

use coregent_api::annotations;
use coregent_api::conditions::{self, State, set_condition};
use coregent_api::rsm::{MemberOperation, OperationCause, OperationPhase, ReplicatedStateMachineStatus};
use coregent_core::rsm::membership::{Step, Why, next};
use coregent_core::rsm::update::Next::Done;
use coregent_core::wallclock::Timestamp;
use kube::ResourceExt;

use super::{Pure, planned_status, set_status};
use crate::dag::{Action, Dag, ObjectKey};
use crate::membership::{api_kind, bounds, carry_out, is_by_actions, outcome, seen};
use crate::merge::merge;
use crate::names;
use crate::operation;
use crate::status::members;
use crate::transformer::Interrupt;
use crate::update;
use crate::world::World;

/// Lets members in and out one at a time, each action written down before it is begun. While one is under way, and while a
/// member that is to leave is still in, the StatefulSet is not what the spec says.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberReconfigurationTransformer;

impl Pure for MemberReconfigurationTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        if !is_by_actions(&world.rsm) {
            return Ok(());
        }
        let Some(mut status) = planned_status(dag) else { return Ok(()) };
        if status.init_replicas == 0 || status.ready_init_replicas.unwrap_or_default() < status.init_replicas {
            return Ok(());
        }
        if status.joined_members.is_empty() {
            // The founders.
            status.joined_members = (0..status.init_replicas).collect();
        }
        let now = Timestamp(world.now.0.as_millisecond());
        go_on(world, &mut status, now);
        let members = members(world);
        let step = match next(&seen(world, &status, &members)) {
            // A pod that is being replaced in this very pass is not well in the next.
            Step::Begin { .. } if dag.of_kind("Pod").any(|step| step.action != Action::Noop) => {
                Step::Hold(Why::UnderWay)
            }
            step => step,
        };
        take(world, &step, &mut status, now);
        hold_back(world, &step, dag);
        let recorded = world.rsm.status.as_ref().and_then(|status| status.member_operation.as_ref());
        let current = status.member_operation.clone();
        // Only what is written down is begun.
        if let Some(operation) = current.as_ref().filter(|operation| recorded == Some(operation))
            && operation.phase == OperationPhase::Running
        {
            carry_out(world, operation, dag)?;
        }
        tell(world, &step, &mut status);
        set_status(world, dag, status)?;
        match current.and_then(|operation| operation::look_again(&operation, now)) {
            Some(millis) => {
                Err(Interrupt::RequeueAfter { after: Duration::from_millis(millis), reason: "an action".to_owned() })
            }
            None => Ok(()),
        }
    }
}

fn go_on(world: &World, status: &mut ReplicatedStateMachineStatus, now: Timestamp) {
    let Some(operation) = &status.member_operation else { return };
    let wish = world.rsm.annotations().get(annotations::MEMBER_OPERATION).map(String::as_str);
    let outcome = outcome(world, operation);
    if let Some(next) = operation::advance(operation, &outcome, wish, bounds(&world.rsm), now) {
        status.member_operation = Some(next);
    }
}

/// Writes down what the step means.
fn take(world: &World, step: &Step, status: &mut ReplicatedStateMachineStatus, now: Timestamp) {
    match step {
        Step::Begin { action, number, target } => {
            let pod = |number: i32| names::pod(&world.rsm.name_any(), world.rsm.spec.member_layout, number);
            let (member, target) = (pod(*number), target.map(pod));
            let (action, cause) = (api_kind(*action), OperationCause::Scale);
            let begun = operation::begin(action, &member, target.as_deref(), cause, bounds(&world.rsm), now);
            status.member_operation = Some(begun);
        }
        Step::Joined(number) => {
            status.joined_members.push(*number);
            status.joined_members.sort_unstable();
            status.joined_members.dedup();
        }
        Step::Left(number) => status.joined_members.retain(|joined| joined != number),
        // What is over is not shown for ever; a switchover before a restart counts until nobody waits for one any more.
        Step::Free => {
            let over = |operation: &MemberOperation| match operation.cause {
                OperationCause::Scale => {
                    matches!(operation.phase, OperationPhase::Succeeded | OperationPhase::Skipped)
                }
                OperationCause::Update => update::next(world) == Some(Done),
            };
            status.member_operation.take_if(|operation| over(operation));
        }
        Step::Grow | Step::Hold(_) => {}
    }
}

/// Leaves the StatefulSet as it is. Where the cluster is not well and nothing is under way only the number of its pods is
/// kept: the way to make it well may be in the template.
fn hold_back(world: &World, step: &Step, dag: &mut Dag) {
    let Some(live) = world.stateful_sets.first() else { return };
    let key = ObjectKey::of(live);
    let whole = match step {
        Step::Free | Step::Grow => return,
        Step::Hold(Why::Leaders(_) | Why::Unhealthy(_) | Why::NoSuccessor(_) | Why::NoPod(_) | Why::Failed) => false,
        _ => true,
    };
    let Some(mut held) = dag.step(&key).filter(|step| step.action == Action::Update).cloned() else { return };
    if !whole {
        let replicas = live.spec.as_ref().and_then(|spec| spec.replicas);
        held.object.data["spec"]["replicas"] = serde_json::json!(replicas);
    }
    // What is left of the difference may be nothing.
    let is_same = held.original.as_ref().is_some_and(|live| merge(&held.resource.kind, live, &held.object).is_none());
    if whole || is_same {
        held.action = Action::Noop;
        // The account of the pods is written with the StatefulSet only.
        let kinds = ["ServiceAccount", "Role", "RoleBinding"];
        let access: Vec<_> = kinds.iter().flat_map(|kind| dag.of_kind(kind)).cloned().collect();
        for step in access {
            dag.replace(crate::dag::Step { action: Action::Noop, ..step });
        }
    }
    dag.replace(held);
}

/// The condition that people look at.
fn tell(world: &World, step: &Step, status: &mut ReplicatedStateMachineStatus) {
    let pod = |number: i32| names::pod(&world.rsm.name_any(), world.rsm.spec.member_layout, number);
    let operation = status.member_operation.clone();
    let (state, reason, message) = match step {
        Step::Free => (State::True, "AsWanted", String::new()),
        Step::Grow => (State::False, "PodsStarting", "the pods of new members are made".to_owned()),
        Step::Joined(_) | Step::Left(_) => (State::False, "ActionUnderWay", "a member came or went".to_owned()),
        Step::Begin { .. } | Step::Hold(Why::UnderWay) => {
            (State::False, "ActionUnderWay", operation.as_ref().map(under_way).unwrap_or_default())
        }
        Step::Hold(Why::Failed) => (State::False, "ActionFailed", operation.as_ref().map(failed).unwrap_or_default()),
        Step::Hold(Why::Effect(action, number)) => (
            State::False,
            "EffectNotSeen",
            format!("{} of {} is over, and its effect is not seen yet", api_kind(*action).slug(), pod(*number)),
        ),
        Step::Hold(Why::NoPod(number)) => (State::False, "PodsStarting", format!("{} does not run yet", pod(*number))),
        Step::Hold(Why::Leaders(count)) => {
            (State::False, "ClusterUnhealthy", format!("{count} members lead; one must, before a member comes or goes"))
        }
        Step::Hold(Why::Unhealthy(ill)) => {
            let ill: Vec<String> = ill.iter().map(|number| pod(*number)).collect();
            (State::False, "ClusterUnhealthy", format!("members without a role now: {}", ill.join(", ")))
        }
        Step::Hold(Why::NoSuccessor(number)) => {
            (State::False, "NoSuccessor", format!("{} leads and is to leave, and nobody can take over", pod(*number)))
        }
    };
    let generation = world.rsm.metadata.generation;
    set_condition(&mut status.conditions, conditions::MEMBERSHIP, state, reason, &message, generation, &world.now);
}

fn under_way(operation: &MemberOperation) -> String {
    let begin = format!("{} of {}, attempt {}", operation.action.slug(), operation.member, operation.attempt);
    match (&operation.message, operation.phase) {
        (Some(why), OperationPhase::BackingOff) => format!("{begin}, failed and is tried again: {why}"),
        (Some(why), _) => format!("{begin}; the one before failed: {why}"),
        (None, _) => begin,
    }
}

fn failed(operation: &MemberOperation) -> String {
    let (key, id) = (annotations::MEMBER_OPERATION, &operation.id);
    format!(
        "{} of {} failed {} times: {}; put it right and annotate the set with {key}=\"retry {id}\", or go on without it: \"skip {id}\"",
        operation.action.slug(),
        operation.member,
        operation.attempt,
        operation.message.clone().unwrap_or_default(),
    )
}
