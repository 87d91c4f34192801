//! create, get, update, delete.

use serde_json::json;

use super::{apps, config_map, core, custom, pod, stateful_set};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![objects(), locking(), names(), dry_run(), validation(), tables(), discovery()]
}

fn objects() -> Scenario {
    let (all, one) = (core("configmaps"), core("configmaps/a"));
    let changed = |data| config_map("a", data);
    Scenario::new(
        "crud",
        "create, get, update, delete of an object; an update that changes nothing",
        vec![
            post("create", &all, config_map("a", json!({"k": "1"}))),
            post("create again", &all, config_map("a", json!({"k": "1"}))),
            get("get", &one),
            put("update", &one, changed(json!({"k": "2"}))),
            put("update that changes nothing", &one, changed(json!({"k": "2"}))),
            put("update of what is not there", &core("configmaps/absent"), config_map("absent", json!({}))),
            put("update under another name", &one, config_map("b", json!({}))),
            post(
                "create in another namespace than the path's",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "default"}}),
            ),
            post("create without its namespace", "/api/v1/namespaces/absent/configmaps", config_map("a", json!({}))),
            post(
                "create of another kind",
                &all,
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}),
            ),
            post(
                "create of another version",
                &all,
                json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "x"}}),
            ),
            post("create without a type", &all, json!({"metadata": {"name": "untyped"}})),
            post(
                "create with a revision",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "resourceVersion": "1"}}),
            ),
            post(
                "create what only the server gives",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "stamped", "uid": "00000000-0000-0000-0000-000000000000", "generation": 7, "selfLink": "/x",
            "creationTimestamp": "2000-01-01T00:00:00Z", "deletionTimestamp": "2000-01-01T00:00:00Z"}}),
            ),
            delete("delete", &one),
            get("get of what is gone", &one),
            delete("delete of what is gone", &one),
            post(
                "secret with string data",
                &core("secrets"),
                json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "s"}, "data": {"a": "YQ=="}, "stringData": {"b": "b"}}),
            ),
            post(
                "immutable",
                &core("configmaps"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "fixed"}, "immutable": true, "data": {"a": "1"}}),
            ),
            put(
                "update of the immutable",
                &core("configmaps/fixed"),
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "fixed"}, "immutable": true, "data": {"a": "2"}}),
            ),
            post(
                "lease",
                "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
                json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
            ),
        ],
    )
}

fn locking() -> Scenario {
    let one = core("configmaps/a");
    let at = |revision: &str, value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": revision},
            "data": {"k": value}})
    };
    Scenario::new(
        "locking",
        "optimistic locking by resourceVersion and uid; preconditions of a deletion",
        vec![
            post("create", &core("configmaps"), config_map("a", json!({"k": "1"})))
                .capture("first", "/metadata/resourceVersion")
                .capture("uid", "/metadata/uid"),
            put("update of the revision", &one, at("{first}", "2")),
            put("update of an old revision", &one, at("{first}", "3")),
            put("update of a revision that is none", &one, at("never", "3")),
            put(
                "update of another uid",
                &one,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}}),
            ),
            patch(
                "patch of an old revision",
                &one,
                MERGE_PATCH,
                json!({"metadata": {"resourceVersion": "{first}"}, "data": {"k": "4"}}),
            ),
            patch(
                "patch of another uid",
                &one,
                MERGE_PATCH,
                json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}),
            ),
            delete_with(
                "delete of another uid",
                &one,
                json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
            ),
            delete_with("delete of an old revision", &one, json!({"preconditions": {"resourceVersion": "{first}"}})),
            delete_with("delete of the uid", &one, json!({"preconditions": {"uid": "{uid}"}})),
        ],
    )
}

