use super::*;
use proptest::prelude::*;
use serde_json::json;

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:01:00Z";

fn keys() -> ListKeys {
    ListKeys::builtin("apps", "StatefulSet")
}

fn options(manager: &str) -> ApplyOptions<'_> {
    ApplyOptions { manager, force: false, subresource: None, now: NOW, api_version: "apps/v1" }
}

fn set(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec})
}

fn try_by(manager: &str, current: Option<&Value>, spec: Value) -> Result<Value, ApplyError> {
    apply(current, &set(spec), &keys(), &options(manager))
}

fn by(manager: &str, current: Option<&Value>, spec: Value) -> Value {
    try_by(manager, current, spec).unwrap()
}

fn owned_by(object: &Value, manager: &str) -> Vec<String> {
    let managers = managed::read(object);
    let own = managers.into_iter().find(|(key, _)| key.name == manager);
    own.map(|(_, owned)| owned.fields.paths()).unwrap_or_default()
}

fn containers(containers: Value) -> Value {
    json!({"template": {"spec": {"containers": containers}}})
}

#[test]
fn apply_creates_and_owns_what_it_states() {
    let got = by("a", None, json!({"replicas": 1, "serviceName": "x"}));
    assert_eq!(
        got,
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "s", "managedFields": [{
                "manager": "a", "operation": "Apply", "apiVersion": "apps/v1", "time": NOW,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:serviceName": {}}},
            }]},
            "spec": {"replicas": 1, "serviceName": "x"},
        })
    );
}

#[test]
fn the_same_apply_again_changes_nothing_not_even_the_time() {
    let first = by("a", None, json!({"replicas": 1}));
    let options = ApplyOptions { now: LATER, ..options("a") };
    assert_eq!(apply(Some(&first), &set(json!({"replicas": 1})), &keys(), &options), Ok(first));
}

