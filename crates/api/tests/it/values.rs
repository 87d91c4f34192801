//! Objects: what is written, what is read, what is refused.

use coregent_api::conditions::{self, State, set_condition};
use coregent_api::database::{Engine, Postgresql, Storage};
use coregent_api::{DatabaseCluster, DatabaseClusterSpec, ReplicatedStateMachine, ReplicatedStateMachineSpec};
use k8s_openapi::api::core::v1::{Probe, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

fn postgresql(version: &str) -> Engine {
    Engine { postgresql: Some(Postgresql { version: version.to_owned() }), ..Engine::default() }
}

fn storage() -> Storage {
    Storage { size: "1Gi".to_owned(), storage_class_name: None }
}

fn nulls(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(nulls),
        Value::Object(fields) => fields.values().any(nulls),
        _ => false,
    }
}

#[test]
fn nothing_that_is_unset_is_written_as_null() {
    let mut database = DatabaseCluster::new("orders", DatabaseClusterSpec::new(postgresql("15"), storage()));
    database.status = Some(coregent_api::DatabaseClusterStatus {
        primary: Some(Default::default()),
        members: vec![Default::default()],
        last_failover: Some(coregent_api::database::LastFailover {
            data_loss: Some(Default::default()),
            ..Default::default()
        }),
        ..Default::default()
    });
    assert!(!nulls(&serde_json::to_value(&database).unwrap()), "{database:?}");

    let mut rsm = ReplicatedStateMachine::new(
        "orders",
        ReplicatedStateMachineSpec {
            template: json!({}),
            role_probe: Some(Default::default()),
            membership_reconfiguration: Some(Default::default()),
            credential: Some(Default::default()),
            update_strategy: Some(Default::default()),
            ..Default::default()
        },
    );
    rsm.status = Some(Default::default());
    assert!(!nulls(&serde_json::to_value(&rsm).unwrap()), "{rsm:?}");
}

#[test]
fn the_shortest_manifest_gets_every_default() {
    let spec: DatabaseClusterSpec =
        serde_json::from_value(json!({"engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}}))
            .unwrap();
    assert_eq!(spec, DatabaseClusterSpec::new(postgresql("15"), storage()));
    assert_eq!((spec.replicas, spec.port, spec.effective_k()), (3, 5432, 1));
    assert_eq!(spec.failover.delay(), std::time::Duration::from_secs(30));
    assert_eq!(spec.database_image(), "postgres:15");
}

#[test]
fn a_write_never_waits_for_more_members_than_there_are() {
    let mut spec = DatabaseClusterSpec::new(postgresql("15"), storage());
    for (replicas, k, effective) in [(1, 1, 0), (2, 1, 1), (2, 2, 1), (5, 2, 2)] {
        spec.replicas = replicas;
        spec.replication.k = k;
        assert_eq!(spec.effective_k(), effective, "{replicas} members, k={k}");
    }
}

#[test]
fn an_unknown_version_is_named_with_those_that_are_known() {
    let known = Postgresql { version: "15.8".to_owned() };
    assert_eq!(known.unsupported(), None);
    let message = Postgresql { version: "99".to_owned() }.unsupported().unwrap();
    assert_eq!(message, "spec.engine.postgresql.version \"99\" is not known: this version runs PostgreSQL 13 to 18");
}

#[test]
fn pod_parts_are_typed_where_used_and_say_which_field_does_not_fit() {
    let probe: Probe = coregent_api::pod::typed("spec.probe.readinessProbe", &json!({"periodSeconds": 2})).unwrap();
    assert_eq!(probe.period_seconds, Some(2));
    let wrong = coregent_api::pod::typed::<Probe>("spec.probe.readinessProbe", &json!({"periodSeconds": "two"}));
    assert!(wrong.unwrap_err().to_string().starts_with("spec.probe.readinessProbe: "));
    let unknown = coregent_api::pod::typed::<ResourceRequirements>(
        "spec.resources",
        &json!({"limits": {}, "limit": {"cpu": "1"}}),
    );
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "spec.resources: unknown field(s) spec.resources.limit; remove them or correct their spelling"
    );
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let (t1, t2) = (Time(Timestamp::from_second(1).unwrap()), Time(Timestamp::from_second(2).unwrap()));
    let mut list = Vec::new();
    assert!(set_condition(&mut list, conditions::READY, State::False, "Starting", "", Some(1), &t1));
    assert!(!set_condition(&mut list, conditions::READY, State::False, "Starting", "", Some(1), &t2));
    assert!(set_condition(&mut list, conditions::READY, State::False, "Copying", "", Some(1), &t2));
    assert_eq!(list[0].last_transition_time, t1, "the reason changed, the status did not");
    assert!(set_condition(&mut list, conditions::READY, State::True, "Ready", "", Some(2), &t2));
    assert_eq!(list[0].last_transition_time, t2);
    set_condition(&mut list, conditions::DEGRADED, State::False, "Ready", "", Some(2), &t2);
    assert_eq!(list.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Degraded", "Ready"]);
    assert!(conditions::is_true(&list, conditions::READY));
}
