//! delete and deletecollection.

use std::sync::Arc;

use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::body::DeleteOptions;
use super::status::{ApiError, Cause, Outcome, without_blanks};
use super::write::{Answer, Reply, finalizers, finished, key, metadata, text};
use super::{Call, admit, read, render};
use crate::store::{Change, Durability, Event, Expect, Stored, Write, WriteError};
use crate::time;

/// Namespaces that a cluster cannot be without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(crate) async fn delete(call: &Call, options: DeleteOptions) -> Outcome<Reply> {
    let name = call.target.name().to_owned();
    delete_one(call, &name, &options).await
}

pub(crate) async fn delete_collection(call: &Call, options: DeleteOptions) -> Outcome<Response> {
    let selector = read::selector(call)?;
    let (revision, mut items) = call.server.store.list(&call.target.kind.resource, read::scope(call, &selector));
    items.retain(|object| selector.matches(&object.value()));
    for item in &items {
        let mut target = call.target.clone();
        target.namespace = Some(text(&item.value(), "/metadata/namespace").to_owned()).filter(|text| !text.is_empty());
        target.name = Some(text(&item.value(), "/metadata/name").to_owned());
        let one = Call {
            server: call.server.clone(),
            user: call.user.clone(),
            target,
            params: call.params.clone(),
            form: call.form,
            manager: call.manager.clone(),
            applying: false,
            repeated: Vec::new(),
        };
        match delete(&one, options.clone()).await {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    render::list(call, read::Page { revision, items, token: None, remaining: None })
}

async fn delete_one(call: &Call, name: &str, options: &DeleteOptions) -> Outcome<Reply> {
    let kind = &call.target.kind;
    loop {
        let current = read::find(call)?;
        if &*kind.resource == "/namespaces" && IMMORTAL.contains(&name) {
            return Err(ApiError::forbidden(kind, name, "this namespace may not be deleted"));
        }
        preconditions(call, &current, options)?;
        let mut next = marked(call, &current.value(), options)?;
        let gone = finished(call, &next);
        // What goes at once was never about to go: no watcher sees a time of deletion. A pod is always asked to end.
        if gone && &*call.target.kind.resource != "/pods" {
            next = Value::clone(&current.value());
        }
        if options.dry_run.as_ref().is_some_and(|values| !values.is_empty()) {
            let answer = if gone { ended(call, &next) } else { Answer::Dry(next) };
            return Ok(Reply { code: 200, answer, warnings: Vec::new() });
        }
        if !gone && next == *current.value() {
            return Ok(Reply { code: 200, answer: Answer::Stored(current), warnings: Vec::new() });
        }
        let change = if gone { Change::Delete(next) } else { Change::Put(next) };
        let expect = Expect::Revision(current.revision);
        let write = Write { key: key(call, name), expect, change, durability: Durability::Durable };
        match call.server.store.write(write).await {
            Ok(event) => {
                admit::written(call, &event).await;
                return Ok(reply(call, &event, gone));
            }
            Err(WriteError::Conflict(_)) => {}
            Err(error) => return Err(ApiError::from_write(kind, name, error)),
        }
    }
}

fn reply(call: &Call, event: &Arc<Event>, gone: bool) -> Reply {
    let answer = match gone && !answers_object(call) {
        true => ended(call, &event.object.value()),
        false => Answer::Stored(event.object.clone()),
    };
    Reply { code: 200, answer, warnings: Vec::new() }
}

/// Whether the deletion of an object that goes at once is answered with the object (`ReturnDeletedObject` of its
/// registry in Kubernetes) and not with a Status.
fn answers_object(call: &Call) -> bool {
    const KINDS: [&str; 6] = [
        "/pods",
        "/services",
        "/serviceaccounts",
        "/persistentvolumes",
        "/persistentvolumeclaims",
        "storage.k8s.io/storageclasses",
    ];
    KINDS.contains(&&*call.target.kind.resource)
}

/// The Status that says that an object is gone.
fn ended(call: &Call, object: &Value) -> Answer {
    if answers_object(call) {
        return Answer::Dry(object.clone());
    }
    let kind = &call.target.kind;
    let details = json!({"name": text(object, "/metadata/name"), "group": kind.group, "kind": kind.plural,
        "uid": text(object, "/metadata/uid")});
    Answer::Status(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": without_blanks(details)}))
}

fn preconditions(call: &Call, current: &Stored, options: &DeleteOptions) -> Outcome<()> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    let checks = [
        ("UID", &wanted.uid, "/metadata/uid", "deleted and then recreated"),
        ("ResourceVersion", &wanted.resource_version, "/metadata/resourceVersion", "modified"),
    ];
    let current = current.value();
    for (what, wanted, pointer, perhaps) in checks {
        let found = text(&current, pointer);
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                 The object might have been {perhaps}"
            );
            return Err(ApiError::precondition(&call.target.kind, call.target.name(), &why));
        }
    }
    Ok(())
}

