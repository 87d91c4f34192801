//! Actions that the agent beside a member carries out: a request in a ConfigMap, and its answer in the same.

use coregent_api::rsm::{ActionKind, MemberAction, MemberOperation};
use coregent_core::rsm::request::{ANSWER, Answer, REQUEST, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ApiResource;
use serde_json::Value;
use std::collections::BTreeMap;

use super::{bounds, core_kind, leader, place};
use crate::dag::{Action, Dag, Step, erase};
use crate::names;
use crate::operation::Outcome;
use crate::ownership::controller_reference;
use crate::transformer::Interrupt;
use crate::world::{Child, World};

fn found(world: &World) -> Option<&Child> {
    let name = names::requests(&world.rsm.name_any());
    world.children.iter().find(|child| child.resource.kind == "ConfigMap" && child.object.name_any() == name)
}

fn entry<T: serde::de::DeserializeOwned>(child: &Child, key: &str) -> Option<T> {
    serde_json::from_str(child.object.data.get("data")?.get(key)?.as_str()?).ok()
}

pub(super) fn outcome(world: &World, operation: &MemberOperation) -> Outcome {
    match found(world).and_then(|child| entry::<Answer>(child, ANSWER)) {
        Some(answer) if !answer.is_to(&operation.id, operation.attempt) => Outcome::Pending,
        Some(answer) if answer.done => Outcome::Done,
        Some(answer) => Outcome::Failed(answer.message),
        None => Outcome::Pending,
    }
}

/// Who leads carries out what the leader has to do, also for a member that is dead; the rest the member itself.
fn executor(world: &World, operation: &MemberOperation) -> Option<String> {
    match operation.action {
        ActionKind::Switchover | ActionKind::MemberLeave => leader(world),
        _ => Some(operation.member.clone()),
    }
}

pub(super) fn ask(
    world: &World,
    operation: &MemberOperation,
    action: &MemberAction,
    dag: &mut Dag,
) -> Result<(), Interrupt> {
    let child = found(world);
    let pod = executor(world, operation).and_then(|name| world.pods.iter().find(|pod| pod.name_any() == name));
    // Without anybody to ask the attempt runs out of time, and the next one looks again.
    let Some(pod) = pod else { return Ok(()) };
    let asked = child.and_then(|child| entry::<Request>(child, REQUEST));
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let same = |asked: &Request| {
        asked.id == operation.id && asked.attempt == operation.attempt && asked.is_for(&pod.name_any(), &uid)
    };
    if asked.as_ref().is_some_and(same) {
        return Ok(());
    }
    let request = Request {
        id: operation.id.clone(),
        attempt: operation.attempt,
        executor: pod.name_any(),
        executor_uid: uid,
        action: core_kind(operation.action),
        member: place(&world.rsm, &operation.member),
        leader: leader(world).map(|leader| place(&world.rsm, &leader)),
        target: operation.target.as_deref().map(|target| place(&world.rsm, target)),
        members: world.pods.iter().map(|pod| place(&world.rsm, &pod.name_any())).collect(),
        command: action.command.iter().chain(&action.args).cloned().collect(),
        seconds: u32::try_from(bounds(&world.rsm).timeout_seconds).unwrap_or(1),
    };
    let text = serde_json::to_string(&request)?;
    dag.add(match child {
        Some(child) => {
            let mut object = child.object.clone();
            object.data["data"] = serde_json::json!({ REQUEST: text });
            Step { original: Some(child.object.clone()), ..step(object, Action::Update) }
        }
        None => {
            let mut map =
                ConfigMap { data: Some(BTreeMap::from([(REQUEST.to_owned(), text)])), ..ConfigMap::default() };
            map.metadata.name = Some(names::requests(&world.rsm.name_any()));
            map.metadata.namespace = world.rsm.metadata.namespace.clone();
            map.metadata.labels = Some(names::generated_labels(&world.rsm));
            map.metadata.owner_references = controller_reference(&world.rsm).map(|owner| vec![owner]);
            step(erase(&map)?, Action::Create)
        }
    });
    Ok(())
}

fn step(object: kube::api::DynamicObject, action: Action) -> Step {
    debug_assert!(object.data.get("data").is_some_and(Value::is_object));
    Step { resource: ApiResource::erase::<ConfigMap>(&()), object, original: None, action, id: None }.named("AskAgent")
}
