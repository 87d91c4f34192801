use super::*;
use serde_json::json;

/// The errors of a schema whose only field `x` has this schema.
fn errors(x: Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"x": x}});
    compile_at(&schema, "S").err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn schemas_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<CrdVersionSchema>();
}

#[test]
fn the_root_is_an_object() {
    let of = |schema| compile(&schema).unwrap_err()[0].to_string();
    assert_eq!(of(json!({})), "openAPIV3Schema.type: Required value: must not be empty at the root");
    assert_eq!(
        of(json!({"type": "array", "items": {"type": "string"}})),
        r#"openAPIV3Schema.type: Invalid value: "array": must be object at the root"#
    );
}

#[test]
fn what_is_not_structural_is_refused() {
    let rows = [
        (json!({}), "S.properties[x].type: Required value: must not be empty for specified object fields"),
        (
            json!({"type": "array", "items": {}}),
            "S.properties[x].items.type: Required value: must not be empty for specified array items",
        ),
        (json!({"type": "array"}), "S.properties[x].items: Required value: must be specified"),
        (
            json!({"type": "text"}),
            r#"S.properties[x].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ),
        (json!({"type": "object", "$ref": "#/x"}), "S.properties[x].$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "object", "additionalProperties": false}),
            "S.properties[x].additionalProperties: Forbidden: additionalProperties cannot be set to false",
        ),
        (
            json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
            "S.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            "S.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "string", "anyOf": [{"default": "y"}]}),
            "S.properties[x].anyOf[0].default: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            "S.properties[x].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "not": {"properties": {"y": {"maximum": 1}}}}),
            "S.properties[x].properties[y]: Required value: because it is defined in S.properties[x].not.properties[y]",
        ),
        (
            json!({"type": "string", "pattern": "["}),
            r#"S.properties[x].pattern: Invalid value: "[": must be a valid regular expression, but isn't:"#,
        ),
        (
            json!({"type": "integer", "default": "y"}),
            r#"S.properties[x].default: Invalid value: "string": S.properties[x].default in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "object", "default": {"y": 1}}),
            r#"S.properties[x].default: Invalid value: {"y":1}: must not have unknown fields"#,
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "set"}),
            r#"S.properties[x].type: Invalid value: "set": must be array if x-kubernetes-list-type is specified"#,
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            "S.properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            "S.properties[x].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
    ];
    for (schema, expected) in rows {
        let got = errors(schema.clone());
        assert!(got.first().is_some_and(|got| got.starts_with(expected)), "{schema}\n{expected}\n{got:#?}");
    }
}

#[test]
fn what_generators_write_is_structural() {
    let rows = [
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({"type": "string", "nullable": true, "enum": ["A", "B", null], "default": "A"}),
        json!({"type": "object", "additionalProperties": {"type": "integer", "format": "uint32", "minimum": 0.0}}),
    ];
    for schema in rows {
        assert_eq!(errors(schema.clone()), Vec::<String>::new(), "{schema}");
    }
}

#[test]
fn metadata_may_only_have_its_name_restricted() {
    let schema = |metadata| json!({"type": "object", "properties": {"metadata": metadata}});
    assert!(compile(&schema(json!({"type": "object", "properties": {"name": {"type": "string"}}}))).is_ok());
    let errors = compile(&schema(json!({"type": "object", "properties": {"labels": {"type": "object"}}}))).unwrap_err();
    assert!(errors[0].message.starts_with("Forbidden: must not specify anything other than name and generateName"));
}

#[test]
fn list_keys_come_from_the_schema() {
    use crate::patch::{ApplyRule, Shape};
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "p": {"type": "string", "default": "TCP"}}}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "one": {"type": "object", "x-kubernetes-map-type": "atomic"},
        "labels": {"type": "object", "additionalProperties": {"type": "object"}}}}}});
    let keys = compile(&schema).unwrap().list_keys();
    let spec = keys.root().child("spec");
    let apply = |field: &str| spec.child(field).apply.clone();
    assert_eq!(apply("ports"), ApplyRule::Map(vec![("n".into(), None), ("p".into(), Some("TCP".into()))]));
    assert_eq!((apply("tags"), apply("one")), (ApplyRule::Set, ApplyRule::Atomic));
    assert!(spec.child("labels").is_data_key("any"));
    let owners: std::sync::Arc<Shape> = keys.root().child("metadata").child("ownerReferences");
    assert!(matches!(owners.apply, ApplyRule::Map(_)));
}
