use crate::schema::compile;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The errors of `spec` under the schema `schema`.
fn errors(schema: &Value, spec: Value) -> Vec<String> {
    let schema = compile(&json!({"type": "object", "properties": {"spec": schema}})).unwrap();
    schema.validate(&json!({"spec": spec}), None).iter().map(ToString::to_string).collect()
}

#[test]
fn errors_are_worded_as_kubernetes_words_them() {
    let int = |rule: Value| {
        let mut schema = json!({"type": "integer"});
        schema.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        schema
    };
    let text = |rule: Value| {
        let mut schema = json!({"type": "string"});
        schema.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        schema
    };
    let list = json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2});
    let map =
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2});
    let rows = [
        (
            int(json!({"minimum": 1})),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            int(json!({"minimum": 1, "exclusiveMinimum": true})),
            json!(1),
            "spec: Invalid value: 1: spec in body should be greater than 1",
        ),
        (
            int(json!({"maximum": 1})),
            json!(2),
            "spec: Invalid value: 2: spec in body should be less than or equal to 1",
        ),
        (
            int(json!({"maximum": 1, "exclusiveMaximum": true})),
            json!(1),
            "spec: Invalid value: 1: spec in body should be less than 1",
        ),
        (int(json!({"multipleOf": 5})), json!(7), "spec: Invalid value: 7: spec in body should be a multiple of 5"),
        (
            int(json!({"format": "int32"})),
            json!(3_000_000_000_i64),
            r#"spec: Invalid value: 3000000000: spec in body must be of type int32: "3000000000""#,
        ),
        (
            int(json!({})),
            json!("x"),
            r#"spec: Invalid value: "string": spec in body must be of type integer: "string""#,
        ),
        (
            int(json!({})),
            json!(1.5),
            r#"spec: Invalid value: "number": spec in body must be of type integer: "number""#,
        ),
        (
            text(json!({"minLength": 2})),
            json!("a"),
            r#"spec: Invalid value: "a": spec in body should be at least 2 chars long"#,
        ),
        (text(json!({"maxLength": 2})), json!("abc"), "spec: Too long: may not be more than 2 bytes"),
        (text(json!({"pattern": "^a+$"})), json!("b"), r#"spec: Invalid value: "b": spec in body should match '^a+$'"#),
        (
            text(json!({"format": "date-time"})),
            json!("b"),
            r#"spec: Invalid value: "b": spec in body must be of type date-time: "b""#,
        ),
        (text(json!({"enum": ["A", "B"]})), json!("b"), r#"spec: Unsupported value: "b": supported values: "A", "B""#),
        (list.clone(), json!([]), "spec: Invalid value: 0: spec in body should have at least 1 items"),
        (list, json!(["a", "b", "c"]), "spec: Too many: 3: must have at most 2 items"),
        (map.clone(), json!({}), "spec: Invalid value: {}: spec in body should have at least 1 properties"),
        (map.clone(), json!({"a": 1, "b": 1, "c": 1}), "spec: Too many: 3: must have at most 2 items"),
        (
            map,
            json!({"a": "x"}),
            r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            "spec.a: Required value",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean""#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": "x", "b": "y"}),
            r#"spec: Invalid value: {"a":"x","b":"y"}: "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (
            text(json!({"anyOf": [{"minLength": 2}, {"pattern": "b"}]})),
            json!("a"),
            r#"spec: Invalid value: "a": "spec" must validate at least one schema (anyOf)"#,
        ),
        (
            text(json!({"not": {"pattern": "a"}})),
            json!("a"),
            r#"spec: Invalid value: "a": "spec" must not validate the schema (not)"#,
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a"]),
            r#"spec[2]: Duplicate value: "a""#,
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"],
                "items": {"type": "object", "required": ["n"],
                    "properties": {"n": {"type": "string"}, "p": {"type": "string", "default": "TCP"}, "v": {"type": "string"}}}}),
            json!([{"n": "a", "v": "1"}, {"n": "a", "p": "TCP", "v": "2"}]),
            r#"spec[1]: Duplicate value: {"n":"a","p":"TCP"}"#,
        ),
    ];
    for (schema, value, expected) in rows {
        assert_eq!(errors(&schema, value.clone()), [expected], "{schema} {value}");
    }
}

