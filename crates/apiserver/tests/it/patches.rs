//! The four patch types, validation and field owners through the API.

use coregent_apiserver::ApiServer;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::Status;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::crud::{definition, widget, widgets};
use crate::memory;

fn stateful_set(image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {
        "serviceName": "s", "replicas": 1, "selector": {"matchLabels": {"app": "s"}},
        "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

async fn stateful_sets() -> Api<StatefulSet> {
    Api::default_namespaced(memory().await.client())
}

async fn with_widgets() -> (Client, Api<DynamicObject>) {
    let client = memory().await.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    (client.clone(), widgets(client))
}

/// The Status of a refusal.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result.unwrap_err() {
        kube::Error::Api(status) => *status,
        other => panic!("{other}"),
    }
}

fn causes(status: &Status) -> Vec<(String, String)> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().map(|cause| (cause.reason.clone(), cause.field.clone())).collect()
}

/// Manager, operation and subresource of each entry, sorted: the order in the object depends on the second.
fn managers<K: ResourceExt>(object: &K) -> Vec<(String, String, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let entries = object.managed_fields().iter();
    let mut managers: Vec<_> =
        entries.map(|entry| (text(&entry.manager), text(&entry.operation), text(&entry.subresource))).collect();
    managers.sort();
    managers
}

fn entry(manager: &str, operation: &str, subresource: &str) -> (String, String, String) {
    (manager.to_owned(), operation.to_owned(), subresource.to_owned())
}

#[tokio::test]
async fn apply_creates_conflicts_is_forced_and_gives_up() {
    let api = stateful_sets().await;
    let a = PatchParams::apply("a");
    let made = api.patch("s", &a, &Patch::Apply(stateful_set("x:1"))).await.unwrap();
    assert_eq!(managers(&made), [entry("a", "Apply", "")]);
    assert_eq!(
        made.spec.as_ref().unwrap().pod_management_policy.as_deref(),
        Some("OrderedReady"),
        "defaults are filled in"
    );

    let again = api.patch("s", &a, &Patch::Apply(stateful_set("x:1"))).await.unwrap();
    assert_eq!(again.resource_version(), made.resource_version(), "the same apply again makes no revision");

    let scale = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 3}});
    let status = refusal(api.patch("s", &PatchParams::apply("b"), &Patch::Apply(&scale)).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.message, r#"Apply failed with 1 conflict: conflict with "a": .spec.replicas"#);
    assert_eq!(causes(&status), [("FieldManagerConflict".to_owned(), ".spec.replicas".to_owned())]);

    let forced = api.patch("s", &PatchParams::apply("b").force(), &Patch::Apply(&scale)).await.unwrap();
    assert_eq!(forced.spec.unwrap().replicas, Some(3));
    let mut without = stateful_set("x:2");
    without["spec"].as_object_mut().unwrap().remove("replicas");
    let after = api.patch("s", &a, &Patch::Apply(without)).await.unwrap();
    assert_eq!(after.spec.unwrap().replicas, Some(3), "b owns it now");
}

#[tokio::test]
async fn what_an_applier_no_longer_states_is_removed() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    let config =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    let apply = |manager: &'static str, data: Value| {
        let (api, config) = (api.clone(), config(data));
        async move { api.patch("c", &PatchParams::apply(manager), &Patch::Apply(config)).await.unwrap() }
    };
    apply("a", json!({"x": "1", "y": "1"})).await;
    apply("b", json!({"z": "1"})).await;
    let left = apply("a", json!({"y": "1"})).await;
    assert_eq!(serde_json::to_value(left.data).unwrap(), json!({"y": "1", "z": "1"}));
}

#[tokio::test]
async fn updates_and_patches_are_tracked_too() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    let object = json!({"metadata": {"name": "c"}, "data": {"x": "1"}});
    let params = PostParams { field_manager: Some("creator".into()), ..PostParams::default() };
    api.create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
    let patch = json!({"data": {"x": "2"}});
    let after = api.patch("c", &PatchParams::apply("patcher"), &Patch::Merge(patch)).await.unwrap();
    let owners = [entry("creator", "Update", ""), entry("patcher", "Update", "")];
    assert_eq!(managers(&after), owners, "who made it owns the map, but nothing in it any more");
    let left = serde_json::to_value(&after.managed_fields()[0].fields_v1).unwrap();
    assert_eq!(left, json!({"f:data": {}}));
}

#[tokio::test]
async fn status_has_owners_of_its_own() {
    let (_, api) = with_widgets().await;
    api.patch("w", &PatchParams::apply("user"), &Patch::Apply(widget("w"))).await.unwrap();
    let status =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 9}, "status": {"phase": "Good"}});
    let after = api.patch_status("w", &PatchParams::apply("controller"), &Patch::Apply(&status)).await.unwrap();
    assert_eq!((&after.data["spec"]["size"], &after.data["status"]["phase"]), (&json!(1), &json!("Good")));
    assert_eq!(managers(&after), [entry("controller", "Apply", "status"), entry("user", "Apply", "")]);
    let again = api.patch("w", &PatchParams::apply("user"), &Patch::Apply(widget("w"))).await.unwrap();
    assert_eq!(again.data["status"]["phase"], "Good", "an apply of the object leaves its status");
    assert_eq!(again.resource_version(), after.resource_version());
}

