use super::*;
use crate::schema::compile as compile_schema;
use serde_json::json;

/// The errors of `new` (and `old`) under a schema whose `spec` is `spec`.
fn check(spec: Value, new: Value, old: Option<Value>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let schema = compile_schema(&schema).unwrap();
    let old = old.map(|old| json!({"spec": old}));
    schema.validate(&json!({"spec": new}), old.as_ref()).iter().map(ToString::to_string).collect()
}

fn object(rule: Value, properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]})
}

#[test]
fn a_failed_rule_names_its_place_and_its_message() {
    let spec = |rule| object(rule, json!({"min": {"type": "integer"}, "max": {"type": "integer"}}));
    let bad = json!({"min": 2, "max": 1});
    let got = check(spec(json!({"rule": "self.min <= self.max", "message": "min above max"})), bad.clone(), None);
    assert_eq!(got, ["spec: Invalid value: min above max"]);
    let got = check(spec(json!({"rule": "self.min <= self.max"})), bad.clone(), None);
    assert_eq!(got, ["spec: Invalid value: failed rule: self.min <= self.max"]);
    let rule = json!({"rule": "self.min <= self.max", "fieldPath": ".max", "reason": "FieldValueForbidden",
        "messageExpression": "'max is ' + string(self.max)"});
    assert_eq!(check(spec(rule), bad, None), ["spec.max: Forbidden: max is 1"]);
}

#[test]
fn transition_rules_run_only_when_there_is_an_old_value() {
    let spec =
        || object(json!({"rule": "self.v == oldSelf.v", "message": "is immutable"}), json!({"v": {"type": "string"}}));
    assert!(check(spec(), json!({"v": "a"}), None).is_empty());
    assert_eq!(check(spec(), json!({"v": "a"}), Some(json!({"v": "b"}))), ["spec: Invalid value: is immutable"]);
}

#[test]
fn an_optional_old_self_is_there_on_create_too() {
    let rule =
        json!({"rule": "oldSelf.hasValue() || self.v == 'first'", "optionalOldSelf": true, "message": "not first"});
    let spec = || object(rule.clone(), json!({"v": {"type": "string"}}));
    assert_eq!(check(spec(), json!({"v": "x"}), None), ["spec: Invalid value: not first"]);
    assert!(check(spec(), json!({"v": "x"}), Some(json!({"v": "y"}))).is_empty());
}

#[test]
fn list_map_elements_are_compared_with_the_old_element_of_their_key() {
    let spec = json!({"type": "object", "properties": {"l": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "may not shrink"}]}}}});
    let old = json!({"l": [{"n": "a", "v": 1}, {"n": "b", "v": 5}]});
    let new = json!({"l": [{"n": "b", "v": 4}, {"n": "a", "v": 1}]});
    assert_eq!(check(spec, new, Some(old)), ["spec.l[0]: Invalid value: may not shrink"]);
}

#[test]
fn names_are_escaped_as_the_documentation_says() {
    let rows = [
        ("my_field", "my_field"),
        ("a__b", "a__underscores__b"),
        ("x-y.z/w", "x__dash__y__dot__z__slash__w"),
        ("namespace", "__namespace__"),
    ];
    for (name, expected) in rows {
        assert_eq!(escaped(name).as_deref(), Some(expected));
    }
    assert_eq!(escaped("9a"), None);
    let spec = object(
        json!({"rule": "self.__namespace__ == 'a' && self.my_field == 'b'"}),
        json!({"namespace": {"type": "string"}, "my_field": {"type": "string"}}),
    );
    assert!(check(spec, json!({"namespace": "a", "my_field": "b"}), None).is_empty());
}

#[test]
fn formats_quantities_and_macros_work() {
    let spec = object(
        json!({"rule": "self.at < timestamp('2030-01-01T00:00:00Z') && quantity(self.size).isGreaterThan(quantity('1Gi')) \
                        && self.names.all(n, n.startsWith('x')) && !has(self.absent) && self.labels['a/b'] == 'c'"}),
        json!({"at": {"type": "string", "format": "date-time"}, "size": {"type": "string"}, "absent": {"type": "string"},
            "names": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}),
    );
    let good = json!({"at": "2026-01-01T00:00:00Z", "size": "2Gi", "names": ["x1"], "labels": {"a/b": "c"}});
    assert_eq!(check(spec, good, None), Vec::<String>::new());
}

#[test]
fn an_unchanged_value_is_not_held_against_an_update() {
    let spec = object(json!({"rule": "self.v > 1"}), json!({"v": {"type": "integer"}}));
    assert!(check(spec, json!({"v": 0}), Some(json!({"v": 0}))).is_empty());
}

#[test]
fn a_rule_that_does_not_compile_is_refused_with_the_schema() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.a >"}]});
    let errors = compile_schema(&schema).unwrap_err();
    assert!(
        errors[0].to_string().starts_with(
            r#"openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value: "self.a >": compilation failed:"#
        ),
        "{errors:?}"
    );
}