#[test]
fn a_null_is_fine_where_nullable_and_nowhere_else() {
    assert_eq!(errors(&json!({"type": "string", "nullable": true}), json!(null)), Vec::<String>::new());
    assert_eq!(
        errors(&json!({"type": "string"}), json!(null)),
        [r#"spec: Invalid value: "null": spec in body must be of type string: "null""#]
    );
}

#[test]
fn what_was_wrong_before_and_did_not_change_is_let_be() {
    let schema = compile(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string"}}}))
    .unwrap();
    let old = json!({"a": "long", "b": "x"});
    assert!(schema.validate(&json!({"a": "long", "b": "y"}), Some(&old)).is_empty());
    assert_eq!(schema.validate(&json!({"a": "longer", "b": "x"}), Some(&old)).len(), 1);
}

#[test]
fn defaults_go_into_objects_lists_and_maps() {
    let item = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 7}, "s": {"type": "string", "nullable": true, "default": "x"}}});
    let schema = compile(&json!({"type": "object", "properties": {
        "list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item},
        "made": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 1}}},
        "absent": item, "plain": {"type": "string"}}}))
    .unwrap();
    let mut object = json!({"list": [{"n": 1}, {"s": null}], "map": {"a": {"n": null}}, "plain": null});
    schema.default(&mut object);
    assert_eq!(
        object,
        json!({"list": [{"n": 1, "s": "x"}, {"n": 7, "s": null}], "map": {"a": {"n": 7, "s": "x"}}, "made": {"n": 1}})
    );
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let schema = compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "closed": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "any": {"type": "object", "additionalProperties": true},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}}})).unwrap();
    let mut object = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x", "nom": "y"}, "stray": 1, "spec": {
        "open": {"free": 1, "closed": {"a": "1", "b": 2}}, "list": [{"a": "1"}, {"b": 2}], "any": {"b": 1},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {}}}});
    let unknown = schema.prune(&mut object);
    assert_eq!(unknown, ["metadata.nom", "spec.list[1].b", "spec.open.closed.b", "spec.template.status", "stray"]);
    assert_eq!(
        object,
        json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": {
        "open": {"free": 1, "closed": {"a": "1"}}, "list": [{"a": "1"}, {}], "any": {"b": 1},
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": {}}}})
    );
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2..9i64).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-e]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn schema() -> crate::schema::CrdVersionSchema {
    let inner = json!({"type": "object", "properties": {
        "a": {"type": "integer", "default": 3, "minimum": 0}, "b": {"type": "string", "maxLength": 2, "nullable": true},
        "c": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "boolean", "default": true}}}},
        "d": {"type": "object", "additionalProperties": {"type": "string"}}}});
    compile(&json!({"type": "object", "properties": {"a": inner, "b": inner, "c": {"type": "array", "items": inner},
        "d": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}))
    .unwrap()
}

proptest! {
    #[test]
    fn pruning_neither_makes_nor_hides_errors_and_leaves_nothing_to_prune(value in values()) {
        prop_assume!(value.is_object());
        let schema = schema();
        let mut pruned = value.clone();
        schema.prune(&mut pruned);
        prop_assert_eq!(schema.validate(&pruned, None), schema.validate(&value, None));
        let mut again = pruned.clone();
        prop_assert_eq!(schema.prune(&mut again), Vec::<String>::new());
        prop_assert_eq!(again, pruned);
    }

    #[test]
    fn defaulting_is_idempotent_and_keeps_what_is_right(value in values()) {
        prop_assume!(value.is_object());
        let schema = schema();
        let mut once = value.clone();
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.default(&mut twice);
        prop_assert_eq!(&twice, &once);
        if schema.validate(&value, None).is_empty() {
            prop_assert_eq!(schema.validate(&once, None), Vec::new());
        }
    }
}
