//! The patches that need no owner: JSON, merge, strategic merge.

use serde_json::json;

use super::{apps, config_map, core, stateful_set};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![json_patch(), merge_patch(), strategic(), directives(), services()]
}

fn json_patch() -> Scenario {
    let one = core("configmaps/a");
    let ops = |label: &str, ops| patch(label, &one, JSON_PATCH, ops);
    Scenario::new(
        "json-patch",
        "JSON patch: every operation and its failures",
        vec![
            post("create", &core("configmaps"), config_map("a", json!({"k": "1", "old": "x"}))).silent(),
            ops(
                "add, replace, remove, move, copy, test",
                json!([
            {"op": "test", "path": "/data/k", "value": "1"},
            {"op": "replace", "path": "/data/k", "value": "2"},
            {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
            {"op": "move", "from": "/data/old", "path": "/data/new"},
            {"op": "copy", "from": "/data/new", "path": "/data/copy"},
            {"op": "remove", "path": "/data/new"}]),
            ),
            ops("escaped path", json!([{"op": "add", "path": "/metadata/labels/a.b~1c", "value": "1"}])),
            ops("failed test", json!([{"op": "test", "path": "/data/k", "value": "1"}])),
            ops("remove of what is not there", json!([{"op": "remove", "path": "/data/none"}])),
            ops("replace of what is not there", json!([{"op": "replace", "path": "/data/none", "value": "x"}])),
            ops("add below what is not there", json!([{"op": "add", "path": "/none/x", "value": "x"}])),
            ops("operation that is none", json!([{"op": "turn", "path": "/data/k"}])),
            ops("wrong type", json!([{"op": "replace", "path": "/data/k", "value": 1}])),
            ops("nothing", json!([])),
            ops("rename", json!([{"op": "replace", "path": "/metadata/name", "value": "b"}])),
            ops("of the uid", json!([{"op": "remove", "path": "/metadata/uid"}])),
            patch("of what is not there", &core("configmaps/absent"), JSON_PATCH, json!([])),
        ],
    )
}

fn merge_patch() -> Scenario {
    let one = core("configmaps/a");
    let merge = |label: &str, body| patch(label, &one, MERGE_PATCH, body);
    Scenario::new(
        "merge-patch",
        "merge patch",
        vec![
            post("create", &core("configmaps"), config_map("a", json!({"k": "1", "old": "x"}))).silent(),
            merge("set and remove", json!({"data": {"k": "2", "old": null, "new": "y"}})),
            merge("remove a whole map", json!({"data": null})),
            merge("add a map with a null", json!({"data": {"a": "1", "b": null}})),
            merge("labels", json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})),
            merge("nothing", json!({})),
            merge("a list", json!([1])),
            merge("wrong type", json!({"data": {"a": 1}})),
            merge("another kind", json!({"kind": "Secret"})),
            merge("another name", json!({"metadata": {"name": "b"}})),
            merge("finalizers", json!({"metadata": {"finalizers": ["a.example.com/x"]}})),
            merge("finalizers away", json!({"metadata": {"finalizers": null}})),
            patch("force", &format!("{one}?force=true"), MERGE_PATCH, json!({"data": {"a": "2"}})),
            post("set", &apps("statefulsets"), stateful_set("db")).silent(),
            patch(
                "a list is replaced",
                &apps("statefulsets/db"),
                MERGE_PATCH,
                json!({"spec": {"template": {"spec":
            {"containers": [{"name": "only", "image": "only:1"}]}}}}),
            ),
            patch(
                "what may not change",
                &apps("statefulsets/db"),
                MERGE_PATCH,
                json!({"spec": {"serviceName": "other"}}),
            ),
        ],
    )
}

fn strategic() -> Scenario {
    let one = apps("statefulsets/db");
    let containers = |label: &str, containers| {
        patch(
            label,
            &apps("statefulsets/db"),
            STRATEGIC_PATCH,
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
    };
    Scenario::new(
        "strategic-merge",
        "strategic merge patch of lists by their keys",
        vec![
            post("create", &apps("statefulsets"), stateful_set("db")),
            containers("change of one", json!([{"name": "main", "image": "postgres:16"}])),
            containers("addition of one", json!([{"name": "new", "image": "new:1"}])),
            containers(
                "nested lists",
                json!([{"name": "main", "env": [{"name": "B", "value": "3"}, {"name": "C"}],
            "ports": [{"containerPort": 5432, "name": "renamed"}]}]),
            ),
            containers("a list without keys is replaced", json!([{"name": "main", "args": ["x"]}])),
            containers("null removes a field", json!([{"name": "main", "args": null}])),
            containers("an item without its key", json!([{"image": "x"}])),
            patch(
                "tolerations are replaced",
                &one,
                STRATEGIC_PATCH,
                json!({"spec": {"template": {"spec":
            {"tolerations": [{"key": "a", "operator": "Exists"}]}}}}),
            ),
            patch(
                "volumes",
                &one,
                STRATEGIC_PATCH,
                json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}]}}}}),
            ),
            patch(
                "volume of another sort",
                &one,
                STRATEGIC_PATCH,
                json!({"spec": {"template": {"spec": {"volumes": [
            {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "d"}}]}}}}),
            ),
            patch(
                "node selector",
                &one,
                STRATEGIC_PATCH,
                json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b", "c": "d"}}}}}),
            ),
            patch(
                "key of a map away",
                &one,
                STRATEGIC_PATCH,
                json!({"spec": {"template": {"spec": {"nodeSelector": {"a": null}}}}}),
            ),
            patch("wrong type", &one, STRATEGIC_PATCH, json!({"spec": {"replicas": "x"}})),
            patch("list for a map", &one, STRATEGIC_PATCH, json!({"spec": {"template": []}})),
        ],
    )
}

