//! The types of the built-in kinds, checked by a round trip through `k8s_openapi`.
//!
//! What does not deserialise has a wrong type; what does not come back is not a field of the type.

use k8s_openapi::api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::patch::kind_of;
use crate::schema::FieldError;
use crate::schema::prune::join;

/// Deserialises and serialises again; the words of serde otherwise.
type RoundTrip = fn(&Value) -> Result<Value, String>;

fn round_trip<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, String> {
    let typed = T::deserialize(value).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

/// The type of each built-in kind.
fn type_of(group: &str, kind: &str) -> Option<RoundTrip> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    Some(match (group, kind) {
        ("", "Namespace") => round_trip::<api::core::v1::Namespace>,
        ("", "Node") => round_trip::<api::core::v1::Node>,
        ("", "Pod") => round_trip::<api::core::v1::Pod>,
        ("", "Service") => round_trip::<api::core::v1::Service>,
        ("", "ConfigMap") => round_trip::<api::core::v1::ConfigMap>,
        ("", "Secret") => round_trip::<api::core::v1::Secret>,
        ("", "PersistentVolume") => round_trip::<api::core::v1::PersistentVolume>,
        ("", "PersistentVolumeClaim") => round_trip::<api::core::v1::PersistentVolumeClaim>,
        ("", "ServiceAccount") => round_trip::<api::core::v1::ServiceAccount>,
        ("", "Event") => round_trip::<api::core::v1::Event>,
        ("events.k8s.io", "Event") => round_trip::<api::events::v1::Event>,
        ("discovery.k8s.io", "EndpointSlice") => round_trip::<api::discovery::v1::EndpointSlice>,
        ("storage.k8s.io", "StorageClass") => round_trip::<api::storage::v1::StorageClass>,
        ("coordination.k8s.io", "Lease") => round_trip::<api::coordination::v1::Lease>,
        ("apps", "StatefulSet") => round_trip::<api::apps::v1::StatefulSet>,
        ("apps", "ControllerRevision") => round_trip::<api::apps::v1::ControllerRevision>,
        ("", "Endpoints") => round_trip::<api::core::v1::Endpoints>,
        ("networking.k8s.io", "NetworkPolicy") => round_trip::<api::networking::v1::NetworkPolicy>,
        ("batch", "CronJob") => round_trip::<api::batch::v1::CronJob>,
        ("batch", "Job") => round_trip::<api::batch::v1::Job>,
        ("policy", "PodDisruptionBudget") => round_trip::<api::policy::v1::PodDisruptionBudget>,
        ("rbac.authorization.k8s.io", "Role") => round_trip::<api::rbac::v1::Role>,
        ("rbac.authorization.k8s.io", "RoleBinding") => round_trip::<api::rbac::v1::RoleBinding>,
        ("rbac.authorization.k8s.io", "ClusterRole") => round_trip::<api::rbac::v1::ClusterRole>,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => round_trip::<api::rbac::v1::ClusterRoleBinding>,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => round_trip::<CustomResourceDefinition>,
        _ => return None,
    })
}

/// Checks an object against the type of its kind. Wrong types are errors; fields that the type does not have are
/// returned by their paths. For a kind that is not built in this checks `metadata`.
pub fn check(group: &str, kind: &str, object: &Value) -> Result<Vec<String>, Vec<FieldError>> {
    prune(group, kind, &mut object.clone())
}

/// As [`check`], and removes the unknown fields and the nulls, as typed storage would.
pub fn prune(group: &str, kind: &str, object: &mut Value) -> Result<Vec<String>, Vec<FieldError>> {
    let mut unknown = Vec::new();
    match type_of(group, kind) {
        Some(through) => {
            let typed = typed(object, through, "")?;
            retain(object, &typed, "", &mut unknown);
        }
        None => {
            if let Some(metadata) = object.get_mut("metadata") {
                let typed = typed(metadata, round_trip::<ObjectMeta>, "metadata")?;
                retain(metadata, &typed, "metadata", &mut unknown);
            }
        }
    }
    Ok(unknown)
}

/// Removes from a `metadata` at `path` what is not part of it, and returns the paths.
pub fn prune_metadata(metadata: &mut Value, path: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Ok(typed) = round_trip::<ObjectMeta>(metadata) {
        retain(metadata, &typed, path, &mut unknown);
    }
    unknown
}

fn typed(value: &Value, through: RoundTrip, path: &str) -> Result<Value, Vec<FieldError>> {
    through(value).map_err(|error| {
        let mut errors = Vec::new();
        find_faults(value, &through, path, &mut errors);
        if errors.is_empty() {
            errors.push(FieldError::type_invalid(path, &json!(kind_of(value)), &error));
        }
        errors
    })
}

