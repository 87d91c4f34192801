use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::memory;

pub fn config_map(name: &str, value: &str) -> ConfigMap {
    // A label's value has at most 63 characters; data may be longer.
    let label: String = value.chars().take(63).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"v": label}}, "data": {"k": value}})).unwrap()
}

pub fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_object_is_created_read_changed_and_deleted() {
    let client = memory().await.client();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(made.namespace().as_deref(), Some("default"));
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    assert_eq!(code(api.create(&PostParams::default(), &config_map("a", "1")).await), (409, "AlreadyExists".into()));

    let patch = json!({"data": {"k": "2"}});
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_ne!(patched.resource_version(), made.resource_version());
    assert_eq!(code(api.replace("a", &PostParams::default(), &made).await), (409, "Conflict".into()));
    let same = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(same.resource_version(), patched.resource_version(), "a patch that changes nothing makes no revision");

    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(api.get("a").await), (404, "NotFound".into()));
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_finalizer_holds_a_deletion() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    let mut object = config_map("a", "1");
    object.finalizers_mut().push("example.com/hold".into());
    api.create(&PostParams::default(), &object).await.unwrap();
    let left = api.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(left.metadata.deletion_timestamp.is_some());
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    assert_eq!(code(api.patch("a", &PatchParams::default(), &Patch::Merge(&more)).await).0, 422);
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn propagation_leaves_its_finalizer() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    for (name, policy, expected) in
        [("a", PropagationPolicy::Foreground, "foregroundDeletion"), ("b", PropagationPolicy::Orphan, "orphan")]
    {
        api.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let left = api.delete(name, &params).await.unwrap().left().unwrap();
        assert_eq!(left.finalizers(), [expected]);
    }
}

#[tokio::test]
async fn a_deletion_with_another_uid_is_refused() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions { uid: Some("other".into()), ..Default::default() }),
        ..DeleteParams::default()
    };
    assert_eq!(code(api.delete("a", &params).await), (409, "Conflict".into()));
}

#[tokio::test]
async fn a_bound_pod_waits_for_its_node() {
    let api: Api<Pod> = Api::default_namespaced(memory().await.client());
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let left = api.delete("p", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(left.metadata.deletion_grace_period_seconds, Some(30));
    let status = json!({"status": {"phase": "Running"}});
    api.patch_status("p", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    api.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(api.get_opt("p").await.unwrap().is_none());
}

#[tokio::test]
async fn string_data_of_a_secret_ends_in_data() {
    let api: Api<Secret> = Api::default_namespaced(memory().await.client());
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "x"}});
    let made = api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    assert_eq!(made.data.unwrap()["password"].0, b"x");
    assert!(made.string_data.is_none());
}

#[tokio::test]
async fn lists_page_at_one_revision_and_select() {
    let api: Api<ConfigMap> = Api::default_namespaced(memory().await.client());
    for index in 0..25 {
        let object = config_map(&format!("c{index:02}"), if index % 2 == 0 { "even" } else { "odd" });
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let mut params = ListParams::default().limit(10);
    let mut names = Vec::new();
    loop {
        let page = api.list(&params).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else { break };
        // What happens between two pages is not seen by the later one.
        api.delete(&names[0], &DeleteParams::default()).await.ok();
        api.create(&PostParams::default(), &config_map("c05a", "late")).await.ok();
        params = params.continue_token(&token);
    }
    assert_eq!(names.len(), 25);
    let odd = api.list(&ListParams::default().labels("v in (odd, other)")).await.unwrap();
    assert_eq!(odd.items.len(), 12);
    let one = api.list(&ListParams::default().fields("metadata.name=c07")).await.unwrap();
    assert_eq!(one.items.len(), 1);
    assert_eq!(code(api.list(&ListParams::default().fields("data.k=1")).await).0, 400);
}

#[tokio::test]
async fn events_of_both_groups_are_one_storage() {
    let client = memory().await.client();
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "hello", "reason": "R",
        "type": "Normal", "action": "A", "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z"});
    let newer: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(client.clone());
    newer.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    let core: Api<Event> = Api::default_namespaced(client);
    let found = core.list(&ListParams::default().fields("involvedObject.name=p")).await.unwrap();
    assert_eq!(found.items[0].message.as_deref(), Some("hello"));
    assert_eq!(newer.get("e").await.unwrap().note.as_deref(), Some("hello"));
}

pub fn definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1}, "replicas": {"type": "integer"},
                        "color": {"type": "string", "default": "red"}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"},
                        "phase": {"type": "string"}}}}}}}]}
    }))
    .unwrap()
}

pub fn widgets(client: Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets");
    Api::default_namespaced_with(client, &resource)
}

pub fn widget(name: &str) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": 1}}))
    .unwrap()
}

#[tokio::test]
async fn a_definition_brings_its_kind_and_takes_it_away() {
    let client = memory().await.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let widgets = widgets(client);
    assert_eq!(code(widgets.list(&ListParams::default()).await).0, 404);
    let made = definitions.create(&PostParams::default(), &definition()).await.unwrap();
    assert!(made.status.unwrap().conditions.unwrap().iter().any(|c| c.type_ == "Established" && c.status == "True"));

    let made = widgets.create(&PostParams::default(), &widget("w")).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    let status = json!({"status": {"phase": "Good"}, "spec": {"size": 7}});
    let after = widgets.patch_status("w", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(after.data["spec"]["size"], 1, "a status write leaves the spec");
    assert_eq!(after.metadata.generation, Some(1));
    let both = json!({"status": {"phase": "Bad"}, "spec": {"size": 7}});
    let after = widgets.patch("w", &PatchParams::default(), &Patch::Merge(&both)).await.unwrap();
    assert_eq!(after.data["status"]["phase"], "Good", "a write of the object leaves its status");
    assert_eq!(after.metadata.generation, Some(2));

    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    assert!(definitions.get_opt("widgets.example.com").await.unwrap().is_none());
    assert_eq!(code(widgets.list(&ListParams::default()).await).0, 404);
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    assert!(widgets.list(&ListParams::default()).await.unwrap().items.is_empty(), "the instances went with it");
}

#[tokio::test]
async fn a_finalizer_of_an_instance_holds_its_definition() {
    let client = memory().await.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition()).await.unwrap();
    let widgets = widgets(client);
    let mut held = widget("w");
    held.finalizers_mut().push("example.com/hold".into());
    widgets.create(&PostParams::default(), &held).await.unwrap();
    definitions.delete("widgets.example.com", &DeleteParams::default()).await.unwrap();
    assert!(definitions.get("widgets.example.com").await.unwrap().metadata.deletion_timestamp.is_some());
    let none = json!({"metadata": {"finalizers": null}});
    widgets.patch("w", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert!(definitions.get_opt("widgets.example.com").await.unwrap().is_none());
}
