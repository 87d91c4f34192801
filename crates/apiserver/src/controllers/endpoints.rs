//! EndpointSlices: the addresses behind a Service that has a selector.
//!
//! As Kubernetes' endpointslice controller, but without its batching: a pod's change of label or readiness is in the
//! slice by the next write, since a failover waits for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::ObjectMeta;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::selector::{PodFacts, controlled_by, controller_of, labels, matches};
use super::world::{Change, Object, ObjectKey, World};
use super::write::{Decision, Write};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The Services that a change concerns.
pub fn touched(world: &World, change: &Change) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for version in change.versions() {
        match version {
            Object::Service(_) => keys.push(change.key.clone()),
            Object::Pod(pod) => {
                let services = world.tables.services.within(&change.key.namespace);
                let selecting = services.filter(|service| selects(service, pod));
                keys.extend(selecting.map(|service| ObjectKey::of(&service.metadata)));
            }
            Object::EndpointSlice(slice) => {
                let service = labels(&slice.metadata).get(SERVICE_NAME);
                keys.extend(service.map(|name| ObjectKey::new(&change.key.namespace, name)));
            }
            _ => {}
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

/// A Service without selector, or one that is only a name, has no endpoints of ours.
fn selector(service: &Service) -> Option<LabelSelector> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    let selector = spec.selector.clone().filter(|selector| !selector.is_empty())?;
    Some(LabelSelector { match_labels: Some(selector), match_expressions: None })
}

fn selects(service: &Service, pod: &Pod) -> bool {
    selector(service).is_some_and(|selector| matches(&selector, labels(&pod.metadata)))
}

/// What to write for one Service: a slice for each distinct list of ports, of which there is one unless pods give a
/// named port different numbers.
pub fn decide(world: &World, key: &ObjectKey) -> Decision {
    let Some(service) = world.tables.services.get(&key.namespace, &key.name) else { return Decision::nothing() };
    if selector(service).is_none() || service.metadata.deletion_timestamp.is_some() {
        return Decision::nothing();
    }
    let mut wanted: BTreeMap<String, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
    for pod in world.tables.pods.within(&key.namespace).filter(|pod| selects(service, pod) && !pod.is_over()) {
        let Some(endpoint) = endpoint(service, pod) else { continue };
        let ports = ports(service, Some(pod));
        wanted.entry(slice_name(service, &ports)).or_insert_with(|| (ports, Vec::new())).1.push(endpoint);
    }
    let slices = world.tables.slices.within(&key.namespace);
    let known: Vec<&Arc<EndpointSlice>> = slices.filter(|slice| is_ours(service, slice)).collect();
    if wanted.is_empty() {
        // A slice is emptied rather than replaced: between two primaries there is a moment without any.
        let kept = known.first().and_then(|slice| Some((slice.metadata.name.clone()?, slice.ports.clone())));
        let (name, ports) = match kept {
            Some((name, ports)) => (name, ports.unwrap_or_default()),
            None => {
                let ports = ports(service, None);
                (slice_name(service, &ports), ports)
            }
        };
        wanted.insert(name, (ports, Vec::new()));
    }
    let mut writes = Vec::new();
    for (name, (ports, endpoints)) in &wanted {
        let wanted = build(service, name, ports, endpoints);
        match known.iter().find(|slice| slice.metadata.name.as_ref() == Some(name)) {
            None => writes.extend(Write::create(&wanted)),
            Some(slice) if is_same(slice, &wanted) => {}
            Some(slice) => writes.push(Write::patch(
                &***slice,
                json!({
                    "metadata": { "labels": wanted.metadata.labels },
                    "endpoints": wanted.endpoints,
                    "ports": wanted.ports,
                }),
            )),
        }
    }
    let surplus = known.iter().filter(|slice| {
        slice.metadata.deletion_timestamp.is_none()
            && slice.metadata.name.as_ref().is_none_or(|name| !wanted.contains_key(name))
    });
    writes.extend(surplus.map(|slice| Write::delete(&***slice)));
    Decision::in_order(writes)
}

fn is_ours(service: &Service, slice: &EndpointSlice) -> bool {
    labels(&slice.metadata).get(MANAGED_BY).is_some_and(|by| by == MANAGER)
        && controller_of(&slice.metadata).is_some_and(|owner| Some(&owner.uid) == service.metadata.uid.as_ref())
}

fn is_same(known: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let some = |ports: &Option<Vec<EndpointPort>>| ports.clone().unwrap_or_default();
    let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
    some(&known.ports) == some(&wanted.ports)
        && endpoints(known) == endpoints(wanted)
        && labels(&wanted.metadata).iter().all(|(key, value)| labels(&known.metadata).get(key) == Some(value))
}

fn endpoint(service: &Service, pod: &Pod) -> Option<Endpoint> {
    let address = pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())?;
    let spec = service.spec.as_ref()?;
    let (serving, terminating) = (pod.is_ready(), pod.is_terminating());
    let publishes_all = spec.publish_not_ready_addresses == Some(true);
    let pod_spec = pod.spec.as_ref();
    let is_named_here = pod_spec.and_then(|spec| spec.subdomain.as_ref()) == service.metadata.name.as_ref();
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publishes_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: pod_spec.and_then(|spec| spec.hostname.clone()).filter(|_| is_named_here),
        node_name: pod.node().map(str::to_owned),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

fn ports(service: &Service, pod: Option<&Arc<Pod>>) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = target(port, pod.map(|pod| &**pod))?;
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(number),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

/// The number behind a service port; a pod that does not have the named port does not serve it.
fn target(port: &ServicePort, pod: Option<&Pod>) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let containers = pod?.spec.iter().flat_map(|spec| {
                let sidecars = spec.init_containers.iter().flatten();
                spec.containers.iter().chain(sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always")))
            });
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            let found = ports.find(|known| {
                known.name.as_ref() == Some(name) && known.protocol.as_deref().unwrap_or("TCP") == protocol
            })?;
            Some(found.container_port)
        }
    }
}

