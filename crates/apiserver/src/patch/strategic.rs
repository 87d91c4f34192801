//! Strategic merge patch: a merge patch that merges some lists by key and knows directives.
//!
//! Rules: the page "Update API Objects in Place Using kubectl patch" and the design "Strategic Merge Patch" of the
//! Kubernetes documentation. The directives are `$patch` (`merge`, `replace`, `delete`), `$retainKeys`,
//! `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`.

use serde_json::{Map, Value};

use super::PatchError;
use super::list_keys::{ListKeys, Shape, StrategicRule};
use super::merge::kind_of;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_SCALARS: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `current` by the rules of `keys`.
pub fn strategic(current: &Value, patch: &Value, keys: &ListKeys) -> Result<Value, PatchError> {
    let (Value::Object(current), Value::Object(patch)) = (current, patch) else {
        return Err(malformed(format!("a strategic merge patch must be an object, got {}", kind_of(patch))));
    };
    merge_objects(current, patch, keys.root()).map(Value::Object)
}

fn malformed(message: String) -> PatchError {
    PatchError::Malformed(message)
}

fn merge_objects(
    current: &Map<String, Value>,
    patch: &Map<String, Value>,
    shape: &Shape,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Map::new()),
        Some(other) => return Err(malformed(format!("unknown patch type found: {other:?}"))),
    }
    let mut merged = retain_keys(current, patch)?;
    delete_scalars(&mut merged, patch)?;
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        if value.is_null() {
            merged.remove(name);
            continue;
        }
        let order = order_of(patch, name)?;
        let child = shape.child(name);
        if let (Some(order), Value::Array(list)) = (order, value) {
            agrees(list, order, &child.strategic)?;
        }
        let value = merge_values(merged.get(name), value, &child, order.map(Vec::as_slice))?;
        merged.insert(name.clone(), value);
    }
    // A list may be put in order without any element of it being changed.
    for (name, order) in patch.iter().filter_map(|(key, order)| Some((key.strip_prefix(SET_ORDER)?, order))) {
        if patch.contains_key(name) {
            continue;
        }
        if let (Some(Value::Array(list)), Value::Array(order)) = (merged.get(name), order) {
            let rule = &shape.child(name).strategic;
            let ordered = in_order(list.clone(), order, list, rule);
            merged.insert(name.to_owned(), Value::Array(ordered));
        }
    }
    Ok(merged)
}

fn merge_values(
    current: Option<&Value>,
    patch: &Value,
    shape: &Shape,
    order: Option<&[Value]>,
) -> Result<Value, PatchError> {
    match (current, patch) {
        (_, Value::Object(patch)) if shape.strategic == StrategicRule::Replace => {
            Ok(Value::Object(without_directives(patch)))
        }
        (Some(Value::Object(current)), Value::Object(patch)) => merge_objects(current, patch, shape).map(Value::Object),
        // Nothing is there to merge with: the same walk over nothing drops directives and nulls.
        (_, Value::Object(patch)) => merge_objects(&Map::new(), patch, shape).map(Value::Object),
        (current, Value::Array(patch)) => {
            let current = current.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            merge_lists(current, patch, shape, order).map(Value::Array)
        }
        (_, scalar) => Ok(scalar.clone()),
    }
}

fn merge_lists(
    current: &[Value],
    patch: &[Value],
    shape: &Shape,
    order: Option<&[Value]>,
) -> Result<Vec<Value>, PatchError> {
    match &shape.strategic {
        StrategicRule::MergeBy(key) => {
            let merged = merge_by_key(current, patch, key, shape)?;
            Ok(in_order(merged, order.unwrap_or(patch), current, &shape.strategic))
        }
        StrategicRule::MergeScalars => {
            let mut merged = current.to_vec();
            for value in patch {
                if !merged.contains(value) {
                    merged.push(value.clone());
                }
            }
            Ok(in_order(merged, order.unwrap_or(patch), current, &shape.strategic))
        }
        StrategicRule::Default | StrategicRule::Replace => Ok(patch.iter().filter_map(cleaned).collect()),
    }
}