fn names() -> Scenario {
    let all = core("configmaps");
    let named = |name: &str| config_map(name, json!({}));
    Scenario::new(
        "names",
        "names, generated names, labels and annotations that are none",
        vec![
            post(
                "generated",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}}),
            )
            .capture("generated", "/metadata/name"),
            get("get of the generated", &core("configmaps/{generated}")),
            post(
                "both",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-", "name": "n"}}),
            ),
            post("neither", &all, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})),
            post("capitals", &all, named("Upper")),
            post("slash", &all, named("a/b")),
            post(
                "service with a dot",
                &core("services"),
                json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 80}]}}),
            ),
            post("key of a config map", &all, config_map("key", json!({"a b": "1"}))),
            post(
                "label",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "l", "labels": {"a b": "x", "ok": "not ok!"}}}),
            ),
            post(
                "annotation",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "l", "annotations": {"a b": "x"}}}),
            ),
            post(
                "finalizer",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "l", "finalizers": ["unqualified"]}}),
            ),
            post(
                "owner",
                &all,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "l", "ownerReferences": [{"kind": "Pod", "name": "p"}]}}),
            ),
        ],
    )
}

fn dry_run() -> Scenario {
    let (all, one) = (core("configmaps"), core("configmaps/a"));
    Scenario::new(
        "dry-run",
        "dry runs of every verb",
        vec![
            post("create", &format!("{all}?dryRun=All"), config_map("a", json!({"k": "1"}))),
            get("get", &one),
            post("really create", &all, config_map("a", json!({"k": "1"}))),
            post("create again", &format!("{all}?dryRun=All"), config_map("a", json!({"k": "1"}))),
            put("update", &format!("{one}?dryRun=All"), config_map("a", json!({"k": "2"}))),
            patch("patch", &format!("{one}?dryRun=All"), MERGE_PATCH, json!({"data": {"k": "3"}})),
            apply("apply", &format!("{one}?dryRun=All&fieldManager=m&force=true"), config_map("a", json!({"k": "4"}))),
            delete("delete", &format!("{one}?dryRun=All")),
            delete_with("delete by the body", &one, json!({"dryRun": ["All"]})),
            delete("delete of all", &format!("{all}?dryRun=All&labelSelector=none%3Dsuch")),
            post("another value", &format!("{all}?dryRun=Some"), config_map("b", json!({}))),
            get("all as it was", &one),
        ],
    )
}

fn validation() -> Scenario {
    let all = apps("statefulsets");
    let mut unknown = stateful_set("a");
    unknown["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
    unknown["spec"]["replicass"] = json!(1);
    let mut wrong = stateful_set("a");
    wrong["spec"]["replicas"] = json!("one");
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice"},"data":{"a":"1","a":"2"}}"#;
    Scenario::new(
        "field-validation",
        "unknown and repeated fields: Ignore, Warn, Strict",
        vec![
            post("strict", &format!("{all}?fieldValidation=Strict&dryRun=All"), unknown.clone()),
            post("warn", &format!("{all}?fieldValidation=Warn&dryRun=All"), unknown.clone()),
            post("ignore", &format!("{all}?fieldValidation=Ignore&dryRun=All"), unknown.clone()),
            post("default", &format!("{all}?dryRun=All"), unknown),
            post("another value", &format!("{all}?fieldValidation=Never&dryRun=All"), stateful_set("a")),
            post("wrong type", &all, wrong),
            raw(
                "repeated, strict",
                "POST",
                &(core("configmaps") + "?fieldValidation=Strict"),
                "application/json",
                twice,
            ),
            raw("repeated, warn", "POST", &core("configmaps"), "application/json", twice),
            post(
                "custom definition",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                super::custom::definition(),
            )
            .silent(),
            super::custom::established(),
            post(
                "custom strict",
                &(custom("widgets") + "?fieldValidation=Strict"),
                json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"sise": 1}}),
            ),
            post(
                "custom warn",
                &custom("widgets"),
                json!({"apiVersion": "{group}/v1", "kind": "Widget",
            "metadata": {"name": "w"}, "spec": {"sise": 1, "deep": {"er": 1}}}),
            ),
            patch(
                "custom merge patch strict",
                &(custom("widgets/w") + "?fieldValidation=Strict"),
                MERGE_PATCH,
                json!({"spec": {"sise": 1}}),
            ),
            apply(
                "custom apply strict",
                &(custom("widgets/w") + "?fieldValidation=Strict&fieldManager=m"),
                json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"sise": 1}}),
            ),
            patch(
                "built-in strategic patch strict",
                &(core("configmaps/twice") + "?fieldValidation=Strict"),
                STRATEGIC_PATCH,
                json!({"datum": {"a": "b"}}),
            ),
            apply(
                "built-in apply strict",
                &(core("configmaps/c") + "?fieldValidation=Strict&fieldManager=m"),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "datum": {}}),
            ),
        ],
    )
    .makes(&["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}"])
}

