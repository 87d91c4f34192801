//! What the API server itself adds to objects of certain kinds, and what follows from writing them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::Call;
use super::status::{ApiError, Cause, Outcome};
use super::write::{metadata, text};
use crate::kinds::DEFINITIONS;
use crate::store::{Event, EventKind};
use crate::time;

/// New objects need a namespace that is there and not on its way out.
pub(crate) fn namespace_takes_new(call: &Call, object: &Value) -> Outcome<()> {
    let Some(namespace) = &call.target.namespace else { return Ok(()) };
    let Some(found) = call.server.store.get("/namespaces", "", namespace) else {
        let kind = call.server.kinds.find("", "v1", "namespaces").ok_or_else(ApiError::no_such_path)?;
        return Err(ApiError::not_found(&kind, namespace));
    };
    if text(&found.value(), "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = ApiError::forbidden(&call.target.kind, text(object, "/metadata/name"), &why);
    if let Some(details) = &mut error.details {
        let message = format!("namespace {namespace} is being terminated");
        details["causes"] =
            json!([{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]);
    }
    Err(error)
}

/// Completes a new object.
pub(crate) fn on_create(call: &Call, object: &mut Value) -> Outcome<()> {
    if call.target.kind.status
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    if let Some(status) = first_status(&call.target.kind) {
        object["status"] = status;
    }
    match &*call.target.kind.resource {
        "/namespaces" => new_namespace(object)?,
        "/pods" => new_pod(object)?,
        "/services" => new_service(call, object)?,
        "/secrets" => fold_string_data(object),
        "/persistentvolumeclaims" | "/persistentvolumes" => object["status"] = json!({"phase": "Pending"}),
        DEFINITIONS => establish(call, object)?,
        _ => {}
    }
    Ok(())
}

/// Completes a changed object.
pub(crate) fn on_update(call: &Call, current: &Value, next: &mut Value) -> Outcome<()> {
    let main = call.target.subresource.is_none();
    match &*call.target.kind.resource {
        "/secrets" => fold_string_data(next),
        "/services" if main && text(next, "/spec/type") == "ExternalName" => drop_cluster_ip(current, next),
        "/services" if main => keep_cluster_ip(current, next),
        "/namespaces" if main => next["spec"]["finalizers"] = current["spec"]["finalizers"].clone(),
        DEFINITIONS if main => establish(call, next)?,
        _ => {}
    }
    Ok(())
}

/// Completes an object that is being deleted.
pub(crate) fn on_delete(call: &Call, object: &mut Value) {
    if &*call.target.kind.resource == "/namespaces" {
        object["status"]["phase"] = "Terminating".into();
    }
}

/// The status of an object that no controller has seen yet: the fields that Kubernetes' types always write.
fn first_status(kind: &crate::kinds::Kind) -> Option<Value> {
    match &*kind.resource {
        "apps/statefulsets" => Some(json!({"replicas": 0, "availableReplicas": 0})),
        "batch/jobs" | "batch/cronjobs" => Some(json!({})),
        "policy/poddisruptionbudgets" => {
            Some(json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}))
        }
        _ => None,
    }
}

fn new_namespace(object: &mut Value) -> Outcome<()> {
    let name = text(object, "/metadata/name").to_owned();
    let labels = metadata(object)?.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
    object["spec"]["finalizers"] = json!(["kubernetes"]);
    object["status"] = json!({"phase": "Active"});
    Ok(())
}

/// What the admission plugins ServiceAccount, Priority and DefaultTolerationSeconds complete. The token's volume is the
/// node's own affair.
fn admit_pod(spec: &mut Map<String, Value>) {
    let named = |spec: &Map<String, Value>, field: &str| {
        spec.get(field).and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned)
    };
    let account = named(spec, "serviceAccountName").or_else(|| named(spec, "serviceAccount"));
    let account = account.unwrap_or_else(|| "default".to_owned());
    spec.insert("serviceAccountName".into(), account.as_str().into());
    spec.insert("serviceAccount".into(), account.into());
    spec.entry("priority").or_insert_with(|| 0.into());
    spec.entry("preemptionPolicy").or_insert_with(|| "PreemptLowerPriority".into());
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let meant = |toleration: &Value| {
            let says = |field: &str, wanted: &str| match toleration[field].as_str() {
                None | Some("") => true,
                Some(text) => text == wanted,
            };
            says("key", key) && says("effect", "NoExecute")
        };
        if !tolerations.iter().any(meant) {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

fn new_pod(object: &mut Value) -> Outcome<()> {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        admit_pod(spec);
    }
    object["status"] = json!({"phase": "Pending", "qosClass": crate::schema::builtin::quality(object)});
    Ok(())
}

