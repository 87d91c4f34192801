//! Finalizers, owners and namespaces.

use serde_json::{Value, json};

use super::{config_map, core};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![finalizers(), garbage(), namespaces()]
}

fn finalizers() -> Scenario {
    let one = core("configmaps/a");
    Scenario::new(
        "finalizers",
        "objects that wait for their finalizers",
        vec![
            post(
                "create",
                &core("configmaps"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "finalizers": ["a.io/1", "a.io/2"]}}),
            ),
            delete("delete", &one),
            get("waits", &one),
            delete("delete again", &one),
            patch("no new finalizer", &one, MERGE_PATCH, json!({"metadata": {"finalizers": ["a.io/1", "a.io/3"]}})),
            patch("data may change", &one, MERGE_PATCH, json!({"data": {"k": "1"}})),
            patch("deletion cannot be undone", &one, MERGE_PATCH, json!({"metadata": {"deletionTimestamp": null}})),
            patch("one finalizer less", &one, MERGE_PATCH, json!({"metadata": {"finalizers": ["a.io/2"]}})),
            patch("the last", &one, JSON_PATCH, json!([{"op": "remove", "path": "/metadata/finalizers"}])),
            get("gone", &one),
            post("same name again", &core("configmaps"), config_map("a", json!({}))),
        ],
    )
}

fn owned(name: &str, owner: &str, uid: &str, block: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": block}]}})
}

fn garbage() -> Scenario {
    let all = core("configmaps");
    let owner = |name: &'static str, variable| {
        post(name, &all, config_map(name, json!({}))).capture(variable, "/metadata/uid").silent()
    };
    let at = |name: &str| core(&format!("configmaps/{name}"));
    Scenario::new(
        "garbage",
        "dependents of what is deleted: background, foreground, orphan",
        vec![
            owner("back", "back"),
            post("back-child", &all, owned("back-child", "back", "{back}", false)),
            delete_with("background", &at("back"), json!({"propagationPolicy": "Background"})),
            get("the child went", &at("back-child")).until(Until::Code(404)),
            owner("fore", "fore"),
            post("fore-child", &all, owned("fore-child", "fore", "{fore}", true)).silent(),
            delete_with("foreground", &at("fore"), json!({"propagationPolicy": "Foreground"})),
            get("the child went first", &at("fore-child")).until(Until::Code(404)),
            get("then the owner", &at("fore")).until(Until::Code(404)),
            owner("orph", "orph"),
            post("orph-child", &all, owned("orph-child", "orph", "{orph}", true)).silent(),
            delete_with("orphan", &at("orph"), json!({"propagationPolicy": "Orphan"})),
            get("the owner went", &at("orph")).until(Until::Code(404)),
            get("the child is an orphan", &at("orph-child")).until(Until::Lacks("/metadata/ownerReferences")),
            post("child of nobody", &all, owned("lost", "none", "00000000-0000-0000-0000-000000000001", false))
                .silent(),
            get("it went", &at("lost")).until(Until::Code(404)),
            owner("one", "one"),
            owner("two", "two"),
            post(
                "of two",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "both",
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "{one}"},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "two", "uid": "{two}"}]}}),
            )
            .silent(),
            delete("one of two", &at("one")),
            get("the other is left", &at("both")).until(Until::Lacks("/metadata/ownerReferences/1")),
            post(
                "two controllers",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "{one}", "controller": true},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "two", "uid": "{two}", "controller": true}]}}),
            ),
            delete("old orphan option", &(at("two") + "?orphanDependents=true")),
        ],
    )
    .with_controllers()
}

fn namespaces() -> Scenario {
    let space = "/api/v1/namespaces/{ns}-gone";
    Scenario::new(
        "namespaces",
        "a namespace that is deleted with what is in it",
        vec![
            post(
                "create",
                "/api/v1/namespaces",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-gone"}}),
            ),
            patch("labels", space, MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}})),
            patch(
                "its own label",
                space,
                MERGE_PATCH,
                json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "x"}}}),
            ),
            post(
                "held",
                &format!("{space}/configmaps"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "finalizers": ["a.io/x"]}}),
            )
            .silent(),
            post("free", &format!("{space}/configmaps"), config_map("free", json!({}))).silent(),
            delete("delete", space),
            get("the free went", &format!("{space}/configmaps/free")).until(Until::Code(404)),
            post("nothing new", &format!("{space}/configmaps"), config_map("new", json!({}))),
            get("what it waits for", space).until(Until::Has("/status/conditions")),
            patch(
                "let go",
                &format!("{space}/configmaps/held"),
                MERGE_PATCH,
                json!({"metadata": {"finalizers": null}}),
            ),
            get("gone", space).until(Until::Code(404)),
            delete("the default", "/api/v1/namespaces/default"),
            delete("one that is none", "/api/v1/namespaces/absent"),
        ],
    )
    .with_controllers()
    .makes(&["/api/v1/namespaces/{ns}-gone"])
}
