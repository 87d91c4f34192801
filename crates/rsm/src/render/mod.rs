//! The objects that should exist for an RSM. Pure: the same RSM gives the same objects.

mod access;
mod env;
mod pod;
pub(crate) mod probe;
mod services;
mod stateful_set;

use coregent_api::pod::Misfit;
use coregent_api::rsm::MemberLayout;
use coregent_api::{ReplicatedStateMachine, labels};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Serialize;

use crate::dag::Step;
use crate::names;
use crate::ownership::controller_reference;
use crate::world::Tools;

/// Everything that should exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// One, or one a member.
    pub stateful_sets: Vec<StatefulSet>,
    /// Headless, main and alternative ones.
    pub services: Vec<Service>,
    /// The environment.
    pub config_maps: Vec<ConfigMap>,
    /// The account of the members' probes and its rights: written whenever a StatefulSet is.
    pub access: Vec<Step>,
}

/// Renders an RSM. `members` are the numbers of its members, which only the `Instances` layout asks for.
pub fn render(rsm: &ReplicatedStateMachine, members: &[i32], tools: &Tools) -> Result<Desired, Misfit> {
    let template: PodTemplateSpec = coregent_api::pod::typed("spec.template", &rsm.spec.template)?;
    let numbers: Vec<i32> = match rsm.spec.member_layout {
        MemberLayout::StatefulSet => (0..rsm.spec.replicas).collect(),
        MemberLayout::Instances => members.to_vec(),
    };
    let mut desired = Desired {
        services: services::render(rsm, &template)?,
        config_maps: vec![env::render(rsm, &numbers)],
        access: Vec::new(),
        stateful_sets: match rsm.spec.member_layout {
            MemberLayout::StatefulSet => vec![stateful_set::whole(rsm, &template)?],
            MemberLayout::Instances => {
                numbers.iter().map(|n| stateful_set::of_member(rsm, &template, *n)).collect::<Result<_, _>>()?
            }
        },
    };
    if access::is_needed(rsm, &template) {
        let bad = |error: serde_json::Error| Misfit::Wrong { path: "access".to_owned(), reason: error.to_string() };
        desired.access = access::render(rsm).map_err(bad)?;
        for pod in desired.stateful_sets.iter_mut().filter_map(|set| set.spec.as_mut()?.template.spec.as_mut()) {
            pod.service_account_name = Some(names::agent_account(&rsm.name_any()));
        }
    }
    desired.stateful_sets.iter_mut().try_for_each(mark)?;
    desired.stateful_sets.iter_mut().try_for_each(|set| probe::add(rsm, set, tools))?;
    desired.services.iter_mut().try_for_each(mark)?;
    desired.config_maps.iter_mut().try_for_each(mark)?;
    Ok(desired)
}

/// Name, namespace, labels and owner of a generated object.
fn meta(rsm: &ReplicatedStateMachine, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: rsm.metadata.namespace.clone(),
        labels: Some(names::generated_labels(rsm)),
        owner_references: controller_reference(rsm).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Notes on the object a digest of what was rendered. Without it, a field that is no longer rendered could not be told
/// from one that the API server filled in.
fn mark<K: Resource<DynamicType = ()> + Serialize>(object: &mut K) -> Result<(), Misfit> {
    let text = serde_json::to_string(&*object).map_err(|error| Misfit::Wrong {
        path: format!("{} {}", K::kind(&()), object.name_any()),
        reason: error.to_string(),
    })?;
    object.annotations_mut().insert(names::RENDERED.to_owned(), digest(&text));
    Ok(())
}

/// FNV-1a, 64 bits: told apart are renderings of one object, not those of an adversary.
fn digest(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// The labels that tell the pods of this RSM, from `matchLabels` only (rsm.md 3.5).
fn base_selector(rsm: &ReplicatedStateMachine) -> std::collections::BTreeMap<String, String> {
    rsm.spec.selector.match_labels.clone().unwrap_or_default()
}

/// Labels of a pod: those of the template, and ours.
fn member_labels(template: &PodTemplateSpec, instance: &str) -> std::collections::BTreeMap<String, String> {
    let mut all = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    all.insert(labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_RSM.to_owned());
    all.insert(labels::INSTANCE.to_owned(), instance.to_owned());
    all
}