fn directives() -> Scenario {
    let one = apps("statefulsets/db");
    let spec = |label: &str, spec| patch(label, &one, STRATEGIC_PATCH, json!({"spec": {"template": {"spec": spec}}}));
    Scenario::new(
        "strategic-directives",
        "$patch, $setElementOrder, $deleteFromPrimitiveList, $retainKeys",
        vec![
            post("create", &apps("statefulsets"), stateful_set("db")).silent(),
            spec("delete of an item", json!({"containers": [{"name": "side", "$patch": "delete"}]})),
            spec("delete of an item that is not there", json!({"containers": [{"name": "none", "$patch": "delete"}]})),
            spec(
                "order",
                json!({"containers": [{"name": "second", "image": "x"}, {"name": "third", "image": "x"}],
            "$setElementOrder/containers": [{"name": "second"}, {"name": "main"}, {"name": "third"}]}),
            ),
            spec(
                "order of another order",
                json!({"containers": [{"name": "third", "image": "x"}, {"name": "second", "image": "x"}],
            "$setElementOrder/containers": [{"name": "second"}, {"name": "main"}, {"name": "third"}]}),
            ),
            spec(
                "order that lacks one",
                json!({"containers": [{"name": "third", "image": "y"}],
            "$setElementOrder/containers": [{"name": "main"}, {"name": "second"}]}),
            ),
            spec("replace of a list", json!({"containers": [{"name": "fresh", "image": "x"}, {"$patch": "replace"}]})),
            spec("replace of a map", json!({"securityContext": {"$patch": "replace", "runAsUser": 7}})),
            spec("delete of a map", json!({"securityContext": {"$patch": "delete"}})),
            spec("directive that is none", json!({"containers": [{"name": "fresh", "$patch": "turn"}]})),
            patch("finalizers merge", &one, STRATEGIC_PATCH, json!({"metadata": {"finalizers": ["a.io/1", "a.io/2"]}})),
            patch("finalizers merge again", &one, STRATEGIC_PATCH, json!({"metadata": {"finalizers": ["a.io/3"]}})),
            patch(
                "from a list of words",
                &one,
                STRATEGIC_PATCH,
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/1", "a.io/2", "a.io/9"]}}),
            ),
            patch(
                "the last finalizer",
                &one,
                STRATEGIC_PATCH,
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/3"]}}),
            ),
            patch("labels", &one, STRATEGIC_PATCH, json!({"metadata": {"labels": {"a": "1", "b": "2"}}})),
            patch(
                "replaced labels",
                &one,
                STRATEGIC_PATCH,
                json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}}),
            ),
            patch("delete at the root", &core("configmaps/none"), STRATEGIC_PATCH, json!({"$patch": "delete"})),
        ],
    )
}

fn services() -> Scenario {
    let one = core("services/web");
    Scenario::new(
        "strategic-services",
        "strategic merge of the ports of a Service, by port",
        vec![
            post(
                "create",
                &core("services"),
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}}),
            ),
            patch("a port", &one, STRATEGIC_PATCH, json!({"spec": {"ports": [{"port": 81, "targetPort": "web"}]}})),
            patch("a new port", &one, STRATEGIC_PATCH, json!({"spec": {"ports": [{"name": "c", "port": 82}]}})),
            patch("a port away", &one, STRATEGIC_PATCH, json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}})),
            patch("selector", &one, STRATEGIC_PATCH, json!({"spec": {"selector": {"role": "primary"}}})),
            patch("a name twice", &one, STRATEGIC_PATCH, json!({"spec": {"ports": [{"name": "c", "port": 83}]}})),
            patch("the address", &one, MERGE_PATCH, json!({"spec": {"clusterIP": "10.212.9.9"}})),
            patch("headless", &one, MERGE_PATCH, json!({"spec": {"clusterIP": "None"}})),
            patch("affinity", &one, MERGE_PATCH, json!({"spec": {"sessionAffinity": "ClientIP"}})),
            patch(
                "another type",
                &one,
                MERGE_PATCH,
                json!({"spec": {"type": "ExternalName", "externalName": "x.org"}}),
            ),
        ],
    )
}
