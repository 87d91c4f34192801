//! Compiles an OpenAPI v3 schema, as a CustomResourceDefinition carries it, and refuses what is not structural.
//!
//! The rules are those of the page "Specifying a structural schema" of the Kubernetes documentation.

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::{Additional, Checks, Node, Topology, Type};
use super::{CrdVersionSchema, cel, prune, validate};

/// How deep schemas may nest.
const MAX_DEPTH: usize = 100;

/// Compiles `openapi_v3_schema`; the errors' paths start with `openAPIV3Schema`.
pub fn compile(openapi_v3_schema: &Value) -> Result<CrdVersionSchema, Vec<FieldError>> {
    compile_at(openapi_v3_schema, "openAPIV3Schema")
}

/// Compiles a schema that stands at `path` of its definition.
pub fn compile_at(schema: &Value, path: &str) -> Result<CrdVersionSchema, Vec<FieldError>> {
    let mut compiler = Compiler { errors: Vec::new() };
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => {}
        Some(other) => {
            compiler.errors.push(FieldError::invalid(&at(path, "type"), &other.into(), "must be object at the root"));
        }
        None => compiler.errors.push(FieldError::required(&at(path, "type"), "must not be empty at the root")),
    }
    let mut root = compiler.node(schema, path, Place::Root, 0);
    compiler.metadata_is_left_alone(schema, path);
    // At the root these are implied, whatever a schema says about them.
    root.properties.remove("metadata");
    if compiler.errors.is_empty() { Ok(CrdVersionSchema { root }) } else { Err(compiler.errors) }
}

fn at(path: &str, name: &str) -> String {
    prune::join(path, name)
}

/// Where a schema stands, which decides whether it must say a type.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Field,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`, where only value checks may be.
    Nested,
}

struct Compiler {
    errors: Vec<FieldError>,
}

/// Keywords of JSON schema that the API does not have.
const UNSUPPORTED: &[&str] = &["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id"];

/// Keywords that shape a value and so may not stand inside `allOf` and its like.
const SHAPING: &[&str] = &[
    "additionalProperties",
    "default",
    "nullable",
    "description",
    "title",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    "x-kubernetes-int-or-string",
];

impl Compiler {
    fn node(&mut self, schema: &Value, path: &str, place: Place, depth: usize) -> Node {
        let Value::Object(schema) = schema else {
            self.errors.push(FieldError::invalid(path, schema, "must be a schema object"));
            return Node::default();
        };
        if depth > MAX_DEPTH {
            self.errors.push(FieldError::forbidden(path, &format!("schemas may nest {MAX_DEPTH} levels deep at most")));
            return Node::default();
        }
        self.check_keywords(schema, path, place);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
        let mut node = Node {
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            ..Node::default()
        };
        node.ty = self.ty(schema, &node, path, place);
        node.properties = self.properties(schema, path, place, depth);
        node.additional = self.additional(schema, path, place, depth);
        node.items = self.items(schema, path, place, depth);
        node.topology = self.topology(schema, &node, path);
        node.checks = self.checks(schema, path, depth);
        if place != Place::Nested {
            self.nested_fits(&node, path);
        }
        node.rules = self.rules(schema, path);
        node.default = self.default(schema, &node, path);
        node
    }

