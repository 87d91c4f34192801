//! Defaults of custom resources, as the page "Defaulting" of the Kubernetes documentation of CRDs has them.

use serde_json::{Map, Value};

use super::node::{Additional, Node};

/// Fills in the defaults below `node`.
pub fn apply(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => object(node, fields),
        Value::Array(list) => {
            if let Some(items) = &node.items {
                list.iter_mut().for_each(|item| apply(items, item));
            }
        }
        _ => {}
    }
}

fn object(node: &Node, fields: &mut Map<String, Value>) {
    // A null that the schema does not allow counts as not given.
    fields.retain(|name, value| !value.is_null() || node.child(name).is_none_or(|child| child.nullable));
    for (name, child) in &node.properties {
        if let (Some(default), false) = (&child.default, fields.contains_key(name)) {
            fields.insert(name.clone(), default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            apply(child, value);
        }
    }
    if let Some(Additional::Schema(values)) = &node.additional {
        for (_, value) in fields.iter_mut().filter(|(name, _)| !node.properties.contains_key(*name)) {
            apply(values, value);
        }
    }
}