fn merge_by_key(current: &[Value], patch: &[Value], key: &str, shape: &Shape) -> Result<Vec<Value>, PatchError> {
    let directive = |element: &Value| element.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    if patch.iter().any(|element| directive(element).as_deref() == Some("replace") && element.get(key).is_none()) {
        let rest = patch.iter().filter(|element| directive(element).as_deref() != Some("replace"));
        return Ok(rest.filter_map(cleaned).collect());
    }
    let element_shape = shape.element();
    let mut merged = current.to_vec();
    for element in patch {
        let Value::Object(fields) = element else {
            return Err(malformed(format!("expected an object with the key {key:?}, got {}", kind_of(element))));
        };
        let Some(id) = fields.get(key) else {
            return Err(malformed(format!("map: {element} does not contain declared merge key: {key}")));
        };
        let place = merged.iter().position(|present| present.get(key) == Some(id));
        match (directive(element).as_deref(), place) {
            (Some("delete"), _) => merged.retain(|present| present.get(key) != Some(id)),
            (_, Some(place)) => merged[place] = merge_values(merged.get(place), element, &element_shape, None)?,
            (_, None) => merged.push(merge_values(None, element, &element_shape, None)?),
        }
    }
    Ok(merged)
}

/// Whether two elements of a list are the same one.
fn same(left: &Value, right: &Value, rule: &StrategicRule) -> bool {
    match rule {
        StrategicRule::MergeBy(key) => left.get(key).is_some() && left.get(key) == right.get(key),
        _ => left == right,
    }
}

/// Puts the elements that `order` names in that order, and each other one before the first of those that stood behind
/// it in `before`, so that relative order is kept on both sides.
fn in_order(merged: Vec<Value>, order: &[Value], before: &[Value], rule: &StrategicRule) -> Vec<Value> {
    let place = |list: &[Value], element: &Value| list.iter().position(|other| same(other, element, rule));
    let (mut named, mut rest): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|element| place(order, element).is_some());
    named.sort_by_key(|element| place(order, element));
    rest.sort_by_key(|element| place(before, element).unwrap_or(usize::MAX));
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let take_rest = match (rest.peek(), named.peek()) {
            (None, None) => return all,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => {
                matches!((place(before, left), place(before, right)), (Some(left), Some(right)) if left < right)
            }
        };
        all.extend(if take_rest { rest.next() } else { named.next() });
    }
}

/// The elements of a patch stand in the order that it sets, as Kubernetes demands.
fn agrees(list: &[Value], order: &[Value], rule: &StrategicRule) -> Result<(), PatchError> {
    let merged = list.iter().filter(|element| element.get(DIRECTIVE).is_none());
    let places: Vec<Option<usize>> =
        merged.map(|element| order.iter().position(|other| same(other, element, rule))).collect();
    let in_order = places.iter().all(Option::is_some) && places.is_sorted();
    if in_order {
        return Ok(());
    }
    let (list, order) = (Value::from(list), Value::from(order));
    Err(malformed(format!("the order in patch list {list} doesn't match $setElementOrder list {order}")))
}

fn order_of<'a>(patch: &'a Map<String, Value>, name: &str) -> Result<Option<&'a Vec<Value>>, PatchError> {
    match patch.get(&format!("{SET_ORDER}{name}")) {
        None => Ok(None),
        Some(Value::Array(order)) => Ok(Some(order)),
        Some(other) => Err(malformed(format!("{SET_ORDER}{name} must be a list, got {}", kind_of(other)))),
    }
}

fn retain_keys(current: &Map<String, Value>, patch: &Map<String, Value>) -> Result<Map<String, Value>, PatchError> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(current.clone()) };
    let Value::Array(retained) = retained else {
        return Err(malformed(format!("{RETAIN_KEYS} must be a list, got {}", kind_of(retained))));
    };
    let kept = |name: &str| retained.iter().any(|key| key.as_str() == Some(name));
    if let Some((stray, _)) =
        patch.iter().find(|(name, value)| !name.starts_with('$') && !value.is_null() && !kept(name))
    {
        return Err(malformed(format!("{stray:?} is in the patch but not in its {RETAIN_KEYS} list")));
    }
    Ok(current.iter().filter(|(name, _)| kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn delete_scalars(merged: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    for (name, doomed) in patch.iter().filter_map(|(key, doomed)| Some((key.strip_prefix(DELETE_SCALARS)?, doomed))) {
        let Value::Array(doomed) = doomed else {
            return Err(malformed(format!("{DELETE_SCALARS}{name} must be a list, got {}", kind_of(doomed))));
        };
        if let Some(Value::Array(list)) = merged.get_mut(name) {
            list.retain(|value| !doomed.contains(value));
        }
    }
    Ok(())
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(name, _)| !name.starts_with('$'))
        .filter_map(|(name, value)| Some((name.clone(), cleaned(value)?)))
        .collect()
}

/// A value of a patch as it is stored where nothing is merged: no directives, no nulls, no deleted elements.
fn cleaned(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) if fields.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") => None,
        Value::Object(fields) => Some(Value::Object(without_directives(fields))),
        Value::Array(list) => Some(Value::Array(list.iter().filter_map(cleaned).collect())),
        scalar => Some(scalar.clone()),
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
