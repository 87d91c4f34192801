//! Rules of a pod's containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::at::At;
use super::names;
use super::quantity;
use crate::schema::FieldError;

/// Checks one list of containers. `names` holds the names taken so far in the pod, `volumes` those of its volumes.
pub fn validate_all<'a>(
    containers: &At<'a>,
    names: &mut BTreeSet<&'a str>,
    volumes: &BTreeSet<&str>,
    errors: &mut Vec<FieldError>,
) {
    for container in containers.items() {
        let name = container.get("name");
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else {
            errors.extend(names::label(name.text()).iter().map(|fault| name.invalid(fault)));
            if !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        validate(&container, volumes, errors);
    }
}

fn validate(container: &At<'_>, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let image = container.get("image");
    image.must_be_given("", errors);
    if image.text().trim() != image.text() {
        errors.push(image.invalid("must not have leading or trailing whitespace"));
    }
    container.get("imagePullPolicy").must_be_one_of(&["Always", "IfNotPresent", "Never"], errors);
    container.get("terminationMessagePolicy").must_be_one_of(&["FallbackToLogsOnError", "File"], errors);
    check_ports(&container.get("ports"), errors);
    check_env(container, errors);
    check_mounts(&container.get("volumeMounts"), volumes, errors);
    check_resources(&container.get("resources"), errors);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        check_probe(&container.get(probe), probe != "readinessProbe", errors);
    }
    for hook in ["postStart", "preStop"] {
        let hook = container.at(["lifecycle", hook]);
        if hook.is_there() {
            check_handler(&hook, errors);
        }
    }
}

fn check_ports(ports: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            errors.extend(names::port_name(name.text()).iter().map(|fault| name.invalid(fault)));
            if !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        let number = port.get("containerPort");
        match number.int() {
            None | Some(0) => errors.push(number.required("")),
            Some(value) => errors.extend(names::port_number(value).iter().map(|fault| number.invalid(fault))),
        }
        let host = port.get("hostPort");
        if let Some(value) = host.int().filter(|value| *value != 0) {
            errors.extend(names::port_number(value).iter().map(|fault| host.invalid(fault)));
        }
        port.get("protocol").must_be_one_of(&["SCTP", "TCP", "UDP"], errors);
    }
}

const ENV_SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

