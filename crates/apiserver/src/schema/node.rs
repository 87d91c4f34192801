//! A structural schema in the form the other modules walk.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::cel::Rule;
use crate::patch::Shape;
use crate::patch::{ApplyRule, metadata_shape};

/// The JSON type a schema asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    /// Whether a value has this type. A number without a fraction counts as an integer, as in Kubernetes.
    pub fn holds(self, value: &Value) -> bool {
        match self {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::String => value.is_string(),
            Type::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
        }
    }
}

/// `x-kubernetes-list-type` and `x-kubernetes-map-type`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Topology {
    /// Objects merge by field, lists are one value.
    #[default]
    Default,
    /// One value.
    Atomic,
    /// A list of distinct values.
    Set,
    /// A list of objects told apart by these fields.
    Map(Vec<String>),
}

/// What a map's values, or an object's undeclared fields, may be.
#[derive(Debug)]
pub enum Additional {
    /// `additionalProperties: true`.
    Any,
    /// `additionalProperties: {…}`.
    Schema(Box<Node>),
}

/// The schema at one place. Inside `allOf`, `anyOf`, `oneOf` and `not` only the value checks are set.
#[derive(Debug, Default)]
pub struct Node {
    pub ty: Option<Type>,
    pub nullable: bool,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    pub embedded: bool,
    pub topology: Topology,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Node>,
    pub additional: Option<Additional>,
    pub items: Option<Box<Node>>,
    pub rules: Vec<Rule>,
    pub checks: Checks,
}

/// The checks of a value that do not shape it.
#[derive(Debug, Default)]
pub struct Checks {
    pub format: Option<String>,
    pub allowed: Option<Vec<Value>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Regex>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
}

impl Node {
    /// The schema of a field or of a map's value.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        })
    }

    /// The values of the keys that identify an element of a list-map, with the schema's defaults filled in.
    pub fn keys_of<'a>(&'a self, keys: &[String], element: &'a Value) -> Vec<Option<&'a Value>> {
        let default = |key: &String| self.items.as_ref()?.properties.get(key)?.default.as_ref();
        keys.iter().map(|key| element.get(key).or_else(|| default(key))).collect()
    }
}

/// The merge rules of the whole object: the schema's, and the usual ones of `metadata`.
pub fn root_shape(root: &Node) -> Shape {
    let mut shape = shape(root);
    shape.fields.insert("metadata".to_owned(), metadata_shape());
    shape.keys_are_data = false;
    shape
}

fn shape(node: &Node) -> Shape {
    let apply = match &node.topology {
        Topology::Default => ApplyRule::Default,
        Topology::Atomic => ApplyRule::Atomic,
        Topology::Set => ApplyRule::Set,
        Topology::Map(keys) => {
            let default = |key: &String| node.items.as_ref()?.properties.get(key)?.default.clone();
            ApplyRule::Map(keys.iter().map(|key| (key.clone(), default(key))).collect())
        }
    };
    let mut fields: BTreeMap<String, Arc<Shape>> =
        node.properties.iter().map(|(name, child)| (name.clone(), Arc::new(shape(child)))).collect();
    if node.embedded {
        fields.insert("metadata".to_owned(), metadata_shape());
    }
    let items = match (&node.items, &node.additional) {
        (Some(items), _) => Some(Arc::new(shape(items))),
        (None, Some(Additional::Schema(values))) => Some(Arc::new(shape(values))),
        _ => None,
    };
    let keys_are_data = node.additional.is_some() || node.preserve_unknown;
    Shape { apply, fields, items, keys_are_data, ..Shape::default() }
}
