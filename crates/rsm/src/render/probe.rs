//! The role probe beside a member (rsm.md 3.8): a container with our binary, and one for each program of the user.
//!
//! Where the origin lets a gRPC health service and a shell's web server listen on ports, these meet in a folder that only
//! the pod has: no port can be taken, and nobody outside can take a report away or have a command run.

use std::collections::BTreeMap;

use coregent_api::ReplicatedStateMachine;
use coregent_api::pod::{Misfit, typed, typed_opt};
use coregent_api::rsm::{Action, Credential, RoleProbe, RoleUpdateMechanism};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ExecAction, ObjectFieldSelector,
    PodTemplateSpec, Probe, SecurityContext, Service, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::digest;
use crate::names::{self, RENDERED};
use crate::world::Tools;

/// The container that probes; Events of it are role reports.
pub const CONTAINER: &str = "kb-role-probe";
/// The container that puts our binary where the handlers find it.
const INSTALLER: &str = "role-agent-installer";
/// Containers of the user's programs, with a number behind it.
const HANDLER: &str = "action-";
const VOLUME: &str = "role-agent";
const FOLDER: &str = "/coregent-probe";
/// What a handler without an image runs in.
const SHELL: &str = "busybox:1.35";

/// Whether a pod gets a probe. With neither a builtin nor a custom handler the template has one of its own.
pub(super) fn is_added(probe: &RoleProbe) -> bool {
    probe.builtin_handler_name.is_some() || !probe.custom_handler.is_empty()
}

/// Adds the probe to the pods of a rendered and marked StatefulSet.
///
/// The mark does not count what is ours in it, but what the user asked for: a newer operator whose probe looks otherwise
/// must not restart a single member (rsm.md 9, 16).
pub(super) fn add(rsm: &ReplicatedStateMachine, set: &mut StatefulSet, tools: &Tools) -> Result<(), Misfit> {
    let Some(probe) = rsm.spec.role_probe.as_ref().filter(|probe| is_added(probe)) else { return Ok(()) };
    let asked = json!({"probe": probe, "roles": rsm.spec.roles, "credential": rsm.spec.credential}).to_string();
    let mark = set.annotations().get(RENDERED).cloned().unwrap_or_default();
    set.annotations_mut().insert(RENDERED.to_owned(), digest(&format!("{mark} {asked}")));
    let Some(template) = set.spec.as_mut().map(|spec| &mut spec.template) else { return Ok(()) };
    let env = environment(rsm, probe, template)?;
    let account =
        rsm.spec.credential.as_ref().map(|credential| variables(credential, ["KB_RSM_USERNAME", "KB_RSM_PASSWORD"]));
    let account = account.transpose()?.unwrap_or_default();
    let Some(pod) = template.spec.as_mut() else { return Ok(()) };
    for (index, action) in probe.custom_handler.iter().enumerate() {
        pod.containers.push(handler(index, action, probe, account.clone()));
    }
    if !probe.custom_handler.is_empty() {
        pod.init_containers.get_or_insert_default().push(Container {
            name: INSTALLER.to_owned(),
            command: Some(words(&["coregent", "agent", "install", FOLDER])),
            ..ours(tools)
        });
    }
    pod.containers.push(Container {
        name: CONTAINER.to_owned(),
        command: Some(words(&["coregent", "agent", "probe"])),
        env: Some(env),
        readiness_probe: Some(readiness(probe)),
        ..ours(tools)
    });
    let volumes = pod.volumes.get_or_insert_default();
    if !volumes.iter().any(|volume| volume.name == VOLUME) {
        let empty = EmptyDirVolumeSource::default();
        volumes.push(Volume { name: VOLUME.to_owned(), empty_dir: Some(empty), ..Volume::default() });
    }
    Ok(())
}

/// A rendered StatefulSet with the probe that its pods have already, if nothing but the probe differs.
pub(crate) fn with_live_probe(live: &DynamicObject, desired: &DynamicObject) -> DynamicObject {
    let mut kept = desired.clone();
    if live.annotations().get(RENDERED) != desired.annotations().get(RENDERED) {
        return kept;
    }
    for list in ["/spec/template/spec/containers", "/spec/template/spec/initContainers"] {
        let old = live.data.pointer(list).and_then(Value::as_array);
        let new = kept.data.pointer_mut(list).and_then(Value::as_array_mut);
        for container in new.into_iter().flatten().filter(|container| is_ours(container)) {
            let same = |other: &&Value| other.get("name") == container.get("name");
            if let Some(old) = old.and_then(|old| old.iter().find(same)) {
                *container = old.clone();
            }
        }
    }
    kept
}

fn is_ours(container: &Value) -> bool {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    name == CONTAINER || name == INSTALLER || name.starts_with(HANDLER)
}

