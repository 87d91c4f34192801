//! The pods of a StatefulSet: names, identity, content.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::claims;
use crate::controllers::selector::controlled_by;

/// The label that holds the name of the pod's revision.
pub const REVISION_LABEL: &str = "controller-revision-hash";
const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The name of a member.
pub fn name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// The name of the set that a pod of this name would belong to.
pub fn parent_name(pod: &str) -> Option<&str> {
    let (parent, ordinal) = pod.rsplit_once('-')?;
    parse_ordinal(ordinal).map(|_| parent)
}

/// The ordinal of a pod by its name, if the name is one of the set's.
pub fn ordinal_of(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    let ordinal = parse_ordinal(ordinal)?;
    (Some(parent) == set.metadata.name.as_deref()).then_some(ordinal)
}

/// An ordinal has one way to be written: `01` is none.
pub fn parse_ordinal(text: &str) -> Option<i32> {
    let number: i32 = text.parse().ok()?;
    (number >= 0 && number.to_string() == text).then_some(number)
}

/// The name of the revision that a pod was made from.
pub fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL)).map_or("", String::as_str)
}

/// A new pod for an ordinal.
pub fn build(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let name = name(set, ordinal);
    let template_meta = template.metadata.clone().unwrap_or_default();
    let mut labels = template_meta.labels.unwrap_or_default();
    labels.insert(POD_NAME_LABEL.to_owned(), name.clone());
    labels.insert(POD_INDEX_LABEL.to_owned(), ordinal.to_string());
    labels.insert(REVISION_LABEL.to_owned(), revision.to_owned());
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone()).filter(|name| !name.is_empty());
    let claimed = claims::names(set, ordinal);
    let mut volumes = spec.volumes.take().unwrap_or_default();
    // A claim template takes the place of a volume of the same name (StatefulSetSpec.volumeClaimTemplates).
    volumes.retain(|volume| claimed.iter().all(|(template, _)| *template != volume.name));
    volumes.extend(claimed.into_iter().map(|(template, claim)| Volume {
        name: template,
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name: claim, read_only: None }),
        ..Volume::default()
    }));
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template_meta.annotations,
            finalizers: template_meta.finalizers,
            owner_references: Some(vec![controlled_by(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The identity labels that a pod lacks (an adopted pod, or one whose labels were changed by hand).
pub fn missing_labels(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Option<serde_json::Value> {
    let wanted = [(POD_NAME_LABEL, name(set, ordinal)), (POD_INDEX_LABEL, ordinal.to_string())];
    let labels = crate::controllers::selector::labels(&pod.metadata);
    let missing: serde_json::Map<String, serde_json::Value> = wanted
        .into_iter()
        .filter(|(key, value)| labels.get(*key) != Some(value))
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    (!missing.is_empty()).then(|| serde_json::json!({ "metadata": { "labels": missing } }))
}
