//! What the API server refuses before any controller sees it, and how it says so.

use coregent_api::{DatabaseCluster, ReplicatedStateMachine};
use kube::Resource;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::plane::{Plane, manifest};

async fn refused<K: Resource<DynamicType = ()>>(plane: &Plane, object: Value) -> String {
    // As JSON and not as `K`, which could not hold what is wrong.
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::default_namespaced_with(plane.client.clone(), &resource);
    match api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 422, "{status:?}");
            status.message
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn database(spec: Value) -> Value {
    let mut whole = json!({"engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({"metadata": {"name": "orders"}, "spec": whole})
}

#[tokio::test]
async fn a_database_that_cannot_be_is_refused_with_one_clear_message() {
    let plane = Plane::start().await;
    let cases = [
        (json!({"replicas": 0}), "spec.replicas"),
        (json!({"engine": {}}), "set exactly one engine block: postgresql, mysql or mariadb"),
        (
            json!({"engine": {"postgresql": {"version": "15"}, "mysql": {"version": "8.0"}}}),
            "set exactly one engine block: postgresql, mysql or mariadb",
        ),
        (
            json!({"engine": {"mysql": {"version": "8.0"}}}),
            "mysql is not yet served by this version: use engine.postgresql",
        ),
        (
            json!({"engine": {"mariadb": {"version": "10.11"}}}),
            "mariadb is not yet served by this version: use engine.postgresql",
        ),
        (json!({"engine": {"postgresql": {"version": 15}}}), "spec.engine.postgresql.version"),
        (json!({"storage": {"size": "much"}}), "spec.storage.size"),
        (json!({"replication": {"mode": "Sync"}}), "spec.replication.mode"),
        (json!({"port": coregent_api::database::AGENT_PORT}), "spec.port 8008 is the agent's own port"),
        (json!({"engine": {"postgresql": {"version": "99"}}}), "this version runs PostgreSQL 13 to 18"),
        (json!({"engine": {"postgresql": {"version": "12.9"}}}), "this version runs PostgreSQL 13 to 18"),
        (json!({"engine": {"postgresql": {"version": "130"}}}), "this version runs PostgreSQL 13 to 18"),
        (json!({"replication": {"k": 2}}), "spec.replication.k greater than 1 is not served by this version"),
        (json!({"replicas": 2, "replication": {"k": 8}}), "spec.replication.k greater than 1 is not served"),
    ];
    for (spec, part) in cases {
        let message = refused::<DatabaseCluster>(&plane, database(spec.clone())).await;
        assert!(message.contains(part), "{spec}: {message}");
    }
    let fine = [
        json!({"replicas": 1}),
        json!({"replicas": 3, "replication": {"k": 1}}),
        json!({"replicas": 1, "replication": {"mode": "Async", "k": 8}}),
    ];
    for spec in fine {
        plane.create::<DatabaseCluster>(database(spec)).await;
        plane.api::<DatabaseCluster>().delete("orders", &Default::default()).await.unwrap();
    }
    for major in coregent_api::database::SUPPORTED_POSTGRESQL {
        for version in [format!("{major}"), format!("{major}.2")] {
            plane.create::<DatabaseCluster>(database(json!({"engine": {"postgresql": {"version": version}}}))).await;
            plane.api::<DatabaseCluster>().delete("orders", &Default::default()).await.unwrap();
        }
    }
    let mut long = database(json!({}));
    long["metadata"]["name"] = json!("a".repeat(41));
    let message = refused::<DatabaseCluster>(&plane, long).await;
    assert!(message.contains("at most 40 lower-case letters"), "{message}");
    assert!(!message.contains(": : "), "a rule about the whole object names no field: {message}");
}

#[tokio::test]
async fn the_engine_of_a_cluster_stays_and_everything_else_has_a_default() {
    let plane = Plane::start().await;
    let made = plane.create::<DatabaseCluster>(database(json!({}))).await;
    assert_eq!((made.spec.replicas, made.spec.replication.k, made.spec.port), (3, 1, 5432));
    let other = json!({"spec": {"engine": {"postgresql": null, "mysql": {"version": "8.0"}}}});
    let api = plane.api::<DatabaseCluster>();
    let error = api.patch("orders", &PatchParams::default(), &Patch::Merge(other)).await.unwrap_err();
    assert!(error.to_string().contains("the engine of a cluster cannot be changed"), "{error}");
}

#[tokio::test]
async fn a_set_that_cannot_be_is_refused_with_one_clear_message() {
    let plane = Plane::start().await;
    let cases = [
        (json!({"roles": [{"name": "follower"}]}), "leader is required"),
        (json!({"service": {"spec": {"ports": []}}}), "servicePort must provide"),
        (json!({"service": {}}), "servicePort must provide"),
        (json!({"instances": [1]}), "spec.instances needs spec.memberLayout: Instances"),
        (json!({"memberLayout": "Instances", "instances": [1, 1]}), "spec.instances"),
        (json!({"replicas": -1}), "spec.replicas"),
        (json!({"replicas": 1001}), "spec.replicas"),
    ];
    all_refused(&plane, &cases).await;
    plane.create::<ReplicatedStateMachine>(manifest("bar", json!({}))).await;
    let other = json!({"spec": {"memberLayout": "Instances"}});
    let api = plane.api::<ReplicatedStateMachine>();
    let error = api.patch("bar", &PatchParams::default(), &Patch::Merge(other)).await.unwrap_err();
    assert!(error.to_string().contains("spec.memberLayout cannot be changed"), "{error}");
}

async fn all_refused(plane: &Plane, cases: &[(Value, &str)]) {
    for (spec, part) in cases {
        let message = refused::<ReplicatedStateMachine>(plane, manifest("bar", spec.clone())).await;
        assert!(message.contains(part), "{spec}: {message}");
    }
}

async fn all_taken(plane: &Plane, specs: &[Value]) {
    for spec in specs {
        plane.create::<ReplicatedStateMachine>(manifest("bar", spec.clone())).await;
        plane.api::<ReplicatedStateMachine>().delete("bar", &Default::default()).await.unwrap();
    }
}

fn leader(name: &str) -> Value {
    json!({"name": name, "isLeader": true})
}

#[tokio::test]
async fn roles_that_cannot_be_are_refused() {
    let plane = Plane::start().await;
    let exclusive = |name: &str| json!({"name": name, "isLeader": true, "isExclusive": true});
    let cases = [
        (json!({"roles": [{"name": "", "isLeader": true}]}), "leader is required"),
        (json!({"roles": [leader("leader"), {"name": ""}]}), "every role needs a name"),
        (json!({"roles": [leader("leader"), {"name": "leader"}]}), "must differ by more than the case"),
        (json!({"roles": [leader("leader"), {"name": "LeaDer"}]}), "must differ by more than the case"),
        (json!({"roles": [exclusive("a"), exclusive("b")]}), "at most one role can be both isLeader and isExclusive"),
        (json!({"roles": [leader("no label value")]}), "spec.roles[0].name"),
        (json!({"roles": [leader(&"a".repeat(64))]}), "spec.roles[0].name"),
        (
            json!({"roles": [{"name": "leader", "isLeader": true, "accessMode": "None"}]}),
            "no client may use a role with accessMode: None",
        ),
        (json!({"roles": [{"name": "leader", "isLeader": true, "accessMode": "Write"}]}), "spec.roles[0].accessMode"),
    ];
    all_refused(&plane, &cases).await;
    let fine = [
        json!({"roles": []}),
        json!({"roles": [leader(&"a".repeat(63))]}),
        json!({"roles": [exclusive("a"), {"name": "b", "isExclusive": true}]}),
        json!({"roles": [{"isLeader": true}]}),
    ];
    all_taken(&plane, &fine).await;
}

#[tokio::test]
async fn services_that_cannot_be_are_refused() {
    let plane = Plane::start().await;
    let service = |ports: Value| json!({"service": {"spec": {"ports": ports}}});
    let by_role = |services: Value| json!({"roleServices": services});
    let cases = [
        (service(json!([{"port": 1, "name": "a"}, {"port": 1, "name": "b"}])), "ports collide: each port and protocol"),
        (service(json!([{"port": 1, "name": "a"}, {"port": 2, "name": "a"}])), "each needs a name of its own"),
        (service(json!([{"port": 1, "name": "a"}, {"port": 2}])), "each needs a name of its own"),
        (service(json!([{"port": 0}])), "spec.service.spec.ports[0].port"),
        (service(json!([{"name": "a"}])), "spec.service.spec.ports[0].port"),
        (by_role(json!([{}])), "exactly one of role and accessMode"),
        (by_role(json!([{"role": "follower", "accessMode": "Readonly"}])), "exactly one of role and accessMode"),
        (by_role(json!([{"role": "logger"}])), "role must be one of spec.roles whose accessMode is not None"),
        (by_role(json!([{"role": "nobody"}])), "role must be one of spec.roles"),
        (by_role(json!([{"accessMode": "None"}])), "spec.roleServices[0].accessMode"),
        (by_role(json!([{"accessMode": "Readonly", "name": "No"}])), "spec.roleServices[0].name"),
    ];
    all_refused(&plane, &cases).await;
    let mut without = manifest("bar", by_role(json!([{"accessMode": "Readonly"}])));
    without["spec"].as_object_mut().unwrap().remove("service");
    let message = refused::<ReplicatedStateMachine>(&plane, without).await;
    assert!(message.contains("spec.roleServices need ports"), "{message}");
    let fine = [
        service(json!([{"port": 1, "name": "a"}, {"port": 1, "name": "b", "protocol": "UDP"}])),
        by_role(json!([{"role": "FOLLOWER"}, {"accessMode": "ReadWrite", "name": "bar-writers"}])),
    ];
    all_taken(&plane, &fine).await;
}

#[tokio::test]
async fn what_selects_and_names_members_must_fit_the_members() {
    let plane = Plane::start().await;
    let offline = |layout: &str, names: Value| json!({"memberLayout": layout, "offlineInstances": names});
    let cases = [
        (json!({"selector": {}}), "spec.selector.matchLabels needs at least one label"),
        (json!({"selector": {"matchLabels": {}}}), "spec.selector.matchLabels needs at least one label"),
        (json!({"selector": {"matchLabels": {"app": "other"}}}), "must have every label of spec.selector.matchLabels"),
        (json!({"template": {"spec": {"containers": []}}}), "must have every label of spec.selector.matchLabels"),
        (offline("StatefulSet", json!(["bar-1"])), "spec.offlineInstances needs spec.memberLayout: Instances"),
        (
            json!({"memberLayout": "Instances", "instances": [1], "offlineInstances": ["bar-1"]}),
            "spec.offlineInstances needs spec.memberLayout: Instances, and no spec.instances",
        ),
        (offline("Instances", json!(["bar-1-0"])), "spec.offlineInstances[0]"),
        (offline("Instances", json!(["bar-01"])), "spec.offlineInstances[0]"),
        (offline("Instances", json!(["bar-1", "bar-1"])), "spec.offlineInstances"),
        (json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Keep"}}), "whenScaled"),
    ];
    all_refused(&plane, &cases).await;
    let named = |name: String, spec: Value| {
        let mut object = manifest("bar", spec);
        object["metadata"]["name"] = json!(name);
        object
    };
    let cases = [
        (named("a".repeat(50), json!({})), "at most 49 lower-case letters"),
        (named("1a".into(), json!({})), "beginning with a letter"),
        (named("a".repeat(46), json!({"memberLayout": "Instances"})), "at most 45 characters"),
    ];
    for (object, part) in cases {
        let message = refused::<ReplicatedStateMachine>(&plane, object).await;
        assert!(message.contains(part), "{message}");
    }
    plane.create::<ReplicatedStateMachine>(named("a".repeat(49), json!({}))).await;
    plane.create::<ReplicatedStateMachine>(named("b".repeat(45), json!({"memberLayout": "Instances"}))).await;
    all_taken(&plane, &[offline("Instances", json!(["bar-1", "bar-12"])), offline("StatefulSet", json!([]))]).await;
}

#[tokio::test]
async fn probes_actions_and_bounds_that_cannot_be_are_refused() {
    let plane = Plane::start().await;
    let bound = |bound: Value| json!({"memberUpdateStrategy": "Serial", "updateStrategy": {"maxUnavailable": bound}});
    let action = |action: Value| json!({"membershipReconfiguration": {"memberJoinAction": action}});
    let probe = |probe: Value| json!({"roleProbe": probe});
    let cases = [
        (bound(json!(0)), "spec.updateStrategy.maxUnavailable"),
        (bound(json!("0%")), "spec.updateStrategy.maxUnavailable"),
        (bound(json!("101%")), "spec.updateStrategy.maxUnavailable"),
        (bound(json!("one")), "spec.updateStrategy.maxUnavailable"),
        (json!({"updateStrategy": {"maxUnavailable": 1}}), "set spec.memberUpdateStrategy too"),
        (json!({"memberUpdateStrategy": "Random"}), "spec.memberUpdateStrategy"),
        (action(json!({})), "an action needs a command"),
        (action(json!({"via": "Exec"})), "an action needs a command"),
        (action(json!({"via": "Exec", "command": ["a"], "image": "i"})), "image is for actions via: Job"),
        (action(json!({"command": ["a"], "container": "c"})), "container is for actions via: Exec"),
        (probe(json!({"builtinHandlerName": "oracle"})), "builtinHandlerName must be one of postgresql"),
        (
            probe(json!({"builtinHandlerName": "etcd", "customHandler": [{"command": ["a"]}]})),
            "builtinHandlerName or customHandler, not both",
        ),
        (probe(json!({"customHandler": [{"command": []}]})), "spec.roleProbe.customHandler[0].command"),
        (probe(json!({"periodSeconds": 0})), "spec.roleProbe.periodSeconds"),
        (
            json!({"credential": {"username": {"value": "a", "valueFrom": {}}, "password": {}}}),
            "set value or valueFrom, not both",
        ),
    ];
    all_refused(&plane, &cases).await;
    let fine = [
        bound(json!(1)),
        bound(json!("100%")),
        action(json!({"via": "Agent"})),
        action(json!({"command": ["a"], "args": ["b"], "image": "i"})),
        probe(json!({})),
        probe(json!({"builtinHandlerName": "etcd", "reportPeriodSeconds": 60})),
        probe(json!({"customHandler": [{"command": ["a"]}], "roleUpdateMechanism": "DirectAPIServerEventUpdate"})),
    ];
    all_taken(&plane, &fine).await;
}
