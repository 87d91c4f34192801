//! Events have one storage and two faces: `v1` (stored) and `events.k8s.io/v1`, with the same facts under other names.

use serde_json::{Map, Value};

/// Field names: in `v1`, in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(object: Value, api_version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = object else { return object };
    let mut renamed: Map<String, Value> =
        fields.into_iter().map(|(key, value)| (name(&key).map_or(key, str::to_owned), value)).collect();
    renamed.insert("apiVersion".into(), api_version.into());
    renamed.insert("kind".into(), "Event".into());
    Value::Object(renamed)
}

/// From `events.k8s.io/v1` to `v1`.
pub(crate) fn to_core(object: Value) -> Value {
    rename(object, "v1", |key| NAMES.iter().find(|(_, new)| *new == key).map(|(core, _)| *core))
}

/// From `v1` to `events.k8s.io/v1`.
pub(crate) fn to_events_v1(object: Value) -> Value {
    let mut event =
        rename(object, "events.k8s.io/v1", |key| NAMES.iter().find(|(core, _)| *core == key).map(|(_, new)| *new));
    if let Some(fields) = event.as_object_mut() {
        // This face leaves out what the other one always has.
        fields.retain(|name, value| !(name.starts_with("reporting") && value.as_str() == Some("")));
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_survives_the_way_through_both_faces() {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"kind": "Pod", "name": "a"},
            "note": "text", "reportingController": "me", "metadata": {"name": "e"}, "type": "Normal"});
        let core = to_core(event.clone());
        assert_eq!(core["involvedObject"]["name"], "a");
        assert_eq!(core["message"], "text");
        assert_eq!(to_events_v1(core), event);
    }
}
