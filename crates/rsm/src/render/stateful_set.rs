//! The StatefulSets of an RSM, in either layout (rsm.md 3.7).

use std::collections::BTreeMap;

use coregent_api::pod::{Misfit, typed_list, typed_opt};
use coregent_api::rsm::{ClaimRetentionPolicy, PodManagementPolicy, UpdateStrategyType};
use coregent_api::{ReplicatedStateMachine, annotations, labels};
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;

use super::{meta, pod};
use crate::annotation::{AnnotationScope, parse_annotations_of_scope};
use crate::names;

/// One StatefulSet for all members.
pub(super) fn whole(rsm: &ReplicatedStateMachine, template: &PodTemplateSpec) -> Result<StatefulSet, Misfit> {
    stateful_set(rsm, template, &rsm.name_any(), rsm.spec.replicas, None)
}

/// The StatefulSet of one member.
pub(super) fn of_member(
    rsm: &ReplicatedStateMachine,
    template: &PodTemplateSpec,
    number: i32,
) -> Result<StatefulSet, Misfit> {
    let name = names::instance(&rsm.name_any(), number);
    // All members have the same labels but this one, so it must tell their pods apart.
    let own = (labels::INSTANCE.to_owned(), name.clone());
    stateful_set(rsm, template, &name, 1, Some(own))
}

fn stateful_set(
    rsm: &ReplicatedStateMachine,
    template: &PodTemplateSpec,
    name: &str,
    replicas: i32,
    own: Option<(String, String)>,
) -> Result<StatefulSet, Misfit> {
    let mut metadata = meta(rsm, name.to_owned());
    let generation = rsm.metadata.generation.unwrap_or_default().to_string();
    metadata.labels.get_or_insert_default().insert(labels::CONTROLLER_GENERATION.to_owned(), generation);
    metadata.annotations = root_annotations(rsm);
    let mut selector = rsm.spec.selector.clone();
    selector.match_labels.get_or_insert_default().extend(own);
    let claims = typed_list("spec.volumeClaimTemplates", &rsm.spec.volume_claim_templates)?;
    Ok(StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(replicas),
            selector,
            service_name: Some(names::headless_service(&rsm.name_any())),
            template: pod::template(rsm, template, name),
            pod_management_policy: rsm
                .spec
                .pod_management_policy
                .map(|policy: PodManagementPolicy| policy.as_str().to_owned()),
            update_strategy: update_strategy(rsm)?,
            persistent_volume_claim_retention_policy: rsm.spec.persistent_volume_claim_retention_policy.map(retention),
            volume_claim_templates: (!claims.is_empty()).then_some(claims),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    })
}

fn retention(policy: ClaimRetentionPolicy) -> StatefulSetPersistentVolumeClaimRetentionPolicy {
    StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Some(policy.when_deleted.as_str().to_owned()),
        when_scaled: Some(policy.when_scaled.as_str().to_owned()),
    }
}

/// Annotations without a scope belong to the StatefulSet too, but not what tools note about the RSM itself.
fn root_annotations(rsm: &ReplicatedStateMachine) -> Option<BTreeMap<String, String>> {
    let mut annotations = parse_annotations_of_scope(AnnotationScope::Root, rsm.metadata.annotations.as_ref())?;
    annotations.retain(|key, _| !key.starts_with("kubectl.kubernetes.io/") && key != annotations::MEMBER_OPERATION);
    (!annotations.is_empty()).then_some(annotations)
}

/// Members are replaced by role, by us or by the owner, so the StatefulSet itself must not replace any (rsm.md 5.1).
fn update_strategy(rsm: &ReplicatedStateMachine) -> Result<Option<StatefulSetUpdateStrategy>, Misfit> {
    if rsm.spec.member_update_strategy.is_some() {
        let strategy = StatefulSetUpdateStrategy { type_: Some("OnDelete".to_owned()), rolling_update: None };
        return Ok(Some(strategy));
    }
    let Some(wanted) = &rsm.spec.update_strategy else { return Ok(None) };
    Ok(Some(StatefulSetUpdateStrategy {
        type_: wanted.type_.map(|type_| {
            match type_ {
                UpdateStrategyType::RollingUpdate => "RollingUpdate",
                UpdateStrategyType::OnDelete => "OnDelete",
            }
            .to_owned()
        }),
        rolling_update: typed_opt("spec.updateStrategy.rollingUpdate", wanted.rolling_update.as_ref())?,
    }))
}
