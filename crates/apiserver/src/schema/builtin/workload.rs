//! Rules of StatefulSets, Jobs, ControllerRevisions and PodDisruptionBudgets.

use serde_json::Value;

use super::at::At;
use super::pod::{self, changed_fields};
use super::{container, metadata, names};
use crate::schema::FieldError;

/// What of a StatefulSet's spec may change.
const STATEFUL_SET_CHANGES: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// The rules of a StatefulSet.
pub fn validate_stateful_set(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    spec.get("podManagementPolicy").must_be_one_of(&["OrderedReady", "Parallel"], errors);
    let strategy = spec.at(["updateStrategy", "type"]);
    if strategy.is_there() && !matches!(strategy.text(), "OnDelete" | "RollingUpdate") {
        errors.push(strategy.invalid("must be 'RollingUpdate' or 'OnDelete'"));
    }
    spec.at(["updateStrategy", "rollingUpdate", "partition"]).must_not_be_negative(errors);
    for field in ["whenDeleted", "whenScaled"] {
        spec.at(["persistentVolumeClaimRetentionPolicy", field]).must_be_one_of(&["Delete", "Retain"], errors);
    }
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        spec.get(field).must_not_be_negative(errors);
    }
    let template = spec.get("template");
    check_selector(&spec.get("selector"), &template, errors);
    let claims = spec.get("volumeClaimTemplates");
    let claims: Vec<At<'_>> = claims.items().iter().map(|claim| claim.at(["metadata", "name"])).collect();
    let claims: Vec<&str> = claims.iter().map(At::text).collect();
    check_template(&template, &claims, errors);
    template.at(["spec", "restartPolicy"]).must_be_one_of(&["Always"], errors);
    let deadline = template.at(["spec", "activeDeadlineSeconds"]);
    if deadline.is_there() {
        errors.push(deadline.forbidden("activeDeadlineSeconds in StatefulSet is not Supported"));
    }
    if let (Some(now), Some(before)) = (spec.value, was.get("spec").value) {
        let changed = changed_fields(now, before);
        if changed.iter().any(|field| !STATEFUL_SET_CHANGES.contains(&field.as_str())) {
            errors.push(spec.forbidden(
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            ));
        }
    }
}

fn check_template(template: &At<'_>, claims: &[&str], errors: &mut Vec<FieldError>) {
    metadata::check_labels(&template.at(["metadata", "labels"]), errors);
    pod::validate_spec(&template.get("spec"), claims, errors);
}

/// A selector must select something, and the pods of the template.
fn check_selector(selector: &At<'_>, template: &At<'_>, errors: &mut Vec<FieldError>) {
    if !selector.is_there() {
        errors.push(selector.required(""));
        return;
    }
    check_label_selector(selector, errors);
    if selector.get("matchLabels").entries().is_empty() && selector.get("matchExpressions").items().is_empty() {
        errors.push(selector.invalid("empty selector is invalid for statefulset"));
        return;
    }
    let labels = template.at(["metadata", "labels"]);
    if !selects(selector, &labels) {
        let none = Value::Object(serde_json::Map::new());
        let value = labels.value.unwrap_or(&none);
        errors.push(FieldError::invalid(&labels.path, value, "`selector` does not match template `labels`"));
    }
}

/// The syntax of a label selector.
pub fn check_label_selector(selector: &At<'_>, errors: &mut Vec<FieldError>) {
    metadata::check_labels(&selector.get("matchLabels"), errors);
    for expression in selector.get("matchExpressions").items() {
        let (key, operator, values) = (expression.get("key"), expression.get("operator"), expression.get("values"));
        errors.extend(names::qualified(key.text()).iter().map(|fault| key.invalid(fault)));
        match operator.text() {
            "In" | "NotIn" if values.items().is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.items().is_empty() => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(operator.invalid("not a valid selector operator")),
        }
    }
}

fn selects(selector: &At<'_>, labels: &At<'_>) -> bool {
    let by_label =
        selector.get("matchLabels").entries().iter().all(|(key, value)| labels.get(key).value == value.value);
    by_label
        && selector.get("matchExpressions").items().iter().all(|expression| {
            let label = labels.get(expression.get("key").text());
            let listed = expression.get("values").items().iter().any(|value| value.value == label.value);
            match expression.get("operator").text() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label.is_there(),
                "DoesNotExist" => !label.is_there(),
                _ => true,
            }
        })
}

/// The rules of a Job.
pub fn validate_job(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        spec.get(field).must_not_be_negative(errors);
    }
    spec.get("completionMode").must_be_one_of(&["Indexed", "NonIndexed"], errors);
    spec.get("podReplacementPolicy").must_be_one_of(&["Failed", "TerminatingOrFailed"], errors);
    let template = spec.get("template");
    check_label_selector(&spec.get("selector"), errors);
    check_template(&template, &[], errors);
    template.at(["spec", "restartPolicy"]).must_be_one_of(&["Never", "OnFailure"], errors);
    if was.is_there() {
        let was = was.get("spec");
        for field in ["selector", "template", "completionMode"] {
            spec.get(field).must_not_change(&was.get(field), errors);
        }
        if spec.get("completionMode").text() != "Indexed" {
            spec.get("completions").must_not_change(&was.get("completions"), errors);
        }
    }
}

/// The rules of a ControllerRevision.
pub fn validate_revision(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let revision = new.get("revision");
    if revision.int().is_some_and(|revision| revision < 0) {
        errors.push(revision.invalid("must be greater than or equal to 0"));
    }
    if was.is_there() {
        new.get("data").must_not_change(&was.get("data"), errors);
    } else if !new.get("data").is_there() {
        errors.push(new.get("data").required("data is mandatory"));
    }
}

/// The rules of a PodDisruptionBudget.
pub fn validate_budget(new: &At<'_>, _was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    if spec.get("minAvailable").is_there() && spec.get("maxUnavailable").is_there() {
        errors.push(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let at = spec.get(field);
        if let Some(Value::String(text)) = at.value {
            let percent =
                text.strip_suffix('%').is_some_and(|digits| container::amount(Some(&digits.into())).is_some());
            if !percent {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.push(at.invalid(detail));
            }
        }
        at.must_not_be_negative(errors);
    }
    check_label_selector(&spec.get("selector"), errors);
}