#[test]
fn a_changed_value_of_another_applier_is_a_conflict() {
    let first = by("a", None, json!({"replicas": 1}));
    let got = try_by("b", Some(&first), json!({"replicas": 2})).unwrap_err();
    assert_eq!(
        got,
        ApplyError::Conflicts(vec![Conflict { manager: "\"a\"".to_owned(), field: ".spec.replicas".to_owned() }])
    );
    assert_eq!(got.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.replicas"#);
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut live = by("a", None, json!({"replicas": 1}));
    let old = live.clone();
    live["spec"]["serviceName"] = json!("x");
    track_update(Some(&old), &mut live, "kubectl-edit", None, NOW, "apps/v1", &keys());
    let got = try_by("b", Some(&live), json!({"replicas": 2, "serviceName": "y"})).unwrap_err();
    assert_eq!(
        got.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.replicas\nconflicts with \"kubectl-edit\" using \
         apps/v1:\n- .spec.serviceName"
    );
}

#[test]
fn force_takes_the_field_from_its_owner() {
    let first = by("a", None, json!({"replicas": 1, "serviceName": "x"}));
    let forced = ApplyOptions { force: true, ..options("b") };
    let got = apply(Some(&first), &set(json!({"replicas": 2})), &keys(), &forced).unwrap();
    assert_eq!(got["spec"], json!({"replicas": 2, "serviceName": "x"}));
    assert_eq!(owned_by(&got, "a"), [".spec.serviceName"]);
    assert_eq!(owned_by(&got, "b"), [".spec.replicas"]);
}

#[test]
fn the_same_value_is_shared_and_goes_with_its_last_owner() {
    let shared = by("b", Some(&by("a", None, json!({"replicas": 1}))), json!({"replicas": 1}));
    assert_eq!(
        (owned_by(&shared, "a"), owned_by(&shared, "b")),
        (vec![".spec.replicas".to_owned()], vec![".spec.replicas".to_owned()])
    );
    let one_left = by("a", Some(&shared), json!({"serviceName": "x"}));
    assert_eq!(one_left["spec"], json!({"replicas": 1, "serviceName": "x"}));
    let none_left = by("b", Some(&one_left), json!({}));
    assert_eq!(none_left["spec"], json!({"serviceName": "x"}));
}

#[test]
fn a_field_given_up_is_removed_with_the_unowned_rest_of_its_object_but_metadata_stays() {
    let mut config = set(json!({"replicas": 1, "updateStrategy": {"rollingUpdate": {"partition": 1}}}));
    config["metadata"]["labels"] = json!({"x": "y"});
    let mut live = apply(None, &config, &keys(), &options("a")).unwrap();
    live["spec"]["updateStrategy"]["type"] = json!("RollingUpdate"); // a default: nobody owns it
    let got = by("a", Some(&live), json!({"replicas": 1}));
    assert_eq!(got["spec"], json!({"replicas": 1}));
    assert_eq!(got["metadata"]["name"], "s");
    assert_eq!(got["metadata"].get("labels"), None);
}

#[test]
fn fields_of_nobody_survive_beside_fields_that_are_still_applied() {
    let mut live = by("a", None, containers(json!([{"name": "c", "image": "1"}])));
    live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    let got = by("a", Some(&live), containers(json!([{"name": "c", "image": "2"}])));
    assert_eq!(
        got["spec"]["template"]["spec"]["containers"],
        json!([{"name": "c", "image": "2", "imagePullPolicy": "Always"}])
    );
}

#[test]
fn list_elements_belong_to_who_applied_them() {
    let first = by("a", None, containers(json!([{"name": "x", "image": "1"}, {"name": "y", "image": "1"}])));
    let both = by("b", Some(&first), containers(json!([{"name": "z", "image": "1"}])));
    let got = by("a", Some(&both), containers(json!([{"name": "y", "image": "1"}])));
    let names: Vec<_> =
        got["spec"]["template"]["spec"]["containers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["y", "z"]);
}

#[test]
fn ports_are_told_apart_by_protocol_which_defaults_to_tcp() {
    let ports = |ports| containers(json!([{"name": "c", "ports": ports}]));
    let first = by("a", None, ports(json!([{"containerPort": 53, "name": "tcp"}])));
    let got = by("b", Some(&first), ports(json!([{"containerPort": 53, "protocol": "UDP", "name": "udp"}])));
    assert_eq!(got["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap().len(), 2);
    let got = try_by("b", Some(&first), ports(json!([{"containerPort": 53, "protocol": "TCP", "name": "mine"}])));
    assert_eq!(
        got.unwrap_err().to_string(),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.template.spec.containers[name="c"].ports[containerPort=53,protocol="TCP"].name"#
    );
}

#[test]
fn an_atomic_map_has_one_owner() {
    let selector = |value: &str| json!({"selector": {"matchLabels": {"app": value}}});
    let first = by("a", None, selector("x"));
    let got = try_by("b", Some(&first), json!({"selector": {"matchLabels": {"tier": "y"}}})).unwrap_err();
    assert!(got.to_string().ends_with(".spec.selector"), "{got}");
}

#[test]
fn sets_are_merged_value_by_value() {
    let with = |finalizers| json!({"metadata": {"name": "s", "finalizers": finalizers}});
    let first = apply(None, &with(json!(["a/x", "a/y"])), &keys(), &options("a")).unwrap();
    let both = apply(Some(&first), &with(json!(["b/z"])), &keys(), &options("b")).unwrap();
    let got = apply(Some(&both), &with(json!(["a/y"])), &keys(), &options("a")).unwrap();
    assert_eq!(got["metadata"]["finalizers"], json!(["a/y", "b/z"]));
}

#[test]
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    let old = by("a", None, json!({"replicas": 1, "serviceName": "x", "minReadySeconds": 1}));
    let mut new = old.clone();
    new["spec"] = json!({"replicas": 2, "serviceName": "x"});
    track_update(Some(&old), &mut new, "kubectl", None, LATER, "apps/v1", &keys());
    assert_eq!(owned_by(&new, "a"), [".spec.serviceName"]);
    assert_eq!(owned_by(&new, "kubectl"), [".spec.replicas"]);
    assert_eq!(new["metadata"]["managedFields"][1]["time"], LATER);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], NOW);
}

#[test]
fn an_update_that_changes_nothing_leaves_the_entries_alone() {
    let old = by("a", None, json!({"replicas": 1}));
    let mut new = old.clone();
    new["metadata"].as_object_mut().unwrap().remove("managedFields");
    track_update(Some(&old), &mut new, "kubectl", None, LATER, "apps/v1", &keys());
    assert_eq!(new, old);
}

#[test]
fn status_is_tracked_apart_from_the_object() {
    let old = by("a", None, json!({"replicas": 1}));
    let mut new = old.clone();
    new["status"] = json!({"replicas": 1, "conditions": [{"type": "Ready", "status": "True"}]});
    track_update(Some(&old), &mut new, "a", Some("status"), NOW, "apps/v1", &keys());
    let entry = &new["metadata"]["managedFields"][1];
    assert_eq!((&entry["subresource"], &entry["operation"]), (&json!("status"), &json!("Update")));
    assert_eq!(
        entry["fieldsV1"]["f:status"]["f:conditions"],
        json!({".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}})
    );
}

#[test]
fn apply_to_status_sees_only_the_status_of_the_configuration() {
    let live = by("a", None, json!({"replicas": 1}));
    let mut config = set(json!({"replicas": 5}));
    config["status"] = json!({"readyReplicas": 1});
    let options = ApplyOptions { subresource: Some("status"), ..options("controller") };
    let got = apply(Some(&live), &config, &keys(), &options).unwrap();
    assert_eq!((&got["spec"]["replicas"], &got["status"]), (&json!(1), &json!({"readyReplicas": 1})));
}

#[test]
fn an_object_nobody_managed_keeps_its_fields_through_the_first_apply() {
    let live = set(json!({"replicas": 3}));
    let got = try_by("a", Some(&live), json!({"replicas": 1})).unwrap_err();
    assert_eq!(
        got.to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas"#
    );
}

#[test]
fn one_empty_entry_resets_the_managers() {
    let old = by("a", None, json!({"replicas": 1}));
    let mut new = old.clone();
    new["metadata"]["managedFields"] = json!([{}]);
    track_update(Some(&old), &mut new, "kubectl", None, NOW, "apps/v1", &keys());
    assert_eq!(new["metadata"].get("managedFields"), None);
}

#[test]
fn elements_without_keys_and_twins_are_refused() {
    let got = try_by("a", None, containers(json!([{"image": "x"}]))).unwrap_err().to_string();
    assert_eq!(
        got,
        "failed to create typed patch object: .spec.template.spec.containers: element 0: associative list with keys \
         has an element that omits key field \"name\" (and doesn't have default value)"
    );
    let got = try_by("a", None, containers(json!([{"name": "x"}, {"name": "x"}]))).unwrap_err().to_string();
    assert_eq!(
        got,
        "failed to create typed patch object: .spec.template.spec.containers: duplicate entries for key [name=\"x\"]"
    );
}

#[test]
fn managed_fields_in_the_configuration_are_refused() {
    let config = json!({"metadata": {"name": "s", "managedFields": [{"manager": "x"}]}});
    let got = apply(None, &config, &keys(), &options("a")).unwrap_err();
    assert_eq!(got, ApplyError::Invalid("metadata.managedFields must be nil".to_owned()));
}

#[test]
fn without_a_type_maps_merge_by_key_and_lists_are_values() {
    let keys = ListKeys::untyped();
    let config = |spec| json!({"metadata": {"name": "s"}, "spec": spec});
    let first = apply(None, &config(json!({"m": {"a": {"x": 1}}, "l": [1]})), &keys, &options("a")).unwrap();
    assert_eq!(owned_by(&first, "a"), [".spec.l", ".spec.m", ".spec.m.a", ".spec.m.a.x"]);
    let got = apply(Some(&first), &config(json!({"l": [2]})), &keys, &options("b"));
    assert!(matches!(got, Err(ApplyError::Conflicts(_))), "{got:?}");
}

/// Specs whose containers, ports and scalars come out of a small space, so that they overlap.
fn specs(names: &'static str) -> impl Strategy<Value = Value> {
    let container = (0..3u8, proptest::collection::btree_set(1..4u16, 1..3)).prop_map(|(image, ports)| {
        let ports: Vec<_> = ports.into_iter().map(|port| json!({"containerPort": port})).collect();
        json!({"image": image.to_string(), "ports": ports})
    });
    proptest::collection::btree_map(names, container, 0..3).prop_map(|containers| {
        let containers: Vec<_> = containers
            .into_iter()
            .map(|(name, mut container)| {
                container["name"] = json!(name);
                container
            })
            .collect();
        json!({"template": {"spec": {"containers": containers}}})
    })
}

fn forced(manager: &str, current: Option<&Value>, spec: &Value) -> Value {
    let options = ApplyOptions { force: true, ..options(manager) };
    apply(current, &set(spec.clone()), &keys(), &options).unwrap()
}

/// A StatefulSet's containers by name, so that order does not count.
fn by_name(object: &Value) -> std::collections::BTreeMap<String, Value> {
    let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    containers.into_iter().flatten().map(|c| (c["name"].to_string(), c.clone())).collect()
}

proptest! {
    #[test]
    fn apply_is_idempotent(other in specs("[a-c]"), spec in specs("[a-c]")) {
        let live = forced("other", None, &other);
        let once = forced("a", Some(&live), &spec);
        prop_assert_eq!(forced("a", Some(&once), &spec), once);
    }

    #[test]
    fn disjoint_applies_commute(left in specs("[a-c]"), right in specs("[d-f]")) {
        let left_first = by("r", Some(&by("l", None, left.clone())), right.clone());
        let right_first = by("l", Some(&by("r", None, right)), left);
        prop_assert_eq!(by_name(&left_first), by_name(&right_first));
        prop_assert_eq!(managed::read(&left_first), managed::read(&right_first));
    }

    #[test]
    fn applying_a_then_b_leaves_b_when_nobody_else_owns_anything(a in specs("[a-c]"), b in specs("[a-c]")) {
        let got = forced("m", Some(&forced("m", None, &a)), &b);
        prop_assert_eq!(by_name(&got), by_name(&forced("m", None, &b)));
    }
}
