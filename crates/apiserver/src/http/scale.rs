//! The `scale` subresource: `autoscaling/v1` Scale over the paths that the kind names.

use serde_json::{Value, json};

use super::body::{PatchBody, PatchType};
use super::status::{ApiError, Cause, Outcome};
use super::write::{Answer, Reply, change, text};
use super::{Call, read};
use crate::kinds::{Kind, Scale, jsonpath};
use crate::patch;

fn paths(call: &Call) -> Outcome<&Scale> {
    call.target.kind.scale.as_ref().ok_or_else(ApiError::no_such_path)
}

/// The selector as text: `a=b,c=d`.
fn selector(kind: &Kind, scale: &Scale, object: &Value) -> String {
    if let Some(path) = &scale.selector {
        return jsonpath::first(object, path).map(jsonpath::text).unwrap_or_default();
    }
    let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", jsonpath::text(value)));
    let text: Vec<String> = pairs.collect();
    if kind.custom.is_some() { String::new() } else { text.join(",") }
}

fn scale_of(kind: &Kind, scale: &Scale, object: &Value) -> Value {
    let number = |path: &str| jsonpath::first(object, path).and_then(Value::as_i64).unwrap_or(0);
    let metadata = &object["metadata"];
    let mut status = json!({"replicas": number(&scale.status_replicas)});
    match selector(kind, scale, object) {
        text if text.is_empty() => {}
        text => status["selector"] = text.into(),
    }
    // The type of the built-in Scale leaves a zero out.
    let spec = match number(&scale.spec_replicas) {
        0 if kind.custom.is_none() => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": spec, "status": status})
}

pub(super) fn get(call: &Call) -> Outcome<Reply> {
    let object = read::find(call)?;
    let answer = scale_of(&call.target.kind, paths(call)?, &object.value());
    Ok(Reply { code: 200, answer: Answer::Status(answer), warnings: Vec::new() })
}

pub(super) async fn replace(call: &Call, scale: Value) -> Outcome<Reply> {
    set(call, |_| Ok(scale.clone())).await
}

pub(super) async fn patch(call: &Call, body: PatchBody) -> Outcome<Reply> {
    set(call, |current| {
        let result = match body.kind {
            PatchType::Json => patch::json(current, &body.value),
            _ => patch::merge(current, &body.value),
        };
        result.map_err(|error| ApiError::new(422, "Invalid", error.to_string()))
    })
    .await
}

async fn set(call: &Call, propose: impl Fn(&Value) -> Outcome<Value>) -> Outcome<Reply> {
    let (kind, scale) = (&call.target.kind, paths(call)?);
    let mut reply = change(call, |current| {
        let proposed = propose(&scale_of(kind, scale, current))?;
        let replicas = proposed.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            return Err(below_zero(call, replicas));
        }
        let mut next = current.clone();
        next["metadata"]["resourceVersion"] = text(&proposed, "/metadata/resourceVersion").into();
        put(&mut next, &scale.spec_replicas, replicas.into());
        Ok(next)
    })
    .await?;
    let object = match &reply.answer {
        Answer::Stored(object) => &object.value(),
        Answer::Dry(object) | Answer::Status(object) => object,
    };
    reply.answer = Answer::Status(scale_of(kind, scale, object));
    Ok(reply)
}

/// Built-in kinds refuse the Scale, custom ones themselves.
fn below_zero(call: &Call, replicas: i64) -> ApiError {
    let kind = &call.target.kind;
    let (field, why) = match kind.custom {
        Some(_) => (".spec.replicas", "should be a non-negative integer"),
        None => ("spec.replicas", "must be greater than or equal to 0"),
    };
    let message = format!("Invalid value: {replicas}: {why}");
    let cause = Cause { reason: "FieldValueInvalid".into(), message, field: field.into() };
    let mut error = ApiError::invalid(kind, call.target.name(), std::slice::from_ref(&cause));
    if kind.custom.is_none() {
        error.message = format!("Scale.autoscaling \"{}\" is invalid: {field}: {}", call.target.name(), cause.message);
        if let Some(details) = &mut error.details {
            details["group"] = "autoscaling".into();
            details["kind"] = "Scale".into();
        }
    }
    error
}

/// Sets the value at a path of plain fields (`.spec.replicas`), which is all that scale paths may be.
fn put(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = value;
}
