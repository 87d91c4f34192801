//! Server-side apply, with the owners of fields.

use serde_json::{Value, json};

use super::{apps, config_map, core, stateful_set};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![owners(), lists(), mixed(), refusals()]
}

fn by(path: &str, manager: &str) -> String {
    format!("{path}?fieldManager={manager}")
}

fn owners() -> Scenario {
    let one = core("configmaps/a");
    Scenario::new(
        "apply",
        "server-side apply: creation, conflicts, force, shared fields, removal",
        vec![
            apply("create", &by(&one, "a"), config_map("a", json!({"x": "1", "y": "1"}))),
            apply("again", &by(&one, "a"), config_map("a", json!({"x": "1", "y": "1"}))),
            apply("others", &by(&one, "b"), config_map("a", json!({"z": "1"}))),
            apply("conflict", &by(&one, "b"), config_map("a", json!({"x": "2", "y": "2", "z": "1"}))),
            apply("shared", &by(&one, "b"), config_map("a", json!({"x": "1", "z": "1"}))),
            apply("conflict of two", &by(&one, "c"), config_map("a", json!({"x": "3"}))),
            apply("force", &(by(&one, "c") + "&force=true"), config_map("a", json!({"x": "3"}))),
            apply("fewer", &by(&one, "a"), config_map("a", json!({}))),
            apply("shared is kept", &by(&one, "b"), config_map("a", json!({"x": "3", "z": "1"}))),
            apply("one gives up", &by(&one, "c"), config_map("a", json!({}))),
            apply("nobody is left", &by(&one, "b"), json!({"apiVersion": "v1", "kind": "ConfigMap"})),
            apply(
                "labels",
                &by(&one, "a"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "labels": {"a": "1"}, "annotations": {"b": "2"}, "finalizers": ["a.io/x"]}}),
            ),
            apply(
                "finalizer away",
                &by(&one, "a"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "1"}}}),
            ),
        ],
    )
    .with_fields()
}

fn set(containers: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": {"spec": {"containers": containers}}}})
}

fn lists() -> Scenario {
    let one = apps("statefulsets/db");
    Scenario::new(
        "apply-lists",
        "server-side apply of lists with keys, sets and atomic lists",
        vec![
            apply("create", &by(&one, "a"), stateful_set("db")),
            apply("an item of another", &by(&one, "b"), set(json!([{"name": "third", "image": "third:1"}]))),
            apply(
                "a field of an item",
                &by(&one, "b"),
                set(json!([{"name": "third", "image": "third:1"}, {"name": "main", "imagePullPolicy": "Always"}])),
            ),
            apply("conflict in an item", &by(&one, "b"), set(json!([{"name": "main", "image": "other"}]))),
            apply("conflict in an atomic list", &by(&one, "b"), set(json!([{"name": "main", "args": ["x"]}]))),
            apply(
                "ports by number and protocol",
                &by(&one, "b"),
                set(json!([{"name": "main", "ports": [
            {"containerPort": 5432, "protocol": "UDP"}, {"containerPort": 9090, "name": "m"}]}])),
            ),
            apply("away again", &by(&one, "b"), set(json!([]))),
            apply("an item away", &by(&one, "a"), {
                let mut set = stateful_set("db");
                set["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().remove(1);
                set
            }),
            apply("order", &by(&one, "a"), {
                let mut set = stateful_set("db");
                set["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().reverse();
                set
            }),
            apply(
                "twice the same key",
                &by(&one, "b"),
                set(json!([{"name": "d", "image": "1"}, {"name": "d", "image": "2"}])),
            ),
            apply("no key", &by(&one, "b"), set(json!([{"image": "x"}]))),
            apply(
                "replicas",
                &by(&one, "scaler"),
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 0}}),
            ),
            apply(
                "replicas conflict",
                &by(&one, "scaler"),
                json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 1}}),
            ),
        ],
    )
    .with_fields()
}

fn mixed() -> Scenario {
    let one = core("configmaps/a");
    Scenario::new(
        "apply-mixed",
        "owners of creates, updates and patches beside those of applies",
        vec![
            post("create", &(core("configmaps") + "?fieldManager=maker"), config_map("a", json!({"x": "1", "y": "1"}))),
            apply("apply of the same", &by(&one, "a"), config_map("a", json!({"x": "1"}))),
            patch("patch", &by(&one, "patcher"), MERGE_PATCH, json!({"data": {"x": "2", "n": "1"}})),
            apply("apply conflicts", &by(&one, "a"), config_map("a", json!({"x": "1"}))),
            put("update", &by(&one, "maker"), config_map("a", json!({"x": "2", "w": "1"}))),
            patch("default manager", &one, MERGE_PATCH, json!({"data": {"v": "1"}})),
            post("set", &(apps("statefulsets") + "?fieldManager=maker"), stateful_set("db")),
            put("set updated", &by(&apps("statefulsets/db"), "maker"), {
                let mut set = stateful_set("db");
                set["metadata"]["labels"] = json!({"a": "b"});
                set["spec"]["template"]["spec"]["nodeSelector"] = json!({"c": "d"});
                set["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("9");
                set
            }),
            patch(
                "set status",
                &(apps("statefulsets/db/status") + "?fieldManager=controller"),
                MERGE_PATCH,
                json!({"status": {"replicas": 0, "observedGeneration": 2}}),
            ),
            patch("fields away", &by(&one, "patcher"), MERGE_PATCH, json!({"metadata": {"managedFields": [{}]}})),
            apply("apply after that", &by(&one, "a"), config_map("a", json!({"x": "5"}))),
        ],
    )
    .with_fields()
}

fn refusals() -> Scenario {
    let one = core("configmaps/a");
    Scenario::new(
        "apply-refused",
        "applies that are refused",
        vec![
            apply("no manager", &one, config_map("a", json!({}))),
            apply("no type", &by(&one, "a"), json!({"data": {"a": "1"}})),
            apply("another name", &by(&one, "a"), config_map("b", json!({}))),
            apply(
                "another namespace",
                &by(&one, "a"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default"}}),
            ),
            apply(
                "managed fields",
                &by(&one, "a"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"managedFields": [{"manager": "x"}]}}),
            ),
            apply(
                "uid of another",
                &by(&one, "a"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}),
            ),
            apply(
                "revision of none",
                &by(&one, "a"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"resourceVersion": "1"}}),
            ),
            apply("wrong type", &by(&one, "a"), json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}})),
            apply("unknown field", &by(&one, "a"), json!({"apiVersion": "v1", "kind": "ConfigMap", "datum": {}})),
            raw("no YAML", "PATCH", &by(&one, "a"), APPLY_PATCH, "a: ["),
            raw("a list", "PATCH", &by(&one, "a"), APPLY_PATCH, "[]"),
            raw("YAML", "PATCH", &by(&one, "a"), APPLY_PATCH, "apiVersion: v1\nkind: ConfigMap\ndata: {a: '1'}\n"),
            apply("long manager", &by(&one, &"m".repeat(129)), config_map("a", json!({}))),
        ],
    )
}
