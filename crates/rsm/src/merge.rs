//! How a generated object that is there is brought to what it should be, and whether it needs to be (rsm.md 2.3).
//!
//! Works on plain JSON, so that a field of a newer API server than this build knows is kept.

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value};

use crate::names::RENDERED;
use crate::render::probe::with_live_probe;
use crate::retention::FIELD as RETENTION;

/// Fields of a Service's spec that we render or leave out on purpose. Every other is the API server's.
const SERVICE_FIELDS: [&str; 4] = ["ports", "selector", "type", "externalTrafficPolicy"];
/// Fields of a StatefulSet's spec that can be changed and that we render. The others are frozen at creation.
const STATEFUL_SET_FIELDS: [&str; 4] = ["replicas", "template", "updateStrategy", RETENTION];

/// `live` brought to `desired`, or `None` when it is so already.
///
/// Fields that the API server fills in are not differences. A field that is no longer rendered is one: the digest on the
/// object tells.
#[must_use]
pub fn merge(kind: &str, live: &DynamicObject, desired: &DynamicObject) -> Option<DynamicObject> {
    let desired = &if kind == "StatefulSet" { with_live_probe(live, desired) } else { desired.clone() };
    if live.annotations().get(RENDERED) == desired.annotations().get(RENDERED) && holds(kind, live, desired) {
        return None;
    }
    let mut merged = live.clone();
    merged.labels_mut().extend(desired.labels().clone());
    merged.annotations_mut().extend(desired.annotations().clone());
    match kind {
        "StatefulSet" => {
            replace_fields(&mut merged.data, &desired.data, &STATEFUL_SET_FIELDS, false);
            keep_claims(&mut merged.data, &desired.data);
        }
        "Service" => merge_service(&mut merged.data, &desired.data),
        "ConfigMap" => {
            for field in ["data", "binaryData"] {
                merged.data[field] = desired.data.get(field).cloned().unwrap_or(Value::Null);
            }
            drop_nulls(&mut merged.data);
        }
        _ => merged.data = desired.data.clone(),
    }
    Some(merged)
}

/// Whether everything that is rendered is there.
fn holds(kind: &str, live: &DynamicObject, desired: &DynamicObject) -> bool {
    let entries = |a: &std::collections::BTreeMap<String, String>, b: &std::collections::BTreeMap<String, String>| {
        b.iter().all(|(key, value)| a.get(key) == Some(value))
    };
    if !entries(live.labels(), desired.labels()) || !entries(live.annotations(), desired.annotations()) {
        return false;
    }
    let spec = |object: &DynamicObject| object.data.get("spec").cloned().unwrap_or(Value::Null);
    match kind {
        "StatefulSet" => {
            let (live, desired) = (spec(live), spec(desired));
            STATEFUL_SET_FIELDS.iter().all(|field| contains(&live[*field], &desired[*field]))
        }
        // Data is a whole: an entry that somebody added is a difference.
        "ConfigMap" => ["data", "binaryData"].iter().all(|field| live.data.get(*field) == desired.data.get(*field)),
        _ => contains(&spec(live), &spec(desired)),
    }
}

/// Whether `live` has all that `desired` asks for; what it has beyond that does not matter.
fn contains(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        // Nothing is asked for: the API server may have filled in what it likes.
        (_, Value::Null) => true,
        (live, desired) if live == desired => true,
        (live, Value::Object(desired)) => {
            desired.iter().all(|(key, value)| contains(live.get(key).unwrap_or(&Value::Null), value))
        }
        (live, desired) if is_zero(desired) => is_zero(live),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len() && live.iter().zip(desired).all(|(live, desired)| contains(live, desired))
        }
        (Value::String(live), Value::String(desired)) => same_quantity(live, desired),
        _ => false,
    }
}

/// Absent, empty and zero are one to the API server.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// `1Gi` and `1024Mi` are the same: the API server writes quantities in its own form.
fn same_quantity(a: &str, b: &str) -> bool {
    matches!((quantity(a), quantity(b)), (Some(a), Some(b)) if (a - b).abs() <= a.abs() * 1e-12)
}

fn quantity(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let (number, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1.0));
    // Only digits and a point: Rust would read "inf" and "1e3" too.
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { number.parse::<f64>().ok().map(|number| number * factor) } else { None }
}

/// Sets `fields` of `spec` as desired; one that is not desired is removed when `remove` says so.
fn replace_fields(live: &mut Value, desired: &Value, fields: &[&str], remove: bool) {
    let Some(spec) = live.as_object_mut().map(|root| root.entry("spec").or_insert_with(|| Value::Object(Map::new())))
    else {
        return;
    };
    let Some(spec) = spec.as_object_mut() else { return };
    for field in fields {
        match desired.get("spec").and_then(|spec| spec.get(*field)) {
            Some(value) => {
                spec.insert((*field).to_owned(), value.clone());
            }
            None if remove => {
                spec.remove(*field);
            }
            None => {}
        }
    }
}

/// A policy that is no longer rendered must not go on deleting claims.
fn keep_claims(live: &mut Value, desired: &Value) {
    let policy = format!("/spec/{RETENTION}");
    if let (Some(kept), None) = (live.pointer_mut(&policy), desired.pointer(&policy)) {
        *kept = serde_json::json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    }
}

