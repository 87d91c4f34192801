//! What a merge has to know about an object's type: which lists are sets or maps (and by which keys), which objects
//! are replaced as a whole, which keys are data rather than field names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::list_table;

/// The merge rules of one kind. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ListKeys(pub(crate) Arc<Shape>);

impl ListKeys {
    /// The rules of a built-in kind; a kind without a row has only the rules of `metadata`.
    pub fn builtin(group: &str, kind: &str) -> ListKeys {
        ListKeys(list_table::shape_of(group, kind))
    }

    /// The rules of an object whose type is not known: objects merge by key, lists are replaced.
    pub fn untyped() -> ListKeys {
        ListKeys(list_table::untyped_root())
    }

    /// Rules built elsewhere (from the schema of a custom resource).
    pub fn from_shape(shape: Shape) -> ListKeys {
        ListKeys(Arc::new(shape))
    }

    /// The rules at the root of the object.
    pub fn root(&self) -> &Arc<Shape> {
        &self.0
    }
}

/// The merge rules at one place of an object.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// How server-side apply treats the value here (`x-kubernetes-list-type`, `x-kubernetes-map-type`).
    pub apply: ApplyRule,
    /// How a strategic merge patch treats it (`patchStrategy`, `patchMergeKey`).
    pub strategic: StrategicRule,
    /// Rules of the named fields. A field without an entry has the default rules.
    pub fields: BTreeMap<String, Arc<Shape>>,
    /// Rules of the values of a map, or of the elements of a list.
    pub items: Option<Arc<Shape>>,
    /// Whether keys without an entry in `fields` are data (labels of a map) rather than fields that the type declares.
    /// A map's keys are owned one by one, also when they hold objects.
    pub keys_are_data: bool,
}

/// How server-side apply merges a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ApplyRule {
    /// Objects are merged field by field; a list is one value.
    #[default]
    Default,
    /// The value, whatever it is, has one owner as a whole.
    Atomic,
    /// A list of distinct scalars, each with its own owners.
    Set,
    /// A list of objects told apart by these keys; the value is used where an element lacks the key.
    Map(Vec<(String, Option<Value>)>),
}

/// How a strategic merge patch merges a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StrategicRule {
    /// Objects are merged, lists replaced.
    #[default]
    Default,
    /// The patch's value replaces the present one even if it is an object.
    Replace,
    /// A list of objects merged by this key.
    MergeBy(String),
    /// A list of scalars, merged as a set.
    MergeScalars,
}

impl Shape {
    /// The rules of the field or map key `name`.
    pub fn child(&self, name: &str) -> Arc<Shape> {
        match self.fields.get(name) {
            Some(shape) => Arc::clone(shape),
            None if self.keys_are_data => self.items.clone().unwrap_or_else(list_table::untyped),
            None => list_table::plain(),
        }
    }

    /// Whether `name` is a key of a map rather than a declared field.
    pub fn is_data_key(&self, name: &str) -> bool {
        self.keys_are_data && !self.fields.contains_key(name)
    }

    /// The rules of a list's elements.
    pub fn element(&self) -> Arc<Shape> {
        self.items.clone().unwrap_or_else(list_table::plain)
    }

    /// The keys of a list-map's element, with defaults filled in; the name of the first key that is missing otherwise.
    pub fn key_of<'a>(&'a self, element: &Value) -> Option<Result<Map<String, Value>, &'a str>> {
        let ApplyRule::Map(keys) = &self.apply else { return None };
        let mut found = Map::new();
        for (name, default) in keys {
            match element.get(name).filter(|value| !value.is_null()).or(default.as_ref()) {
                Some(value) => found.insert(name.clone(), value.clone()),
                None => return Some(Err(name)),
            };
        }
        Some(Ok(found))
    }
}
