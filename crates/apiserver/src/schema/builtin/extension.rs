//! Rules of CustomResourceDefinitions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::at::At;
use super::names;
use crate::schema::{FieldError, compile_at};

/// The rules of a CustomResourceDefinition, its schemas included.
pub fn validate(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    check_names(new, &spec, errors);
    let scope = spec.get("scope");
    scope.must_be_given("", errors);
    scope.must_be_one_of(&["Cluster", "Namespaced"], errors);
    if spec.get("preserveUnknownFields").is_true() {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(spec.get("preserveUnknownFields").invalid(detail));
    }
    check_versions(&spec.get("versions"), errors);
    if was.is_there() {
        let was = was.get("spec");
        for field in ["group", "scope"] {
            spec.get(field).must_not_change(&was.get(field), errors);
        }
        for field in ["plural", "kind"] {
            spec.at(["names", field]).must_not_change(&was.at(["names", field]), errors);
        }
        check_stored(new, errors);
    }
}

fn check_names(new: &At<'_>, spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let (group, plural) = (spec.get("group"), spec.at(["names", "plural"]));
    group.must_be_given("", errors);
    if !group.text().is_empty() {
        errors.extend(names::subdomain(group.text()).iter().map(|fault| group.invalid(fault)));
        if !group.text().contains('.') {
            errors.push(group.invalid("should be a domain with at least one dot"));
        }
    }
    plural.must_be_given("", errors);
    for (field, lower) in [("plural", true), ("singular", true), ("kind", false), ("listKind", false)] {
        let at = spec.at(["names", field]);
        if field == "kind" {
            at.must_be_given("", errors);
        }
        if !at.text().is_empty() {
            let text = if lower { at.text().to_owned() } else { at.text().to_lowercase() };
            errors.extend(names::label_1035(&text).iter().map(|fault| at.invalid(fault)));
        }
    }
    for short in spec.at(["names", "shortNames"]).items() {
        errors.extend(names::label_1035(short.text()).iter().map(|fault| short.invalid(fault)));
    }
    let name = new.at(["metadata", "name"]);
    let wanted = format!("{}.{}", plural.text(), group.text());
    if !name.text().is_empty() && name.text() != wanted {
        errors.push(name.invalid("must be spec.names.plural+\".\"+spec.group"));
    }
}

fn check_versions(versions: &At<'_>, errors: &mut Vec<FieldError>) {
    let items = versions.items();
    if items.is_empty() {
        errors.push(versions.required("must have at least one version"));
        return;
    }
    let stored = items.iter().filter(|version| version.get("storage").is_true()).count();
    if stored != 1 {
        errors.push(versions.invalid("must have exactly one version marked as storage version"));
    }
    let mut seen = BTreeSet::new();
    for version in &items {
        let name = version.get("name");
        name.must_be_given("", errors);
        if !name.text().is_empty() {
            errors.extend(names::label_1035(name.text()).iter().map(|fault| name.invalid(fault)));
        }
        if !seen.insert(name.text()) {
            errors.push(FieldError::invalid(&name.path, &name.text().into(), "must contain unique version names"));
        }
        let schema = version.at(["schema", "openAPIV3Schema"]);
        match schema.value {
            None => errors.push(schema.required("schemas are required")),
            Some(schema_value) => {
                if let Err(faults) = compile_at(schema_value, &schema.path) {
                    errors.extend(faults);
                }
            }
        }
        check_scale(&version.at(["subresources", "scale"]), errors);
    }
}

fn check_scale(scale: &At<'_>, errors: &mut Vec<FieldError>) {
    if !scale.is_there() {
        return;
    }
    for (field, start) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = scale.get(field);
        if path.text().is_empty() {
            errors.push(path.required(""));
        } else if !path.text().starts_with(start) {
            errors.push(path.invalid(&format!("should be a json path under {}", start.trim_end_matches('.'))));
        }
    }
}

/// Objects are kept in the versions that `status.storedVersions` lists, so those must stay.
fn check_stored(new: &At<'_>, errors: &mut Vec<FieldError>) {
    let versions = new.at(["spec", "versions"]).items();
    let known: Vec<Option<&Value>> = versions.iter().map(|version| version.get("name").value).collect();
    for stored in new.at(["status", "storedVersions"]).items() {
        if !known.contains(&stored.value) {
            let detail = format!(
                "missing from spec.versions; {} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {} and removes {} from status.storedVersions",
                stored.text(),
                stored.text(),
                stored.text()
            );
            errors.push(stored.invalid(&detail));
        }
    }
}