/// `stringData` is written, never read: it ends in `data`.
fn fold_string_data(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    map.entry("type").or_insert_with(|| "Opaque".into());
    let Some(Value::Object(plain)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Some(data) = data.as_object_mut() else { return };
    for (key, value) in plain {
        if let Some(text) = value.as_str() {
            data.insert(key, BASE64_STANDARD.encode(text).into());
        }
    }
}

/// What becomes a name for something outside gives its addresses back, with all that belongs to them.
fn drop_cluster_ip(current: &Value, next: &mut Value) {
    if text(current, "/spec/type") == "ExternalName" {
        return;
    }
    let Some(spec) = next["spec"].as_object_mut() else { return };
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
        spec.remove(field);
    }
}

fn keep_cluster_ip(current: &Value, next: &mut Value) {
    for field in ["clusterIP", "clusterIPs"] {
        if let (Some(own), Some(spec)) = (current["spec"].get(field), next["spec"].as_object_mut()) {
            spec.entry(field).or_insert_with(|| own.clone());
        }
    }
}

/// Gives a Service an address of the range, unless it is headless or brings one.
fn new_service(call: &Call, object: &mut Value) -> Outcome<()> {
    object["status"] = json!({"loadBalancer": {}});
    let kind = text(object, "/spec/type").to_owned();
    let asked = text(object, "/spec/clusterIP").to_owned();
    if kind == "ExternalName" || asked == "None" {
        if asked == "None" {
            object["spec"]["clusterIPs"] = json!(["None"]);
        }
        return Ok(());
    }
    let Some((first, last)) = call.server.service_ips else { return Ok(()) };
    let (_, services) = call.server.store.list("/services", None);
    let taken: Vec<Ipv4Addr> =
        services.iter().filter_map(|service| text(&service.value(), "/spec/clusterIP").parse().ok()).collect();
    let name = text(object, "/metadata/name").to_owned();
    let refuse = |message: String| {
        let cause = Cause { reason: "FieldValueInvalid".into(), message, field: "spec.clusterIPs".into() };
        ApiError::invalid(&call.target.kind, &name, &[cause])
    };
    let address = if asked.is_empty() {
        let mut range = u32::from(first)..=u32::from(last);
        let free = range.find(|address| !taken.contains(&Ipv4Addr::from(*address))).map(Ipv4Addr::from);
        free.ok_or_else(|| ApiError::internal("failed to allocate a cluster IP: the range is full"))?
    } else {
        let parsed: Option<Ipv4Addr> = asked.parse().ok();
        let inside = parsed.filter(|address| (first..=last).contains(address));
        let address = inside.ok_or_else(|| {
            refuse(format!("Invalid value: \"{asked}\": the provided IP is not in the valid range {first} to {last}"))
        })?;
        if taken.contains(&address) {
            return Err(refuse(format!("Invalid value: \"{asked}\": provided IP is already allocated")));
        }
        address
    };
    object["spec"]["clusterIP"] = address.to_string().into();
    object["spec"]["clusterIPs"] = json!([address.to_string()]);
    Ok(())
}

