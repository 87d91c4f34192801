//! create, update and patch: one way from a proposed object to a revision.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Map, Value};

use super::body::{PatchBody, PatchType};
use super::status::{ApiError, Cause, Outcome};
use super::{Call, admit, fields, rbac, read, render, respond};
use crate::kinds::Generation;
use crate::store::{Change, Durability, Expect, Key, Stored, Write};
use crate::time;

/// How often a write that names no revision is tried again after losing a race.
const RACES: usize = 64;

/// The object to answer with.
pub(crate) enum Answer {
    /// As stored.
    Stored(Arc<Stored>),
    /// Never stored: a dry run.
    Dry(Value),
    /// A `Status`.
    Status(Value),
}

/// What a write came to.
pub(crate) struct Reply {
    pub code: u16,
    pub answer: Answer,
    pub warnings: Vec<String>,
}

impl Reply {
    pub fn respond(self, call: &Call) -> Outcome<Response> {
        let mut response = match self.answer {
            Answer::Stored(object) => render::stored(call, self.code, &object)?,
            Answer::Dry(object) => render::value(call, self.code, object)?,
            Answer::Status(status) => respond::json(self.code, status.to_string()),
        };
        respond::warn(&mut response, &self.warnings);
        Ok(response)
    }
}

/// The key that a call names.
pub(crate) fn key(call: &Call, name: &str) -> Key {
    let target = &call.target;
    Key { resource: target.kind.resource.clone(), namespace: target.place().to_owned(), name: name.to_owned() }
}

/// `metadata` of an object, made if missing.
pub(crate) fn metadata(object: &mut Value) -> Outcome<&mut Map<String, Value>> {
    let map = object.as_object_mut().ok_or_else(|| ApiError::bad_request("the body is not an object"))?;
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().ok_or_else(|| ApiError::bad_request("metadata is not an object"))
}

pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Refuses an object of another kind than the path's and gives a missing type.
fn check_type(call: &Call, object: &mut Value) -> Outcome<()> {
    let kind = &call.target.kind;
    let map = object.as_object_mut().ok_or_else(|| ApiError::bad_request("the body is not an object"))?;
    for (field, wanted) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
        match map.get(field).and_then(Value::as_str) {
            None | Some("") => {
                map.insert(field.into(), wanted.into());
            }
            Some(found) if found == wanted => {}
            Some(found) => {
                let message =
                    format!("the {field} in the data ({found}) does not match the expected {field} ({wanted})");
                return Err(ApiError::bad_request(message));
            }
        }
    }
    Ok(())
}

/// Refuses a body that names another place than the path.
fn check_place(call: &Call, object: &mut Value) -> Outcome<()> {
    let target = &call.target;
    let metadata = metadata(object)?;
    match (&target.namespace, metadata.get("namespace").and_then(Value::as_str).filter(|text| !text.is_empty())) {
        (Some(wanted), Some(found)) if wanted != found => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(message));
        }
        (None, Some(_)) if !target.kind.namespaced => {
            metadata.remove("namespace");
        }
        (Some(wanted), None) => {
            metadata.insert("namespace".into(), wanted.as_str().into());
        }
        _ => {}
    }
    if let Some(wanted) = &target.name {
        match metadata.get("name").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            Some(found) if found != wanted => {
                let message = format!("the name of the object ({found}) does not match the name on the URL ({wanted})");
                return Err(ApiError::bad_request(message));
            }
            _ => metadata.insert("name".into(), wanted.as_str().into()),
        };
    }
    Ok(())
}

pub(crate) async fn create(call: &Call, mut object: Value) -> Outcome<Reply> {
    let kind = &call.target.kind;
    check_type(call, &mut object)?;
    check_place(call, &mut object)?;
    if kind.namespaced && call.target.namespace.is_none() {
        return Err(ApiError::method_not_allowed());
    }
    admit::namespace_takes_new(call, &object)?;
    let name = stamp_new(call, &mut object)?;
    let _addresses = if &*kind.resource == "/services" { Some(call.server.service_lock.lock().await) } else { None };
    admit::on_create(call, &mut object)?;
    drop_blanks(&mut object);
    let warnings = fields::conform(call, &mut object, None)?;
    fields::track(call, None, &mut object);
    let object = kind.to_stored(object);
    if call.params.dry_run()? {
        if call.server.store.get(&kind.resource, call.target.place(), &name).is_some() {
            return Err(ApiError::already_exists(kind, &name));
        }
        return Ok(Reply { code: 201, answer: Answer::Dry(object), warnings });
    }
    let write = Write {
        key: key(call, &name),
        expect: Expect::Absent,
        change: Change::Put(object),
        durability: Durability::Durable,
    };
    let event = call.server.store.write(write).await.map_err(|error| ApiError::from_write(kind, &name, error))?;
    admit::written(call, &event).await;
    Ok(Reply { code: 201, answer: Answer::Stored(event.object.clone()), warnings })
}

