//! Server-side apply, and the tracking of field owners that it rests on.
//!
//! Semantics: the page "Server-Side Apply" of the Kubernetes documentation. A manager owns the fields it applied last.
//! To change a value that somebody else owns is a conflict, unless forced; a field that a manager no longer applies and
//! that nobody else owns is removed. Every other write takes the fields it changes away from their owners.

mod compare;
mod fieldset;
mod managed;
mod merge;

use serde_json::{Map, Value};

use self::compare::{compare, elements, field_set};
use self::fieldset::{Element, FieldSet};
use self::managed::{Manager, Managers, Operation, Owned};
use super::list_keys::{ApplyRule, ListKeys, Shape};
use super::merge::kind_of;

/// How an apply is made.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    /// The `fieldManager` of the request.
    pub manager: &'a str,
    /// Whether to take fields from their owners instead of failing with a conflict.
    pub force: bool,
    /// The subresource applied to. With `status`, only the configuration's `status` counts. An apply to the object
    /// itself must not see a `status` where the kind has that subresource: the caller takes it out first.
    pub subresource: Option<&'a str>,
    /// The time to record, RFC 3339.
    pub now: &'a str,
    /// `group/version` of the request.
    pub api_version: &'a str,
}

/// A field that the configuration would change although somebody else owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages name it, for example `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field, for example `.spec.replicas`.
    pub field: String,
}

/// Why an apply was not made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own fields that would change: answer 409 Conflict, one cause `FieldManagerConflict` each.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration cannot be merged: answer 400 or 422.
    #[error("{0}")]
    Invalid(String),
}

