//! Which fields an object has and which differ between two objects, by the rules of its lists.

use serde_json::Value;

use super::fieldset::{Element, FieldSet};
use crate::patch::list_keys::{ApplyRule, Shape};

/// The fields in which two objects differ.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    /// Present only in the new one.
    pub added: FieldSet,
    /// Present in both with different values.
    pub modified: FieldSet,
    /// Present only in the old one.
    pub removed: FieldSet,
}

/// The elements of a set or list-map with their path elements; `None` where the list is one value, or where an element
/// lacks its keys.
pub fn elements<'a>(list: &'a [Value], shape: &Shape) -> Option<Vec<(Element, &'a Value)>> {
    match &shape.apply {
        ApplyRule::Set => Some(list.iter().map(|value| (Element::value(value), value)).collect()),
        ApplyRule::Map(_) => list
            .iter()
            .map(|value| shape.key_of(value).and_then(Result::ok).map(|keys| (Element::key(&keys), value)))
            .collect(),
        ApplyRule::Default | ApplyRule::Atomic => None,
    }
}

/// One part of a value: its element, the value, the rules for it, and whether the element counts as owned in itself.
pub type Part<'a> = (Element, &'a Value, std::sync::Arc<Shape>, bool);

/// What lies directly below a value: its element, the value, the rules for it, and whether the element counts as owned
/// in itself (keys of maps and elements of lists do, declared fields do not). `None` for a value without parts.
pub fn parts<'a>(value: &'a Value, shape: &Shape) -> Option<Vec<Part<'a>>> {
    match value {
        Value::Object(fields) if shape.apply != ApplyRule::Atomic => Some(
            fields
                .iter()
                .map(|(name, value)| (Element::Field(name.clone()), value, shape.child(name), shape.is_data_key(name)))
                .collect(),
        ),
        Value::Array(list) => {
            let items = elements(list, shape)?;
            Some(items.into_iter().map(|(element, value)| (element, value, shape.element(), true)).collect())
        }
        _ => None,
    }
}

/// The fields that a configuration states an opinion on.
pub fn field_set(value: &Value, shape: &Shape) -> FieldSet {
    let Some(parts) = parts(value, shape) else { return FieldSet { member: true, ..FieldSet::default() } };
    let mut set = FieldSet::default();
    for (element, value, shape, counts) in parts {
        let mut below = field_set(value, &shape);
        // An empty list with keys owns nothing, an empty map owns itself.
        let empty = *value == serde_json::json!({});
        below.member |= counts || empty;
        if !below.is_empty() {
            set.children.insert(element, below);
        }
    }
    set
}

/// Compares two objects.
pub fn compare(old: Option<&Value>, new: Option<&Value>, shape: &Shape) -> Comparison {
    let mut comparison = Comparison::default();
    walk(old, new, shape, &mut Vec::new(), &mut comparison);
    comparison
}

fn walk(old: Option<&Value>, new: Option<&Value>, shape: &Shape, path: &mut Vec<Element>, out: &mut Comparison) {
    if old == new {
        return;
    }
    let old_parts = old.and_then(|value| parts(value, shape));
    let new_parts = new.and_then(|value| parts(value, shape));
    match (old, new) {
        (None, Some(_)) if own(path) || new_parts.is_none() => out.added.insert(path),
        (Some(_), None) if own(path) || old_parts.is_none() => out.removed.insert(path),
        (Some(_), Some(_)) if old_parts.is_none() || new_parts.is_none() => out.modified.insert(path),
        _ => {}
    }
    let (old_parts, new_parts) = (old_parts.unwrap_or_default(), new_parts.unwrap_or_default());
    let find = |parts: &[(Element, _, _, _)], element: &Element| parts.iter().position(|part| part.0 == *element);
    for (element, old, shape, _) in &old_parts {
        let new = find(&new_parts, element).map(|index| new_parts[index].1);
        path.push(element.clone());
        walk(Some(old), new, shape, path, out);
        path.pop();
    }
    for (element, new, shape, _) in new_parts.iter().filter(|part| find(&old_parts, &part.0).is_none()) {
        path.push(element.clone());
        walk(None, Some(new), shape, path, out);
        path.pop();
    }
}

/// Whether a place that is new belongs to who made it beside what is below it. Not where Kubernetes' types always have
/// something, if only nothing: fields that are structs, and lists that are not left out.
fn own(path: &[Element]) -> bool {
    match path.last() {
        Some(Element::Field(name)) => !ALWAYS_THERE.contains(&name.as_str()),
        Some(_) => true,
        None => false,
    }
}

const ALWAYS_THERE: [&str; 12] = [
    "containers",
    "involvedObject",
    "jobTemplate",
    "metadata",
    "resources",
    "roleRef",
    "rules",
    "source",
    "spec",
    "status",
    "template",
    "updateStrategy",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::ListKeys;
    use serde_json::json;

    fn service(old: Value, new: Value) -> Comparison {
        compare(Some(&old), Some(&new), ListKeys::builtin("", "Service").root())
    }

    #[test]
    fn list_maps_are_compared_by_their_keys_not_by_place() {
        let got = service(
            json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}}),
            json!({"spec": {"ports": [{"port": 2, "name": "c"}, {"port": 1, "name": "a"}]}}),
        );
        assert_eq!(got.modified.paths(), [r#".spec.ports[port=2,protocol="TCP"].name"#]);
        assert!(got.added.is_empty() && got.removed.is_empty());
    }

    #[test]
    fn an_atomic_map_changes_as_a_whole() {
        let got =
            service(json!({"spec": {"selector": {"a": "b"}}}), json!({"spec": {"selector": {"a": "c", "d": "e"}}}));
        assert_eq!(got.modified.paths(), [".spec.selector"]);
    }

    #[test]
    fn a_configuration_owns_leaves_list_elements_and_empty_objects() {
        let set = field_set(
            &json!({"spec": {"ports": [{"port": 1}], "selector": {"a": "b"}, "sessionAffinityConfig": {}}}),
            ListKeys::builtin("", "Service").root(),
        );
        assert_eq!(
            set.paths(),
            [
                r#".spec.ports[port=1,protocol="TCP"]"#,
                r#".spec.ports[port=1,protocol="TCP"].port"#,
                ".spec.selector",
                ".spec.sessionAffinityConfig"
            ]
        );
    }
}