/// Gives a new object what the server alone gives: name, uid, creation time, generation.
fn stamp_new(call: &Call, object: &mut Value) -> Outcome<String> {
    let kind = &call.target.kind;
    let mut name = text(object, "/metadata/name").to_owned();
    let generated = text(object, "/metadata/generateName").to_owned();
    if name.is_empty() && !generated.is_empty() {
        name = format!("{generated}{}", suffix()?);
    }
    if name.is_empty() {
        let message = "Required value: name or generateName is required".to_owned();
        let cause = Cause { reason: "FieldValueRequired".into(), message, field: "metadata.name".into() };
        return Err(ApiError::invalid(kind, &name, &[cause]));
    }
    if !text(object, "/metadata/resourceVersion").is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let uid = uid()?;
    let metadata = metadata(object)?;
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        metadata.remove(field);
    }
    if !call.applying {
        metadata.remove("managedFields");
    }
    metadata.insert("name".into(), name.as_str().into());
    metadata.insert("uid".into(), uid.into());
    metadata.insert("creationTimestamp".into(), time::now().into());
    match kind.generation {
        Generation::Spec => metadata.insert("generation".into(), 1.into()),
        Generation::None => metadata.remove("generation"),
    };
    Ok(name)
}

/// The five characters that Kubernetes appends: no vowels and no 0, 1, 3, so that no words arise.
fn suffix() -> Outcome<String> {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bytes = [0u8; 5];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect())
}

/// A random (version 4) uid.
pub(crate) fn uid() -> Outcome<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::internal(error.to_string()))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

pub(crate) async fn replace(call: &Call, mut object: Value) -> Outcome<Reply> {
    check_type(call, &mut object)?;
    check_place(call, &mut object)?;
    let kind = &call.target.kind;
    // Two writers of a custom resource that both forget the revision would silently undo each other.
    if kind.custom.is_some() && text(&object, "/metadata/resourceVersion").is_empty() {
        let message = "Invalid value: 0: must be specified for an update".to_owned();
        let cause = Cause { reason: "FieldValueInvalid".into(), message, field: "metadata.resourceVersion".into() };
        return Err(ApiError::invalid_as(&kind.plural, &kind.group, call.target.name(), &[cause]));
    }
    change(call, |_| Ok(object.clone())).await
}

pub(crate) async fn patch(call: &mut Call, patch: PatchBody) -> Outcome<Reply> {
    if patch.kind == PatchType::Apply {
        call.applying = true;
        return apply(call, &patch.value).await;
    }
    let call = &*call;
    if call.params.get("force").is_some() {
        let why = "Forbidden: may not be specified for non-apply patch";
        return Err(call.params.refuse("force", "FieldValueForbidden", why));
    }
    change(call, |current| {
        let mut patched = fields::patched(call, current, &patch)?;
        check_type(call, &mut patched)?;
        check_place(call, &mut patched)?;
        Ok(patched)
    })
    .await
}