#[tokio::test]
async fn a_creator_owns_no_status() {
    let client = memory().await.client();
    let api: Api<Pod> = Api::default_namespaced(client);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let made = api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let fields = serde_json::to_value(&made.managed_fields()[0].fields_v1).unwrap();
    assert_eq!(fields.get("f:status"), None, "{fields}");
    let status = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}});
    api.patch_status("p", &PatchParams::apply("node"), &Patch::Apply(status)).await.unwrap();
}

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_key_and_only_built_in_kinds_know_it() {
    let api = stateful_sets().await;
    api.create(&PostParams::default(), &serde_json::from_value(stateful_set("x:1")).unwrap()).await.unwrap();
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "y:1"}]}}}});
    let after = api.patch("s", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let names: Vec<String> =
        after.spec.unwrap().template.spec.unwrap().containers.into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["side", "c"]);

    let (_, api) = with_widgets().await;
    api.create(&PostParams::default(), &widget("w")).await.unwrap();
    let status = refusal(api.patch("w", &PatchParams::default(), &Patch::Strategic(json!({"spec": {}}))).await);
    assert_eq!(status.code, 415);
}

#[tokio::test]
async fn a_json_patch_whose_test_fails_changes_nothing() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    let object = json!({"metadata": {"name": "c"}, "data": {"x": "1"}});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let patch = |patch: Value| Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    let good = patch(
        json!([{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}]),
    );
    let after = api.patch("c", &PatchParams::default(), &good).await.unwrap();
    assert_eq!(after.data.unwrap()["x"], "2");
    let status = refusal(api.patch("c", &PatchParams::default(), &good).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
}

#[tokio::test]
async fn unknown_fields_are_refused_or_dropped_as_the_client_asks() {
    let api = stateful_sets().await;
    let mut object = stateful_set("x:1");
    api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await.unwrap();
    object["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
    object["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    let merge = |directive| PatchParams { field_validation: Some(directive), ..PatchParams::default() };
    let status = refusal(api.patch("s", &merge(ValidationDirective::Strict), &Patch::Merge(&object)).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(
        status.message.contains(r#"unknown field "spec.template.spec.containers[0].imagee""#),
        "{}",
        status.message
    );
    api.patch("s", &merge(ValidationDirective::Ignore), &Patch::Merge(&object)).await.unwrap();
    // What is applied has owners, and nobody can own what its kind does not have.
    let lax = PatchParams { field_validation: Some(ValidationDirective::Ignore), ..PatchParams::apply("a") };
    let status = refusal(api.patch("s", &lax, &Patch::Apply(&object)).await);
    assert_eq!(status.code, 500);
    assert!(status.message.contains("imagee: field not declared in schema"), "{}", status.message);
}

#[tokio::test]
async fn a_wrong_type_cannot_be_applied_and_a_broken_rule_is_invalid() {
    let api = stateful_sets().await;
    let mut object = stateful_set("x:1");
    object["spec"]["replicas"] = json!("three");
    let status = refusal(api.patch("s", &PatchParams::apply("a"), &Patch::Apply(&object)).await);
    assert_eq!(status.code, 500, "Kubernetes has no better code for what cannot be typed");
    assert!(status.message.contains("spec.replicas in body must be of type integer"), "{}", status.message);

    object["spec"]["replicas"] = json!(-1);
    let status = refusal(api.patch("s", &PatchParams::apply("a"), &Patch::Apply(&object)).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        status.message,
        r#"StatefulSet.apps "s" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"#
    );
    assert_eq!(causes(&status), [("FieldValueInvalid".to_owned(), "spec.replicas".to_owned())]);
}

#[tokio::test]
async fn a_custom_resource_is_defaulted_and_validated() {
    let (_, api) = with_widgets().await;
    let made = api.create(&PostParams::default(), &widget("w")).await.unwrap();
    assert_eq!(made.data["spec"]["color"], "red");
    let patch = json!({"spec": {"size": 0}});
    let status = refusal(api.patch("w", &PatchParams::default(), &Patch::Merge(patch)).await);
    assert_eq!(
        status.message,
        r#"Widget.example.com "w" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"#
    );
    let mut bad = widget("Bad_Name");
    bad.data["spec"]["size"] = json!(1);
    assert_eq!(refusal(api.create(&PostParams::default(), &bad).await).code, 422, "its metadata is checked as well");
}

#[tokio::test]
async fn a_definition_that_is_not_structural_is_refused() {
    let api: Api<CustomResourceDefinition> = Api::all(memory().await.client());
    let mut object = serde_json::to_value(definition()).unwrap();
    object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["x"] = json!({"description": "no type"});
    let status = refusal(api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await);
    assert_eq!(status.code, 422);
    assert!(status.message.contains("must not be empty for specified object fields"), "{}", status.message);
}

#[tokio::test]
async fn a_dry_run_answers_what_would_be_and_stores_nothing() {
    let server: ApiServer = memory().await;
    let api: Api<Service> = Api::default_namespaced(server.client());
    let object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let dry = PatchParams { dry_run: true, ..PatchParams::apply("a") };
    let answer = api.patch("s", &dry, &Patch::Apply(&object)).await.unwrap();
    assert_eq!(answer.spec.unwrap().type_.as_deref(), Some("ClusterIP"));
    assert!(api.get_opt("s").await.unwrap().is_none());
    let made = api.patch("s", &PatchParams::apply("a"), &Patch::Apply(&object)).await.unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let answer = api.patch("s", &dry, &Patch::Merge(patch)).await.unwrap();
    assert_eq!(answer.labels()["a"], "b");
    assert_eq!(api.get("s").await.unwrap().resource_version(), made.resource_version());
}

#[tokio::test]
async fn two_appliers_at_once_lose_nothing() {
    let client = memory().await.client();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let appliers = (0..8).map(|index| {
        let api = api.clone();
        async move {
            let key = format!("k{index}");
            let config =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {key: "1"}});
            api.patch("c", &PatchParams::apply(&format!("m{index}")), &Patch::Apply(config)).await.unwrap();
        }
    });
    futures::future::join_all(appliers).await;
    assert_eq!(api.get("c").await.unwrap().data.unwrap().len(), 8);
}
