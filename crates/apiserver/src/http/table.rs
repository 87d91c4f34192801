//! `Table` answers: what `kubectl get` prints, made by the server.

use serde_json::{Value, json};

use super::Call;
use crate::kinds::{Cell, Column, Kind, jsonpath};
use crate::store::Stored;
use crate::time;

/// What Kubernetes says of a name.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources \
    may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for \
    creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

/// `columnDefinitions`: the name, then the kind's own columns.
pub(super) fn definitions(kind: &Kind) -> Vec<Value> {
    let name = definition("Name", "string", "name", NAME, 0);
    // Events are listed by when they were seen, not by name.
    let name = (&*kind.resource != "/events").then_some(name);
    let own =
        |column: &Column| definition(&column.name, &column.kind, &column.format, &column.description, column.priority);
    name.into_iter().chain(kind.columns.iter().map(own)).collect()
}

fn cell(column: &Column, object: &Value) -> Value {
    match &column.cell {
        Cell::Of(compute) => compute(object),
        Cell::Age(path) => match jsonpath::first(object, path).and_then(Value::as_str) {
            Some(stamp) => time::age(stamp).into(),
            None => "<unknown>".into(),
        },
        Cell::Path(path) => match (jsonpath::first(object, path), column.kind.as_str()) {
            (None, "string") if column.description.is_empty() => "".into(),
            (None | Some(Value::Null), _) => Value::Null,
            (Some(value @ (Value::Number(_) | Value::Bool(_))), "integer" | "number" | "boolean") => value.clone(),
            (Some(value), _) => jsonpath::text(value).into(),
        },
    }
}

/// One row. What travels with it is metadata alone unless the client asks otherwise by `includeObject`.
pub(super) fn row(kind: &Kind, include: Option<&str>, stored: &Stored) -> Value {
    let object = &stored.value();
    let name = (&*kind.resource != "/events").then(|| object["metadata"]["name"].clone());
    let cells: Vec<Value> = name.into_iter().chain(kind.columns.iter().map(|column| cell(column, object))).collect();
    let with = match include {
        Some("Object") => kind.to_served(Value::clone(object)),
        Some("None") => Value::Null,
        _ => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}),
    };
    json!({"cells": cells, "object": with})
}

/// A whole table.
pub(super) fn table<'s>(call: &Call, metadata: Value, items: impl Iterator<Item = &'s Stored>) -> Value {
    let kind = &call.target.kind;
    let rows: Vec<Value> = items.map(|item| row(kind, call.params.get("includeObject"), item)).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions(kind), "rows": rows})
}