/// Server-side apply; creates what is not there.
async fn apply(call: &Call, config: &Value) -> Outcome<Reply> {
    if call.params.get("fieldManager").is_none() {
        let why = "Required value: is required for apply patch";
        return Err(call.params.refuse("fieldManager", "FieldValueRequired", why));
    }
    if text(config, "/apiVersion").is_empty() || text(config, "/kind").is_empty() {
        let (group, version) =
            text(config, "/apiVersion").rsplit_once('/').unwrap_or(("", text(config, "/apiVersion")));
        let message = format!("invalid object type: {group}/{version}, Kind={}", text(config, "/kind"));
        return Err(ApiError::bad_request(message));
    }
    let mut config = config.clone();
    let named = !text(&config, "/metadata/name").is_empty();
    check_type(call, &mut config)?;
    check_place(call, &mut config)?;
    for _ in 0..RACES {
        let result = match read::find(call) {
            Ok(_) => change(call, |current| fields::applied(call, Some(current), &config)).await,
            Err(_) if call.target.subresource.is_none() => {
                rbac::authorize(call, "create")?;
                let object = fields::applied(call, None, &config)?;
                applies_to_nothing(call, &config, named)?;
                create(call, object).await
            }
            Err(error) => return Err(error),
        };
        match result {
            // Made or removed by another in between: what is to be done depends on what is there now.
            Err(error) if matches!(error.reason, "AlreadyExists" | "NotFound") => {}
            other => return other,
        }
    }
    Err(ApiError::modified(&call.target.kind, call.target.name()))
}

/// What an apply must say, and must not, to create an object.
fn applies_to_nothing(call: &Call, config: &Value, named: bool) -> Outcome<()> {
    let name = call.target.name();
    if !named {
        let message = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        return Err(ApiError::bad_request(message));
    }
    match text(config, "/metadata/uid") {
        "" => Ok(()),
        uid => {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            Err(ApiError::conflict(&call.target.kind, name, &why))
        }
    }
}

/// Reads, computes and writes by compare-and-set until nobody else was faster.
pub(crate) async fn change(call: &Call, propose: impl Fn(&Value) -> Outcome<Value>) -> Outcome<Reply> {
    let (kind, name) = (&call.target.kind, call.target.name());
    for _ in 0..RACES {
        let current = read::find(call)?;
        let served = kind.to_served(Value::clone(&current.value()));
        let proposed = propose(&served)?;
        let (next, warnings) = settle(call, &served, proposed)?;
        let next = kind.to_stored(next);
        if same(&current.value(), &next) {
            return Ok(Reply { code: 200, answer: Answer::Stored(current), warnings });
        }
        if call.params.dry_run()? {
            return Ok(Reply { code: 200, answer: Answer::Dry(next), warnings });
        }
        let durability = durability(call, &current.value(), &next);
        let change = if finished(call, &next) { Change::Delete(next) } else { Change::Put(next) };
        let write = Write { key: key(call, name), expect: Expect::Revision(current.revision), change, durability };
        match call.server.store.write(write).await {
            Ok(event) => {
                admit::written(call, &event).await;
                return Ok(Reply { code: 200, answer: Answer::Stored(event.object.clone()), warnings });
            }
            Err(crate::store::WriteError::Conflict(_)) => {}
            Err(error) => return Err(ApiError::from_write(kind, name, error)),
        }
    }
    Err(ApiError::modified(kind, name))
}

/// Puts a proposed object in order against the current one: what the client may not change stays as it is.
fn settle(call: &Call, current: &Value, mut next: Value) -> Outcome<(Value, Vec<String>)> {
    let (kind, name) = (&call.target.kind, call.target.name());
    let revision = text(&next, "/metadata/resourceVersion");
    if !revision.is_empty() && revision != text(current, "/metadata/resourceVersion") {
        return Err(ApiError::modified(kind, name));
    }
    let (uid, own) = (text(&next, "/metadata/uid"), text(current, "/metadata/uid"));
    if !uid.is_empty() && uid != own {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(ApiError::conflict(kind, name, &why));
    }
    match call.target.subresource.as_deref() {
        Some("status") => next = only_status(call, current, next)?,
        Some("finalize") => {
            let finalizers = next.pointer("/spec/finalizers").cloned().unwrap_or(Value::Array(Vec::new()));
            next = current.clone();
            next["spec"]["finalizers"] = finalizers;
        }
        // Sets the node and says so in the status, in one write.
        Some("binding") => {}
        _ => {
            if let (true, Some(map)) = (kind.status, next.as_object_mut()) {
                match current.get("status") {
                    Some(status) => map.insert("status".into(), status.clone()),
                    None => map.remove("status"),
                };
            }
        }
    }
    keep_metadata(call, current, &mut next)?;
    admit::on_update(call, current, &mut next)?;
    drop_blanks(&mut next);
    let warnings = fields::conform(call, &mut next, Some(current))?;
    if kind.generation == Generation::Spec {
        // Where a pod runs is for others to decide.
        let binding = call.target.subresource.as_deref() == Some("binding");
        let grown = !binding && text_free(current) != text_free(&next);
        let generation = current.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(1);
        metadata(&mut next)?.insert("generation".into(), (generation + i64::from(grown)).into());
    }
    fields::track(call, Some(current), &mut next);
    Ok((next, warnings))
}

