//! Defaults of the built-in kinds.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::pod_defaults;

/// Fills in the defaults of a kind.
pub fn apply(group: &str, kind: &str, object: &mut Value) {
    let Value::Object(fields) = object else { return };
    match (group, kind) {
        ("", "Pod") => pod(fields),
        ("", "Service") => service(fields),
        ("", "Secret") => secret(fields),
        ("", "Namespace") => namespace(fields),
        ("", "PersistentVolumeClaim") => claim(fields),
        ("", "PersistentVolume") => volume(fields),
        ("storage.k8s.io", "StorageClass") => {
            set(fields, "reclaimPolicy", json!("Delete"));
            set(fields, "volumeBindingMode", json!("Immediate"));
        }
        ("coordination.k8s.io", "Lease") | ("policy", "PodDisruptionBudget") => set(fields, "spec", json!({})),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(fields),
        ("", "Event") => event(fields),
        ("batch", "CronJob") => cron_job(fields),
        ("discovery.k8s.io", "EndpointSlice") => {
            for endpoint in objects(fields, "endpoints") {
                set(endpoint, "conditions", json!({}));
            }
            for port in objects(fields, "ports") {
                set(port, "name", json!(""));
                set(port, "protocol", json!("TCP"));
            }
        }
        ("apps", "StatefulSet") => stateful_set(fields),
        ("batch", "Job") => job(fields),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(fields),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(fields),
        _ => {}
    }
}

/// Sets a field that is missing or null.
pub fn set(fields: &mut Map<String, Value>, name: &str, value: Value) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value);
    }
}

/// The object in a field, if there is one.
pub fn object<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    fields.get_mut(name)?.as_object_mut()
}

/// The object in a field, which is made if missing.
fn made<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    set(fields, name, json!({}));
    object(fields, name)
}

/// The objects in a list.
pub fn objects<'a>(fields: &'a mut Map<String, Value>, name: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = fields.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The text in a field.
pub fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn pod(fields: &mut Map<String, Value>) {
    if let Some(spec) = object(fields, "spec") {
        pod_defaults::spec(spec);
        pod_defaults::running(spec);
    }
    if let Some(status) = made(fields, "status") {
        set(status, "phase", json!("Pending"));
    }
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(pod) = object(spec, "template").and_then(|template| made(template, "spec")) {
        pod_defaults::spec(pod);
    }
}