/// The name is the same for the same ports, so that a restart finds its slices.
fn slice_name(service: &Service, ports: &[EndpointPort]) -> String {
    let text = serde_json::to_string(ports).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    let hash: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{hash}", service.metadata.name.as_deref().unwrap_or_default())
}

fn build(service: &Service, name: &str, ports: &[EndpointPort], endpoints: &[Endpoint]) -> EndpointSlice {
    let mut all = labels(&service.metadata).clone();
    all.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    all.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None") {
        all.insert(HEADLESS.to_owned(), String::new());
    }
    EndpointSlice {
        address_type: "IPv4".to_owned(),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: service.metadata.namespace.clone(),
            labels: Some(all),
            owner_references: Some(vec![controlled_by(service)]),
            ..ObjectMeta::default()
        },
        endpoints: Some(endpoints.to_vec()),
        ports: Some(ports.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::controllers::fixture::Fixture;
    use crate::controllers::registry::Controller::Endpoints;

    fn fixture(spec: Value) -> Fixture {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "db" },
            "spec": { "selector": { "role": "primary" }, "ports": [{ "name": "sql", "port": 5432, "targetPort": "pg" }] },
        });
        json_patch::merge(&mut service["spec"], &spec);
        let mut fixture = Fixture::new();
        fixture.put(service);
        for (name, port) in [("a", 5432), ("b", 5432), ("c", 6432)] {
            let container = json!({ "name": "main", "ports": [{ "name": "pg", "containerPort": port }] });
            fixture.put(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "role": "replica" } },
                "spec": { "containers": [container], "hostname": name, "subdomain": "db" },
            }));
            fixture.ready(name);
        }
        fixture
    }

    fn endpoints(fixture: &mut Fixture) -> Vec<String> {
        fixture.settle(Endpoints, "db");
        let slices = fixture.world.tables.slices.all();
        let mut found: Vec<String> = slices
            .flat_map(|slice| {
                let port = slice.ports.iter().flatten().filter_map(|port| port.port).next();
                slice.endpoints.clone().unwrap_or_default().into_iter().map(move |endpoint| {
                    let conditions = endpoint.conditions.unwrap();
                    format!(
                        "{}:{} ready={} serving={} terminating={}",
                        endpoint.hostname.unwrap(),
                        port.unwrap(),
                        conditions.ready.unwrap(),
                        conditions.serving.unwrap(),
                        conditions.terminating.unwrap()
                    )
                })
            })
            .collect();
        found.sort();
        found
    }

    fn label(fixture: &mut Fixture, pod: &str, role: &str) {
        fixture.change("Pod", pod, json!({ "metadata": { "labels": { "role": role } } }));
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice() {
        let mut fixture = fixture(json!({}));
        assert!(endpoints(&mut fixture).is_empty());
        assert_eq!(fixture.world.tables.slices.all().count(), 1);
    }

    #[test]
    fn the_slice_follows_the_label() {
        let mut fixture = fixture(json!({}));
        label(&mut fixture, "a", "primary");
        assert_eq!(endpoints(&mut fixture), ["a:5432 ready=true serving=true terminating=false"]);
        label(&mut fixture, "a", "replica");
        label(&mut fixture, "b", "primary");
        assert_eq!(endpoints(&mut fixture), ["b:5432 ready=true serving=true terminating=false"]);
    }

    #[test]
    fn a_named_port_that_pods_number_differently_makes_a_slice_of_each() {
        let mut fixture = fixture(json!({ "selector": { "role": "replica" } }));
        assert_eq!(endpoints(&mut fixture).len(), 3);
        assert_eq!(fixture.world.tables.slices.all().count(), 2);
        label(&mut fixture, "c", "none");
        assert_eq!(endpoints(&mut fixture).len(), 2);
        assert_eq!(fixture.world.tables.slices.all().count(), 1);
    }

    #[test]
    fn readiness_and_termination_show_in_the_conditions() {
        for (publish, change, expected) in [
            (false, json!({ "status": { "conditions": [] } }), "ready=false serving=false terminating=false"),
            (true, json!({ "status": { "conditions": [] } }), "ready=true serving=false terminating=false"),
            (
                false,
                json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
                "ready=false serving=true terminating=true",
            ),
        ] {
            let mut fixture = fixture(json!({ "publishNotReadyAddresses": publish }));
            label(&mut fixture, "a", "primary");
            fixture.change("Pod", "a", change);
            assert_eq!(endpoints(&mut fixture), [format!("a:5432 {expected}")]);
        }
    }
}
