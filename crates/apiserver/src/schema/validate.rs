//! Validation of a value against a schema, with the error texts of the Kubernetes API server.

use serde_json::{Map, Value, json};

use super::error::FieldError;
use super::formats;
use super::node::{Checks, Node, Topology, Type};
use super::prune::join;
use crate::patch::kind_of;

/// Validates a whole object; `apiVersion`, `kind` and `metadata` are checked elsewhere.
pub fn root(node: &Node, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(node, new, old, "", &mut errors);
    errors
}

fn walk(node: &Node, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    // What did not change is not held against an update (Kubernetes calls this ratcheting).
    if old == Some(value) || (value.is_null() && node.nullable) {
        return;
    }
    if let Some(error) = wrong_type(node, value, path) {
        errors.push(error);
        return;
    }
    check_value(&node.checks, value, path, errors);
    if let (true, Value::Object(fields)) = (node.embedded, value) {
        let missing = |name: &&str| fields.get(*name).and_then(Value::as_str).is_none_or(str::is_empty);
        let said = ["apiVersion", "kind"];
        errors.extend(said.iter().filter(|name| missing(name)).map(|name| FieldError::required(&join(path, name), "")));
    }
    match value {
        Value::Object(fields) => walk_fields(node, fields, old, path, errors),
        Value::Array(list) => {
            check_topology(node, list, path, errors);
            let Some(items) = &node.items else { return };
            let old = old.and_then(Value::as_array);
            for (index, item) in list.iter().enumerate() {
                let old = old.and_then(|old| counterpart(node, item, index, old));
                walk(items, item, old, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
    for nested in &node.checks.all_of {
        walk(nested, value, old, path, errors);
    }
    check_alternatives(&node.checks, value, path, errors);
}

fn walk_fields(
    node: &Node,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for name in node.checks.required.iter().filter(|name| !fields.contains_key(*name)) {
        errors.push(FieldError::required(&join(path, name), ""));
    }
    for (name, value) in fields {
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind") {
            continue;
        }
        if let Some(child) = node.child(name) {
            let old = old.and_then(|old| old.get(name));
            walk(child, value, old, &join(path, name), errors);
        }
    }
}

/// The element of the old list that an element is compared with: by keys in a list-map, by place otherwise.
fn counterpart<'a>(node: &Node, item: &Value, index: usize, old: &'a [Value]) -> Option<&'a Value> {
    match &node.topology {
        Topology::Map(keys) => {
            let wanted = node.keys_of(keys, item);
            old.iter().find(|other| node.keys_of(keys, other) == wanted)
        }
        _ => old.get(index),
    }
}

fn wrong_type(node: &Node, value: &Value, path: &str) -> Option<FieldError> {
    let wrong = |wanted: &str| {
        let got = kind_of(value);
        let detail = format!("{} in body must be of type {wanted}: {got:?}", path);
        Some(FieldError::type_invalid(path, &json!(got), &detail))
    };
    if node.int_or_string {
        let holds = Type::Integer.holds(value) || value.is_string();
        return if holds { None } else { wrong("integer,string") };
    }
    match node.ty {
        Some(ty) if !ty.holds(value) => wrong(ty.name()),
        _ => None,
    }
}

fn check_value(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(allowed) = checks.allowed.as_ref().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<String> =
            allowed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        errors.push(FieldError::not_supported(path, value, allowed.iter().map(String::as_str)));
    }
    match value {
        Value::Number(number) => check_number(checks, number.as_f64().unwrap_or_default(), value, path, errors),
        Value::String(text) => check_string(checks, text, path, errors),
        Value::Array(list) => {
            let fewest = checks.min_items.filter(|fewest| (list.len() as u64) < *fewest);
            if let Some(fewest) = fewest {
                body(path, value_of_length(value), &format!("should have at least {fewest} items"), errors);
            }
            if let Some(most) = checks.max_items.filter(|most| list.len() as u64 > *most) {
                errors.push(FieldError::too_many(path, list.len(), most));
            }
            if checks.unique_items && list.iter().enumerate().any(|(index, item)| list[..index].contains(item)) {
                body(path, value.clone(), "shouldn't contain duplicates", errors);
            }
        }
        Value::Object(fields) => {
            if let Some(fewest) = checks.min_properties.filter(|fewest| (fields.len() as u64) < *fewest) {
                body(path, value.clone(), &format!("should have at least {fewest} properties"), errors);
            }
            if let Some(most) = checks.max_properties.filter(|most| fields.len() as u64 > *most) {
                errors.push(FieldError::too_many(path, fields.len(), most));
            }
        }
        _ => {}
    }
}

