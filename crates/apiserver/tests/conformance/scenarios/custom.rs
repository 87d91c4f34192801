//! Custom kinds: schemas, defaults, pruning, rules, subresources.

use serde_json::{Value, json};

use super::custom;
use crate::scenario::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OWN: &[&str] = &["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}"];

pub fn all() -> Vec<Scenario> {
    vec![schemas(), defaults(), rules(), ratcheting(), subresources(), apply_custom(), definitions()]
}

/// A definition of widgets with this schema of `spec` and these subresources.
fn with(spec: Value, subresources: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.{group}"},
        "spec": {"group": "{group}", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec,
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

pub fn definition() -> Value {
    with(json!({"type": "object", "properties": {"size": {"type": "integer"}}}), json!({"status": {}}))
}

fn define(spec: Value, subresources: Value) -> [Step; 3] {
    [post("definition", DEFINITIONS, with(spec, subresources)).silent(), established(), served()]
}

/// Waits until the definition of widgets is established.
pub fn established() -> Step {
    get("established", &format!("{DEFINITIONS}/widgets.{{group}}"))
        .until(Until::Is("/status/conditions/1/status", json!("True")))
        .silent()
}

fn served() -> Step {
    get("served", &custom("widgets")).until(Until::Code(200)).silent()
}

pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn schemas() -> Scenario {
    let spec = json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 1},
        "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "mode": {"type": "string", "enum": ["Fast", "Safe"]},
        "when": {"type": "string", "format": "date-time"},
        "ratio": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
        "flag": {"type": "boolean"},
        "port": {"x-kubernetes-int-or-string": true},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2,
            "x-kubernetes-list-type": "set"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string"}, "count": {"type": "integer"}}}},
        "more": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
        "either": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "maybe": {"type": "string", "nullable": true}}});
    let bad = |label: &str, spec| post(label, &custom("widgets"), widget("bad", spec));
    let mut steps = define(spec, json!({"status": {}})).to_vec();
    steps.extend([
        post(
            "good",
            &custom("widgets"),
            widget(
                "good",
                json!({"size": 1, "name": "abc", "mode": "Fast",
            "when": "2026-01-01T00:00:00Z", "ratio": 0.5, "flag": true, "port": "http", "tags": ["a"],
            "parts": [{"id": "x", "count": 1}], "more": {"k": 1}, "either": {"a": "1"}, "maybe": null}),
            ),
        ),
        bad("required", json!({})),
        bad("no spec", Value::Null),
        bad("below minimum", json!({"size": 0})),
        bad("above maximum", json!({"size": 10})),
        bad("wrong type", json!({"size": "one"})),
        bad("fraction", json!({"size": 1.5})),
        bad("too short", json!({"size": 1, "name": "a"})),
        bad("too long", json!({"size": 1, "name": "abcde"})),
        bad("pattern", json!({"size": 1, "name": "AB"})),
        bad("enum", json!({"size": 1, "mode": "Slow"})),
        bad("format", json!({"size": 1, "when": "yesterday"})),
        bad("exclusive minimum", json!({"size": 1, "ratio": 0})),
        bad("boolean", json!({"size": 1, "flag": "yes"})),
        bad("int or string", json!({"size": 1, "port": true})),
        bad("too few items", json!({"size": 1, "tags": []})),
        bad("too many items", json!({"size": 1, "tags": ["a", "b", "c"]})),
        bad("set with a duplicate", json!({"size": 1, "tags": ["a", "a"]})),
        bad("map with a duplicate", json!({"size": 1, "parts": [{"id": "x"}, {"id": "x"}]})),
        bad("item without its key", json!({"size": 1, "parts": [{"count": 1}]})),
        bad("too many properties", json!({"size": 1, "more": {"a": 1, "b": 2}})),
        bad("additional of a wrong type", json!({"size": 1, "more": {"a": "x"}})),
        bad("one of both", json!({"size": 1, "either": {"a": "1", "b": "2"}})),
        bad("null that may not be", json!({"size": 1, "mode": null})),
        bad("several", json!({"size": 0, "name": "A", "mode": "x", "tags": []})),
        post("bad name", &custom("widgets"), widget("Bad_Name", json!({"size": 1}))),
        put("update without revision", &custom("widgets/good"), widget("good", json!({"size": 2}))),
        patch("merge patch", &custom("widgets/good"), MERGE_PATCH, json!({"spec": {"size": 2, "tags": ["b"]}})),
        patch(
            "JSON patch",
            &custom("widgets/good"),
            JSON_PATCH,
            json!([{"op": "add", "path": "/spec/tags/-", "value": "c"}]),
        ),
        patch("strategic merge patch", &custom("widgets/good"), STRATEGIC_PATCH, json!({"spec": {"size": 3}})),
        patch("bad patch", &custom("widgets/good"), MERGE_PATCH, json!({"spec": {"size": 99}})),
        get("table", &custom("widgets")).accept(TABLE),
    ]);
    Scenario::new("schemas", "custom kinds: what a schema refuses, and in which words", steps).makes(OWN)
}