const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Checks a CustomResourceDefinition's names and marks it served, which it is from the moment it is written.
fn establish(call: &Call, object: &mut Value) -> Outcome<()> {
    let name = text(object, "/metadata/name").to_owned();
    let (group, plural) = (text(object, "/spec/group").to_owned(), text(object, "/spec/names/plural").to_owned());
    let refuse = |field: &str, message: String| {
        let cause = Cause { reason: "FieldValueInvalid".into(), message, field: field.into() };
        Err(ApiError::invalid(&call.target.kind, &name, &[cause]))
    };
    if name != format!("{plural}.{group}") {
        let message = format!("Invalid value: \"{name}\": must be spec.names.plural+\".\"+spec.group");
        return refuse("metadata.name", message);
    }
    if call.server.kinds.is_builtin(&group, &plural) {
        return refuse("spec.names.plural", format!("Invalid value: \"{plural}\": is a built-in kind"));
    }
    let Some(stored) = crate::kinds::storage_version(object) else {
        let message = "Invalid value: must have exactly one version marked as storage version".to_owned();
        return refuse("spec.versions", message);
    };
    compile_schemas(call, object)?;
    let kind = text(object, "/spec/names/kind").to_owned();
    let names = &mut object["spec"]["names"];
    if names["singular"].as_str().unwrap_or_default().is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().unwrap_or_default().is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    let names = names.clone();
    if object.pointer("/spec/conversion/strategy").is_none() {
        object["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let mut versions: Vec<Value> = object["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    if !versions.iter().any(|version| *version == stored) {
        versions.push(stored.into());
    }
    let conditions = object["status"]["conditions"].as_array().cloned().filter(|list| !list.is_empty());
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": time::now()})
    };
    let conditions = conditions.unwrap_or_else(|| {
        vec![
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
    });
    object["status"] = json!({"acceptedNames": names, "conditions": conditions, "storedVersions": versions});
    Ok(())
}

/// Refuses schemas that are not structural.
fn compile_schemas(call: &Call, object: &Value) -> Outcome<()> {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let mut errors = Vec::new();
    for (index, version) in versions.into_iter().flatten().enumerate() {
        let at = format!("spec.versions[{index}].schema.openAPIV3Schema");
        let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
        errors.extend(crate::schema::compile_at(schema, &at).err().into_iter().flatten());
    }
    if errors.is_empty() { Ok(()) } else { Err(super::fields::invalid(call, object, &errors)) }
}

/// A definition whose instances are still there goes last.
pub(crate) fn hold_definition(call: &Call, object: &mut Value) -> Outcome<()> {
    let resource = format!("{}/{}", text(object, "/spec/group"), text(object, "/spec/names/plural"));
    let (_, instances) = call.server.store.list(&resource, None);
    if !instances.is_empty() {
        metadata(object)?.insert("finalizers".into(), json!([CLEANUP]));
    }
    Ok(())
}

/// What follows from a write.
pub(crate) async fn written(call: &Call, event: &Arc<Event>) {
    let kind = &call.target.kind;
    if &*kind.resource == DEFINITIONS {
        let definition = &event.object.value();
        if event.kind == EventKind::Deleted {
            call.server.kinds.uninstall(&event.key.name);
        } else {
            call.server.kinds.install(definition);
            if !text(definition, "/metadata/deletionTimestamp").is_empty() {
                clear_instances(call, definition).await;
            }
        }
    }
    if let (Some(custom), EventKind::Deleted) = (&kind.custom, event.kind) {
        finish_definition(call, &custom.definition).await;
    }
}

/// Deletes the instances of a definition that is going away; their finalizers hold it.
async fn clear_instances(call: &Call, definition: &Value) {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let Some(version) = crate::kinds::storage_version(definition) else { return };
    let (_, instances) = call.server.store.list(&format!("{group}/{plural}"), None);
    for instance in instances {
        let value = instance.value();
        let (namespace, name) = (text(&value, "/metadata/namespace"), text(&value, "/metadata/name"));
        let path = match namespace {
            "" => format!("/apis/{group}/{version}/{plural}/{name}"),
            _ => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}"),
        };
        let Ok(one) = Call::internal(&call.server, &path) else { continue };
        if let Err(error) = Box::pin(super::remove::delete(&one, Default::default())).await {
            tracing::warn!(message = error.message, "failed to delete an instance of a deleted definition");
        }
    }
}

/// Lets a definition go once its last instance has gone.
async fn finish_definition(call: &Call, name: &str) {
    let Some(definition) = call.server.store.get(DEFINITIONS, "", name) else { return };
    let left = call.server.store.list(&call.target.kind.resource, None).1;
    if !left.is_empty() || text(&definition.value(), "/metadata/deletionTimestamp").is_empty() {
        return;
    }
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let Ok(call) = Call::internal(&call.server, &path) else { return };
    let without = |current: &Value| {
        let mut next = current.clone();
        let list: Vec<&str> = super::write::finalizers(current).into_iter().filter(|name| *name != CLEANUP).collect();
        let list = json!(list);
        metadata(&mut next)?.insert("finalizers".into(), list);
        Ok(next)
    };
    if let Err(error) = Box::pin(super::write::change(&call, without)).await {
        tracing::warn!(message = error.message, "failed to finish the deletion of a definition");
    }
}
