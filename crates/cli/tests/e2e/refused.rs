//! What a real API server refuses: quotas, admission, permissions and namespaces that go (`make test-cluster`).

use crate::cluster::clear;
use crate::members::manifest;
use crate::nodes::Nodes;
use crate::plane::{PATIENCE, Plane, settled, until};
use coregent_api::conditions::{BLOCKED, find};
use serde_json::{Value, json};
use std::path::Path;

/// Waits until the cluster says that something is refused, and settles once it no longer is.
async fn refused(nodes: &Nodes, plane: &Plane, put_right: &[&str], reason: &str, parts: &[&str]) {
    let client = plane.client().await;
    plane.apply(&manifest("orders", 3, "Quorum"));
    let blocked = |status: &str, cluster: &coregent_api::DatabaseCluster| {
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        find(conditions, BLOCKED).filter(|found| found.status == status).cloned()
    };
    let found = until(&client, "orders", |cluster| blocked("True", cluster).is_some()).await;
    let said = blocked("True", &found).expect("the condition");
    eprintln!("{}: {}", said.reason, said.message);
    assert_eq!(said.reason, reason, "{}", said.message);
    for part in parts {
        assert!(said.message.contains(part), "{part:?} in {:?}", said.message);
    }
    nodes.kubectl(put_right);
    until(&client, "orders", |cluster| settled(cluster) && blocked("False", cluster).is_some()).await;
    clear(plane);
}

fn apply(nodes: &Nodes, plane: &Plane, objects: &[Value]) -> String {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = plane.write("refusing.json", &list.to_string());
    let file = file.to_str().expect("a path").to_owned();
    nodes.kubectl(&["apply", "-f", &file]);
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_is_a_condition_until_it_is_raised() {
    let Some(nodes) = Nodes::of_this_machine("refused::a_quota_that_is_used_up_is_a_condition_until_it_is_raised")
    else {
        return;
    };
    let plane = Plane::up();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight", "namespace": "default"},
        "spec": {"hard": {"pods": "0"}}});
    let file = apply(&nodes, &plane, &[quota]);
    let delete = ["delete", "--ignore-not-found", "-f", &file];
    let _undo = nodes.afterwards(&[&["enter", "kubectl"], delete.as_slice()].concat());
    let parts = ["create Pod orders-1-0 in StatefulSet orders-1", "exceeded quota: tight", "raise the ResourceQuota"];
    refused(&nodes, &plane, &delete, "QuotaExceeded", &parts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_does_not_let_pods_in_is_a_condition_until_it_does() {
    let test = "refused::a_policy_that_does_not_let_pods_in_is_a_condition_until_it_does";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    let plane = Plane::up();
    let admission = "admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-databases"},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
            "validations": [{"expression": "!('coregent.io/cluster' in object.metadata.labels)", "message": "not here"}]}});
    let binding = json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-databases"}, "spec": {"policyName": "no-databases", "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}}});
    let file = apply(&nodes, &plane, &[policy, binding]);
    let delete = ["delete", "--ignore-not-found", "-f", &file];
    let _undo = nodes.afterwards(&[&["enter", "kubectl"], delete.as_slice()].concat());
    // A policy is in force a moment after it was made.
    let parts = ["create Pod orders-", "ValidatingAdmissionPolicy 'no-databases'", "not here", "let it in"];
    refused(&nodes, &plane, &delete, "AdmissionRejected", &parts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_taken_away_is_a_condition_until_it_is_given_back() {
    let test = "refused::a_permission_that_is_taken_away_is_a_condition_until_it_is_given_back";
    let Some(nodes) = Nodes::of_this_machine(test) else { return };
    let plane = Plane::up();
    let role = nodes.kubectl(&["get", "clusterrole", "coregent-operator", "-o", "json"]);
    let mut role: Value = serde_json::from_str(&role).expect("a role");
    role["metadata"] = json!({"name": "coregent-operator", "labels": role["metadata"]["labels"]});
    let whole = plane.write("whole.json", &role.to_string());
    for rule in role["rules"].as_array_mut().expect("rules") {
        let is_of_secrets = rule["resources"].as_array().is_some_and(|all| all.iter().any(|one| one == "secrets"));
        if let Some(verbs) = rule["verbs"].as_array_mut().filter(|_| is_of_secrets) {
            verbs.retain(|verb| verb != "create");
        }
    }
    let lessened = plane.write("lessened.json", &role.to_string());
    let replace = |file: &Path| vec!["replace".to_owned(), "-f".to_owned(), file.to_str().expect("a path").to_owned()];
    let (whole, lessened) = (replace(&whole), replace(&lessened));
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    nodes.kubectl(&lessened.iter().map(String::as_str).collect::<Vec<_>>());
    let _undo = nodes.afterwards(&[&["enter", "kubectl"], whole.as_slice()].concat());
    let parts = ["create secrets \"orders-", "cannot create resource \"secrets\"", "coregent install"];
    refused(&nodes, &plane, &whole, "PermissionMissing", &parts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_the_database_in_it() {
    let Some(nodes) = Nodes::of_this_machine("refused::a_namespace_goes_with_the_database_in_it") else { return };
    let plane = Plane::up();
    nodes.kubectl(&["create", "namespace", "shop"]);
    let file = plane.write("shop.yaml", &manifest("orders", 3, "Quorum"));
    nodes.kubectl(&["-n", "shop", "apply", "-f", file.to_str().expect("a path")]);
    let patience = format!("--timeout={}s", PATIENCE.as_secs());
    nodes.kubectl(&["-n", "shop", "wait", "--for=condition=Ready", "dbc/orders", &patience]);
    nodes.kubectl(&["delete", "namespace", "shop", &patience]);
    // Whoever looks after databases goes on with others.
    plane.apply(&manifest("orders", 3, "Quorum"));
    until(&plane.client().await, "orders", settled).await;
    clear(&plane);
}
