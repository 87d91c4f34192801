//! What a CustomResourceDefinition adds to the table.

use std::sync::Arc;

use serde_json::Value;

use super::columns::{Cell, Column};
use super::{Generation, Kind, Scale, api_version};
use crate::patch::ListKeys;
use crate::schema::CrdVersionSchema;

/// The part of a custom kind that comes from its definition.
#[derive(Debug)]
pub(crate) struct CustomKind {
    /// The name of the CustomResourceDefinition.
    pub definition: String,
    /// `spec.versions[].schema.openAPIV3Schema`.
    pub openapi: Value,
    /// The same, compiled. Absent only if the definition was stored by a version with other rules.
    pub schema: Option<CrdVersionSchema>,
    /// How its lists are merged.
    pub keys: ListKeys,
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn string(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The version in which a definition's objects are stored.
pub(crate) fn storage_version(definition: &Value) -> Option<String> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let stored = versions.iter().find(|version| version["storage"] == true)?;
    stored["name"].as_str().map(str::to_owned)
}

/// One row for each served version.
pub(crate) fn kinds_of(definition: &Value) -> Vec<Kind> {
    let group = string(definition, "/spec/group");
    let plural = string(definition, "/spec/names/plural");
    let kind = string(definition, "/spec/names/kind");
    let stored = storage_version(definition).unwrap_or_default();
    let or = |text: String, other: String| if text.is_empty() { other } else { text };
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice);
    let served = versions.unwrap_or_default().iter().filter(|version| version["served"] == true);
    served
        .map(|version| {
            let openapi = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
            let schema = crate::schema::compile(&openapi).ok();
            let status = version.pointer("/subresources/status").is_some_and(|status| !status.is_null());
            Kind {
                version: string(version, "/name"),
                list_kind: or(string(definition, "/spec/names/listKind"), format!("{kind}List")),
                singular: or(string(definition, "/spec/names/singular"), kind.to_lowercase()),
                short_names: strings(definition.pointer("/spec/names/shortNames")),
                categories: strings(definition.pointer("/spec/names/categories")),
                namespaced: definition.pointer("/spec/scope").is_some_and(|scope| scope == "Namespaced"),
                status,
                scale: version.pointer("/subresources/scale").filter(|scale| scale.is_object()).map(|scale| Scale {
                    spec_replicas: string(scale, "/specReplicasPath"),
                    status_replicas: string(scale, "/statusReplicasPath"),
                    selector: Some(string(scale, "/labelSelectorPath")).filter(|path| !path.is_empty()),
                }),
                generation: Generation::Spec,
                resource: Arc::from(format!("{group}/{plural}")),
                stored_as: api_version(&group, &stored),
                columns: columns_of(version),
                selectable: selectable_of(version),
                custom: Some(CustomKind {
                    definition: string(definition, "/metadata/name"),
                    keys: schema.as_ref().map_or_else(ListKeys::untyped, CrdVersionSchema::list_keys),
                    openapi,
                    schema,
                }),
                review: false,
                group: group.clone(),
                plural: plural.clone(),
                kind: kind.clone(),
            }
        })
        .collect()
}

fn columns_of(version: &Value) -> Vec<Column> {
    let asked = version["additionalPrinterColumns"].as_array().filter(|columns| !columns.is_empty());
    let Some(asked) = asked else { return vec![Column::age()] };
    let column = |column: &Value| Column {
        name: string(column, "/name"),
        kind: string(column, "/type"),
        format: string(column, "/format"),
        description: Some(string(column, "/description")).filter(|text| !text.is_empty()).unwrap_or_else(|| {
            format!("Custom resource definition column (in JSONPath format): {}", string(column, "/jsonPath"))
        }),
        priority: column["priority"].as_i64().unwrap_or(0),
        cell: match (column["type"].as_str(), string(column, "/jsonPath")) {
            (Some("date"), path) => Cell::Age(path),
            (_, path) => Cell::Path(path),
        },
    };
    asked.iter().map(column).collect()
}

fn selectable_of(version: &Value) -> Vec<(String, String)> {
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let paths = fields.iter().map(|field| string(field, "/jsonPath"));
    paths.map(|path| (path.trim_start_matches('.').to_owned(), path)).collect()
}
