//! Takes out of an answer what differs between two runs of the same server: uids, revisions, times, addresses.
//!
//! Uids and the revisions of objects become numbers in the order of their first appearance, so that two answers with the
//! same one still have the same one: that a write made no revision is seen.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

pub struct Normalizer {
    fields: bool,
    uids: Vec<String>,
    revisions: Vec<String>,
    names: Vec<(String, String)>,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

static UID: LazyLock<Regex> = LazyLock::new(|| regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| regex(r"10\.212\.\d+\.\d+"));
static REVISIONS: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)(resource version: )\d+( \(|, current: )\d+"));
static COMPARED: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(the ResourceVersion in [a-z ]+)\(\d+\)( does not match the ResourceVersion in record )\(\d+\)")
});
static REVISION: LazyLock<Regex> = LazyLock::new(|| regex("^[1-9][0-9]*$"));
static AGE: LazyLock<Regex> = LazyLock::new(|| regex("^[0-9]+s$"));

fn number(known: &mut Vec<String>, value: &str) -> usize {
    let found = known.iter().position(|one| one == value);
    found.unwrap_or_else(|| {
        known.push(value.to_owned());
        known.len() - 1
    }) + 1
}

impl Normalizer {
    pub fn new(fields: bool) -> Self {
        Self { fields, uids: Vec::new(), revisions: Vec::new(), names: Vec::new() }
    }

    /// A name that the server made up.
    pub fn name(&mut self, name: &str, variable: &str) {
        self.names.push((name.to_owned(), format!("<{variable}>")));
    }

    pub fn answer(&mut self, answer: &mut Value) {
        self.value(answer);
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => {
                if map.get("kind").and_then(Value::as_str) == Some("Table") {
                    ages(map);
                }
                map.remove("storageVersionHash");
                conflicts(map);
                if map.get("kind").and_then(Value::as_str) == Some("APIGroupList") {
                    own_groups(map);
                }
                if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
                    self.metadata(metadata);
                }
                map.values_mut().for_each(|value| self.value(value));
            }
            _ => {}
        }
    }

    fn metadata(&mut self, metadata: &mut serde_json::Map<String, Value>) {
        if !self.fields {
            metadata.remove("managedFields");
        }
        // Their order is by time, to the second.
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            let key = |entry: &Value| {
                let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                (text("operation"), text("manager"), text("subresource"))
            };
            entries.sort_by_key(key);
        }
        if metadata.contains_key("continue") {
            metadata.insert("continue".into(), "<continue>".into());
        }
        // Between two objects lie the revisions of others.
        let object = metadata.contains_key("uid");
        if let Some(Value::String(revision)) = metadata.get_mut("resourceVersion")
            && REVISION.is_match(revision)
        {
            *revision = match object {
                true => format!("<revision {}>", number(&mut self.revisions, revision)),
                false => "<revision>".to_owned(),
            };
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, variable) in &self.names {
            text = text.replace(name, variable);
        }
        let text =
            UID.replace_all(&text, |found: &Captures<'_>| format!("<uid {}>", number(&mut self.uids, &found[0])));
        let text = TIME.replace_all(&text, "<time>");
        let text = ADDRESS.replace_all(&text, "<address>");
        let text = COMPARED.replace_all(&text, "${1}(<revision>)${2}(<revision>)");
        REVISIONS.replace_all(&text, "${1}<revision>${2}<revision>").into_owned()
    }
}

/// The conflicts of an apply come in the order of a hash map.
fn conflicts(map: &mut serde_json::Map<String, Value>) {
    if let Some(Value::Array(causes)) = map.get_mut("causes")
        && causes.iter().all(|cause| cause["reason"] == "FieldManagerConflict")
    {
        causes.sort_by_key(Value::to_string);
    }
}

/// The ages of a table.
fn ages(table: &mut serde_json::Map<String, Value>) {
    for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        for cell in row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten() {
            if cell.as_str().is_some_and(|text| AGE.is_match(text)) {
                *cell = "<age>".into();
            }
        }
    }
}

/// The groups that other scenarios define come and go.
fn own_groups(list: &mut serde_json::Map<String, Value>) {
    if let Some(groups) = list.get_mut("groups").and_then(Value::as_array_mut) {
        groups.retain(|group| !group["name"].as_str().is_some_and(|name| name.ends_with(".example.com")));
    }
}