    fn check_keywords(&mut self, schema: &Map<String, Value>, path: &str, place: Place) {
        for name in UNSUPPORTED.iter().filter(|name| schema.contains_key(**name)) {
            self.errors.push(FieldError::forbidden(&at(path, name), &format!("{name} is not supported")));
        }
        if schema.get("uniqueItems").and_then(Value::as_bool) == Some(true) {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.errors.push(FieldError::forbidden(&at(path, "uniqueItems"), detail));
        }
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            let detail = "additionalProperties cannot be set to false";
            self.errors.push(FieldError::forbidden(&at(path, "additionalProperties"), detail));
        }
        if schema.contains_key("properties") && schema.contains_key("additionalProperties") {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.errors.push(FieldError::forbidden(&at(path, "additionalProperties"), detail));
        }
        if place == Place::Nested {
            for name in SHAPING.iter().filter(|name| schema.contains_key(**name)) {
                self.errors.push(FieldError::forbidden(&at(path, name), "must be empty to be structural"));
            }
        }
    }

    fn ty(&mut self, schema: &Map<String, Value>, node: &Node, path: &str, place: Place) -> Option<Type> {
        let path = at(path, "type");
        let Some(name) = schema.get("type").and_then(Value::as_str) else {
            let free = node.int_or_string || node.preserve_unknown;
            match place {
                Place::Field if !free => {
                    self.errors.push(FieldError::required(&path, "must not be empty for specified object fields"));
                }
                Place::Item if !free => {
                    self.errors.push(FieldError::required(&path, "must not be empty for specified array items"));
                }
                _ => {}
            }
            return None;
        };
        if node.int_or_string && place != Place::Nested {
            let detail = "must be empty if x-kubernetes-int-or-string is true";
            self.errors.push(FieldError::forbidden(&path, detail));
        }
        let ty = Type::parse(name);
        if ty.is_none() {
            let known = ["array", "boolean", "integer", "number", "object", "string"];
            self.errors.push(FieldError::not_supported(&path, &name.into(), known));
        }
        if node.embedded && ty != Some(Type::Object) {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            self.errors.push(FieldError::invalid(&path, &name.into(), detail));
        }
        ty
    }

    /// What `allOf` and its like say of parts must be said of parts that the structure has, and without types, but for
    /// the two halves of an int-or-string.
    fn nested_fits(&mut self, node: &Node, path: &str) {
        let checks = &node.checks;
        for (name, list) in [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)] {
            for (index, nested) in list.iter().enumerate() {
                self.fits(node, nested, path, &format!("{path}.{name}[{index}]"));
            }
        }
        if let Some(nested) = &checks.not {
            self.fits(node, nested, path, &at(path, "not"));
        }
    }

    fn fits(&mut self, node: &Node, nested: &Node, path: &str, nested_path: &str) {
        let half = node.int_or_string && matches!(nested.ty, Some(Type::Integer | Type::String));
        if nested.ty.is_some() && !half {
            self.errors.push(FieldError::forbidden(&at(nested_path, "type"), "must be empty to be structural"));
        }
        for (name, part) in &nested.properties {
            let (path, nested_path) =
                (format!("{path}.properties[{name}]"), format!("{nested_path}.properties[{name}]"));
            match node.child(name) {
                Some(node) => self.fits(node, part, &path, &nested_path),
                None => {
                    self.errors.push(FieldError::required(&path, &format!("because it is defined in {nested_path}")));
                }
            }
        }
        if let Some(part) = &nested.items {
            let (path, nested_path) = (at(path, "items"), at(nested_path, "items"));
            match &node.items {
                Some(node) => self.fits(node, part, &path, &nested_path),
                None => {
                    self.errors.push(FieldError::required(&path, &format!("because it is defined in {nested_path}")));
                }
            }
        }
        let deeper = &nested.checks;
        for (name, list) in [("allOf", &deeper.all_of), ("anyOf", &deeper.any_of), ("oneOf", &deeper.one_of)] {
            for (index, nested) in list.iter().enumerate() {
                self.fits(node, nested, path, &format!("{nested_path}.{name}[{index}]"));
            }
        }
        if let Some(nested) = &deeper.not {
            self.fits(node, nested, path, &at(nested_path, "not"));
        }
    }

    fn properties(
        &mut self,
        schema: &Map<String, Value>,
        path: &str,
        place: Place,
        depth: usize,
    ) -> std::collections::BTreeMap<String, Node> {
        let place = if place == Place::Nested { place } else { Place::Field };
        let properties = schema.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| {
                let path = format!("{path}.properties[{name}]");
                (name.clone(), self.node(schema, &path, place, depth + 1))
            })
            .collect()
    }

    fn additional(
        &mut self,
        schema: &Map<String, Value>,
        path: &str,
        place: Place,
        depth: usize,
    ) -> Option<Additional> {
        match schema.get("additionalProperties")? {
            Value::Bool(true) => Some(Additional::Any),
            Value::Bool(false) => None,
            values => {
                let place = if place == Place::Nested { place } else { Place::Field };
                let values = self.node(values, &at(path, "additionalProperties"), place, depth + 1);
                Some(Additional::Schema(Box::new(values)))
            }
        }
    }

    fn items(&mut self, schema: &Map<String, Value>, path: &str, place: Place, depth: usize) -> Option<Box<Node>> {
        let path = at(path, "items");
        match schema.get("items") {
            Some(Value::Array(_)) => {
                let detail = "items must be a schema object and not an array";
                self.errors.push(FieldError::forbidden(&path, detail));
                None
            }
            Some(items) => {
                let place = if place == Place::Nested { place } else { Place::Item };
                Some(Box::new(self.node(items, &path, place, depth + 1)))
            }
            None if place != Place::Nested && schema.get("type").and_then(Value::as_str) == Some("array") => {
                self.errors.push(FieldError::required(&path, "must be specified"));
                None
            }
            None => None,
        }
    }

    fn topology(&mut self, schema: &Map<String, Value>, node: &Node, path: &str) -> Topology {
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        let keys: Vec<String> = strings(schema.get("x-kubernetes-list-map-keys"));
        let list_path = at(path, "x-kubernetes-list-type");
        let keys_path = at(path, "x-kubernetes-list-map-keys");
        if let Some(ty) = text("x-kubernetes-list-type").filter(|_| node.ty != Some(Type::Array)) {
            let detail = "must be array if x-kubernetes-list-type is specified";
            self.errors.push(FieldError::invalid(&at(path, "type"), &ty.into(), detail));
        }
        if !keys.is_empty() && text("x-kubernetes-list-type") != Some("map") {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            self.errors.push(FieldError::invalid(&list_path, &text("x-kubernetes-list-type").into(), detail));
        }
        match (text("x-kubernetes-list-type"), text("x-kubernetes-map-type")) {
            (Some("atomic"), _) | (None, Some("atomic")) => Topology::Atomic,
            (Some("set"), _) => {
                if node.items.as_ref().is_some_and(|items| items.nullable) {
                    let detail = "cannot be nullable when x-kubernetes-list-type is set";
                    self.errors.push(FieldError::forbidden(&at(path, "items.nullable"), detail));
                }
                Topology::Set
            }
            (Some("map"), _) => {
                if keys.is_empty() {
                    let detail = "must not be empty if x-kubernetes-list-type is map";
                    self.errors.push(FieldError::required(&keys_path, detail));
                }
                self.map_keys(&keys, node, path);
                Topology::Map(keys)
            }
            (Some(other), _) => {
                self.errors.push(FieldError::not_supported(&list_path, &other.into(), ["atomic", "set", "map"]));
                Topology::Default
            }
            (None, None | Some("granular")) => Topology::Default,
            (None, Some(other)) => {
                let path = at(path, "x-kubernetes-map-type");
                self.errors.push(FieldError::not_supported(&path, &other.into(), ["atomic", "granular"]));
                Topology::Default
            }
        }
    }

    fn map_keys(&mut self, keys: &[String], node: &Node, path: &str) {
        let Some(items) = node.items.as_ref() else { return };
        for key in keys {
            let Some(field) = items.properties.get(key) else {
                let path = at(path, "x-kubernetes-list-map-keys");
                let detail = "entries must all be names of item properties";
                self.errors.push(FieldError::invalid(&path, &key.as_str().into(), detail));
                continue;
            };
            if matches!(field.ty, Some(Type::Object | Type::Array)) {
                let path = format!("{path}.items.properties[{key}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                self.errors.push(FieldError::invalid(&path, &field.ty.map(Type::name).into(), detail));
            }
            if field.default.is_none() && !items.checks.required.contains(key) {
                let path = format!("{path}.items.properties[{key}].default");
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.errors.push(FieldError::required(&path, detail));
            }
        }
    }

    fn checks(&mut self, schema: &Map<String, Value>, path: &str, depth: usize) -> Checks {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let length = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
        let format = schema.get("format").and_then(Value::as_str).map(str::to_owned);
        Checks {
            format,
            allowed: schema.get("enum").and_then(Value::as_array).cloned(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf").filter(|factor| *factor != 0.0),
            min_length: length("minLength"),
            max_length: length("maxLength"),
            pattern: self.pattern(schema, path),
            min_items: length("minItems"),
            max_items: length("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: length("minProperties"),
            max_properties: length("maxProperties"),
            required: strings(schema.get("required")),
            all_of: self.nested(schema, "allOf", path, depth),
            any_of: self.nested(schema, "anyOf", path, depth),
            one_of: self.nested(schema, "oneOf", path, depth),
            not: schema
                .get("not")
                .map(|nested| Box::new(self.node(nested, &at(path, "not"), Place::Nested, depth + 1))),
        }
    }

    fn pattern(&mut self, schema: &Map<String, Value>, path: &str) -> Option<regex::Regex> {
        let pattern = schema.get("pattern")?.as_str()?;
        match regex::Regex::new(pattern) {
            Ok(regex) => Some(regex),
            Err(error) => {
                let detail = format!("must be a valid regular expression, but isn't: {error}");
                self.errors.push(FieldError::invalid(&at(path, "pattern"), &pattern.into(), &detail));
                None
            }
        }
    }

    fn nested(&mut self, schema: &Map<String, Value>, name: &str, path: &str, depth: usize) -> Vec<Node> {
        let list = schema.get(name).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .enumerate()
            .map(|(index, nested)| self.node(nested, &format!("{path}.{name}[{index}]"), Place::Nested, depth + 1))
            .collect()
    }

    fn rules(&mut self, schema: &Map<String, Value>, path: &str) -> Vec<cel::Rule> {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let mut compiled = Vec::new();
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            match cel::compile(rule, &format!("{path}.x-kubernetes-validations[{index}]")) {
                Ok(rule) => compiled.push(rule),
                Err(error) => self.errors.push(error),
            }
        }
        compiled
    }

    /// A default must be a value that the schema neither prunes nor refuses.
    fn default(&mut self, schema: &Map<String, Value>, node: &Node, path: &str) -> Option<Value> {
        let default = schema.get("default").filter(|default| !default.is_null())?;
        let path = at(path, "default");
        let mut filled = default.clone();
        super::default::apply(node, &mut filled);
        let unknown = prune::below(node, &mut filled.clone(), &path);
        if !unknown.is_empty() {
            self.errors.push(FieldError::invalid(&path, default, "must not have unknown fields"));
        }
        self.errors.extend(validate::check_default(node, &filled, &path));
        Some(default.clone())
    }

    /// The root's `metadata` may be mentioned, and its name be restricted, but not more.
    fn metadata_is_left_alone(&mut self, schema: &Value, path: &str) {
        let Some(metadata) = schema.pointer("/properties/metadata").and_then(Value::as_object) else { return };
        let path = format!("{path}.properties[metadata]");
        for name in metadata.keys().filter(|name| !matches!(name.as_str(), "type" | "properties" | "description")) {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.errors.push(FieldError::forbidden(&at(&path, name), detail));
        }
        let properties = metadata.get("properties").and_then(Value::as_object);
        for (name, _) in properties.into_iter().flatten() {
            if !matches!(name.as_str(), "name" | "generateName") {
                let detail =
                    "must not specify anything other than name and generateName, but metadata is implicitly specified";
                self.errors.push(FieldError::forbidden(&format!("{path}.properties[{name}]"), detail));
            }
        }
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
