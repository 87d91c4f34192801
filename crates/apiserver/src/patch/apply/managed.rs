//! `metadata.managedFields`: who owns which fields of an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fieldset::{Element, FieldSet};

/// How a manager came to own its fields. Apply sorts first, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else: create, update, the other patches.
    Update,
}

/// Who owns fields. An applier is the same one whatever version it speaks, so its `api_version` is empty here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// The name the client gave itself.
    pub name: String,
    /// How it writes.
    pub operation: Operation,
    /// The version it writes, for updaters.
    pub api_version: String,
    /// The subresource it writes; empty for the object itself.
    pub subresource: String,
}

impl Manager {
    /// A manager as the requests of a client make it.
    pub fn new(name: &str, operation: Operation, api_version: &str, subresource: Option<&str>) -> Manager {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Manager {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    /// As conflict messages name it: `"kubectl" with subresource "status" using apps/v1`.
    pub fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// What one manager owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// Its fields.
    pub fields: FieldSet,
    /// When it last changed them.
    pub time: Option<String>,
    /// The version its fields are of.
    pub api_version: String,
}

/// All managers of an object.
pub type Managers = BTreeMap<Manager, Owned>;

/// Reads the managers of an object. Entries that cannot be read are dropped: nothing depends on them but later
/// conflicts, and Kubernetes too prefers losing them to refusing every write.
pub fn read(object: &Value) -> Managers {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(read_entry).collect()
}

fn read_entry(entry: &Value) -> Option<(Manager, Owned)> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let fields = FieldSet::from_json(entry.get("fieldsV1")?).ok()?;
    let manager = Manager::new(text("manager"), operation, text("apiVersion"), Some(text("subresource")));
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Some((manager, Owned { fields, time, api_version: text("apiVersion").to_owned() }))
}

/// Writes the managers into an object, appliers first, then by time and name.
pub fn write(object: &mut Value, managers: &Managers) {
    let mut entries: Vec<(&Manager, &Owned)> = managers.iter().filter(|(_, owned)| !owned.fields.is_empty()).collect();
    entries.sort_by(|(a, owned_a), (b, owned_b)| (a.operation, &owned_a.time, a).cmp(&(b.operation, &owned_b.time, b)));
    let entries: Vec<Value> = entries.into_iter().map(|(manager, owned)| entry(manager, owned)).collect();
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn entry(manager: &Manager, owned: &Owned) -> Value {
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = Map::new();
    entry.insert("manager".to_owned(), json!(manager.name));
    entry.insert("operation".to_owned(), json!(operation));
    entry.insert("apiVersion".to_owned(), json!(owned.api_version));
    if let Some(time) = &owned.time {
        entry.insert("time".to_owned(), json!(time));
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), owned.fields.to_json());
    if !manager.subresource.is_empty() {
        entry.insert("subresource".to_owned(), json!(manager.subresource));
    }
    Value::Object(entry)
}

/// Fields of the object that the server keeps and nobody owns.
const UNOWNED_METADATA: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// Drops from a set what nobody owns: the identity of the object and what the server itself writes.
pub fn strip(fields: &mut FieldSet) {
    let field = |name: &str| Element::Field(name.to_owned());
    for name in ["apiVersion", "kind"] {
        fields.remove_below(&[field(name)]);
    }
    for name in UNOWNED_METADATA {
        fields.remove_below(&[field("metadata"), field(name)]);
    }
    for name in ["metadata", "spec", "status"] {
        if fields.child(&field(name)).is_some_and(|child| !child.children.is_empty()) || name == "metadata" {
            fields.remove(&[field(name)]);
        }
    }
}
