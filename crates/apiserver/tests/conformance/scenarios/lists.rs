//! Selectors and pages.

use serde_json::json;

use super::{core, labelled, pod};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![selectors(), pages(), collections()]
}

fn selectors() -> Scenario {
    let labels = |label: &str, selector: &str| get(label, &format!("{}?labelSelector={selector}", core("configmaps")));
    let fields =
        |label: &str, path: &str, selector: &str| get(label, &format!("{}?fieldSelector={selector}", core(path)));
    Scenario::new(
        "selectors",
        "label and field selectors",
        vec![
            post("a", &core("configmaps"), labelled("a", json!({"set": "one", "tier": "gold", "n": "5"}))).silent(),
            post("b", &core("configmaps"), labelled("b", json!({"set": "one", "tier": "silver", "n": "7"}))).silent(),
            post("c", &core("configmaps"), labelled("c", json!({"set": "one"}))).silent(),
            labels("equal", "set%3Done,tier%3Dgold"),
            labels("twice equal", "set%3D%3Done,tier%3D%3Dsilver"),
            labels("unequal", "set%3Done,tier!%3Dgold"),
            labels("in", "tier%20in%20(gold,silver)"),
            labels("not in", "set%3Done,tier%20notin%20(gold)"),
            labels("exists", "tier"),
            labels("exists not", "set,!tier"),
            labels("greater", "n%3E5"),
            labels("less", "n%3C6"),
            labels("none", "set%3Dtwo"),
            labels("broken", "set%20in%20gold"),
            labels("bad value", "set%3Dnot%20good"),
            fields("by name", "configmaps", "metadata.name%3Db"),
            fields("not by name", "configmaps", "metadata.name!%3Dkube-root-ca.crt"),
            fields("by namespace", "configmaps", "metadata.namespace%3Ddefault"),
            fields("unknown", "configmaps", "data.x%3D1"),
            fields("broken", "configmaps", "metadata.name"),
            post("p", &core("pods"), pod("p")).silent(),
            fields("pods by phase", "pods", "status.phase%3DRunning"),
            fields("pods by node", "pods", "spec.nodeName%3Dx"),
            fields("pods by restart policy", "pods", "spec.restartPolicy%3DNever"),
            fields("secrets by type", "secrets", "type%3DOpaque"),
        ],
    )
}

fn pages() -> Scenario {
    let page = |label: &str, query: &str| get(label, &format!("{}?labelSelector=page&{query}", core("configmaps")));
    let mut steps: Vec<Step> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| {
            post(name, &core("configmaps"), labelled(name, json!({"page": "1"})))
                .capture("revision", "/metadata/resourceVersion")
                .silent()
        })
        .collect();
    steps.extend([
        get("first page", &(core("configmaps") + "?limit=2&labelSelector=page")).capture("next", "/metadata/continue"),
        post("written between", &core("configmaps"), labelled("aa", json!({"page": "1"}))).silent(),
        delete("deleted between", &core("configmaps/e")).silent(),
        page("second page", "limit=2&continue={next}").capture("last", "/metadata/continue"),
        page("last page", "limit=2&continue={last}"),
        page("last page again, without a limit", "continue={last}"),
        page("continue and revision", "limit=2&continue={next}&resourceVersion={revision}"),
        page("exact", "resourceVersion={revision}&resourceVersionMatch=Exact"),
        page("exact with a limit", "limit=2&resourceVersion={revision}&resourceVersionMatch=Exact"),
        page("not older than", "resourceVersion={revision}&resourceVersionMatch=NotOlderThan"),
        page("any", "resourceVersion=0"),
        page("any with a match", "resourceVersion=0&resourceVersionMatch=NotOlderThan"),
        page("match without revision", "resourceVersionMatch=Exact"),
        page("exact zero", "resourceVersion=0&resourceVersionMatch=Exact"),
        page("match that is none", "resourceVersion={revision}&resourceVersionMatch=Near"),
        page("revision of the future", "resourceVersion=99999999"),
        page("exact revision of the future", "resourceVersion=99999999&resourceVersionMatch=Exact"),
        page("limit zero", "limit=0"),
        page("negative limit", "limit=-1"),
        get("page of all fields", &(core("secrets") + "?limit=1")),
    ]);
    Scenario::new("pages", "limit and continue, resourceVersion and resourceVersionMatch", steps)
}

fn collections() -> Scenario {
    let all = core("configmaps");
    Scenario::new(
        "collections",
        "deletion of collections",
        vec![
            post("a", &all, labelled("a", json!({"set": "1"}))).silent(),
            post("b", &all, labelled("b", json!({"set": "1"}))).silent(),
            post("c", &all, labelled("c", json!({"set": "2"}))).silent(),
            delete("some", &format!("{all}?labelSelector=set%3D1")),
            delete("none", &format!("{all}?labelSelector=set%3D1")),
            get("left", &format!("{all}?labelSelector=set")),
            post(
                "held",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "labels": {"set": "3"}, "finalizers": ["a.io/x"]}}),
            )
            .silent(),
            delete("held", &format!("{all}?labelSelector=set%3D3")),
            get("held is there", &core("configmaps/held")),
            patch("let go", &core("configmaps/held"), MERGE_PATCH, json!({"metadata": {"finalizers": null}})),
            get("held is gone", &core("configmaps/held")),
            delete("by name", &format!("{all}?fieldSelector=metadata.name%3Dc")),
        ],
    )
}