fn check_env(container: &At<'_>, errors: &mut Vec<FieldError>) {
    for variable in container.get("env").items() {
        let name = variable.get("name");
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else if !name.text().bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
            errors.push(name.invalid(
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            ));
        }
        let source = variable.get("valueFrom");
        if !source.is_there() {
            continue;
        }
        let given = ENV_SOURCES.iter().filter(|name| source.get(name).is_there()).count();
        match given {
            0 => errors.push(FieldError::invalid(&source.path, &"".into(), "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")),
            1 if !variable.get("value").text().is_empty() => {
                errors.push(FieldError::invalid(&source.path, &"".into(), "may not be specified when `value` is not empty"));
            }
            1 => {}
            _ => errors.push(FieldError::invalid(&source.path, &"".into(), "may not have more than one field specified at a time")),
        }
        for (name, needed) in [
            ("fieldRef", &["fieldPath"][..]),
            ("configMapKeyRef", &["name", "key"]),
            ("secretKeyRef", &["name", "key"]),
        ] {
            let source = source.get(name);
            if source.is_there() {
                needed.iter().for_each(|field| source.get(field).must_be_given("", errors));
            }
        }
    }
    for source in container.get("envFrom").items() {
        match ["configMapRef", "secretRef"].map(|name| source.get(name)).iter().filter(|at| at.is_there()).count() {
            1 => {}
            0 => errors.push(FieldError::invalid(
                &source.path,
                &"".into(),
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            _ => errors.push(FieldError::invalid(
                &source.path,
                &"".into(),
                "may not have more than one field specified at a time",
            )),
        }
    }
}

fn check_mounts(mounts: &At<'_>, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let mut paths = BTreeSet::new();
    for mount in mounts.items() {
        let name = mount.get("name");
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else if !volumes.contains(name.text()) {
            errors.push(name.not_found());
        }
        let path = mount.get("mountPath");
        if path.text().is_empty() {
            errors.push(path.required(""));
        } else if !paths.insert(path.text()) {
            errors.push(path.invalid("must be unique"));
        }
        let sub_path = mount.get("subPath");
        if sub_path.text().starts_with('/') {
            errors.push(sub_path.invalid("must be a relative path"));
        }
        if sub_path.text().split('/').any(|part| part == "..") {
            errors.push(sub_path.invalid("must not contain '..'"));
        }
    }
}

/// Quantities are quantities, not negative, and nothing requests more than its limit.
pub fn check_resources(resources: &At<'_>, errors: &mut Vec<FieldError>) {
    for part in ["limits", "requests"] {
        for (_, amount) in resources.get(part).entries() {
            check_quantity(&amount, errors);
        }
    }
    for (name, request) in resources.get("requests").entries() {
        let limit = resources.get("limits").get(name);
        let (asked, most) = (amount(request.value), amount(limit.value));
        if let (Some(asked), Some(most)) = (asked, most)
            && asked > most
        {
            let detail = format!("must be less than or equal to {name} limit of {}", limit.text());
            errors.push(FieldError::invalid(&format!("{}.requests", resources.path), &request.text().into(), &detail));
        }
    }
}

/// A quantity that is not negative.
pub fn check_quantity(at: &At<'_>, errors: &mut Vec<FieldError>) {
    match amount(at.value) {
        None => errors.push(at.invalid(quantity::FAULT)),
        Some(amount) if amount < 0.0 => errors.push(at.invalid("must be greater than or equal to 0")),
        Some(_) => {}
    }
}

/// The amount a quantity stands for, which may also be written as a number.
pub fn amount(value: Option<&Value>) -> Option<f64> {
    let value = value?;
    value.as_f64().or_else(|| quantity::parse(value.as_str()?))
}

fn check_probe(probe: &At<'_>, succeeds_once: bool, errors: &mut Vec<FieldError>) {
    if !probe.is_there() {
        return;
    }
    check_handler(probe, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        probe.get(field).must_not_be_negative(errors);
    }
    let threshold = probe.get("successThreshold");
    if succeeds_once && threshold.int().is_some_and(|times| times != 1) {
        errors.push(threshold.invalid("must be 1"));
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds <= 0) {
        errors.push(grace.invalid("must be greater than 0"));
    }
}

fn check_handler(at: &At<'_>, errors: &mut Vec<FieldError>) {
    let kinds: Vec<&str> =
        ["exec", "httpGet", "tcpSocket", "grpc", "sleep"].into_iter().filter(|kind| at.get(kind).is_there()).collect();
    match kinds.as_slice() {
        [] => errors.push(at.required("must specify a handler type")),
        ["exec"] => {
            let command = at.at(["exec", "command"]);
            if command.items().is_empty() {
                errors.push(command.required(""));
            }
        }
        ["sleep"] => {}
        [kind @ ("httpGet" | "tcpSocket" | "grpc")] => {
            check_target(&at.get(kind).get("port"), errors);
            if *kind == "httpGet" {
                at.at(["httpGet", "path"]).must_be_given("", errors);
                at.at(["httpGet", "scheme"]).must_be_one_of(&["HTTP", "HTTPS"], errors);
            }
        }
        [_, others @ ..] => {
            errors.extend(others.iter().map(|kind| at.get(kind).forbidden("may not specify more than 1 handler type")))
        }
    }
}

/// A port by number or by name.
pub fn check_target(port: &At<'_>, errors: &mut Vec<FieldError>) {
    let faults = match port.value {
        Some(Value::String(name)) => names::port_name(name),
        Some(value) => names::port_number(value.as_i64().unwrap_or_default()),
        None => names::port_number(0),
    };
    errors.extend(faults.iter().map(|fault| port.invalid(fault)));
}