fn defaults() -> Scenario {
    let spec = json!({"type": "object", "default": {}, "properties": {
        "size": {"type": "integer", "default": 3},
        "nested": {"type": "object", "properties": {"mode": {"type": "string", "default": "Safe"}}},
        "deep": {"type": "object", "default": {"a": 1}, "properties": {
            "a": {"type": "integer"}, "b": {"type": "integer", "default": 2}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {
            "n": {"type": "integer", "default": 7}, "k": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
            "n": {"type": "integer", "default": 8}}}},
        "nullable": {"type": "string", "nullable": true, "default": "x"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}}});
    let mut steps = define(spec, json!({"status": {}})).to_vec();
    let make = |label: &str, name: &str, spec| post(label, &custom("widgets"), widget(name, spec));
    steps.extend([
        make("empty spec", "empty", json!({})),
        post(
            "no spec",
            &custom("widgets"),
            json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "none"}}),
        ),
        make("nested", "nested", json!({"nested": {}, "deep": {}, "list": [{}, {"n": 1}], "map": {"a": {}}})),
        make("nulls", "nulls", json!({"size": null, "nullable": null, "nested": {"mode": null}})),
        make("pruned", "pruned", json!({"other": 1, "nested": {"x": 1}, "list": [{"x": 1}]})),
        make("kept", "kept", json!({"free": {"other": {"x": 1}, "known": {"a": "1", "b": "2"}}})),
        make(
            "embedded",
            "embedded",
            json!({"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
            "unknown": 1}, "spec": {"any": 1}}}),
        ),
        make("embedded without a type", "untyped", json!({"embedded": {"spec": {}}})),
        post(
            "unknown beside spec",
            &custom("widgets"),
            json!({"apiVersion": "{group}/v1", "kind": "Widget",
            "metadata": {"name": "beside", "unknown": 1}, "spec": {}, "extra": 1}),
        ),
    ]);
    Scenario::new("defaults", "custom kinds: defaults, pruning, unknown fields that are kept, embedded objects", steps)
        .makes(OWN)
}

fn rules() -> Scenario {
    let spec = json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
        "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [
            {"rule": "self.startsWith('a')", "messageExpression": "'must start with a, not ' + self", "reason": "FieldValueForbidden"}]},
        "items": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {"w": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "!has(self.w) || self.w > 0", "fieldPath": ".w"}]}}},
        "x-kubernetes-validations": [
            {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min must not be above max"},
            {"rule": "!has(oldSelf.max) || has(self.max)", "message": "max cannot be removed"},
            {"rule": "has(self.max) ? self.max < 100 : true"}]});
    let mut steps = define(spec, json!({"status": {}})).to_vec();
    let make = |label: &str, name: &str, spec| post(label, &custom("widgets"), widget(name, spec));
    let change = |label: &str, spec| patch(label, &custom("widgets/good"), MERGE_PATCH, json!({"spec": spec}));
    steps.extend([
        make("good", "good", json!({"min": 1, "max": 2, "fixed": "x", "name": "abc", "items": [{"w": 1}]})),
        make("across fields", "bad", json!({"min": 3, "max": 2})),
        make("message expression and reason", "bad", json!({"name": "xyz"})),
        make("field path in an item", "bad", json!({"items": [{"w": 1}, {"w": 0}]})),
        make("no message", "bad", json!({"max": 100})),
        make("several", "bad", json!({"min": 300, "max": 200, "name": "b"})),
        make("type before rules", "bad", json!({"min": "x", "name": "b"})),
        change("transition", json!({"fixed": "y"})),
        change("no transition", json!({"fixed": "x", "max": 5})),
        change("removal", json!({"max": null})),
    ]);
    Scenario::new("rules", "custom kinds: rules in CEL", steps).makes(OWN)
}

