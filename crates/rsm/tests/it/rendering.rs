//! The generated objects, as text.

use coregent_api::ReplicatedStateMachine;
use coregent_rsm::Tools;
use coregent_rsm::render::{Desired, render};
use serde_json::{Value, json};

use crate::plane::manifest;

fn rsm(spec: Value) -> ReplicatedStateMachine {
    let mut object = manifest("bar", spec);
    object["apiVersion"] = json!("coregent.io/v1alpha1");
    object["kind"] = json!("ReplicatedStateMachine");
    object["metadata"] = json!({
        "name": "bar", "namespace": "foo", "uid": "uid-0123456789", "generation": 4,
        "labels": {"app.kubernetes.io/component": "mysql-cmp"},
        "annotations": {
            "plain": "1", "prometheus.io/scrape.headless.rsm": "true", "a.svc.rsm": "2", "b.alternative.rsm": "3",
            "c.cm.rsm": "4", "d.unknown.rsm": "5", "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    });
    object["status"] = json!({"replicas": 3, "initReplicas": 3, "membersStatus": [
        {"podName": "bar-1", "role": {"name": "leader", "accessMode": "ReadWrite", "isLeader": true, "canVote": true}},
        {"podName": "bar-0", "role": {"name": "follower", "accessMode": "Readonly", "isLeader": false, "canVote": true}},
        {"podName": "bar-2", "role": {"name": "learner", "accessMode": "Readonly", "isLeader": false, "canVote": false}},
        {"podName": "Unknown", "role": {"name": "follower", "accessMode": "Readonly", "isLeader": false, "canVote": true}},
    ]});
    serde_json::from_value(object).unwrap()
}

fn text(desired: &Desired) -> Value {
    json!({"configMaps": desired.config_maps, "services": desired.services, "statefulSets": desired.stateful_sets})
}

#[test]
fn one_stateful_set() {
    let spec = json!({
        "alternativeServices": [{"metadata": {"name": "bar-ro", "annotations": {"own": "1", "b": "mine"}},
            "spec": {"ports": [{"port": 5432}], "selector": {"coregent.io/role": "follower"}}}],
        "service": {"metadata": {"labels": {"theirs": "x"}}, "spec": {"type": "LoadBalancer", "ports": [{"port": 5432}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}],
        "memberUpdateStrategy": "Serial",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        "podManagementPolicy": "Parallel",
    });
    insta::assert_yaml_snapshot!(text(&render(&rsm(spec), &[], &Tools::default()).unwrap()));
}

#[test]
fn one_stateful_set_a_member() {
    let spec = json!({"memberLayout": "Instances", "instances": [1, 3], "updateStrategy": {"type": "OnDelete"}});
    insta::assert_yaml_snapshot!(text(&render(&rsm(spec), &[1, 3], &Tools::default()).unwrap()));
}

/// A database's writes wait for no readiness probe; the renderer had dropped what said so.
#[test]
fn a_service_is_as_its_author_wrote_it_save_for_whom_it_leads_to() {
    let asked = json!({"ports": [{"port": 5432}], "publishNotReadyAddresses": true, "sessionAffinity": "ClientIP",
        "selector": {"app": "elsewhere"}});
    let desired = render(&rsm(json!({"service": {"spec": asked}})), &[], &Tools::default()).unwrap();
    let main = desired.services.iter().find(|service| service.metadata.name.as_deref() == Some("bar")).unwrap();
    let spec = main.spec.as_ref().unwrap();
    assert_eq!(spec.publish_not_ready_addresses, Some(true));
    assert_eq!(spec.session_affinity.as_deref(), Some("ClientIP"));
    assert_eq!(spec.selector.as_ref().unwrap().get("app").map(String::as_str), Some("bar"));
}

#[test]
fn ports_of_the_headless_service_never_collide() {
    let port = |name: Option<&str>, number: u16, protocol: &str| json!({"name": name, "containerPort": number, "protocol": protocol});
    let container = |name: &str, ports: Vec<Value>| json!({"name": name, "image": "i", "ports": ports});
    let template = json!({"metadata": {"labels": {"app": "bar"}}, "spec": {"containers": [
        container("a", vec![port(Some("db"), 1, "TCP"), port(None, 2, "UDP")]),
        container("b", vec![port(Some("db"), 3, "TCP"), port(None, 1, "TCP")]),
    ]}});
    let desired = render(&rsm(json!({"template": template})), &[], &Tools::default()).unwrap();
    let ports = desired.services[0].spec.clone().unwrap().ports.unwrap();
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["db", "udp-2", "tcp-3"]);
}

#[test]
fn the_same_set_is_rendered_to_the_same_bytes() {
    let render = || text(&render(&rsm(json!({})), &[], &Tools::default()).unwrap()).to_string();
    assert_eq!(render(), render());
}

/// Checklist of rsm.md 11, no. 12, and issue 6156: a newer operator must not restart a single member.
#[test]
fn a_probe_that_looks_otherwise_is_no_difference_and_comes_with_the_next_real_one() {
    let live = |image: &str, spec: Value| {
        let tools = Tools { image: image.into() };
        let set = render(&rsm(spec), &[], &tools).unwrap().stateful_sets.remove(0);
        coregent_rsm::dag::erase(&set).unwrap()
    };
    let probed = json!({"roleProbe": {"builtinHandlerName": "etcd"}});
    let old = live("coregent:1", probed.clone());
    assert_eq!(coregent_rsm::merge::merge("StatefulSet", &old, &live("coregent:2", probed)), None);
    let changed = json!({"roleProbe": {"builtinHandlerName": "etcd", "periodSeconds": 9}});
    let merged = coregent_rsm::merge::merge("StatefulSet", &old, &live("coregent:2", changed)).unwrap();
    assert!(merged.data.to_string().contains("coregent:2"));
}

#[test]
fn a_probe_and_what_it_may_do() {
    let spec = json!({
        "roleProbe": {"builtinHandlerName": "etcd", "roleUpdateMechanism": "DirectAPIServerEventUpdate"},
        "membershipReconfiguration": {"switchoverAction": {"via": "Agent"}},
        "credential": {"username": {"value": "u"}, "password": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}}},
    });
    let desired = render(&rsm(spec), &[], &Tools { image: "coregent:1".into() }).unwrap();
    let access: Vec<_> = desired.access.iter().map(|step| &step.object).collect();
    insta::assert_yaml_snapshot!(
        json!({"pod": desired.stateful_sets[0].spec.as_ref().unwrap().template.spec, "access": access})
    );
    let custom =
        json!({"roleProbe": {"customHandler": [{"command": ["a"], "args": ["b"]}, {"image": "i", "command": ["c"]}]}});
    let desired = render(&rsm(custom), &[], &Tools { image: "coregent:1".into() }).unwrap();
    assert!(desired.access.is_empty(), "it speaks to nobody but the kubelet");
    insta::assert_yaml_snapshot!(desired.stateful_sets[0].spec.as_ref().unwrap().template.spec);
}