/// The message of the Status that reports conflicts, as Kubernetes writes it.
pub fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut lines = Vec::new();
    let mut managers: Vec<&String> = conflicts.iter().map(|conflict| &conflict.manager).collect();
    managers.sort();
    managers.dedup();
    for manager in managers {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(conflicts.iter().filter(|c| c.manager == *manager).map(|c| format!("- {}", c.field)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Applies `config` to `current` (nothing when the object does not exist yet) and returns the new object with its new
/// `managedFields`. An apply that changes neither the object nor who owns what returns `current` as it is.
pub fn apply(
    current: Option<&Value>,
    config: &Value,
    keys: &ListKeys,
    options: &ApplyOptions<'_>,
) -> Result<Value, ApplyError> {
    let config = prepared(config, keys.root(), options)?;
    let before = current.map(managed::read).unwrap_or_default();
    let live = current.map(without_managed_fields);
    let mut managers = before.clone();
    if let Some(live) = live.as_ref().filter(|_| managers.is_empty()) {
        managers.extend(unmanaged_owner(live, keys.root(), options));
    }

    let manager = Manager::new(options.manager, Operation::Apply, options.api_version, options.subresource);
    let mut fields = field_set(&config, keys.root());
    managed::strip(&mut fields);
    let last = managers.remove(&manager);
    let given_up = last.as_ref().map(|owned| owned.fields.clone()).unwrap_or_default();
    let mut owned = managers.values().fold(fields.clone(), |all, other| all.union(&other.fields));
    // Nobody owns the name, yet an object without owned metadata keeps it.
    owned.insert(&[Element::Field("metadata".to_owned())]);

    let mut object = merge::merge(live.as_ref(), &config, keys.root());
    merge::prune(&mut object, &given_up, &owned, keys.root());

    let changes = compare(live.as_ref(), Some(&object), keys.root());
    let conflicts = take_changed(&mut managers, &changes.added.union(&changes.modified));
    if !options.force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    drop_removed(&mut managers, &changes.removed);

    let same = live.as_ref() == Some(&object);
    let unchanged = same && last.as_ref().is_some_and(|last| last.fields == fields);
    if let (true, Some(current)) = (unchanged, current) {
        return Ok(current.clone());
    }
    // The time is that of the last change: who only agrees to what is there has made none.
    let time = if same { last.and_then(|last| last.time) } else { Some(options.now.to_owned()) };
    let owned = Owned { fields, time, api_version: options.api_version.to_owned() };
    managers.insert(manager, owned);
    managed::write(&mut object, &managers);
    Ok(object)
}

/// Records in `new.metadata.managedFields` that `manager` made `new` of `old` by a create, an update or another patch.
///
/// Fields that differ become the manager's and nobody else's; fields that are gone lose their owners. What the client
/// sent as `managedFields` counts if there is anything in it (it may only have given up entries), else that of `old`.
pub fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    now: &str,
    api_version: &str,
    keys: &ListKeys,
) {
    let sent = new.pointer("/metadata/managedFields").and_then(Value::as_array).cloned();
    let reset = sent.as_ref().is_some_and(|entries| entries.len() == 1 && entries[0] == Value::Object(Map::new()));
    let mut managers = managed::read(new);
    if managers.is_empty() && !reset {
        managers = old.map(managed::read).unwrap_or_default();
    }
    let live = old.map(without_managed_fields);
    let object = without_managed_fields(new);
    let mut changes = compare(live.as_ref(), Some(&object), keys.root());
    managed::strip(&mut changes.added);
    managed::strip(&mut changes.modified);
    let taken = changes.added.union(&changes.modified);

    let manager = Manager::new(manager, Operation::Update, api_version, subresource);
    let mut own = managers.remove(&manager);
    take_changed(&mut managers, &taken);
    drop_removed(&mut managers, &changes.removed);
    if !reset || !taken.is_empty() {
        let before = own.as_ref().map(|owned| owned.fields.clone()).unwrap_or_default();
        let fields = without_removed(&before.union(&taken), &changes.removed);
        let changed = !taken.is_empty() || fields != before;
        let time = own.take().and_then(|owned| owned.time).filter(|_| !changed).or_else(|| Some(now.to_owned()));
        managers.insert(manager, Owned { fields, time, api_version: api_version.to_owned() });
    }
    managed::write(new, &managers);
}

/// The owner Kubernetes invents for an object that has no `managedFields` when it is first applied to.
fn unmanaged_owner(live: &Value, shape: &Shape, options: &ApplyOptions<'_>) -> Managers {
    let mut fields = field_set(live, shape);
    managed::strip(&mut fields);
    let manager = Manager::new("before-first-apply", Operation::Update, options.api_version, None);
    let time = Some(options.now.to_owned());
    Managers::from([(manager, Owned { fields, time, api_version: options.api_version.to_owned() })])
}

/// Takes `changed` away from everybody and reports what was taken from whom.
fn take_changed(managers: &mut Managers, changed: &FieldSet) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for (manager, owned) in managers.iter_mut() {
        let taken = owned.fields.intersection(changed);
        let describe = |field| Conflict { manager: manager.describe(), field };
        conflicts.extend(taken.paths().into_iter().map(describe));
        owned.fields = owned.fields.difference(&taken);
    }
    conflicts
}

fn drop_removed(managers: &mut Managers, removed: &FieldSet) {
    for owned in managers.values_mut() {
        owned.fields = without_removed(&owned.fields, removed);
    }
}

/// A set without the paths that are gone. What is gone takes with it everything below.
fn without_removed(fields: &FieldSet, removed: &FieldSet) -> FieldSet {
    let rest = |(element, ours): (&Element, &FieldSet)| {
        let rest = match removed.child(element) {
            Some(gone) if gone.member => return None,
            Some(gone) => without_removed(ours, gone),
            None => ours.clone(),
        };
        (!rest.is_empty()).then(|| (element.clone(), rest))
    };
    FieldSet { member: fields.member, children: fields.children.iter().filter_map(rest).collect() }
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// The configuration as it is merged: checked, without nulls (which state no opinion), only what the subresource covers.
fn prepared(config: &Value, shape: &Shape, options: &ApplyOptions<'_>) -> Result<Value, ApplyError> {
    let Value::Object(fields) = config else {
        return Err(ApplyError::Invalid(format!(
            "the configuration to apply must be an object, got {}",
            kind_of(config)
        )));
    };
    let managed = config.pointer("/metadata/managedFields").and_then(Value::as_array);
    if managed.is_some_and(|entries| !entries.is_empty()) {
        return Err(ApplyError::Invalid("metadata.managedFields must be nil".to_owned()));
    }
    let mut config = without_managed_fields(&without_nulls(&Value::Object(fields.clone())));
    if let (Some("status"), Some(fields)) = (options.subresource, config.as_object_mut()) {
        fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| matches!(name.as_str(), "name" | "namespace"));
        }
    }
    check_lists(&config, shape, &mut String::new())?;
    Ok(config)
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

/// Every element of a list-map has its keys, and no two have the same.
fn check_lists(value: &Value, shape: &Shape, path: &mut String) -> Result<(), ApplyError> {
    let length = path.len();
    match value {
        Value::Object(fields) if shape.apply != ApplyRule::Atomic => {
            for (name, value) in fields {
                path.push('.');
                path.push_str(name);
                check_lists(value, &shape.child(name), path)?;
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                if let Some(Err(key)) = shape.key_of(item) {
                    return Err(ApplyError::Invalid(format!(
                        "failed to create typed patch object: {path}: element {index}: associative list with keys has \
                         an element that omits key field {key:?} (and doesn't have default value)"
                    )));
                }
            }
            let Some(elements) = elements(list, shape) else { return Ok(()) };
            let element_shape = shape.element();
            for (index, (element, item)) in elements.iter().enumerate() {
                if elements[..index].iter().any(|(other, _)| other == element) {
                    return Err(ApplyError::Invalid(format!(
                        "failed to create typed patch object: {path}: duplicate entries for key {element}"
                    )));
                }
                path.push_str(&element.to_string());
                check_lists(item, &element_shape, path)?;
                path.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
