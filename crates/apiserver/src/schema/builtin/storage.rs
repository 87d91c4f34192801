//! Rules of ConfigMaps, Secrets, claims, volumes and storage classes.

use serde_json::Value;

use super::at::At;
use super::container::{amount, check_quantity};
use super::names;
use super::pod::changed_fields;
use crate::schema::FieldError;

/// The most that the values of a ConfigMap or Secret may hold together.
const MAX_DATA: usize = 1024 * 1024;

/// The rules of a ConfigMap.
pub fn validate_config_map(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let (data, binary) = (new.get("data"), new.get("binaryData"));
    let mut size = 0;
    for (key, at) in data.entries().into_iter().chain(binary.entries()) {
        errors.extend(names::config_key(key).iter().map(|fault| FieldError::invalid(&at.path, &key.into(), fault)));
        size += at.text().len();
    }
    for (key, at) in data.entries() {
        if binary.get(key).is_there() {
            errors.push(FieldError::invalid(&at.path, &key.into(), "duplicate of key present in binaryData"));
        }
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long("", MAX_DATA as u64));
    }
    check_immutable(new, was, &["data", "binaryData"], errors);
}

/// What is marked immutable stays as it is, and stays marked.
fn check_immutable(new: &At<'_>, was: &At<'_>, fields: &[&str], errors: &mut Vec<FieldError>) {
    if !was.get("immutable").is_true() {
        return;
    }
    let rule = "field is immutable when `immutable` is set";
    if !new.get("immutable").is_true() {
        errors.push(new.get("immutable").forbidden(rule));
    }
    for field in fields {
        if new.get(field).value != was.get(field).value {
            errors.push(new.get(field).forbidden(rule));
        }
    }
}

/// The rules of a Secret.
pub fn validate_secret(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let data = new.get("data");
    let mut size = 0;
    for (key, at) in data.entries() {
        errors.extend(names::config_key(key).iter().map(|fault| FieldError::invalid(&at.path, &key.into(), fault)));
        size += at.text().len() / 4 * 3;
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long("data", MAX_DATA as u64));
    }
    let needed: &[&str] = match new.get("type").text() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        _ => &[],
    };
    let has = |key: &str| data.fields().is_some_and(|data| data.contains_key(key));
    for key in needed.iter().filter(|key| !has(key)) {
        errors.push(FieldError::required(&format!("data[{key}]"), ""));
    }
    if new.get("type").text() == "kubernetes.io/basic-auth" && !has("username") && !has("password") {
        errors.push(FieldError::required("data[username]", ""));
        errors.push(FieldError::required("data[password]", ""));
    }
    if was.is_there() {
        new.get("type").must_not_change(&was.get("type"), errors);
    }
    check_immutable(new, was, &["data", "stringData"], errors);
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The rules of a claim's spec, also inside a StatefulSet.
fn validate_claim_spec(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let modes = spec.get("accessModes");
    if modes.items().is_empty() {
        errors.push(modes.required("at least 1 access mode is required"));
    }
    modes.items().iter().for_each(|mode| mode.must_be_one_of(&ACCESS_MODES, errors));
    let storage = spec.at(["resources", "requests", "storage"]);
    if storage.is_there() {
        check_quantity(&storage, errors);
        if amount(storage.value) == Some(0.0) {
            errors.push(storage.invalid("must be greater than zero"));
        }
    } else {
        errors.push(FieldError::required(&format!("{}.resources[storage]", spec.path), ""));
    }
    spec.get("volumeMode").must_be_one_of(&["Block", "Filesystem"], errors);
    let class = spec.get("storageClassName");
    if !class.text().is_empty() {
        errors.extend(names::subdomain(class.text()).iter().map(|fault| class.invalid(fault)));
    }
    super::workload::check_label_selector(&spec.get("selector"), errors);
}

/// The rules of a PersistentVolumeClaim.
pub fn validate_claim(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    validate_claim_spec(&spec, errors);
    let (Some(now), Some(before)) = (spec.value, was.get("spec").value) else { return };
    let before = &At { path: spec.path.clone(), value: Some(before) };
    // A binder may give a claim its volume, and a default class may come later.
    let appears = |field: &str| ["volumeName", "storageClassName"].contains(&field) && !before.get(field).is_there();
    let grows = ["resources", "volumeAttributesClassName"];
    let changed = changed_fields(now, before.value.unwrap_or(&Value::Null));
    if changed.iter().any(|field| !appears(field) && !grows.contains(&field.as_str())) {
        errors.push(spec.forbidden(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let path = ["resources", "requests", "storage"];
    if amount(spec.at(path).value) < amount(before.at(path).value) {
        errors.push(spec.at(path).forbidden("field can not be less than previous value"));
    }
}

const PV_SOURCES: [&str; 6] = ["hostPath", "local", "nfs", "csi", "iscsi", "fc"];

/// The rules of a PersistentVolume.
pub fn validate_volume(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    let modes = spec.get("accessModes");
    if modes.items().is_empty() {
        errors.push(modes.required(""));
    }
    modes.items().iter().for_each(|mode| mode.must_be_one_of(&ACCESS_MODES, errors));
    let capacity = spec.get("capacity");
    if capacity.entries().is_empty() {
        errors.push(capacity.required(""));
    }
    capacity.entries().iter().for_each(|(_, amount)| check_quantity(amount, errors));
    let sources: Vec<At<'_>> =
        PV_SOURCES.iter().map(|source| spec.get(source)).filter(|source| source.is_there()).collect();
    match sources.as_slice() {
        [] => errors.push(spec.required("must specify a volume type")),
        [_] => {}
        [_, others @ ..] => {
            errors.extend(others.iter().map(|other| other.forbidden("may not specify more than 1 volume type")));
        }
    }
    for source in sources.iter().filter(|source| source.path.ends_with("hostPath") || source.path.ends_with("local")) {
        source.get("path").must_be_given("", errors);
        if source.get("path").text().split('/').any(|part| part == "..") {
            errors.push(source.get("path").invalid("must not contain '..'"));
        }
    }
    spec.get("persistentVolumeReclaimPolicy").must_be_one_of(&["Delete", "Recycle", "Retain"], errors);
    spec.get("volumeMode").must_be_one_of(&["Block", "Filesystem"], errors);
    if was.is_there() {
        let was = was.get("spec");
        if PV_SOURCES.iter().any(|source| spec.get(source).value != was.get(source).value) {
            let path = "spec.persistentvolumesource";
            errors.push(FieldError::forbidden(path, "spec.persistentvolumesource is immutable after creation"));
        }
        spec.get("volumeMode").must_not_change(&was.get("volumeMode"), errors);
    }
}

/// The rules of a StorageClass.
pub fn validate_class(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    new.get("provisioner").must_be_given("", errors);
    new.get("reclaimPolicy").must_be_one_of(&["Delete", "Retain"], errors);
    new.get("volumeBindingMode").must_be_one_of(&["Immediate", "WaitForFirstConsumer"], errors);
    if was.is_there() {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if new.get(field).value != was.get(field).value {
                errors.push(new.get(field).forbidden(&format!("updates to {field} are forbidden.")));
            }
        }
    }
}
