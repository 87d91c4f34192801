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
    ];
    for (spec, part) in cases {
        let message = refused::<ReplicatedStateMachine>(&plane, manifest("bar", spec.clone())).await;
        assert!(message.contains(part), "{spec}: {message}");
    }
    plane.create::<ReplicatedStateMachine>(manifest("bar", json!({}))).await;
    let other = json!({"spec": {"memberLayout": "Instances"}});
    let api = plane.api::<ReplicatedStateMachine>();
    let error = api.patch("bar", &PatchParams::default(), &Patch::Merge(other)).await.unwrap_err();
    assert!(error.to_string().contains("spec.memberLayout cannot be changed"), "{error}");
}