fn ratcheting() -> Scenario {
    let loose = json!({"type": "object", "properties": {"size": {"type": "integer"}, "name": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}}}});
    let tight = json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": 5},
        "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'bad'"}]},
        "list": {"type": "array", "maxItems": 1, "items": {"type": "string"}}}});
    let mut steps = define(loose, json!({})).to_vec();
    let change = |label: &str, body| patch(label, &custom("widgets/w"), MERGE_PATCH, body);
    steps.extend([
        post(
            "made under the old schema",
            &custom("widgets"),
            widget("w", json!({"size": 9, "name": "bad", "list": ["a", "b"]})),
        ),
        patch(
            "tighter schema",
            &format!("{DEFINITIONS}/widgets.{{group}}"),
            MERGE_PATCH,
            json!({"spec": with(tight, json!({}))["spec"]}),
        )
        .silent(),
        post("tighter schema is served", &(custom("widgets") + "?dryRun=All"), widget("x", json!({"size": 9})))
            .until(Until::Code(422)),
        change("what is not touched may stay", json!({"metadata": {"labels": {"a": "b"}}})),
        change("size changes", json!({"spec": {"size": 8}})),
        change("rule on a changed value", json!({"spec": {"name": "good"}})),
        change("back to bad", json!({"spec": {"name": "bad"}})),
        change("list changes", json!({"spec": {"list": ["c", "d"]}})),
    ]);
    Scenario::new("ratcheting", "custom kinds: what was valid once and is not touched stays", steps).makes(OWN)
}

fn subresources() -> Scenario {
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "size": {"type": "integer"}}});
    let scale = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    let mut steps = define(spec, scale).to_vec();
    let one = custom("widgets/w");
    let at = |suffix: &str| format!("{one}/{suffix}");
    steps.extend([
        post(
            "status at creation is dropped",
            &custom("widgets"),
            json!({"apiVersion": "{group}/v1", "kind": "Widget",
            "metadata": {"name": "w"}, "spec": {"replicas": 1}, "status": {"phase": "New"}}),
        ),
        patch("status by the object is dropped", &one, MERGE_PATCH, json!({"status": {"phase": "New"}})),
        patch(
            "status",
            &at("status"),
            MERGE_PATCH,
            json!({"status": {"phase": "Good", "replicas": 1, "selector": "a=b"}, "spec": {"size": 5}}),
        ),
        patch("metadata by the status", &at("status"), MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}})),
        get("get of the status", &at("status")),
        patch("generation grows with spec", &one, MERGE_PATCH, json!({"spec": {"size": 6}})),
        patch("and not with labels", &one, MERGE_PATCH, json!({"metadata": {"labels": {"x": "y"}}})),
        apply(
            "apply of the status",
            &(at("status") + "?fieldManager=c"),
            json!({"apiVersion": "{group}/v1",
            "kind": "Widget", "status": {"phase": "Better", "replicas": 1, "selector": "a=b"}}),
        ),
        get("scale", &at("scale")),
        put(
            "scale up",
            &at("scale"),
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "w", "namespace": "{ns}"}, "spec": {"replicas": 3}}),
        ),
        patch("scale patch", &at("scale"), MERGE_PATCH, json!({"spec": {"replicas": 4}})),
        patch("scale below zero", &at("scale"), MERGE_PATCH, json!({"spec": {"replicas": -1}})),
        patch("scale status", &at("scale"), MERGE_PATCH, json!({"status": {"replicas": 9}})),
        get("scaled", &one),
        get("another subresource", &at("other")),
        delete("delete of the status", &at("status")),
    ]);
    Scenario::new("subresources", "custom kinds: status and scale", steps).makes(OWN)
}

