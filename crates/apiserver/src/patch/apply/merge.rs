//! The two changes that an apply makes to the live object: the configuration is merged in, and what this manager gave
//! up is taken out.

use serde_json::{Map, Value};

use super::compare::{elements, parts};
use super::fieldset::{Element, FieldSet};
use crate::patch::list_keys::Shape;

/// The live value with the configuration merged in.
pub fn merge(live: Option<&Value>, config: &Value, shape: &Shape) -> Value {
    if parts(config, shape).is_none() {
        return config.clone();
    }
    match (live, config) {
        (live, Value::Object(config)) => {
            let mut merged = live.and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, value) in config {
                let value = merge(merged.get(name), value, &shape.child(name));
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Some(Value::Array(live)), Value::Array(config)) => Value::Array(merge_lists(live, config, shape)),
        (_, Value::Array(config)) => Value::Array(merge_lists(&[], config, shape)),
        (_, scalar) => scalar.clone(),
    }
}

/// Merges two lists by keys. The order of the configuration holds; elements that only the live list has keep their
/// place among the elements of both as far as that is possible.
fn merge_lists(live: &[Value], config: &[Value], shape: &Shape) -> Vec<Value> {
    let (live, config) = match (elements(live, shape), elements(config, shape)) {
        (Some(live), Some(config)) => (live, config),
        _ => return config.to_vec(),
    };
    let element_shape = shape.element();
    let in_live = |element: &Element| live.iter().find(|(other, _)| other == element).map(|(_, value)| *value);
    let in_config = |element: &Element| config.iter().any(|(other, _)| other == element);
    let mut shared = config.iter().map(|(element, _)| element).filter(|element| in_live(element).is_some()).peekable();
    let mut merged = Vec::new();
    let (mut left, mut right) = (live.iter().peekable(), config.iter().peekable());
    while left.peek().is_some() || right.peek().is_some() {
        if let (Some((left_element, _)), Some((right_element, _))) = (left.peek(), right.peek())
            && left_element != right_element
            && in_config(left_element)
            && shared.peek().is_some_and(|next| *next != left_element)
        {
            // An element of both whose turn, by the configuration's order, has not come: it is taken from the right.
            left.next();
            continue;
        }
        if let Some((_, value)) = left.next_if(|(element, _)| !in_config(element)) {
            merged.push((*value).clone());
            continue;
        }
        match right.next() {
            Some((element, value)) => {
                merged.push(merge(in_live(element), value, &element_shape));
                shared.next_if(|next| *next == element);
                left.next_if(|(other, _)| other == element);
            }
            None => {
                left.next();
            }
        }
    }
    merged
}

/// Takes out of `value` what is in `given_up` (the fields this manager owned before) and owned by nobody now.
pub fn prune(value: &mut Value, given_up: &FieldSet, owned: &FieldSet, shape: &Shape) {
    if parts(value, shape).is_none() {
        return;
    }
    match value {
        Value::Object(fields) => prune_fields(fields, given_up, owned, shape),
        Value::Array(list) => {
            let element_shape = shape.element();
            let names: Vec<Element> =
                elements(list, shape).unwrap_or_default().into_iter().map(|(element, _)| element).collect();
            let mut names = names.into_iter();
            list.retain_mut(|item| {
                let Some(name) = names.next() else { return true };
                keep(item, given_up.child(&name), owned.child(&name), &element_shape, false)
            });
        }
        _ => {}
    }
}

fn prune_fields(fields: &mut Map<String, Value>, given_up: &FieldSet, owned: &FieldSet, shape: &Shape) {
    fields.retain(|name, item| {
        let element = Element::Field(name.clone());
        let declared = !shape.is_data_key(name);
        keep(item, given_up.child(&element), owned.child(&element), &shape.child(name), declared)
    });
}

/// Whether an item stays; prunes below it if so. A declared field goes with the last of its owned parts.
fn keep(
    item: &mut Value,
    given_up: Option<&FieldSet>,
    owned: Option<&FieldSet>,
    shape: &Shape,
    declared: bool,
) -> bool {
    let Some(given_up) = given_up else { return true };
    match owned {
        Some(owned) => prune(item, given_up, owned, shape),
        None if given_up.member || declared => return false,
        None => prune(item, given_up, &FieldSet::default(), shape),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::ListKeys;
    use serde_json::json;

    fn names(live: &[&str], config: &[&str]) -> Vec<String> {
        let list = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let shape = ListKeys::builtin("", "Pod").root().child("spec").child("containers");
        let merged = merge(Some(&Value::Array(list(live))), &Value::Array(list(config)), &shape);
        merged.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_configurations_order_holds_and_the_others_keep_their_place() {
        assert_eq!(names(&[], &["b", "a"]), ["b", "a"]);
        assert_eq!(names(&["a", "b"], &["b", "a"]), ["b", "a"]);
        assert_eq!(names(&["a", "x", "b"], &["a", "b"]), ["a", "x", "b"]);
        assert_eq!(names(&["x"], &["a"]), ["x", "a"]);
        assert_eq!(names(&["a", "b", "c"], &["c", "a"]), ["b", "c", "a"]);
        assert_eq!(names(&["a", "b"], &["a", "n", "b"]), ["a", "n", "b"]);
    }
}
