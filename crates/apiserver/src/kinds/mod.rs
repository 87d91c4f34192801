//! The table of kinds: everything that the generic routes need to know of a kind is a row of it.

mod builtin;
mod columns;
mod crd;
pub(crate) mod events;
pub(crate) mod jsonpath;
mod registry;

/// Where CustomResourceDefinitions lie in the store.
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

use std::sync::Arc;

use serde_json::Value;

pub(crate) use columns::{Cell, Column};
pub(crate) use crd::{CustomKind, storage_version};
pub(crate) use registry::Registry;

/// When `metadata.generation` grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Never set: data kinds.
    None,
    /// With each change outside `metadata` and `status`.
    Spec,
}

/// What the `scale` subresource reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub selector: Option<String>,
}

/// One row: a kind in one version.
#[derive(Debug)]
pub(crate) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Whether there is a `status` subresource, so that writes of the object itself leave `status` alone.
    pub status: bool,
    pub scale: Option<Scale>,
    pub generation: Generation,
    /// Where its objects lie in the store: `<group>/<plural>`. Events of both groups share one place.
    pub resource: Arc<str>,
    /// The `apiVersion` under which objects are stored.
    pub stored_as: String,
    pub columns: Vec<Column>,
    /// Paths that field selectors may name beside `metadata.name` and `metadata.namespace`: label and stored path.
    pub selectable: Vec<(String, String)>,
    /// What a CustomResourceDefinition says of it.
    pub custom: Option<CustomKind>,
    /// Served by a handler of its own: create only, nothing stored (reviews).
    pub review: bool,
}

impl Kind {
    /// `v1` or `<group>/<version>`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The name that messages use: `statefulsets.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The stored form of an object that came in as this kind.
    pub fn to_stored(&self, object: Value) -> Value {
        if self.group == "events.k8s.io" { events::to_core(object) } else { self.stamp(object, &self.stored_as) }
    }

    /// Whether stored objects are served as they are.
    pub fn served_as_stored(&self) -> bool {
        self.api_version() == self.stored_as
    }

    /// The form in which this kind serves a stored object.
    pub fn to_served(&self, object: Value) -> Value {
        if self.served_as_stored() {
            object
        } else if self.group == "events.k8s.io" {
            events::to_events_v1(object)
        } else {
            self.stamp(object, &self.api_version())
        }
    }

    fn stamp(&self, mut object: Value, api_version: &str) -> Value {
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), Value::String(api_version.to_owned()));
            map.insert("kind".into(), Value::String(self.kind.clone()));
        }
        object
    }
}

/// `v1` or `<group>/<version>`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
