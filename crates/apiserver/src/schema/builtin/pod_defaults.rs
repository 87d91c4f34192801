//! Defaults of a pod's spec, in a Pod and in a template.

use serde_json::{Map, Value, json};

use super::defaults::{object, objects, set, text};

/// Fills in the defaults of a pod's spec, wherever it stands.
pub fn spec(spec: &mut Map<String, Value>) {
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "terminationGracePeriodSeconds", json!(30));
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", json!("default-scheduler"));
    // Clients that know only the older name still read it.
    let account = text(spec, "serviceAccountName").to_owned();
    if !account.is_empty() {
        spec.insert("serviceAccount".to_owned(), json!(account));
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        spec.insert("serviceAccountName".to_owned(), account);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        objects(spec, list).for_each(container);
    }
    objects(spec, "volumes").for_each(volume);
}

/// Fills in what only a real Pod gets, not a template.
pub fn running(spec: &mut Map<String, Value>) {
    set(spec, "enableServiceLinks", json!(true));
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            let Some(resources) = object(container, "resources") else { continue };
            let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
            if limits.is_empty() {
                continue;
            }
            set(resources, "requests", json!({}));
            if let Some(requests) = object(resources, "requests") {
                limits.into_iter().for_each(|(name, amount)| set(requests, &name, amount));
            }
        }
    }
}

fn container(container: &mut Map<String, Value>) {
    let policy = if pulls_always(text(container, "image")) { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", json!(policy));
    set(container, "terminationMessagePath", json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", json!("File"));
    set(container, "resources", json!({}));
    for port in objects(container, "ports") {
        set(port, "protocol", json!("TCP"));
    }
    for variable in objects(container, "env") {
        if let Some(field) = object(variable, "valueFrom").and_then(|source| object(source, "fieldRef")) {
            set(field, "apiVersion", json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object(container, name) {
            for (field, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                // Clients of typed languages send 0 for what they left out.
                if probe.get(field) == Some(&json!(0)) {
                    probe.remove(field);
                }
                set(probe, field, json!(value));
            }
            handler(probe);
        }
    }
    if let Some(lifecycle) = object(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = object(lifecycle, hook) {
                handler(hook);
            }
        }
    }
}

fn handler(handler: &mut Map<String, Value>) {
    if let Some(get) = object(handler, "httpGet") {
        set(get, "path", json!("/"));
        set(get, "scheme", json!("HTTP"));
    }
    if let Some(grpc) = object(handler, "grpc") {
        set(grpc, "service", json!(""));
    }
}

/// An image without a tag, or tagged `latest`, may change under its name.
fn pulls_always(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.len() == 1 && volume.contains_key("name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = object(volume, source) else { continue };
        set(source, "defaultMode", json!(0o644));
        downward_items(source);
        for projection in objects(source, "sources") {
            if let Some(token) = object(projection, "serviceAccountToken") {
                set(token, "expirationSeconds", json!(3600));
            }
            if let Some(downward) = object(projection, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(host) = object(volume, "hostPath") {
        set(host, "type", json!(""));
    }
}

fn downward_items(source: &mut Map<String, Value>) {
    for item in objects(source, "items") {
        if let Some(field) = object(item, "fieldRef") {
            set(field, "apiVersion", json!("v1"));
        }
    }
}