/// What every container of ours has.
fn ours(tools: &Tools) -> Container {
    Container {
        image: Some(tools.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        volume_mounts: Some(vec![mount()]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn handler(index: usize, action: &Action, probe: &RoleProbe, env: Vec<EnvVar>) -> Container {
    let binary = format!("{FOLDER}/coregent");
    let (index_text, timeout) = (index.to_string(), probe.timeout_seconds.to_string());
    let mut command = words(&[&binary, "agent", "handler", "--index", &index_text, "--timeout", &timeout, "--"]);
    command.extend(action.command.iter().chain(&action.args).cloned());
    Container {
        name: format!("{HANDLER}{index}"),
        image: Some(action.image.clone().unwrap_or_else(|| SHELL.to_owned())),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(command),
        env: (!env.is_empty()).then_some(env),
        volume_mounts: Some(vec![mount()]),
        ..Container::default()
    }
}

fn mount() -> VolumeMount {
    VolumeMount { name: VOLUME.to_owned(), mount_path: FOLDER.to_owned(), ..VolumeMount::default() }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn readiness(probe: &RoleProbe) -> Probe {
    Probe {
        exec: Some(ExecAction { command: Some(words(&["coregent", "agent", "probe", "--ask"])) }),
        initial_delay_seconds: Some(probe.initial_delay_seconds),
        timeout_seconds: Some(probe.timeout_seconds),
        period_seconds: Some(probe.period_seconds),
        success_threshold: Some(probe.success_threshold),
        failure_threshold: Some(probe.failure_threshold),
        ..Probe::default()
    }
}

/// The origin's variables in its order, then our own.
fn environment(
    rsm: &ReplicatedStateMachine,
    probe: &RoleProbe,
    template: &PodTemplateSpec,
) -> Result<Vec<EnvVar>, Misfit> {
    let value = |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let credential = rsm.spec.credential.as_ref();
    let mut env = Vec::new();
    if let Some(credential) = credential {
        env.extend(variables(credential, ["KB_RSM_USERNAME", "KB_RSM_PASSWORD"])?);
        env.extend(variables(credential, ["KB_SERVICE_USER", "KB_SERVICE_PASSWORD"])?);
    }
    if let Some(port) = service_port(rsm, template)? {
        env.push(value("KB_RSM_SERVICE_PORT", port.to_string()));
        env.push(value("KB_SERVICE_PORT", port.to_string()));
    }
    env.push(value("KB_RSM_ROLE_UPDATE_MECHANISM", mechanism(probe.role_update_mechanism).to_owned()));
    env.push(value("KB_RSM_ROLE_PROBE_TIMEOUT", probe.timeout_seconds.to_string()));
    for (name, path) in [
        ("KB_POD_NAME", "metadata.name"),
        ("KB_NAMESPACE", "metadata.namespace"),
        ("KB_POD_UID", "metadata.uid"),
        ("KB_NODENAME", "spec.nodeName"),
        ("KB_POD_IP", "status.podIP"),
    ] {
        env.push(field(name, path));
    }
    let engine = probe.builtin_handler_name.clone().unwrap_or_else(|| "custom".to_owned());
    env.push(value("KB_SERVICE_CHARACTER_TYPE", engine));
    env.push(value("COREGENT_PROBE_HANDLERS", probe.custom_handler.len().to_string()));
    env.push(value("COREGENT_PROBE_PERIOD", probe.period_seconds.to_string()));
    env.push(value("COREGENT_PROBE_FAILURE_THRESHOLD", probe.failure_threshold.to_string()));
    if let Some(period) = probe.report_period_seconds {
        env.push(value("COREGENT_PROBE_REPORT_PERIOD", period.to_string()));
    }
    if let Some(port) = port_named(template, "peer") {
        env.push(value("COREGENT_PROBE_PEER_PORT", port.to_string()));
    }
    let roles: Vec<Value> = rsm
        .spec
        .roles
        .iter()
        .map(|role| json!({"name": role.name, "isLeader": role.is_leader, "canVote": role.can_vote}))
        .collect();
    env.push(value("COREGENT_PROBE_ROLES", Value::from(roles).to_string()));
    if names::has_agent_actions(rsm) {
        env.push(value("COREGENT_PROBE_REQUESTS", names::requests(&rsm.name_any())));
    }
    Ok(env)
}

fn mechanism(mechanism: RoleUpdateMechanism) -> &'static str {
    match mechanism {
        RoleUpdateMechanism::ReadinessProbeEventUpdate => "ReadinessProbeEventUpdate",
        RoleUpdateMechanism::DirectApiServerEventUpdate => "DirectAPIServerEventUpdate",
    }
}

fn field(name: &str, path: &str) -> EnvVar {
    let source = ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
    let value_from = Some(EnvVarSource { field_ref: Some(source), ..EnvVarSource::default() });
    EnvVar { name: name.to_owned(), value: None, value_from }
}

/// The account as two variables.
pub(crate) fn variables(credential: &Credential, names: [&str; 2]) -> Result<Vec<EnvVar>, Misfit> {
    let parts =
        [("spec.credential.username", &credential.username), ("spec.credential.password", &credential.password)];
    let variable = |(name, (path, part)): (&str, (&str, &coregent_api::rsm::CredentialVar))| {
        let value_from = typed_opt::<EnvVarSource>(&format!("{path}.valueFrom"), part.value_from.as_ref())?;
        Ok(EnvVar { name: name.to_owned(), value: part.value.clone(), value_from })
    };
    names.into_iter().zip(parts).map(variable).collect()
}

/// The container port that the first port of `spec.service` leads to (rsm.md 3.8).
pub(crate) fn service_port(rsm: &ReplicatedStateMachine, template: &PodTemplateSpec) -> Result<Option<i32>, Misfit> {
    let Some(service) = &rsm.spec.service else { return Ok(None) };
    let service: Service = typed("spec.service", service)?;
    let Some(port) = service.spec.and_then(|spec| spec.ports?.into_iter().next()) else { return Ok(None) };
    Ok(match port.target_port {
        Some(IntOrString::String(name)) => port_named(template, &name),
        Some(IntOrString::Int(number)) => ports(template).into_values().find(|port| *port == number),
        None => ports(template).into_values().find(|number| *number == port.port),
    })
}

fn port_named(template: &PodTemplateSpec, name: &str) -> Option<i32> {
    ports(template).get(name).copied()
}

/// Container ports of a template by name, or by number where they have none.
fn ports(template: &PodTemplateSpec) -> BTreeMap<String, i32> {
    let containers = template.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .map(|port| (port.name.clone().unwrap_or_else(|| port.container_port.to_string()), port.container_port))
        .collect()
}