fn tables() -> Scenario {
    Scenario::new(
        "tables",
        "Table and PartialObjectMetadata instead of objects",
        vec![
            post("config map", &core("configmaps"), config_map("a", json!({"k": "1", "l": "2"}))).silent(),
            post(
                "secret",
                &core("secrets"),
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "stringData": {"a": "b"}}),
            )
            .silent(),
            post(
                "service",
                &core("services"),
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}, {"port": 53, "name": "d", "protocol": "UDP"}],
                "selector": {"app": "web"}}}),
            )
            .silent(),
            post("stateful set", &apps("statefulsets"), stateful_set("db")).silent(),
            post(
                "claim",
                &core("persistentvolumeclaims"),
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none-such",
                "resources": {"requests": {"storage": "1Gi"}}}}),
            )
            .silent(),
            post("pod", &core("pods"), pod("p")).silent(),
            get("table of a config map", &core("configmaps/a")).accept(TABLE),
            get("table of secrets", &core("secrets")).accept(TABLE),
            get("table of services", &core("services")).accept(TABLE),
            get("table of stateful sets", &apps("statefulsets")).accept(TABLE),
            get("table of claims", &core("persistentvolumeclaims")).accept(TABLE),
            get("table of pods", &core("pods")).accept(TABLE),
            get("table with objects", &(core("configmaps/a") + "?includeObject=Object")).accept(TABLE),
            get("table without objects", &(core("configmaps/a") + "?includeObject=None")).accept(TABLE),
            get("table of none", &(core("secrets") + "?labelSelector=no%3Dne")).accept(TABLE),
            get("table of an absent object", &core("secrets/absent")).accept(TABLE),
            get("table of namespaces", "/api/v1/namespaces/{ns}").accept(TABLE),
            get("metadata", &core("configmaps/a")).accept(METADATA),
            get("metadata of a list", &core("secrets")).accept(METADATA_LIST),
            get("form that is none", &core("secrets")).accept("application/json;as=Nothing;v=v1;g=meta.k8s.io"),
            get("type that is none", &core("secrets")).accept("text/html"),
            get("yaml", &core("configmaps/a")).accept("application/yaml"),
        ],
    )
}

fn discovery() -> Scenario {
    Scenario::new(
        "discovery",
        "what is served, as clients ask for it",
        vec![
            get("api", "/api"),
            get("apis", "/apis"),
            get("v1", "/api/v1"),
            get("apps", "/apis/apps/v1"),
            get("group of apps", "/apis/apps"),
            get("batch", "/apis/batch/v1"),
            get("policy", "/apis/policy/v1"),
            get("endpoint slices", "/apis/discovery.k8s.io/v1"),
            get("networking", "/apis/networking.k8s.io/v1"),
            get("storage", "/apis/storage.k8s.io/v1"),
            get("coordination", "/apis/coordination.k8s.io/v1"),
            get("events", "/apis/events.k8s.io/v1"),
            get("rbac", "/apis/rbac.authorization.k8s.io/v1"),
            get("authorization", "/apis/authorization.k8s.io/v1"),
            get("authentication", "/apis/authentication.k8s.io/v1"),
            get("definitions", "/apis/apiextensions.k8s.io/v1"),
            get("group that is none", "/apis/none.example.com"),
            get("version that is none", "/apis/apps/v9"),
            post(
                "custom definition",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                super::custom::definition(),
            )
            .silent(),
            super::custom::established(),
            get("custom group", "/apis/{group}").until(Until::Code(200)),
            get("custom version", "/apis/{group}/v1").until(Until::Code(200)),
        ],
    )
    .makes(&["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}"])
}
