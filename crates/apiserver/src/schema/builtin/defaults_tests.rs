use super::super::{check, default};
use super::*;
use proptest::prelude::*;

fn defaulted(group: &str, kind: &str, mut object: Value) -> Value {
    default(group, kind, &mut object);
    object
}

#[test]
fn a_pod_gets_what_kubelets_and_clients_expect() {
    let got = defaulted(
        "",
        "Pod",
        json!({"spec": {
            "containers": [{"name": "c", "image": "registry:5000/x", "ports": [{"containerPort": 1}],
                "resources": {"limits": {"cpu": "1"}}, "readinessProbe": {"httpGet": {"port": 8008}},
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}],
            "serviceAccountName": "a",
        }}),
    );
    assert_eq!(
        got,
        json!({"status": {"phase": "Pending"}, "spec": {
            "containers": [{"name": "c", "image": "registry:5000/x", "ports": [{"containerPort": 1, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "readinessProbe": {"httpGet": {"port": 8008, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}}],
                "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File"}],
            "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}],
            "serviceAccountName": "a", "serviceAccount": "a", "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
            "schedulerName": "default-scheduler", "enableServiceLinks": true,
        }})
    );
}

#[test]
fn images_that_may_change_under_their_name_are_always_pulled() {
    let rows =
        [("x", true), ("x:latest", true), ("x:15", false), ("h:1/x", true), ("h:1/x:2", false), ("x@sha256:0", false)];
    for (image, always) in rows {
        let got = defaulted("", "Pod", json!({"spec": {"containers": [{"name": "c", "image": image}]}}));
        let policy = if always { "Always" } else { "IfNotPresent" };
        assert_eq!(got["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn a_service_gets_its_type_and_the_targets_of_its_ports() {
    let got = defaulted("", "Service", json!({"spec": {"ports": [{"port": 5432}, {"port": 1, "targetPort": "x"}]}}));
    assert_eq!(got["spec"]["type"], "ClusterIP");
    assert_eq!(got["spec"]["sessionAffinity"], "None");
    assert_eq!(
        got["spec"]["ports"],
        json!([
        {"port": 5432, "targetPort": 5432, "protocol": "TCP"}, {"port": 1, "targetPort": "x", "protocol": "TCP"}])
    );
}

#[test]
fn a_stateful_set_gets_its_strategy_and_its_template_is_a_pod() {
    let got = defaulted(
        "apps",
        "StatefulSet",
        json!({"spec": {
        "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}}),
    );
    let spec = &got["spec"];
    assert_eq!(
        (&spec["replicas"], &spec["podManagementPolicy"], &spec["revisionHistoryLimit"]),
        (&json!(1), &json!("OrderedReady"), &json!(10))
    );
    assert_eq!(spec["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
    assert_eq!(spec["template"]["spec"].get("enableServiceLinks"), None);
    assert_eq!(spec["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
}

#[test]
fn a_job_selects_its_pods_by_its_uid() {
    let got = defaulted("batch", "Job", json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}}));
    assert_eq!((&got["spec"]["backoffLimit"], &got["spec"]["completions"]), (&json!(6), &json!(1)));
    let labels = &got["spec"]["template"]["metadata"]["labels"];
    assert_eq!(got["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
    assert_eq!(labels["batch.kubernetes.io/job-name"], "j");
}

#[test]
fn text_in_a_secret_becomes_data() {
    let got = defaulted("", "Secret", json!({"data": {"a": "eA=="}, "stringData": {"a": "b", "c": "d"}}));
    assert_eq!(got, json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}}));
}

#[test]
fn a_namespace_that_goes_away_does_not_get_its_finalizer_back() {
    let got =
        defaulted("", "Namespace", json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(got["spec"].get("finalizers"), None);
}

/// Objects of which any part may be missing.
fn sketches() -> impl Strategy<Value = (&'static str, &'static str, Value)> {
    let full = [
        (
            "",
            "Pod",
            json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}], "livenessProbe": {"exec": {"command": ["x"]}}}],
            "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}),
        ),
        ("", "Service", json!({"spec": {"type": "NodePort", "sessionAffinity": "ClientIP", "ports": [{"port": 1}]}})),
        (
            "apps",
            "StatefulSet",
            json!({"spec": {"updateStrategy": {"type": "OnDelete"}, "template": {"spec": {"containers": []}}, "volumeClaimTemplates": [{}]}}),
        ),
        (
            "batch",
            "Job",
            json!({"metadata": {"uid": "u", "name": "n"}, "spec": {"template": {"metadata": {}}, "parallelism": 2}}),
        ),
        ("", "Secret", json!({"stringData": {"a": "b"}, "data": {}})),
        ("", "PersistentVolume", json!({"spec": {"hostPath": {"path": "/x"}}})),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
        ),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({"spec": {"names": {"kind": "Foo", "plural": "foos"}}}),
        ),
    ];
    (0..full.len(), any::<u64>()).prop_map(move |(index, mask)| {
        let (group, kind, mut object) = full[index].clone();
        thin(&mut object, &mut { mask });
        (group, kind, object)
    })
}

/// Removes some fields, as the bits of `mask` say.
fn thin(value: &mut Value, mask: &mut u64) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| {
                *mask = mask.rotate_left(1);
                thin(value, mask);
                *mask & 3 != 0
            });
        }
        Value::Array(list) => list.iter_mut().for_each(|value| thin(value, mask)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn defaults_are_filled_in_once_and_are_of_the_right_type((group, kind, object) in sketches()) {
        let once = defaulted(group, kind, object);
        prop_assert_eq!(check(group, kind, &once), Ok(Vec::new()));
        prop_assert_eq!(defaulted(group, kind, once.clone()), once);
    }
}