/// The part of an object that its generation counts: all but metadata and status.
fn text_free(object: &Value) -> Vec<(&String, &Value)> {
    let counted = |(key, _): &(&String, &Value)| !matches!(key.as_str(), "metadata" | "status" | "apiVersion" | "kind");
    object.as_object().into_iter().flatten().filter(counted).collect()
}

/// A write of `status` leaves the rest; built-in kinds let it touch labels and annotations, as kubelets do on nodes.
fn only_status(call: &Call, current: &Value, mut proposed: Value) -> Outcome<Value> {
    let mut next = current.clone();
    let status = proposed.as_object_mut().and_then(|map| map.remove("status"));
    let proposed_metadata = metadata(&mut proposed)?;
    let next_metadata = metadata(&mut next)?;
    let custom = call.target.kind.custom.is_some();
    for field in ["labels", "annotations", "managedFields"] {
        if field != "managedFields" && custom {
            continue;
        }
        match proposed_metadata.remove(field) {
            Some(value) => next_metadata.insert(field.into(), value),
            None if field == "managedFields" => None,
            None => next_metadata.remove(field),
        };
    }
    if let Some(map) = next.as_object_mut() {
        match status {
            Some(status) if !status.is_null() => map.insert("status".into(), status),
            _ => map.remove("status"),
        };
    }
    Ok(next)
}

/// Fields that Kubernetes leaves out where they are empty.
fn drop_blanks(object: &mut Value) {
    let empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        other => other.is_null(),
    };
    let drop = |map: Option<&mut Map<String, Value>>, names: &[&str]| {
        if let Some(map) = map {
            map.retain(|name, value| !(names.contains(&name.as_str()) && empty(value)));
        }
    };
    const METADATA: [&str; 5] = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"];
    drop(object.get_mut("metadata").and_then(Value::as_object_mut), &METADATA);
    if matches!(text(object, "/kind"), "ConfigMap" | "Secret") && text(object, "/apiVersion") == "v1" {
        drop(object.as_object_mut(), &["data", "binaryData"]);
    }
}

/// Metadata that only the server changes.
fn keep_metadata(call: &Call, current: &Value, next: &mut Value) -> Outcome<()> {
    const SERVER_OWNED: [&str; 6] = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ];
    let deleting = !text(current, "/metadata/deletionTimestamp").is_empty();
    let before = finalizers(current);
    let added: Vec<String> =
        finalizers(next).into_iter().filter(|finalizer| !before.contains(finalizer)).map(str::to_owned).collect();
    if deleting && !added.is_empty() {
        let added: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
        let message = format!(
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        let cause = Cause { reason: "FieldValueForbidden".into(), message, field: "metadata.finalizers".into() };
        return Err(ApiError::invalid(&call.target.kind, call.target.name(), &[cause]));
    }
    let metadata = metadata(next)?;
    metadata.remove("selfLink");
    for field in SERVER_OWNED {
        match current.pointer(&format!("/metadata/{field}")) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a deletion that was waiting has nothing left to wait for.
pub(crate) fn finished(call: &Call, object: &Value) -> bool {
    let deleting = !text(object, "/metadata/deletionTimestamp").is_empty();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let namespace_content = &*call.target.kind.resource == "/namespaces"
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    deleting && grace == 0 && finalizers(object).is_empty() && !namespace_content
}

/// Whether two states differ in nothing but when and by whom unchanged fields were last set.
fn same(current: &Value, next: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
                entry.as_object_mut().map(|entry| entry.remove("time"));
            }
        }
        object
    };
    strip(current) == strip(next)
}

/// A renewal that changes only `spec.renewTime` need not be synced (failover.md F2).
fn durability(call: &Call, current: &Value, next: &Value) -> Durability {
    if &*call.target.kind.resource != "coordination.k8s.io/leases" {
        return Durability::Durable;
    }
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
        }
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("renewTime");
        }
        object
    };
    if strip(current) == strip(next) { Durability::Relaxed } else { Durability::Durable }
}
