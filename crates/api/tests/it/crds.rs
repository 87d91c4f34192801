//! The definitions: their text, and that an API server accepts them.

use serde_json::Value;

fn definition(kind: &str) -> Value {
    let crd = coregent_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(crd).unwrap()
}

#[test]
fn database_cluster_definition() {
    insta::assert_yaml_snapshot!(definition("DatabaseCluster"));
}

#[test]
fn replicated_state_machine_definition() {
    insta::assert_yaml_snapshot!(definition("ReplicatedStateMachine"));
}

/// The rules of "structural" that a generated schema could break: a type at every node, no `$ref`, no `nullable`, no
/// `additionalProperties: false`, nothing but value validation inside `oneOf`/`anyOf`/`allOf`/`not`.
#[test]
fn schemas_are_structural() {
    for crd in coregent_api::crds() {
        for version in &crd.spec.versions {
            let root = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
            check(&serde_json::to_value(root).unwrap(), &crd.spec.names.kind);
        }
    }
}

fn check(schema: &Value, path: &str) {
    let schema = schema.as_object().unwrap();
    let any_type = schema.contains_key("x-kubernetes-int-or-string");
    assert!(any_type || schema.get("type").is_some_and(Value::is_string), "{path}: no type");
    for refused in ["$ref", "nullable", "oneOf", "anyOf", "allOf", "not", "definitions", "patternProperties"] {
        assert!(!schema.contains_key(refused), "{path}: {refused}");
    }
    assert_ne!(schema.get("additionalProperties"), Some(&Value::Bool(false)), "{path}: refuses what it does not know");
    assert!(
        !(schema.contains_key("additionalProperties") && schema.contains_key("properties")),
        "{path}: properties and additionalProperties"
    );
    assert!(!contains_null(&Value::Object(schema.clone())), "{path}: null");
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        check(property, &format!("{path}.{name}"));
    }
    for child in ["items", "additionalProperties"] {
        if let Some(child_schema) = schema.get(child) {
            check(child_schema, &format!("{path}.{child}"));
        }
    }
}

fn contains_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(contains_null),
        Value::Object(fields) => fields.values().any(contains_null),
        _ => false,
    }
}
