//! OpenAPI documents: as much as kubectl reads. Truthful and no more: schemas of custom kinds are theirs, built-in
//! kinds are objects whose fields are not listed.
//!
//! kubectl looks for the `fieldValidation` parameter of PATCH, by which it leaves validation to the server, and
//! `explain` looks for a schema by its `x-kubernetes-group-version-kind`.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::discovery::of;
use super::{Server, respond};
use crate::kinds::{Kind, api_version};

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn schema_name(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { &kind.group };
    let group: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

fn collection_path(kind: &Kind) -> String {
    let root =
        if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/{}", kind.group, kind.version) };
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("{root}{scope}/{}", kind.plural)
}

fn schema(kind: &Kind) -> Value {
    let mut schema = match &kind.custom {
        Some(custom) if custom.openapi.is_object() => custom.openapi.clone(),
        _ => json!({"type": "object", "description": format!("{} as Kubernetes 1.36 defines it.", kind.kind),
            "x-kubernetes-preserve-unknown-fields": true}),
    };
    schema["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
    let properties = &mut schema["properties"];
    for (field, what) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        if properties[field].is_null() {
            properties[field] = json!({"type": what});
        }
    }
    schema
}

fn parameter(name: &str, v3: bool) -> Value {
    let mut parameter = json!({"name": name, "in": "query", "uniqueItems": true});
    if v3 {
        parameter["schema"] = json!({"type": "string", "uniqueItems": true});
    } else {
        parameter["type"] = "string".into();
    }
    parameter
}

fn operations(kind: &Kind, v3: bool) -> (Value, Value) {
    let parameters: Vec<Value> =
        ["dryRun", "fieldManager", "fieldValidation"].iter().map(|name| parameter(name, v3)).collect();
    let operation = |action: &str| {
        json!({"parameters": parameters, "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(kind)})
    };
    let one = json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch"),
        "delete": operation("delete")});
    (json!({"get": operation("list"), "post": operation("post")}), one)
}

fn paths(kinds: &[std::sync::Arc<Kind>], v3: bool) -> Value {
    let mut paths = Map::new();
    for kind in kinds.iter().filter(|kind| !kind.review) {
        let (all, one) = operations(kind, v3);
        let path = collection_path(kind);
        paths.insert(format!("{path}/{{name}}"), one);
        paths.insert(path, all);
    }
    Value::Object(paths)
}

fn info() -> Value {
    json!({"title": "Coregent", "version": concat!("v", env!("CARGO_PKG_VERSION"))})
}

/// `/openapi/v3`: where the documents are.
pub(super) fn v3_index(server: &Server) -> Value {
    let mut paths = Map::new();
    for (group, versions) in server.kinds.groups() {
        for version in versions {
            let path = if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/{version}") };
            let at = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
            paths.insert(path, at);
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/<group version>`.
pub(super) fn v3(server: &Server, group: &str, version: &str) -> Option<Value> {
    let kinds = of(server, group, version);
    if kinds.is_empty() {
        return None;
    }
    let schemas: Map<String, Value> = kinds.iter().map(|kind| (schema_name(kind), schema(kind))).collect();
    let title = api_version(group, version);
    let mut document = json!({"openapi": "3.0.0", "info": info(), "paths": paths(&kinds, true),
        "components": {"schemas": schemas}});
    document["info"]["description"] = title.into();
    Some(document)
}

/// `/openapi/v2`. kubectl reads it as protobuf only; it falls back to nothing when it gets JSON.
pub(super) fn v2(server: &Server, accept: &str) -> Response {
    if !accept.is_empty() && !accept.contains("json") && !accept.contains("*/*") {
        return respond::text(406, "only application/json is served");
    }
    let kinds = server.kinds.all();
    let definitions: Map<String, Value> = kinds.iter().map(|kind| (schema_name(kind), schema(kind))).collect();
    let document = json!({"swagger": "2.0", "info": info(), "paths": paths(&kinds, false), "definitions": definitions});
    respond::json(200, document.to_string())
}
