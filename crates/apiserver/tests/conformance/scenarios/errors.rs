//! Requests that are refused.

use serde_json::json;

use super::{config_map, core};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    let (all, one) = (core("configmaps"), core("configmaps/a"));
    let scenario = Scenario::new(
        "errors",
        "paths, methods, types and bodies that are refused",
        vec![
            post("create", &all, config_map("a", json!({"k": "1"}))).silent(),
            get("path that is none", "/none"),
            get("kind that is none", &core("nothings")),
            get("kind that is none in a group", "/apis/apps/v1/namespaces/{ns}/nothings"),
            get("object that is not there", &core("configmaps/absent")),
            get("list in a namespace that is not there", "/api/v1/namespaces/absent/configmaps"),
            get("subresource that is none", &core("configmaps/a/nothing")),
            get("status of a kind without", &core("configmaps/a/status")),
            bare("post to an object", "POST", &one),
            bare("put to a collection", "PUT", &all),
            bare("patch of a collection", "PATCH", &all),
            bare("delete of all namespaces", "DELETE", "/api/v1/namespaces"),
            bare("post to all namespaces", "POST", "/api/v1/configmaps"),
            raw("broken JSON", "POST", &all, "application/json", "{\"a\":"),
            raw("no JSON", "POST", &all, "application/json", "kind: ConfigMap"),
            raw("empty body", "POST", &all, "application/json", ""),
            raw("a list for an object", "POST", &all, "application/json", "[]"),
            raw("null for an object", "POST", &all, "application/json", "null"),
            raw("type that is none", "POST", &all, "text/plain", "x"),
            raw(
                "YAML",
                "POST",
                &all,
                "application/yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata: {a: b}\n",
            ),
            raw("broken YAML", "POST", &all, "application/yaml", "a: [\n"),
            raw("no type", "PUT", &one, "", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#),
            raw("patch of a type that is none", "PATCH", &one, "application/json", "{}"),
            raw("patch that is no JSON", "PATCH", &one, MERGE_PATCH, "{"),
            raw("JSON patch that is no list", "PATCH", &one, JSON_PATCH, "{}"),
            raw(
                "metadata of a wrong type",
                "POST",
                &all,
                "application/json",
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":"x"}"#,
            ),
            raw(
                "data of a wrong type",
                "POST",
                &all,
                "application/json",
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":1}}"#,
            ),
            raw(
                "label of a wrong type",
                "POST",
                &all,
                "application/json",
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":1}}}"#,
            ),
            get("limit that is none", &format!("{all}?limit=x")),
            get("label selector that is none", &format!("{all}?labelSelector=a%3D%3D%3Db")),
            get("field selector that is none", &format!("{all}?fieldSelector=spec.x%3D1")),
            get("continue that is none", &format!("{all}?continue=x")),
            get("revision that is none", &format!("{all}?resourceVersion=x")),
            get("revision of the future", &format!("{one}?resourceVersion=99999999")),
            delete("policy that is none", &format!("{one}?propagationPolicy=Never")),
            delete_with("both policies", &one, json!({"propagationPolicy": "Orphan", "orphanDependents": true})),
            delete_with("negative grace", &format!("{one}?dryRun=All"), json!({"gracePeriodSeconds": -1})),
            raw("options that are none", "DELETE", &one, "application/json", "{\"kind\":"),
            get(
                "head-like get of a collection with a name in the query",
                &format!("{all}?fieldSelector=metadata.name%3Da"),
            ),
        ],
    );
    vec![scenario]
}
