//! What the schema cannot say about a spec: one line a problem, naming the field, why, and what to do.

use crate::objects::PROTECTED;
use coregent_api::database::DatabaseClusterSpec;
use coregent_api::pod::{typed_list, typed_opt};
use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, PodSecurityContext, Probe, ResourceRequirements, SecurityContext, Toleration, Volume, VolumeMount,
};

/// Every problem of `spec`; empty when it can be carried out.
#[must_use]
pub fn problems(spec: &DatabaseClusterSpec) -> Vec<String> {
    let mut problems = Vec::new();
    match &spec.engine.postgresql {
        Some(postgresql) => problems.extend(postgresql.unsupported()),
        None => problems.push("spec.engine has no postgresql block: it is the one engine of this version".to_owned()),
    }
    for name in spec.config.keys() {
        if PROTECTED.contains(&name.to_ascii_lowercase().as_str()) {
            problems.push(format!("spec.config.{name} is set by Coregent itself: remove it"));
        } else if !is_setting(name) {
            problems.push(format!("spec.config.{name} is no name of a setting: use letters, digits, '_' and '.'"));
        }
    }
    let mut fits = |result: Result<(), coregent_api::pod::Misfit>| {
        if let Err(misfit) = result {
            problems.push(misfit.to_string());
        }
    };
    fits(typed_opt::<ResourceRequirements>("spec.resources", spec.resources.as_ref()).map(drop));
    fits(typed_opt::<PodSecurityContext>("spec.securityContext", spec.security_context.as_ref()).map(drop));
    fits(
        typed_opt::<SecurityContext>("spec.containerSecurityContext", spec.container_security_context.as_ref())
            .map(drop),
    );
    fits(typed_list::<EnvVar>("spec.env", &spec.env).map(drop));
    if let Some(probe) = &spec.probe {
        fits(typed_opt::<Probe>("spec.probe.livenessProbe", probe.liveness_probe.as_ref()).map(drop));
        fits(typed_opt::<Probe>("spec.probe.readinessProbe", probe.readiness_probe.as_ref()).map(drop));
    }
    if let Some(scheduler) = &spec.scheduler {
        fits(typed_opt::<Affinity>("spec.scheduler.affinity", scheduler.affinity.as_ref()).map(drop));
        fits(typed_list::<Toleration>("spec.scheduler.tolerations", &scheduler.tolerations).map(drop));
    }
    if let Some(volume) = &spec.volume {
        fits(typed_list::<Volume>("spec.volume.volumes", &volume.volumes).map(drop));
        fits(typed_list::<VolumeMount>("spec.volume.volumeMounts", &volume.volume_mounts).map(drop));
    }
    problems
}

fn is_setting(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}
