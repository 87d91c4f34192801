//! The rules of `metadata`, the same for every kind but for the syntax of its name.

use serde_json::Value;

use super::at::At;
use super::names::{self, Faults};
use crate::schema::FieldError;

/// All annotations of an object together, keys and values.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The syntax that a kind asks of its names.
fn name_rule(group: &str, kind: &str) -> fn(&str) -> Faults {
    match (group, kind) {
        ("", "Namespace") => names::label,
        ("", "Service") => names::label_1035,
        ("rbac.authorization.k8s.io", _) => names::path_segment,
        _ => names::subdomain,
    }
}

/// Checks the metadata of a new object, or of `new` made from `was`.
pub fn validate(group: &str, kind: &str, new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let metadata = new.get("metadata");
    check_name(&metadata, name_rule(group, kind), errors);
    check_labels(&metadata.get("labels"), errors);
    check_annotations(&metadata.get("annotations"), errors);
    check_owners(&metadata.get("ownerReferences"), errors);
    let finalizers = metadata.get("finalizers");
    for item in finalizers.items() {
        let name = item.text();
        let fault = |fault: &String| FieldError::invalid(&finalizers.path, &name.into(), fault);
        errors.extend(names::qualified(name).iter().map(fault));
        // Custom objects may have any; nobody but the API server knows those without a domain.
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(&name);
        if built_in(group) && !name.is_empty() && !name.contains('/') && !standard {
            errors.push(item.invalid("name is neither a standard finalizer name nor is it fully qualified"));
        }
    }
    if was.is_there() {
        check_change(&metadata, &was.get("metadata"), errors);
    }
}

/// Groups of the built-in kinds: without a domain, or with that of Kubernetes.
fn built_in(group: &str) -> bool {
    !group.contains('.') || (group.ends_with(".k8s.io") && group != "apiextensions.k8s.io")
}

fn check_name(metadata: &At<'_>, rule: fn(&str) -> Faults, errors: &mut Vec<FieldError>) {
    let (name, prefix) = (metadata.get("name"), metadata.get("generateName"));
    if !prefix.text().is_empty() {
        // What is generated follows the prefix, so a trailing dash is fine.
        let example = prefix.text().strip_suffix('-').map_or(prefix.text().to_owned(), |start| format!("{start}a"));
        errors.extend(rule(&example).iter().map(|fault| prefix.invalid(fault)));
    }
    if name.text().is_empty() {
        if prefix.text().is_empty() {
            errors.push(name.required("name or generateName is required"));
        }
    } else {
        errors.extend(rule(name.text()).iter().map(|fault| name.invalid(fault)));
    }
}

/// Checks a map of labels; their faults are reported at the map, as Kubernetes does.
pub fn check_labels(labels: &At<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.entries() {
        let fault = |value: &str, fault: &String| FieldError::invalid(&labels.path, &value.into(), fault);
        errors.extend(names::qualified(key).iter().map(|text| fault(key, text)));
        errors.extend(names::label_value(value.text()).iter().map(|text| fault(value.text(), text)));
    }
}

fn check_annotations(annotations: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.entries() {
        size += key.len() + value.text().len();
        let faults = names::qualified(&key.to_lowercase());
        errors.extend(faults.iter().map(|fault| FieldError::invalid(&annotations.path, &key.into(), fault)));
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(&annotations.path, MAX_ANNOTATIONS as u64));
    }
}

fn check_owners(owners: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut controller: Option<&str> = None;
    for owner in owners.items() {
        for (name, fault) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.get(name).text().is_empty() {
                // Kubernetes does not say which owner.
                errors.push(FieldError::invalid(&format!("{}.{name}", owners.path), &"".into(), fault));
            }
        }
        if owner.get("controller").is_true() {
            let name = owner.get("name").text();
            if let Some(first) = controller {
                errors.push(owners.invalid(&format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                )));
            }
            controller = Some(name);
        }
    }
}

fn check_change(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        // A client may leave out what the server knows.
        if new.get(field).is_there() {
            new.get(field).must_not_change(&was.get(field), errors);
        }
    }
    if was.get("deletionTimestamp").is_there() {
        let before: Vec<&Value> = was.get("finalizers").items().iter().filter_map(|item| item.value).collect();
        let added: Vec<String> = new
            .get("finalizers")
            .items()
            .iter()
            .filter(|item| !item.value.is_some_and(|value| before.contains(&value)))
            .map(|item| format!("{:?}", item.text()))
            .collect();
        if !added.is_empty() {
            errors.push(new.get("finalizers").forbidden(&format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            )));
        }
    }
}