fn service(fields: &mut Map<String, Value>) {
    let Some(spec) = made(fields, "spec") else { return };
    set(spec, "sessionAffinity", json!("None"));
    set(spec, "type", json!("ClusterIP"));
    if text(spec, "sessionAffinity") == "ClientIP" {
        set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    }
    for port in objects(spec, "ports") {
        set(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            set(port, "targetPort", number);
        }
    }
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        set(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if text(spec, "type") != "ExternalName" {
        set(spec, "internalTrafficPolicy", json!("Cluster"));
        // What selects nothing and has no address could be of either family.
        let either =
            text(spec, "clusterIP") == "None" && spec.get("selector").is_none_or(|selector| *selector == json!({}));
        set(spec, "ipFamilies", if either { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        set(spec, "ipFamilyPolicy", json!(if either { "RequireDualStack" } else { "SingleStack" }));
    }
    if let Some(status) = made(fields, "status") {
        set(status, "loadBalancer", json!({}));
    }
}

/// Besides the type: what a client writes as text becomes data, as in Kubernetes.
fn secret(fields: &mut Map<String, Value>) {
    set(fields, "type", json!("Opaque"));
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let Some(data) = made(fields, "data") else { return };
    for (key, text) in texts {
        let bytes = text.as_str().unwrap_or_default().as_bytes();
        data.insert(key, json!(base64::engine::general_purpose::STANDARD.encode(bytes)));
    }
}

fn namespace(fields: &mut Map<String, Value>) {
    if let Some(metadata) = object(fields, "metadata") {
        let name = text(metadata, "name").to_owned();
        if let Some(labels) = (!name.is_empty()).then(|| made(metadata, "labels")).flatten() {
            labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
        }
    }
    // One that is going away has had its finalizer taken for good.
    let going = fields.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    if let Some(spec) = made(fields, "spec").filter(|_| !going) {
        set(spec, "finalizers", json!(["kubernetes"]));
    }
    if let Some(status) = made(fields, "status") {
        set(status, "phase", json!("Active"));
    }
}

fn claim(fields: &mut Map<String, Value>) {
    if let Some(spec) = made(fields, "spec") {
        set(spec, "volumeMode", json!("Filesystem"));
    }
    if let Some(status) = made(fields, "status") {
        set(status, "phase", json!("Pending"));
    }
}

fn volume(fields: &mut Map<String, Value>) {
    if let Some(spec) = made(fields, "spec") {
        set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
        set(spec, "volumeMode", json!("Filesystem"));
        if let Some(host) = object(spec, "hostPath") {
            set(host, "type", json!(""));
        }
    }
    if let Some(status) = made(fields, "status") {
        set(status, "phase", json!("Pending"));
    }
}

fn stateful_set(fields: &mut Map<String, Value>) {
    let Some(spec) = made(fields, "spec") else { return };
    set(spec, "podManagementPolicy", json!("OrderedReady"));
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    if let Some(strategy) = made(spec, "updateStrategy") {
        set(strategy, "type", json!("RollingUpdate"));
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = made(strategy, "rollingUpdate")
        {
            set(rolling, "partition", json!(0));
        }
    }
    if let Some(policy) = made(spec, "persistentVolumeClaimRetentionPolicy") {
        set(policy, "whenDeleted", json!("Retain"));
        set(policy, "whenScaled", json!("Retain"));
    }
    template(spec);
    for template in objects(spec, "volumeClaimTemplates") {
        set(template, "apiVersion", json!("v1"));
        set(template, "kind", json!("PersistentVolumeClaim"));
        claim(template);
    }
}

/// Besides plain defaults: a Job without a selector of its own selects its pods by the Job's uid, once it has one.
fn job(fields: &mut Map<String, Value>) {
    let identity = fields.get("metadata").and_then(Value::as_object);
    let (uid, name) = identity.map(|m| (text(m, "uid").to_owned(), text(m, "name").to_owned())).unwrap_or_default();
    let Some(spec) = made(fields, "spec") else { return };
    set(spec, "backoffLimit", json!(6));
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        set(spec, "completions", json!(1));
    }
    set(spec, "parallelism", json!(1));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "suspend", json!(false));
    set(spec, "manualSelector", json!(false));
    let replace = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", json!(replace));
    template(spec);
    if uid.is_empty() || spec.contains_key("selector") || spec.get("manualSelector") == Some(&json!(true)) {
        return;
    }
    spec.insert("selector".to_owned(), json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let metadata = object(spec, "template").and_then(|template| made(template, "metadata"));
    if let Some(labels) = metadata.and_then(|metadata| made(metadata, "labels")) {
        for (key, value) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            labels.insert(key.to_owned(), json!(value));
        }
    }
    let labels = spec.get("template").and_then(|template| template.pointer("/metadata/labels")).cloned();
    if let (Some(labels), Some(metadata)) = (labels, object(fields, "metadata")) {
        set(metadata, "labels", labels);
    }
}

fn cron_job(fields: &mut Map<String, Value>) {
    let Some(spec) = made(fields, "spec") else { return };
    set(spec, "concurrencyPolicy", json!("Allow"));
    set(spec, "suspend", json!(false));
    set(spec, "successfulJobsHistoryLimit", json!(3));
    set(spec, "failedJobsHistoryLimit", json!(1));
    let Some(job) = object(spec, "jobTemplate") else { return };
    set(job, "metadata", json!({}));
    // Only a Job gets the defaults of a Job; the pods of a template get those of pods.
    if let Some(job) = made(job, "spec") {
        if let Some(pod) = made(job, "template") {
            set(pod, "metadata", json!({}));
        }
        template(job);
    }
}

fn network_policy(fields: &mut Map<String, Value>) {
    let Some(spec) = made(fields, "spec") else { return };
    let egress = objects(spec, "egress").next().is_some();
    set(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    for rules in ["ingress", "egress"] {
        for rule in objects(spec, rules) {
            for port in objects(rule, "ports") {
                set(port, "protocol", json!("TCP"));
            }
        }
    }
}

/// What Kubernetes' type of an Event always writes. Times that are not given are null, which `prune` has dropped.
fn event(fields: &mut Map<String, Value>) {
    set(fields, "source", json!({}));
    for name in ["reportingComponent", "reportingInstance"] {
        set(fields, name, json!(""));
    }
    for name in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        set(fields, name, Value::Null);
    }
}

fn binding(fields: &mut Map<String, Value>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = object(fields, "roleRef") {
        set(role, "apiGroup", json!(GROUP));
    }
    for subject in objects(fields, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set(subject, "apiGroup", json!(GROUP));
        }
    }
}

fn definition(fields: &mut Map<String, Value>) {
    let Some(spec) = object(fields, "spec") else { return };
    set(spec, "conversion", json!({"strategy": "None"}));
    if let Some(names) = object(spec, "names") {
        let kind = text(names, "kind").to_owned();
        set(names, "singular", json!(kind.to_lowercase()));
        set(names, "listKind", json!(format!("{kind}List")));
    }
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod tests;
