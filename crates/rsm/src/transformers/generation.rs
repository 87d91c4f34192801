//! What should exist against what exists.

use std::collections::BTreeMap;

use coregent_api::conditions::{self, State, set_condition};
use coregent_api::pod::Misfit;
use coregent_api::rsm::{MemberLayout, ReplicatedStateMachineStatus};
use coregent_core::rsm::instances::{Assignment, Members, assign};
use coregent_core::rsm::roles::{member_number, priority_of};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};

use super::{Pure, set_status};
use crate::compatibility::adapt;
use crate::dag::{Action, Dag, ObjectKey, Step, erase};
use crate::merge::merge;
use crate::names;
use crate::order::{compose_role_priority_map, role_of};
use crate::ready::members_of;
use crate::render::{Desired, render};
use crate::retention::{self, Before};
use crate::transformer::Interrupt;
use crate::world::{Child, World};

/// Creates what is missing, updates what differs, deletes what is no longer wanted; StatefulSets after what their pods
/// need (rsm.md 2.2 no. 3).
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectGenerationTransformer;

impl Pure for ObjectGenerationTransformer {
    fn apply(&self, world: &World, dag: &mut Dag) -> Result<(), Interrupt> {
        if number_members(world, dag)? {
            return Err(Interrupt::PrematureStop);
        }
        match render(&world.rsm, &members_of(&world.rsm), &world.tools) {
            Ok(desired) if world.compatibility => {
                let desired = adapt(&world.rsm, desired).map_err(Interrupt::failed)?;
                difference(world, dag, &desired)
            }
            Ok(desired) => difference(world, dag, &desired),
            Err(misfit) => {
                refuse(world, dag, &misfit)?;
                Err(Interrupt::PrematureStop)
            }
        }
    }
}

/// In the `Instances` layout without numbers from the owner: decides on them. New ones are written to the status before
/// anything of that number exists, so that no number is ever given twice. `true` when such a write is pending.
fn number_members(world: &World, dag: &mut Dag) -> Result<bool, Interrupt> {
    let rsm = &world.rsm;
    if rsm.spec.member_layout != MemberLayout::Instances || rsm.spec.instances.is_some() {
        return Ok(false);
    }
    let before = rsm.status.clone().unwrap_or_default();
    let Assignment { instances, last_created, set_aside } = assign(&members(world, &before));
    let same = instances == before.instances && set_aside == before.offline_instances;
    if same && Some(last_created) == before.last_created_instance_index {
        return Ok(false);
    }
    let status = ReplicatedStateMachineStatus {
        instances,
        last_created_instance_index: Some(last_created),
        offline_instances: set_aside,
        ..before
    };
    set_status(world, dag, status)?;
    Ok(true)
}

fn members(world: &World, status: &ReplicatedStateMachineStatus) -> Members {
    let priorities = compose_role_priority_map(&world.rsm.spec.roles);
    let set = world.rsm.name_any();
    let number = |name: &str| i32::try_from(member_number(&set, name, false)).ok().filter(|number| *number >= 0);
    let ranked = |pod| Some((i32::try_from(world.number(pod)).ok()?, priority_of(&priorities, role_of(pod))));
    Members {
        decided: status.instances.clone(),
        last_created: status.last_created_instance_index.unwrap_or_default(),
        present: world.stateful_sets.iter().filter_map(|set| number(&set.name_any())).collect(),
        priorities: world.pods.iter().filter_map(ranked).collect(),
        wanted: usize::try_from(world.rsm.spec.replicas).unwrap_or_default(),
        offline: world.rsm.spec.offline_instances.iter().filter_map(|name| number(name)).collect(),
        set_aside: status.offline_instances.clone(),
    }
}

/// Says in the status why nothing is rendered. What was rendered before stays.
fn refuse(world: &World, dag: &mut Dag, misfit: &Misfit) -> Result<(), Interrupt> {
    let mut status = world.rsm.status.clone().unwrap_or_default();
    let generation = world.rsm.metadata.generation;
    status.observed_generation = generation;
    let reason = match misfit {
        Misfit::Wrong { .. } => "WrongValue",
        Misfit::Unknown { .. } => "UnknownField",
        Misfit::Taken { .. } => "NameTaken",
        Misfit::Missing { .. } => "FieldRequired",
    };
    let (message, now) = (misfit.to_string(), &world.now);
    set_condition(&mut status.conditions, conditions::SPEC_VALID, State::False, reason, &message, generation, now);
    set_condition(&mut status.conditions, conditions::READY, State::False, "SpecInvalid", &message, generation, now);
    set_status(world, dag, status)
}

fn difference(world: &World, dag: &mut Dag, desired: &Desired) -> Result<(), Interrupt> {
    let mut wanted: Vec<(ApiResource, DynamicObject)> = Vec::new();
    for object in &desired.services {
        wanted.push((ApiResource::erase::<Service>(&()), erase(object)?));
    }
    for object in &desired.config_maps {
        wanted.push((ApiResource::erase::<ConfigMap>(&()), erase(object)?));
    }
    for object in &desired.stateful_sets {
        wanted.push((ApiResource::erase::<StatefulSet>(&()), erase(object)?));
    }
    let mut live: BTreeMap<(String, String), &Child> =
        world.children.iter().map(|child| ((child.resource.kind.clone(), child.object.name_any()), child)).collect();
    for (resource, object) in wanted {
        let child = live.remove(&(resource.kind.clone(), object.name_any()));
        if let Some(step) = bring_to(&resource, object, child) {
            dag.add(step);
        }
    }
    let services = desired.services.iter().map(ObjectKey::of);
    let mut needed: Vec<ObjectKey> = services.chain(desired.config_maps.iter().map(ObjectKey::of)).collect();
    if desired.stateful_sets.iter().any(|set| dag.step(&ObjectKey::of(set)).is_some()) {
        needed.extend(desired.access.iter().map(Step::key));
        for step in &desired.access {
            dag.add(step.clone());
        }
    }
    for object in &desired.stateful_sets {
        dag.depend_on(&ObjectKey::of(object), &needed);
    }
    // Requests to the agents come and go with the actions, not with the spec.
    live.remove(&("ConfigMap".to_owned(), names::requests(&world.rsm.name_any())));
    for extra in live.into_values().filter(|child| child.object.metadata.deletion_timestamp.is_none()) {
        match retention::before_removal(&world.rsm, extra) {
            Before::Remove => dag.add(step(&extra.resource, extra.object.clone(), None, Action::release())),
            Before::Change(object) => {
                dag.add(step(&extra.resource, *object, Some(extra.object.clone()), Action::Update))
            }
            Before::Wait => continue,
        };
    }
    Ok(())
}

/// The write that brings an object to what it should be. One that is being deleted is let go first.
fn bring_to(resource: &ApiResource, desired: DynamicObject, live: Option<&Child>) -> Option<Step> {
    match live {
        None => Some(step(resource, desired, None, Action::Create)),
        Some(live) if live.object.metadata.deletion_timestamp.is_some() => None,
        Some(live) => merge(&resource.kind, &live.object, &desired)
            .map(|merged| step(resource, merged, Some(live.object.clone()), Action::Update)),
    }
}

fn step(resource: &ApiResource, object: DynamicObject, original: Option<DynamicObject>, action: Action) -> Step {
    Step { resource: resource.clone(), object, original, action, id: None }
}
