//! Each row breaks one rule of a good object.

use super::*;
use serde_json::json;

fn pod() -> Value {
    json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {
        "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "emptyDir": {}}]}})
}

fn stateful_set() -> Value {
    json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod()["spec"]}}})
}

fn job() -> Value {
    let mut spec = pod()["spec"].clone();
    spec["restartPolicy"] = json!("Never");
    json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}})
}

fn service() -> Value {
    json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "name": "a"}]}})
}

fn claim() -> Value {
    json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn definition() -> Value {
    json!({"metadata": {"name": "foos.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

fn good(kind: &str) -> (&'static str, Value) {
    match kind {
        "Pod" => ("", pod()),
        "Service" => ("", service()),
        "StatefulSet" => ("apps", stateful_set()),
        "Job" => ("batch", job()),
        "PersistentVolumeClaim" => ("", claim()),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", definition()),
        "ConfigMap" => ("", json!({"metadata": {"name": "c"}, "data": {"a": "b"}})),
        "Secret" => {
            ("", json!({"metadata": {"name": "c"}, "type": "Opaque", "immutable": true, "data": {"a": "Yg=="}}))
        }
        "Lease" => ("coordination.k8s.io", json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1}})),
        "PersistentVolume" => (
            "",
            json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}),
        ),
        "Role" => (
            "rbac.authorization.k8s.io",
            json!({"metadata": {"name": "a:b"}, "rules": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
        ),
        _ => ("", json!({"metadata": {"name": "x"}})),
    }
}

/// Sets the value at a JSON pointer, or removes it if the value is null.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let patch = json!([{"op": if value.is_null() { "remove" } else { "add" }, "path": pointer, "value": value}]);
    *object = crate::patch::json(object, &patch).unwrap();
}

fn errors(kind: &str, changes: &[(&str, Value)], update: bool) -> Vec<String> {
    let (group, before) = good(kind);
    assert_eq!(validate(group, kind, &before, None), Vec::new(), "the good {kind} is good");
    assert_eq!(validate(group, kind, &before, Some(&before)), Vec::new(), "the good {kind} may stay");
    let mut after = before.clone();
    changes.iter().for_each(|(pointer, value)| set(&mut after, pointer, value.clone()));
    validate(group, kind, &after, update.then_some(&before)).iter().map(ToString::to_string).collect()
}

/// One change of a good new object, and the start of the error it makes.
#[test]
fn what_a_new_object_may_not_be() {
    const C: &str = "/spec/containers/0";
    let c = |field: &str| format!("{C}/{field}");
    let rows: Vec<(&str, String, Value, &str)> = vec![
        ("X", "/metadata/name".into(), Value::Null, "metadata.name: Required value: name or generateName is required"),
        (
            "X",
            "/metadata/name".into(),
            json!("A"),
            r#"metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must"#,
        ),
        ("Service", "/metadata/name".into(), json!("9"), r#"metadata.name: Invalid value: "9": a DNS-1035 label must"#),
        ("Role", "/metadata/name".into(), json!("a/b"), r#"metadata.name: Invalid value: "a/b": may not contain '/'"#),
        (
            "X",
            "/metadata/labels".into(),
            json!({"a": "b c"}),
            r#"metadata.labels: Invalid value: "b c": a valid label must"#,
        ),
        (
            "X",
            "/metadata/labels".into(),
            json!({"/a": "b"}),
            r#"metadata.labels: Invalid value: "/a": prefix part must be non-empty"#,
        ),
        (
            "X",
            "/metadata/annotations".into(),
            json!({"a b": ""}),
            r#"metadata.annotations: Invalid value: "a b": name part must"#,
        ),
        (
            "X",
            "/metadata/finalizers".into(),
            json!(["a b"]),
            r#"metadata.finalizers: Invalid value: "a b": name part must"#,
        ),
        (
            "X",
            "/metadata/ownerReferences".into(),
            json!([{"apiVersion": "v1", "kind": "K", "name": "n"}]),
            r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
        ),
        ("Pod", "/spec/containers".into(), json!([]), "spec.containers: Required value"),
        ("Pod", c("image"), Value::Null, "spec.containers[0].image: Required value"),
        (
            "Pod",
            c("name"),
            json!("A"),
            r#"spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must"#,
        ),
        (
            "Pod",
            "/spec/initContainers".into(),
            json!([{"name": "c", "image": "x"}]),
            r#"spec.initContainers[0].name: Duplicate value: "c""#,
        ),
        (
            "Pod",
            c("ports"),
            json!([{"containerPort": 70000}]),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        ("Pod", c("volumeMounts/0/name"), json!("w"), r#"spec.containers[0].volumeMounts[0].name: Not found: "w""#),
        ("Pod", c("env"), json!([{"value": "x"}]), "spec.containers[0].env[0].name: Required value"),
        (
            "Pod",
            c("env"),
            json!([{"name": "x", "valueFrom": {}}]),
            r#"spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of"#,
        ),
        (
            "Pod",
            c("livenessProbe"),
            json!({}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            "Pod",
            c("livenessProbe"),
            json!({"tcpSocket": {"port": 1}, "successThreshold": 2}),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            "Pod",
            c("resources"),
            json!({"limits": {"cpu": "x"}}),
            r#"spec.containers[0].resources.limits[cpu]: Invalid value: "x": quantities must match"#,
        ),
        (
            "Pod",
            c("resources"),
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
        ),
        (
            "Pod",
            c("imagePullPolicy"),
            json!("Maybe"),
            r#"spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never""#,
        ),
        (
            "Pod",
            "/spec/volumes/0/emptyDir".into(),
            Value::Null,
            "spec.volumes[0]: Required value: must specify a volume type",
        ),
        (
            "Pod",
            "/spec/volumes/0/secret".into(),
            json!({"secretName": "x"}),
            "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
        ),
        (
            "Pod",
            "/spec/restartPolicy".into(),
            json!("No"),
            r#"spec.restartPolicy: Unsupported value: "No": supported values: "Always", "Never", "OnFailure""#,
        ),
        ("StatefulSet", "/spec/selector".into(), Value::Null, "spec.selector: Required value"),
        (
            "StatefulSet",
            "/spec/template/metadata/labels/app".into(),
            json!("b"),
            r#"spec.template.metadata.labels: Invalid value: {"app":"b"}: `selector` does not match template `labels`"#,
        ),
        (
            "StatefulSet",
            "/spec/replicas".into(),
            json!(-1),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "StatefulSet",
            "/spec/template/spec/restartPolicy".into(),
            json!("Never"),
            r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
        ),
        (
            "Job",
            "/spec/template/spec/restartPolicy".into(),
            json!("Always"),
            r#"spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "Never", "OnFailure""#,
        ),
        ("Service", "/spec/ports".into(), json!([]), "spec.ports: Required value"),
        ("Service", "/spec/ports/1".into(), json!({"port": 81}), "spec.ports[1].name: Required value"),
        (
            "Service",
            "/spec/ports/1".into(),
            json!({"port": 80, "name": "b"}),
            r#"spec.ports[1]: Duplicate value: {"port":80,"protocol":"TCP"}"#,
        ),
        (
            "Service",
            "/spec/ports/0/port".into(),
            json!(0),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        ("ConfigMap", "/data/a b".into(), json!("x"), r#"data[a b]: Invalid value: "a b": a valid config key must"#),
        ("Secret", "/type".into(), json!("kubernetes.io/tls"), "data[tls.crt]: Required value"),
        (
            "PersistentVolumeClaim",
            "/spec/accessModes".into(),
            json!([]),
            "spec.accessModes: Required value: at least 1 access mode is required",
        ),
        ("PersistentVolumeClaim", "/spec/resources".into(), json!({}), "spec.resources[storage]: Required value"),
        ("PersistentVolume", "/spec/hostPath".into(), Value::Null, "spec: Required value: must specify a volume type"),
        (
            "Lease",
            "/spec/leaseDurationSeconds".into(),
            json!(0),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "Role",
            "/rules/0/verbs".into(),
            json!([]),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            "CustomResourceDefinition",
            "/metadata/name".into(),
            json!("bars.x.io"),
            r#"metadata.name: Invalid value: "bars.x.io": must be spec.names.plural+"."+spec.group"#,
        ),
        (
            "CustomResourceDefinition",
            "/spec/versions/0/schema/openAPIV3Schema/properties".into(),
            json!({"a": {}}),
            "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        ("CustomResourceDefinition", "/spec/versions/0/storage".into(), json!(false), "spec.versions: Invalid value: "),
    ];
    for (kind, pointer, value, expected) in rows {
        let got = errors(kind, &[(pointer.as_str(), value)], false);
        assert!(got.first().is_some_and(|first| first.starts_with(expected)), "{kind} {pointer}\n{expected}\n{got:#?}");
    }
}

/// Changes of a good object that are refused, and the start of the error.
#[test]
fn what_may_not_change() {
    let rows: Vec<(&str, &str, Value, &str)> = vec![
        ("X", "/metadata/name", json!("y"), r#"metadata.name: Invalid value: "y": field is immutable"#),
        (
            "Pod",
            "/spec/nodeSelector",
            json!({"a": "b"}),
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
        ),
        (
            "Pod",
            "/spec/containers/1",
            json!({"name": "d", "image": "x"}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            "StatefulSet",
            "/spec/serviceName",
            json!("t"),
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
        ("Job", "/spec/template/spec/containers/0/image", json!("y"), "spec.template: Invalid value: "),
        ("Job", "/spec/completions", json!(2), "spec.completions: Invalid value: 2: field is immutable"),
        (
            "Service",
            "/spec/clusterIP",
            json!("10.0.0.2"),
            r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#,
        ),
        ("Secret", "/data/a", json!("eA=="), "data: Forbidden: field is immutable when `immutable` is set"),
        ("Secret", "/immutable", Value::Null, "immutable: Forbidden: field is immutable when `immutable` is set"),
        ("Secret", "/type", json!("x"), r#"type: Invalid value: "x": field is immutable"#),
        (
            "PersistentVolumeClaim",
            "/spec/accessModes/0",
            json!("ReadWriteMany"),
            "spec: Forbidden: spec is immutable after creation except",
        ),
        (
            "PersistentVolumeClaim",
            "/spec/resources/requests/storage",
            json!("1Mi"),
            "spec.resources.requests.storage: Forbidden: field can not be less",
        ),
        (
            "PersistentVolume",
            "/spec/hostPath/path",
            json!("/y"),
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
        ),
        (
            "CustomResourceDefinition",
            "/spec/scope",
            json!("Cluster"),
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
        ),
    ];
    for (kind, pointer, value, expected) in rows {
        let got = errors(kind, &[(pointer, value)], true);
        assert!(got.first().is_some_and(|first| first.starts_with(expected)), "{kind} {pointer}\n{expected}\n{got:#?}");
    }
}

#[test]
fn what_may_change() {
    let rows: Vec<(&str, &str, Value)> = vec![
        ("Pod", "/spec/containers/0/image", json!("y")),
        ("Pod", "/spec/nodeName", json!("n")),
        ("Pod", "/spec/tolerations", json!([{"key": "a", "operator": "Exists"}])),
        ("Pod", "/spec/activeDeadlineSeconds", json!(5)),
        ("StatefulSet", "/spec/replicas", json!(3)),
        ("StatefulSet", "/spec/template/spec/containers/0/image", json!("y")),
        ("Job", "/spec/parallelism", json!(2)),
        ("Service", "/spec/ports/0/port", json!(81)),
        ("PersistentVolumeClaim", "/spec/volumeName", json!("v")),
        ("PersistentVolumeClaim", "/spec/resources/requests/storage", json!("2Gi")),
        ("X", "/metadata/labels", json!({"a.b/c": "d"})),
    ];
    for (kind, pointer, value) in rows {
        assert_eq!(errors(kind, &[(pointer, value)], true), Vec::<String>::new(), "{kind} {pointer}");
    }
}

#[test]
fn a_pod_that_has_a_node_keeps_it() {
    let mut before = pod();
    before["spec"]["nodeName"] = json!("a");
    let mut after = before.clone();
    after["spec"]["nodeName"] = json!("b");
    assert_eq!(validate("", "Pod", &after, Some(&before)).len(), 1);
}

#[test]
fn no_finalizer_is_added_to_what_is_being_deleted() {
    let before = json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let mut after = before.clone();
    after["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
    let got = validate("", "X", &after, Some(&before));
    assert_eq!(
        got[0].to_string(),
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"c/d\"}"
    );
}

#[test]
fn an_error_stands_in_a_status_as_kubernetes_writes_it() {
    let (group, mut object) = good("StatefulSet");
    object["spec"]["replicas"] = json!(-1);
    let errors = validate(group, "StatefulSet", &object, None);
    assert_eq!(
        errors[0].cause(),
        json!({"reason": "FieldValueInvalid", "field": "spec.replicas",
            "message": "Invalid value: -1: must be greater than or equal to 0"})
    );
    assert_eq!(
        crate::schema::invalid_message(group, "StatefulSet", "s", &errors),
        "StatefulSet.apps \"s\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
}
