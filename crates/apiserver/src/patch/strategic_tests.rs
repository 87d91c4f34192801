use super::*;
use proptest::prelude::*;
use serde_json::json;

fn pod(current: Value, patch: Value) -> Result<Value, PatchError> {
    strategic(&current, &patch, &ListKeys::builtin("", "Pod"))
}

/// A pod spec before, a patch of it, the spec after.
fn check(current: Value, patch: Value, expected: Value) {
    let got = pod(json!({"spec": current.clone()}), json!({"spec": patch.clone()})).unwrap();
    assert_eq!(got["spec"], expected, "{current} + {patch}");
}

#[test]
fn containers_are_merged_by_name_and_new_ones_come_first() {
    check(
        json!({"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b", "image": "1"}]}),
        json!({"containers": [{"name": "c", "image": "3"}, {"name": "a", "image": "2"}]}),
        json!({"containers": [
            {"name": "c", "image": "3"}, {"name": "a", "image": "2", "tty": true}, {"name": "b", "image": "1"}]}),
    );
}

#[test]
fn a_null_removes_a_field() {
    check(json!({"hostname": "x", "nodeName": "n"}), json!({"hostname": null}), json!({"nodeName": "n"}));
}

#[test]
fn delete_removes_one_element() {
    check(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "absent", "$patch": "delete"}]}),
        json!({"containers": [{"name": "b"}]}),
    );
}

#[test]
fn replace_replaces_a_list_or_an_object() {
    check(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
        json!({"containers": [{"name": "c"}]}),
    );
    check(
        json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}}),
        json!({"securityContext": {"$patch": "replace", "fsGroup": 3}}),
        json!({"securityContext": {"fsGroup": 3}}),
    );
}

#[test]
fn retain_keys_drops_what_it_does_not_name() {
    check(
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}),
        json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
    );
}

#[test]
fn retain_keys_must_cover_the_patch() {
    let got = pod(json!({"spec": {}}), json!({"spec": {"$retainKeys": ["a"], "b": 1}}));
    assert!(matches!(got, Err(PatchError::Malformed(_))), "{got:?}");
}

#[test]
fn a_list_without_a_merge_key_is_replaced() {
    check(
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "b"}]}),
        json!({"tolerations": [{"key": "b"}]}),
    );
}

#[test]
fn scalars_of_a_set_are_added_and_deleted() {
    let got = pod(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}}),
    );
    assert_eq!(got.unwrap()["metadata"]["finalizers"], json!(["c", "b"]));
}

#[test]
fn set_element_order_orders_a_list_and_leaves_strangers_where_they_stood() {
    check(
        json!({"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}]}),
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "2"}]}),
        json!({"containers": [{"name": "sidecar"}, {"name": "b", "image": "2"}, {"name": "a"}]}),
    );
    check(
        json!({"containers": [{"name": "a"}, {"name": "b"}]}),
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
        json!({"containers": [{"name": "b"}, {"name": "a"}]}),
    );
}

#[test]
fn an_element_without_its_key_is_refused() {
    let got = pod(json!({}), json!({"spec": {"containers": [{"image": "x"}]}}));
    assert_eq!(
        got,
        Err(PatchError::Malformed(r#"map: {"image":"x"} does not contain declared merge key: name"#.to_owned()))
    );
}

#[test]
fn an_unknown_directive_is_refused() {
    let got = pod(json!({}), json!({"spec": {"$patch": "explode"}}));
    assert_eq!(got, Err(PatchError::Malformed(r#"unknown patch type found: "explode""#.to_owned())));
}

fn containers() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::btree_map("[a-e]", 0..4u8, 0..5).prop_map(|containers| {
        containers.into_iter().map(|(name, image)| json!({"name": name, "image": image.to_string()})).collect()
    })
}

proptest! {
    /// What `kubectl apply` sends: changed elements, deletions, the order. It turns one list into the other.
    #[test]
    fn the_patch_between_two_lists_turns_one_into_the_other(from in containers(), to in containers().prop_shuffle()) {
        let name = |element: &Value| element["name"].clone();
        let mut patch: Vec<Value> = to.iter().filter(|element| !from.contains(element)).cloned().collect();
        patch.extend(from.iter().filter(|element| to.iter().all(|kept| name(kept) != name(element)))
            .map(|element| json!({"name": element["name"], "$patch": "delete"})));
        let order: Vec<Value> = to.iter().map(|element| json!({"name": element["name"]})).collect();
        let got = pod(
            json!({"spec": {"containers": from}}),
            json!({"spec": {"containers": patch, "$setElementOrder/containers": order}}),
        );
        prop_assert_eq!(got.unwrap()["spec"]["containers"].clone(), Value::Array(to));
    }

    #[test]
    fn a_patch_applied_twice_is_applied_once(from in containers(), patch in containers()) {
        let patch = json!({"spec": {"containers": patch}});
        let once = pod(json!({"spec": {"containers": from}}), patch.clone()).unwrap();
        prop_assert_eq!(pod(once.clone(), patch).unwrap(), once);
    }
}

#[test]
fn elements_that_are_not_in_the_order_they_set_are_refused() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    let patch = |list: Value| json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": list}});
    let keys = ListKeys::builtin("", "Pod");
    let good = strategic(&pod, &patch(json!([{"name": "b", "image": "x"}, {"name": "a", "image": "x"}])), &keys);
    assert_eq!(good.unwrap()["spec"]["containers"][0]["name"], "b");
    for list in [json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "c"}])] {
        assert!(matches!(strategic(&pod, &patch(list), &keys), Err(PatchError::Malformed(_))));
    }
}
