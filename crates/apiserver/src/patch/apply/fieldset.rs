//! A set of field paths as an ordered trie, in the form of `metadata.managedFields[].fieldsV1`.
//!
//! The JSON form is the one that Kubernetes documents for `FieldsV1`: `f:<field>`, `k:<keys of a list element>`,
//! `v:<value of a set>`, `i:<index>`, and `.` for the place itself where something below it is in the set too.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

/// One step of a path. Keys and values are canonical JSON, so that equal ones compare equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A field of an object or a key of a map.
    Field(String),
    /// The element of a list at an index.
    Index(i64),
    /// The element of a list that has these keys.
    Key(String),
    /// A scalar of a set.
    Value(String),
}

impl Element {
    /// The element of a list-map with these keys. `serde_json` keeps objects sorted, which makes the text canonical.
    pub fn key(keys: &Map<String, Value>) -> Element {
        Element::Key(Value::Object(keys.clone()).to_string())
    }

    /// The element of a set with this value.
    pub fn value(value: &Value) -> Element {
        Element::Value(value.to_string())
    }

    fn parse(text: &str) -> Option<Element> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Element::Field(rest.to_owned())),
            "i" => rest.parse().ok().map(Element::Index),
            "k" => serde_json::from_str(rest).ok().map(|keys: Map<String, Value>| Element::key(&keys)),
            "v" => serde_json::from_str(rest).ok().map(|value: Value| Element::value(&value)),
            _ => None,
        }
    }

    fn serialize(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Index(index) => format!("i:{index}"),
            Element::Key(keys) => format!("k:{keys}"),
            Element::Value(value) => format!("v:{value}"),
        }
    }
}

/// As in the messages of Kubernetes: `.spec`, `[name="a",port=1]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(out, ".{name}"),
            Element::Index(index) => write!(out, "[{index}]"),
            Element::Value(value) => write!(out, "[={value}]"),
            Element::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(out, "[{}]", keys.join(","))
            }
        }
    }
}

/// A set of paths below one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the place itself is in the set.
    pub member: bool,
    /// What of the set lies below; no entry is empty.
    pub children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds a path.
    pub fn insert(&mut self, path: &[Element]) {
        match path.split_first() {
            None => self.member = true,
            Some((first, rest)) => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Removes one path, but not what lies below it.
    pub fn remove(&mut self, path: &[Element]) {
        match path.split_first() {
            None => self.member = false,
            Some((first, rest)) => {
                if let Some(child) = self.children.get_mut(first) {
                    child.remove(rest);
                    if child.is_empty() {
                        self.children.remove(first);
                    }
                }
            }
        }
    }

    /// Removes a path and everything below it.
    pub fn remove_below(&mut self, path: &[Element]) {
        match path.split_first() {
            None => *self = FieldSet::default(),
            Some((first, rest)) => {
                if let Some(child) = self.children.get_mut(first) {
                    child.remove_below(rest);
                    if child.is_empty() {
                        self.children.remove(first);
                    }
                }
            }
        }
    }

    /// What of the set lies below `element`.
    pub fn child(&self, element: &Element) -> Option<&FieldSet> {
        self.children.get(element)
    }

    /// The paths of either.
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut children = self.children.clone();
        for (element, theirs) in &other.children {
            let ours = children.entry(element.clone()).or_default();
            *ours = ours.union(theirs);
        }
        FieldSet { member: self.member || other.member, children }
    }

    /// The paths of both.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let both = |(element, ours): (&Element, &FieldSet)| {
            let both = ours.intersection(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        };
        FieldSet { member: self.member && other.member, children: self.children.iter().filter_map(both).collect() }
    }

    /// The paths of this set that are not in `other`.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let rest = |(element, ours): (&Element, &FieldSet)| {
            let rest = other.children.get(element).map_or_else(|| ours.clone(), |theirs| ours.difference(theirs));
            (!rest.is_empty()).then(|| (element.clone(), rest))
        };
        FieldSet { member: self.member && !other.member, children: self.children.iter().filter_map(rest).collect() }
    }

    /// Every path of the set as text, in order.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        if self.member {
            paths.push(prefix.to_owned());
        }
        for (element, child) in &self.children {
            let mut path = prefix.to_owned();
            // Writing to a String does not fail.
            let _ = write!(path, "{element}");
            child.collect(&path, paths);
        }
    }

    /// The set as `fieldsV1`.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        if self.member && !self.children.is_empty() {
            json.insert(".".to_owned(), Value::Object(Map::new()));
        }
        json.extend(self.children.iter().map(|(element, child)| (element.serialize(), child.to_json())));
        Value::Object(json)
    }

    /// Reads `fieldsV1`; the name of the entry that is not understood otherwise.
    pub fn from_json(json: &Value) -> Result<FieldSet, String> {
        let mut set = FieldSet::parse(json)?;
        set.member = false;
        Ok(set)
    }

    fn parse(json: &Value) -> Result<FieldSet, String> {
        let entries = json.as_object().ok_or_else(|| json.to_string())?;
        let mut set = FieldSet { member: entries.is_empty(), ..FieldSet::default() };
        for (name, below) in entries {
            if name == "." {
                set.member = true;
            } else {
                let element = Element::parse(name).ok_or_else(|| name.clone())?;
                set.children.insert(element, FieldSet::parse(below)?);
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn fields_v1_is_read_and_written_unchanged() {
        let json = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}},
            "f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
        });
        let set = FieldSet::from_json(&json).unwrap();
        assert_eq!(set.to_json(), json);
        assert_eq!(
            set.paths(),
            [
                ".metadata.finalizers",
                ".metadata.finalizers[=\"a/b\"]",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].name",
                ".spec.replicas",
            ]
        );
    }

    #[test]
    fn an_unknown_entry_is_named() {
        assert_eq!(FieldSet::from_json(&json!({"x:spec": {}})), Err("x:spec".to_owned()));
    }

    fn sets() -> impl Strategy<Value = FieldSet> {
        let path = proptest::collection::vec("[a-c]".prop_map(Element::Field), 1..4);
        proptest::collection::vec(path, 0..8).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn a_set_is_its_common_part_and_the_rest(a in sets(), b in sets()) {
            prop_assert_eq!(a.intersection(&b).union(&a.difference(&b)), a);
        }

        #[test]
        fn nothing_is_common_with_what_was_taken_away(a in sets(), b in sets()) {
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
        }

        #[test]
        fn json_keeps_a_set(a in sets()) {
            prop_assert_eq!(FieldSet::from_json(&a.to_json()), Ok(a));
        }
    }
}
