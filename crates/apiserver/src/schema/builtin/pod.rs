//! Rules of pods and of pod templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::at::At;
use super::{container, names};
use crate::schema::FieldError;

/// The rules of a Pod.
pub fn validate(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    validate_spec(&spec, &[], errors);
    spec.get("restartPolicy").must_be_one_of(&["Always", "Never", "OnFailure"], errors);
    if was.is_there() {
        check_change(&spec, &was.get("spec"), errors);
    }
}

/// The rules of a pod's spec, wherever it stands. `claims` are the volumes that a StatefulSet will add to it.
pub fn validate_spec(spec: &At<'_>, claims: &[&str], errors: &mut Vec<FieldError>) {
    let own = spec.get("volumes");
    let mut volumes = check_volumes(&own, errors);
    volumes.extend(claims);
    let mut names = BTreeSet::new();
    let containers = spec.get("containers");
    if containers.items().is_empty() {
        errors.push(containers.required(""));
    }
    container::validate_all(&containers, &mut names, &volumes, errors);
    container::validate_all(&spec.get("initContainers"), &mut names, &volumes, errors);
    container::validate_all(&spec.get("ephemeralContainers"), &mut names, &volumes, errors);

    let dns = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    spec.get("dnsPolicy").must_be_one_of(&dns, errors);
    spec.get("terminationGracePeriodSeconds").must_not_be_negative(errors);
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.int().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        errors.push(deadline.invalid("must be between 1 and 2147483647, inclusive"));
    }
    for (field, rule) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> names::Faults),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
    ] {
        let at = spec.get(field);
        if !at.text().is_empty() {
            errors.extend(rule(at.text()).iter().map(|fault| at.invalid(fault)));
        }
    }
    super::metadata::check_labels(&spec.get("nodeSelector"), errors);
    check_security(&spec.get("securityContext"), errors);
    for container in spec.get("containers").items() {
        check_security(&container.get("securityContext"), errors);
    }
    for toleration in spec.get("tolerations").items() {
        toleration.get("operator").must_be_one_of(&["Equal", "Exists", "Gt", "Lt"], errors);
        toleration.get("effect").must_be_one_of(&["", "NoExecute", "NoSchedule", "PreferNoSchedule"], errors);
    }
}

fn check_security(context: &At<'_>, errors: &mut Vec<FieldError>) {
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        let id = context.get(field);
        if id.int().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
            errors.push(id.invalid("must be between 0 and 2147483647, inclusive"));
        }
    }
}

const VOLUME_SOURCES: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "volumeID"),
    ("azureDisk", "diskName"),
    ("azureFile", "secretName"),
    ("cephfs", "monitors"),
    ("cinder", "volumeID"),
    ("configMap", "name"),
    ("csi", "driver"),
    ("downwardAPI", ""),
    ("emptyDir", ""),
    ("ephemeral", "volumeClaimTemplate"),
    ("fc", ""),
    ("flexVolume", "driver"),
    ("flocker", ""),
    ("gcePersistentDisk", "pdName"),
    ("gitRepo", "repository"),
    ("glusterfs", "endpoints"),
    ("hostPath", "path"),
    ("image", ""),
    ("iscsi", "targetPortal"),
    ("nfs", "server"),
    ("persistentVolumeClaim", "claimName"),
    ("photonPersistentDisk", "pdID"),
    ("portworxVolume", "volumeID"),
    ("projected", ""),
    ("quobyte", "registry"),
    ("rbd", "monitors"),
    ("scaleIO", "gateway"),
    ("secret", "secretName"),
    ("storageos", ""),
    ("vsphereVolume", "volumePath"),
];

fn check_volumes<'a>(volumes: &At<'a>, errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for volume in volumes.items() {
        let name = volume.get("name");
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else {
            errors.extend(names::label(name.text()).iter().map(|fault| name.invalid(fault)));
            if !seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        let sources: Vec<_> = VOLUME_SOURCES.iter().filter(|(source, _)| volume.get(source).is_there()).collect();
        if sources.is_empty() {
            errors.push(volume.required("must specify a volume type"));
        }
        for (index, (source, needed)) in sources.into_iter().enumerate() {
            let source = volume.get(source);
            if index > 0 {
                errors.push(source.forbidden("may not specify more than 1 volume type"));
            } else if !needed.is_empty() && !source.get(needed).is_there() {
                errors.push(source.get(needed).required(""));
            }
        }
    }
    seen
}

const CHANGES: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A pod's spec hardly changes once it exists. Beyond what Kubernetes allows, a pod without a node may be given one: that
/// is how our scheduler binds.
fn check_change(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let (Some(new_spec), Some(was_spec)) = (new.value, was.value) else { return };
    let (new_lists, was_lists) = (containers(new_spec), containers(was_spec));
    if new_lists.len() != was_lists.len() {
        errors.push(FieldError::forbidden("spec.containers", "pod updates may not add or remove containers"));
        return;
    }
    let before = was.get("tolerations").items();
    let kept =
        before.iter().all(|old| new.get("tolerations").items().iter().any(|toleration| toleration.value == old.value));
    if !kept {
        errors.push(FieldError::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
        return;
    }
    let (deadline, was_deadline) = (new.get("activeDeadlineSeconds"), was.get("activeDeadlineSeconds"));
    if let Some(before) = was_deadline.int() {
        match deadline.int() {
            None => errors.push(FieldError::invalid(
                &deadline.path,
                &Value::Null,
                "must not update from a positive integer to nil value",
            )),
            Some(after) if after > before => {
                errors.push(deadline.invalid(&format!("must be less than or equal to previous value {before}")))
            }
            Some(_) => {}
        }
    }
    let unbound = was.get("nodeName").text().is_empty();
    if frozen(new_spec, unbound) != frozen(was_spec, unbound) {
        let changed = changed_fields(&frozen(new_spec, unbound), &frozen(was_spec, unbound));
        errors.push(FieldError::forbidden("spec", &format!("{CHANGES}; changed: {}", changed.join(", "))));
    }
}

fn containers(spec: &Value) -> Vec<&Value> {
    let lists = ["containers", "initContainers"].iter().filter_map(|list| spec.get(list)?.as_array());
    lists.flatten().collect()
}

/// A spec without what may change.
fn frozen(spec: &Value, unbound: bool) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    if let Some(fields) = spec.as_object_mut() {
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"] {
            fields.remove(field);
        }
        if unbound {
            fields.remove("nodeName");
        }
        if fields.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds <= 1) {
            fields.remove("terminationGracePeriodSeconds");
        }
    }
    spec
}

/// The names of the fields in which two objects differ.
pub fn changed_fields(new: &Value, was: &Value) -> Vec<String> {
    let names: BTreeSet<&String> =
        [new, was].iter().filter_map(|value| value.as_object()).flat_map(|map| map.keys()).collect();
    names.into_iter().filter(|name| new.get(*name) != was.get(*name)).cloned().collect()
}