fn value_of_length(value: &Value) -> Value {
    json!(value.as_array().map_or(0, Vec::len))
}

fn body(path: &str, value: Value, rule: &str, errors: &mut Vec<FieldError>) {
    errors.push(FieldError::invalid(path, &value, &format!("{path} in body {rule}")));
}

fn check_number(checks: &Checks, number: f64, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut fail = |rule: String| body(path, value.clone(), &rule, errors);
    match checks.minimum {
        Some(least) if checks.exclusive_minimum && number <= least => fail(format!("should be greater than {least}")),
        Some(least) if !checks.exclusive_minimum && number < least => {
            fail(format!("should be greater than or equal to {least}"));
        }
        _ => {}
    }
    match checks.maximum {
        Some(most) if checks.exclusive_maximum && number >= most => fail(format!("should be less than {most}")),
        Some(most) if !checks.exclusive_maximum && number > most => {
            fail(format!("should be less than or equal to {most}"));
        }
        _ => {}
    }
    if let Some(factor) = checks.multiple_of.filter(|factor| (number / factor).fract() != 0.0) {
        fail(format!("should be a multiple of {factor}"));
    }
    if let Some(format) = &checks.format
        && formats::integer_bounds(format).is_some_and(|(least, most)| number < least || number > most)
    {
        fail(format!("must be of type {format}: {:?}", value.to_string()));
    }
}

fn check_string(checks: &Checks, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    let mut fail = |rule: String| body(path, text.into(), &rule, errors);
    if let Some(fewest) = checks.min_length.filter(|fewest| length < *fewest) {
        fail(format!("should be at least {fewest} chars long"));
    }
    if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        fail(format!("should match '{pattern}'"));
    }
    if let Some(format) = checks.format.as_ref().filter(|format| !formats::holds(format, text)) {
        fail(format!("must be of type {format}: {text:?}"));
    }
    if let Some(most) = checks.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, most));
    }
}

fn check_topology(node: &Node, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let twin = |same: &dyn Fn(&Value, &Value) -> bool, index: usize| {
        list[..index].iter().any(|other| same(other, &list[index]))
    };
    for (index, item) in list.iter().enumerate() {
        let at = format!("{path}[{index}]");
        match &node.topology {
            Topology::Set if twin(&|a, b| a == b, index) => errors.push(FieldError::duplicate(&at, item)),
            Topology::Map(keys) if twin(&|a, b| node.keys_of(keys, a) == node.keys_of(keys, b), index) => {
                let found: Map<String, Value> = keys
                    .iter()
                    .zip(node.keys_of(keys, item))
                    .filter_map(|(key, value)| Some((key.clone(), value?.clone())))
                    .collect();
                errors.push(FieldError::duplicate(&at, &Value::Object(found)));
            }
            _ => {}
        }
    }
}

fn holds(node: &Node, value: &Value) -> bool {
    let mut errors = Vec::new();
    walk(node, value, None, "", &mut errors);
    errors.is_empty()
}

fn check_alternatives(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut fail = |rule: String| errors.push(FieldError::invalid(path, value, &format!("{path:?} must {rule}")));
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(|nested| holds(nested, value)) {
        fail("validate at least one schema (anyOf)".to_owned());
    }
    if !checks.one_of.is_empty() {
        match checks.one_of.iter().filter(|nested| holds(nested, value)).count() {
            1 => {}
            0 => fail("validate one and only one schema (oneOf). Found none valid".to_owned()),
            several => {
                fail(format!("validate one and only one schema (oneOf). Found {several} valid alternatives"));
            }
        }
    }
    if checks.not.as_ref().is_some_and(|nested| holds(nested, value)) {
        fail("not validate the schema (not)".to_owned());
    }
}

/// Whether a default is a value that the schema allows; the first fault otherwise.
pub fn check_default(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(node, value, None, path, &mut errors);
    errors
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
