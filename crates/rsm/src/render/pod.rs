//! What is added to the pods (rsm.md 3.6, 3.7).

use coregent_api::ReplicatedStateMachine;
use k8s_openapi::api::core::v1::{ConfigMapEnvSource, EnvFromSource, PodTemplateSpec};
use kube::ResourceExt;

use super::member_labels;
use crate::names;

/// The template of a member's pod: the user's, our labels, and the environment in every container.
pub(super) fn template(rsm: &ReplicatedStateMachine, template: &PodTemplateSpec, instance: &str) -> PodTemplateSpec {
    let mut template = template.clone();
    let labels = member_labels(&template, instance);
    template.metadata.get_or_insert_default().labels = Some(labels);
    let source = EnvFromSource {
        config_map_ref: Some(ConfigMapEnvSource {
            name: names::env_config_map(&rsm.name_any()),
            optional: Some(false),
        }),
        ..EnvFromSource::default()
    };
    for container in template.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        let sources = container.env_from.get_or_insert_default();
        if !sources.contains(&source) {
            sources.push(source.clone());
        }
    }
    template
}