fn apply_custom() -> Scenario {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "atoms": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        "plain": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string"}, "count": {"type": "integer", "default": 1}, "note": {"type": "string"}}}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
            "a": {"type": "string"}, "b": {"type": "string"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let mut steps = define(spec, json!({"status": {}})).to_vec();
    let by = |label: &str, manager: &str, spec| {
        apply(label, &format!("{}?fieldManager={manager}", custom("widgets/w")), widget("w", spec))
    };
    steps.extend([
        by(
            "create",
            "a",
            json!({"size": 1, "tags": ["x", "y"], "atoms": ["1", "2"], "plain": [{"k": "1"}],
            "parts": [{"id": "p"}, {"id": "q", "note": "n"}], "whole": {"a": "1"}, "free": {"any": {"thing": [1]}}}),
        ),
        by("set is shared", "b", json!({"tags": ["y", "z"]})),
        by("map by key", "b", json!({"tags": ["y", "z"], "parts": [{"id": "r"}, {"id": "p", "note": "b"}]})),
        by("conflict in a map", "b", json!({"parts": [{"id": "q", "note": "other"}]})),
        by("conflict in an atomic list", "b", json!({"atoms": ["3"]})),
        by("conflict in a plain list", "b", json!({"plain": [{"k": "2"}]})),
        by("conflict in an atomic map", "b", json!({"whole": {"b": "2"}})),
        by("conflict in a free map", "b", json!({"free": {"any": {"thing": [2]}}})),
        by("addition to a free map", "b", json!({"free": {"other": 1}})),
        by("b gives up", "b", json!({})),
        by("a takes some away", "a", json!({"size": 1, "tags": ["x"], "parts": [{"id": "q"}]})),
    ]);
    Scenario::new("apply-custom", "server-side apply of a custom kind", steps).with_fields().makes(OWN)
}

fn definitions() -> Scenario {
    let refused = |label: &str, change: &dyn Fn(&mut Value)| {
        let mut definition = definition();
        change(&mut definition["spec"]);
        post(label, DEFINITIONS, definition)
    };
    let schema = |spec: Value| {
        move |definition: &mut Value| {
            definition["versions"][0]["schema"]["openAPIV3Schema"] = spec.clone();
        }
    };
    Scenario::new(
        "definitions",
        "custom kinds: definitions, good and bad",
        vec![
            refused("not the name", &|spec| spec["names"]["plural"] = json!("gadgets")),
            refused("no storage version", &|spec| spec["versions"][0]["storage"] = json!(false)),
            refused("scope that is none", &|spec| spec["scope"] = json!("Everywhere")),
            refused("no schema", &|spec| spec["versions"][0]["schema"] = Value::Null),
            refused("not structural", &schema(json!({"type": "object", "properties": {"a": {"minimum": 1}}}))),
            refused(
                "default of a wrong type",
                &schema(json!({"type": "object", "properties": {
            "a": {"type": "integer", "default": "x"}}})),
            ),
            refused(
                "rule that is none",
                &schema(json!({"type": "object", "properties": {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >"}]}}})),
            ),
            refused(
                "rule on a field that is none",
                &schema(json!({"type": "object", "properties": {
            "a": {"type": "object", "x-kubernetes-validations": [{"rule": "self.none > 1"}]}}})),
            ),
            refused(
                "set of objects",
                &schema(json!({"type": "object", "properties": {
            "a": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}}})),
            ),
            post("good", DEFINITIONS, definition()),
            get("established", &format!("{DEFINITIONS}/widgets.{{group}}"))
                .until(Until::Is("/status/conditions/1/status", json!("True"))),
            post("again", DEFINITIONS, definition()),
            served(),
            post(
                "instance",
                &custom("widgets"),
                json!({"apiVersion": "{group}/v1", "kind": "Widget",
            "metadata": {"name": "w", "finalizers": ["a.io/x"]}}),
            )
            .silent(),
            get("table", &format!("{DEFINITIONS}/widgets.{{group}}")).accept(TABLE),
            patch(
                "scope may not change",
                &format!("{DEFINITIONS}/widgets.{{group}}"),
                MERGE_PATCH,
                json!({"spec": {"scope": "Cluster"}}),
            ),
            delete("delete", &format!("{DEFINITIONS}/widgets.{{group}}")).silent(),
            get("instance is being deleted", &custom("widgets/w")).until(Until::Has("/metadata/deletionTimestamp")),
            patch("instance goes", &custom("widgets/w"), MERGE_PATCH, json!({"metadata": {"finalizers": null}})),
            get("definition is gone", &format!("{DEFINITIONS}/widgets.{{group}}")).until(Until::Code(404)),
            get("kind is gone", &custom("widgets")).until(Until::Code(404)),
        ],
    )
    .makes(OWN)
}