/// Our fields as rendered; addresses and node ports as the API server gave them out.
fn merge_service(live: &mut Value, desired: &Value) {
    let old_ports = live.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
    let same_type = live.pointer("/spec/type") == desired.pointer("/spec/type");
    replace_fields(live, desired, &SERVICE_FIELDS, true);
    let wanted = desired.get("spec").and_then(Value::as_object);
    let beyond: Vec<&str> = wanted
        .map(|spec| spec.keys().map(String::as_str).filter(|key| !SERVICE_FIELDS.contains(key)).collect())
        .unwrap_or_default();
    replace_fields(live, desired, &beyond, false);
    if !same_type {
        return;
    }
    for port in live.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let before = old_ports.iter().find(|old| old["port"] == port["port"] && same_protocol(old, port));
        if let (Some(node_port), Some(fields)) = (before.and_then(|old| old.get("nodePort")), port.as_object_mut()) {
            fields.entry("nodePort").or_insert_with(|| node_port.clone());
        }
    }
}

fn same_protocol(a: &Value, b: &Value) -> bool {
    let protocol = |port: &Value| port.get("protocol").and_then(Value::as_str).unwrap_or("TCP").to_owned();
    protocol(a) == protocol(b)
}

fn drop_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn stateful_set(digest: &str, spec: Value) -> DynamicObject {
        object(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "bar", "labels": {"a": "1"}, "annotations": {RENDERED: digest}},
            "spec": spec,
        }))
    }

    #[test]
    fn what_the_api_server_filled_in_is_no_difference() {
        let desired = stateful_set(
            "1",
            json!({"replicas": 3, "template": {"spec": {"containers": [
                {"name": "db", "image": "db:1", "resources": {"limits": {"memory": "1024Mi", "cpu": "0.1"}}, "env": []}
            ]}}}),
        );
        let live = stateful_set(
            "1",
            json!({"replicas": 3, "revisionHistoryLimit": 10, "template": {"metadata": {},
            "spec": {"restartPolicy": "Always", "containers": [{"name": "db", "image": "db:1",
            "terminationMessagePath": "/dev/termination-log",
            "resources": {"limits": {"memory": "1Gi", "cpu": "100m"}}}]}}}),
        );
        assert_eq!(merge("StatefulSet", &live, &desired), None);
    }

    #[test]
    fn drift_and_removal_are_differences_and_frozen_fields_are_not() {
        let desired = stateful_set("1", json!({"replicas": 3, "template": {}, "serviceName": "new"}));
        let scaled = stateful_set("1", json!({"replicas": 5, "template": {}, "serviceName": "old"}));
        let merged = merge("StatefulSet", &scaled, &desired).unwrap();
        assert_eq!(merged.data["spec"], json!({"replicas": 3, "template": {}, "serviceName": "old"}));
        let had_more = stateful_set("0", json!({"replicas": 3, "template": {"spec": {"hostNetwork": true}}}));
        let merged = merge("StatefulSet", &had_more, &desired).unwrap();
        assert_eq!(merged.data["spec"]["template"], json!({}));
        assert_eq!(merged.annotations()[RENDERED], "1");
    }

    #[test]
    fn labels_and_annotations_of_others_stay() {
        let desired = stateful_set("2", json!({"replicas": 1, "template": {}}));
        let mut live = stateful_set("1", json!({"replicas": 1, "template": {}}));
        live.labels_mut().insert("theirs".into(), "x".into());
        live.annotations_mut().insert("theirs".into(), "y".into());
        let merged = merge("StatefulSet", &live, &desired).unwrap();
        assert_eq!((merged.labels()["theirs"].as_str(), merged.annotations()["theirs"].as_str()), ("x", "y"));
    }

    #[test]
    fn a_service_keeps_the_addresses_it_was_given() {
        let service = |digest: &str, spec: Value| {
            object(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "bar", "annotations": {RENDERED: digest}}, "spec": spec,
            }))
        };
        let live = service(
            "1",
            json!({"type": "NodePort", "clusterIP": "10.0.0.1", "sessionAffinity": "None",
            "externalTrafficPolicy": "Local", "selector": {"a": "1"},
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}),
        );
        let desired =
            service("2", json!({"type": "NodePort", "selector": {"b": "2"}, "ports": [{"port": 80}, {"port": 81}]}));
        let merged = merge("Service", &live, &desired).unwrap();
        assert_eq!(
            merged.data["spec"],
            json!({"type": "NodePort", "clusterIP": "10.0.0.1", "sessionAffinity": "None",
            "selector": {"b": "2"}, "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}]})
        );
    }

    #[test]
    fn the_data_of_a_config_map_is_replaced_whole() {
        let config_map = |data: Value| {
            object(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bar", "annotations": {RENDERED: "1"}}, "data": data,
            }))
        };
        let desired = config_map(json!({"a": "1"}));
        assert_eq!(merge("ConfigMap", &config_map(json!({"a": "1"})), &desired), None);
        let merged = merge("ConfigMap", &config_map(json!({"a": "1", "b": "2"})), &desired).unwrap();
        assert_eq!(merged.data["data"], json!({"a": "1"}));
    }
}
