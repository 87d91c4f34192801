//! Removal of the fields that a custom resource's schema does not know.

use serde_json::{Map, Value};

use super::builtin;
use super::node::{Additional, Node};

/// Prunes a whole object. `apiVersion`, `kind` and `metadata` are there whatever the schema says.
pub fn root(node: &Node, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Value::Object(fields) = object {
        prune_object(node, fields, true, "", &mut unknown);
    }
    unknown.sort();
    unknown
}

/// Prunes a value at `path` and returns the paths of what was unknown.
pub fn below(node: &Node, value: &mut Value, path: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(node, value, path, &mut unknown);
    unknown
}

fn prune(node: &Node, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => prune_object(node, fields, node.embedded, path, unknown),
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for (index, item) in list.iter_mut().enumerate() {
                    prune(items, item, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

fn prune_object(node: &Node, fields: &mut Map<String, Value>, resource: bool, path: &str, unknown: &mut Vec<String>) {
    let keep_unknown = node.preserve_unknown || matches!(node.additional, Some(Additional::Any));
    fields.retain(|name, value| {
        let path = join(path, name);
        if resource && matches!(name.as_str(), "apiVersion" | "kind") {
            return true;
        }
        if resource && name == "metadata" {
            unknown.extend(builtin::prune_metadata(value, &path));
            return true;
        }
        match node.child(name) {
            Some(child) => prune(child, value, &path, unknown),
            None if keep_unknown => {}
            None => {
                unknown.push(path);
                return false;
            }
        }
        true
    });
}

/// A path with a field added.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
