//! The Services of an RSM (rsm.md 3.5).

use std::collections::BTreeSet;

use coregent_api::pod::{Misfit, typed, typed_list, typed_opt};
use coregent_api::rsm::{RoleService, ServedMode};
use coregent_api::{ReplicatedStateMachine, labels};
use k8s_openapi::api::core::v1::{ContainerPort, PodTemplateSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{base_selector, meta};
use crate::annotation::{AnnotationScope, parse_annotations_of_scope};
use crate::names;

pub(super) fn render(rsm: &ReplicatedStateMachine, template: &PodTemplateSpec) -> Result<Vec<Service>, Misfit> {
    let mut services = vec![headless(rsm, template)];
    if let Some(service) = &rsm.spec.service {
        services.push(main(rsm, &typed("spec.service", service)?));
        // As in the origin, alternative Services come with a main one only (rsm.md 1.2).
        let alternatives: Vec<Service> = typed_list("spec.alternativeServices", &rsm.spec.alternative_services)?;
        for (at, service) in alternatives.into_iter().enumerate() {
            let path = format!("spec.alternativeServices[{at}].metadata.name");
            if service.name_any().is_empty() {
                return Err(Misfit::Missing { path });
            }
            add(&mut services, &path, alternative(rsm, service))?;
        }
    }
    for (at, wanted) in rsm.spec.role_services.iter().enumerate() {
        let path = format!("spec.roleServices[{at}]");
        let service = by_role(rsm, wanted, &path)?;
        add(&mut services, &format!("{path}.name"), service)?;
    }
    Ok(services)
}

/// Two Services of one name would overwrite each other for ever.
fn add(services: &mut Vec<Service>, path: &str, service: Service) -> Result<(), Misfit> {
    let name = service.name_any();
    if services.iter().any(|other| other.name_any() == name) {
        return Err(Misfit::Taken { path: path.to_owned(), name });
    }
    services.push(service);
    Ok(())
}

fn scoped(rsm: &ReplicatedStateMachine, scope: AnnotationScope) -> Option<std::collections::BTreeMap<String, String>> {
    parse_annotations_of_scope(scope, rsm.metadata.annotations.as_ref()).filter(|annotations| !annotations.is_empty())
}

/// Gives every pod a name, ready or not: members must find each other before they can become ready.
fn headless(rsm: &ReplicatedStateMachine, template: &PodTemplateSpec) -> Service {
    let mut metadata = meta(rsm, names::headless_service(&rsm.name_any()));
    metadata.annotations = scoped(rsm, AnnotationScope::HeadlessService);
    let mut taken = BTreeSet::new();
    let containers = template.spec.iter().flat_map(|spec| &spec.containers);
    let ports: Vec<ServicePort> = containers
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| headless_port(port, &mut taken))
        .collect();
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: Some("None".to_owned()),
            selector: Some(base_selector(rsm)),
            ports: (!ports.is_empty()).then_some(ports),
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// A name that is taken falls back to the generated one; a port that is taken altogether is left out, since the API
/// server would refuse the whole Service for it.
fn headless_port(port: &ContainerPort, taken: &mut BTreeSet<String>) -> Option<ServicePort> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let generated = format!("{}-{}", protocol.to_lowercase(), port.container_port);
    if !taken.insert(format!("{protocol}/{}", port.container_port)) {
        return None;
    }
    let (name, target) = match port.name.clone().filter(|name| !name.is_empty()) {
        Some(name) if !taken.contains(&name) => (name.clone(), IntOrString::String(name)),
        _ => (generated, IntOrString::Int(port.container_port)),
    };
    taken.insert(name.clone());
    Some(ServicePort {
        name: Some(name),
        port: port.container_port,
        protocol: Some(protocol),
        target_port: Some(target),
        ..ServicePort::default()
    })
}

/// Leads to the leader, or to every pod when no roles are declared. Everything else is as its author wrote it.
fn main(rsm: &ReplicatedStateMachine, wanted: &Service) -> Service {
    let mut metadata = meta(rsm, rsm.name_any());
    let mut all = wanted.metadata.labels.clone().unwrap_or_default();
    all.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(all);
    metadata.annotations = scoped(rsm, AnnotationScope::Service);
    let mut selector = base_selector(rsm);
    if let Some(leader) = rsm.spec.roles.iter().find(|role| role.is_leader) {
        selector.insert(labels::ROLE.to_owned(), leader.name.clone());
    }
    let asked = wanted.spec.clone().unwrap_or_default();
    let type_ = asked.type_.clone().filter(|type_| !type_.is_empty());
    let local = (type_.as_deref() == Some("LoadBalancer")).then(|| "Local".to_owned());
    let external_traffic_policy = asked.external_traffic_policy.clone().or(local);
    let spec = ServiceSpec { type_, external_traffic_policy, selector: Some(selector), ..asked };
    Service { metadata, spec: Some(spec), ..Service::default() }
}

/// Leads to every member of a role, or of an access mode. A member whose role has the access mode `None` has neither
/// label value that can be asked for, hence is in no such Service.
fn by_role(rsm: &ReplicatedStateMachine, wanted: &RoleService, path: &str) -> Result<Service, Misfit> {
    let given: Service = typed_opt(&format!("{path}.service"), wanted.service.as_ref())?.unwrap_or_default();
    let mut selector = base_selector(rsm);
    let suffix = match (&wanted.role, wanted.access_mode) {
        (Some(name), _) => {
            let declared = rsm.spec.roles.iter().find(|role| role.name.to_lowercase() == name.to_lowercase());
            let declared =
                declared.ok_or_else(|| Misfit::Missing { path: format!("spec.roles: a role called {name}") })?;
            selector.insert(labels::ROLE.to_owned(), declared.name.clone());
            declared.name.to_lowercase().replace(['.', '_'], "-")
        }
        (None, Some(mode)) => {
            selector.insert(labels::ACCESS_MODE.to_owned(), mode.as_str().to_owned());
            match mode {
                ServedMode::ReadWrite => "rw".to_owned(),
                ServedMode::Readonly => "ro".to_owned(),
            }
        }
        (None, None) => return Err(Misfit::Missing { path: format!("{path}.role or {path}.accessMode") }),
    };
    let name = wanted.name.clone().unwrap_or_else(|| format!("{}-{suffix}", rsm.name_any()));
    let mut spec = given.spec.unwrap_or_default();
    if spec.ports.is_none() {
        let main: Option<Service> = typed_opt("spec.service", rsm.spec.service.as_ref())?;
        spec.ports = main.and_then(|service| service.spec).and_then(|spec| spec.ports);
    }
    spec.selector = Some(selector);
    let mut metadata = meta(rsm, name);
    let mut all = given.metadata.labels.unwrap_or_default();
    all.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(all);
    metadata.annotations = given.metadata.annotations.filter(|annotations| !annotations.is_empty());
    Ok(Service { metadata, spec: Some(spec), ..Service::default() })
}

/// As its author wrote it, with our labels, our owner and the annotations of its scope. Of its metadata only what an
/// author can mean is taken: a manifest copied from a cluster carries a uid and a resourceVersion too.
fn alternative(rsm: &ReplicatedStateMachine, service: Service) -> Service {
    let mut metadata = meta(rsm, service.name_any());
    let mut all = service.metadata.labels.unwrap_or_default();
    all.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(all);
    let mut annotations = service.metadata.annotations.unwrap_or_default();
    annotations.extend(scoped(rsm, AnnotationScope::AlternativeService).unwrap_or_default());
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    Service { metadata, spec: service.spec, ..Service::default() }
}
