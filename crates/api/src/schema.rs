//! Pieces of OpenAPI schema that schemars cannot derive, and the last touch on a generated definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// An object of which every field is kept as it was written.
pub fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of objects of which every field is kept as it was written.
pub fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// A list of objects that are told apart by `name`, for example environment variables.
pub fn named_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// Settings of an engine: a map of names to strings or whole numbers.
pub fn settings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": true},
    })
}

/// `meta/v1` LabelSelector.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string"},
                        "values": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
    })
}

/// As [`label_selector`], of labels that a pod template must have too; the bounds keep the rule that says so cheap.
pub fn pod_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = label_selector(generator);
    schema.insert(
        "properties".to_owned(),
        serde_json::json!({
            "matchLabels": {
                "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": schema.pointer("/properties/matchExpressions"),
        }),
    );
    schema
}

/// A PodTemplateSpec, of which rules must see the labels.
pub fn pod_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "metadata": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
                },
            },
        },
    })
}

/// A core Service, of which rules must see the ports. A real API server takes no rule that compares many more.
pub fn service(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "ports": {
                        "type": "array",
                        "maxItems": 32,
                        "items": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "required": ["port"],
                            "properties": {
                                "name": {"type": "string", "maxLength": 63},
                                "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
                                "protocol": {"type": "string", "maxLength": 8},
                            },
                        },
                        "x-kubernetes-validations": [
                            {
                                "rule": "self.all(a, self.exists_one(b, b.port == a.port && \
                                    (has(b.protocol) ? b.protocol : 'TCP') == (has(a.protocol) ? a.protocol : 'TCP')))",
                                "message": "ports collide: each port and protocol can be served once",
                            },
                            {
                                "rule": "self.size() < 2 || self.all(a, has(a.name) && \
                                    self.exists_one(b, has(b.name) && b.name == a.name))",
                                "message": "ports collide: with more than one port each needs a name of its own",
                            },
                        ],
                    },
                },
            },
        },
    })
}

/// A whole number from 1 up, or a percentage from 1 to 100: the bound speaks of numbers only, the pattern of strings.
pub fn count_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "minimum": 1, "pattern": "^([1-9][0-9]?|100)%$"})
}

/// A list of `meta/v1` Conditions, merged by type.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string"},
                "observedGeneration": {"type": "integer", "format": "int64"},
                "reason": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string"},
            },
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// A moment, RFC 3339.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// A Kubernetes quantity written as a string, for example `1Gi`.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$",
    })
}

/// A duration as Kubernetes and Go write it, for example `30s` or `1m30s`.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"})
}

/// An epoch of a Lease: a whole number that only grows.
pub fn epoch(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0})
}

/// `coregent_core::operation::BlockingOperation`. Its ids are not an enum here, so that a status which a newer version
/// wrote can still be read by people.
pub fn blocking_operation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["operationId", "stepId", "id", "startedAt", "deadline", "attempt"],
        "properties": {
            "operationId": {"type": "string", "description": "CamelCase id of the operation."},
            "stepId": {"type": "string", "description": "CamelCase id of the step within it."},
            "id": {"type": "string", "description": "Names this very start; clearing needs it."},
            "startedAt": {"type": "string", "description": "When the step was started."},
            "deadline": {"type": "string", "description": "When it counts as timed out."},
            "attempt": {"type": "integer", "format": "int64", "minimum": 0, "description": "1 for the first try."},
            "subject": {"type": "string", "description": "The member that it is about."},
            "epoch": {"type": "integer", "format": "int64", "minimum": 0, "description": "Epoch that it was decided at."},
            "reason": {"type": "string", "description": "Why it was started, one CamelCase word."},
            "message": {"type": "string", "description": "What a person should know about its end or its delay."},
            "outcome": {"type": "string", "description": "How it ended; absent while it is active, save TimedOut."},
        },
    })
}

/// Removes what a derived definition has and ours do not want: `nullable` (an explicit `null` is a mistake that is
/// worth an error, and no writer of ours sends one) and empty lists that the API server would drop anyway.
#[must_use]
pub fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            refuse_null(root);
        }
    }
    crd
}

fn refuse_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        refuse_null(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => refuse_null(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(refuse_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        refuse_null(value);
    }
}