/// Finds the places that do not deserialise: a part is at fault if an object with nothing but it fails. Every field of
/// these types may be missing, so the rest of the object does not matter.
fn find_faults(
    value: &Value,
    through: &dyn Fn(&Value) -> Result<Value, String>,
    path: &str,
    out: &mut Vec<FieldError>,
) {
    let before = out.len();
    match value {
        Value::Object(fields) => {
            for (name, part) in fields {
                let only = |part: &Value| through(&json!({ name: part }));
                if only(part).is_err() {
                    find_faults(part, &only, &join(path, name), out);
                }
            }
        }
        Value::Array(list) => {
            for (index, part) in list.iter().enumerate() {
                let only = |part: &Value| through(&json!([part]));
                if only(part).is_err() {
                    find_faults(part, &only, &format!("{path}[{index}]"), out);
                }
            }
        }
        _ => {}
    }
    if out.len() == before
        && let Err(error) = through(value)
    {
        out.push(fault(value, path, &error));
    }
}

fn fault(value: &Value, path: &str, error: &str) -> FieldError {
    let expected = error.rsplit_once("expected ").map(|(_, expected)| expected);
    let ty = match expected {
        Some("i32" | "i64" | "u32" | "u64") => "integer",
        Some("f32" | "f64") => "number",
        Some("a string" | "string") => "string",
        Some("a boolean") => "boolean",
        Some("a sequence") => "array",
        Some(other) if other == "a map" || other.starts_with("struct ") || other.starts_with(char::is_uppercase) => {
            "object"
        }
        _ => return FieldError::invalid(path, value, error),
    };
    let got = kind_of(value);
    FieldError::type_invalid(path, &json!(got), &format!("{path} in body must be of type {ty}: {got:?}"))
}

/// Removes from `value` what `typed` does not have. Nulls are dropped without a word.
fn retain(value: &mut Value, typed: &Value, path: &str, unknown: &mut Vec<String>) {
    match (value, typed) {
        (Value::Object(fields), Value::Object(typed)) => fields.retain(|name, value| {
            let path = join(path, name);
            match typed.get(name) {
                Some(typed) => {
                    retain(value, typed, &path, unknown);
                    true
                }
                None => {
                    if !value.is_null() {
                        unknown.push(path);
                    }
                    false
                }
            }
        }),
        (Value::Array(list), Value::Array(typed)) => {
            for (index, (value, typed)) in list.iter_mut().zip(typed).enumerate() {
                retain(value, typed, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(group: &str, kind: &str, object: &Value) -> Vec<String> {
        check(group, kind, object).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_fields_are_listed_by_path() {
        let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x", "creationTimestamp": null, "nom": 1},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "imagee": "x"}]}}, "selectr": {}}});
        let got = check("apps", "StatefulSet", &object).unwrap();
        assert_eq!(got, ["metadata.nom", "spec.selectr", "spec.template.spec.containers[0].imagee"]);
    }

    #[test]
    fn a_wrong_type_is_named_by_path() {
        let object = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x", "labels": {"a": 1}},
            "spec": {"replicas": "three", "template": {"spec": {"containers": [{"name": "c"}, {"name": "d", "command": "x"}]}}}});
        assert_eq!(
            texts("apps", "StatefulSet", &object),
            [
                r#"metadata.labels.a: Invalid value: "integer": metadata.labels.a in body must be of type string: "integer""#,
                r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#,
                r#"spec.template.spec.containers[1].command: Invalid value: "string": spec.template.spec.containers[1].command in body must be of type array: "string""#,
            ]
        );
    }

    #[test]
    fn objects_of_each_sort_of_value_pass_unchanged() {
        let rows = [
            ("", "Secret", json!({"data": {"a": "aGk="}, "stringData": {"b": "c"}})),
            ("", "Service", json!({"spec": {"ports": [{"port": 1, "targetPort": "x"}, {"port": 2, "targetPort": 2}]}})),
            (
                "",
                "Pod",
                json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}}),
            ),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"spec": {"renewTime": "2026-01-01T00:00:00.000001Z", "leaseTransitions": 1}}),
            ),
            ("apps", "ControllerRevision", json!({"data": {"spec": {"anything": [1, {"goes": null}]}}, "revision": 1})),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({"spec": {"versions": [{"name": "v1", "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "a": {"type": "integer", "default": 1, "enum": [1, 2]}}, "additionalProperties": true}}}]}}),
            ),
        ];
        for (group, kind, mut object) in rows {
            object["metadata"] = json!({"name": "x"});
            let before = object.clone();
            assert_eq!(prune(group, kind, &mut object), Ok(Vec::new()), "{kind}");
            assert_eq!(object, before, "{kind}");
        }
    }

    #[test]
    fn a_kind_that_is_not_built_in_has_its_metadata_checked() {
        let object = json!({"metadata": {"name": 1}, "spec": {"any": "thing"}});
        assert_eq!(texts("x.io", "X", &object).len(), 1);
        assert_eq!(check("x.io", "X", &json!({"metadata": {"naame": "x"}})), Ok(vec!["metadata.naame".to_owned()]));
    }
}