/// The object as the deletion leaves it: with the finalizers of its propagation and, if it has to wait for anything,
/// with a deletion timestamp.
fn marked(call: &Call, current: &Value, options: &DeleteOptions) -> Outcome<Value> {
    let mut next = current.clone();
    propagate(&mut next, options)?;
    if call.target.kind.group == "apiextensions.k8s.io" && finalizers(current).is_empty() {
        admit::hold_definition(call, &mut next)?;
    }
    let grace = grace(call, current, options);
    let kind = &*call.target.kind.resource;
    let already = !text(current, "/metadata/deletionTimestamp").is_empty();
    let before = current.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    // A second deletion can only shorten the wait.
    if !already || grace < before {
        let when = Timestamp::now().saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        let metadata = metadata(&mut next)?;
        metadata.insert("deletionTimestamp".into(), time::format(when).into());
        // A namespace has a life cycle of its own.
        if kind != "/namespaces" {
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        }
        if !already && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
    admit::on_delete(call, &mut next);
    Ok(next)
}

fn propagate(next: &mut Value, options: &DeleteOptions) -> Outcome<()> {
    let refused = |reason: &str, message: String| {
        let cause = Cause { reason: reason.into(), message, field: "propagationPolicy".into() };
        Err(ApiError::options("DeleteOptions", cause))
    };
    let policy = match (options.propagation_policy.as_deref(), options.orphan_dependents) {
        (Some(policy), Some(_)) => {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            return refused("FieldValueInvalid", format!("Invalid value: \"{policy}\": {why}"));
        }
        (Some(policy), None) => policy,
        (None, Some(true)) => "Orphan",
        (None, Some(false)) => "Background",
        (None, None) => return Ok(()),
    };
    let wanted = match policy {
        "Orphan" => Some(ORPHAN),
        "Foreground" => Some(FOREGROUND),
        "Background" => None,
        other => {
            let known = r#""Foreground", "Background", "Orphan", "nil""#;
            return refused(
                "FieldValueNotSupported",
                format!("Unsupported value: \"{other}\": supported values: {known}"),
            );
        }
    };
    let mut list: Vec<String> = finalizers(next).into_iter().map(str::to_owned).collect();
    list.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
    list.extend(wanted.map(str::to_owned));
    let metadata = metadata(next)?;
    if list.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), list.into());
    }
    Ok(())
}

/// Seconds until a pod may be gone; its node ends it earlier by a deletion with 0. Other kinds do not wait.
fn grace(call: &Call, current: &Value, options: &DeleteOptions) -> i64 {
    if &*call.target.kind.resource != "/pods" {
        return 0;
    }
    let unbound = text(current, "/spec/nodeName").is_empty();
    let over = matches!(text(current, "/status/phase"), "Succeeded" | "Failed");
    if unbound || over {
        return 0;
    }
    let own = current.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    options.grace_period_seconds.unwrap_or(own).max(0)
}
