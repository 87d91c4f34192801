//! The scenarios, by what they are about.

mod apply;
mod crud;
mod custom;
mod deletion;
mod errors;
mod lists;
mod patches;
mod watches;
mod workloads;

use serde_json::{Value, json};

use crate::scenario::Scenario;

pub fn all() -> Vec<Scenario> {
    [
        crud::all(),
        errors::all(),
        patches::all(),
        apply::all(),
        lists::all(),
        watches::all(),
        deletion::all(),
        custom::all(),
        workloads::all(),
    ]
    .concat()
}

/// Where objects of a resource of `v1` are.
fn core(resource: &str) -> String {
    format!("/api/v1/namespaces/{{ns}}/{resource}")
}

fn apps(resource: &str) -> String {
    format!("/apis/apps/v1/namespaces/{{ns}}/{resource}")
}

/// Where objects of the scenario's own kinds are.
fn custom(resource: &str) -> String {
    format!("/apis/{{group}}/v1/namespaces/{{ns}}/{resource}")
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A StatefulSet that asks for no pod, so that no controller has anything to do.
fn stateful_set(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": {
        "serviceName": "db", "replicas": 0, "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [
            {"name": "main", "image": "postgres:15", "args": ["-c", "a=b"],
             "ports": [{"containerPort": 5432, "name": "sql"}, {"containerPort": 8008, "name": "http"}],
             "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "side", "image": "side:1"}]}}}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "busybox"}]}})
}
