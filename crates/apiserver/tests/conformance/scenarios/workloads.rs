//! Built-in kinds: their defaults, what they refuse, what may not change.

use serde_json::{Value, json};

use super::{apps, core, pod, stateful_set};
use crate::scenario::*;

pub fn all() -> Vec<Scenario> {
    vec![pods(), sets(), services(), storage(), others(), deletions()]
}

fn pods() -> Scenario {
    let all = core("pods");
    let with = |label: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = pod("bad");
        change(&mut pod["spec"]);
        post(label, &core("pods"), pod)
    };
    Scenario::new(
        "pods",
        "pods: defaults, refusals, status, binding, graceful deletion",
        vec![
            post(
                "create",
                &all,
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "automountServiceAccountToken": false, "initContainers": [{"name": "init", "image": "busybox", "restartPolicy": "Always"}],
            "containers": [{"name": "main", "image": "busybox", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"exec": {"command": ["true"]}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}},
                {"name": "s", "secret": {"secretName": "s"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}),
            ),
            with("no containers", &|spec| spec["containers"] = json!([])),
            with("no image", &|spec| spec["containers"] = json!([{"name": "a"}])),
            with("names twice", &|spec| {
                spec["containers"] = json!([{"name": "a", "image": "x"}, {"name": "a", "image": "x"}])
            }),
            with("restart policy", &|spec| spec["restartPolicy"] = json!("Sometimes")),
            with("mount of no volume", &|spec| {
                spec["containers"][0]["volumeMounts"] = json!([{"name": "n", "mountPath": "/n"}])
            }),
            with("request above limit", &|spec| {
                spec["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
            }),
            with("quantity that is none", &|spec| {
                spec["containers"][0]["resources"] = json!({"requests": {"cpu": "many"}})
            }),
            with("port", &|spec| spec["containers"][0]["ports"] = json!([{"containerPort": 70000}])),
            with("probe", &|spec| spec["containers"][0]["livenessProbe"] = json!({"periodSeconds": 1})),
            with("service account that is none", &|spec| spec["serviceAccountName"] = json!("absent")),
            patch(
                "image may change",
                &core("pods/p"),
                STRATEGIC_PATCH,
                json!({"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}),
            ),
            patch(
                "command may not",
                &core("pods/p"),
                STRATEGIC_PATCH,
                json!({"spec": {"containers": [{"name": "main", "command": ["x"]}]}}),
            ),
            patch(
                "status",
                &core("pods/p/status"),
                STRATEGIC_PATCH,
                json!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}]}}),
            ),
            patch(
                "another condition",
                &core("pods/p/status"),
                STRATEGIC_PATCH,
                json!({"status": {"conditions": [
            {"type": "Mine", "status": "False"}, {"type": "Ready", "status": "False"}]}}),
            ),
            post(
                "binding",
                &core("pods/p/binding"),
                json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}}),
            ),
            post(
                "second binding",
                &core("pods/p/binding"),
                json!({"apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "elsewhere"}}),
            ),
            get("bound", &core("pods/p")),
            post(
                "eviction of none",
                &core("pods/absent/eviction"),
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "absent"}}),
            ),
            delete("at once", &(core("pods/p") + "?gracePeriodSeconds=0")),
            get("gone", &core("pods/p")),
            post("unbound", &all, pod("unbound")).silent(),
            delete("of an unbound pod", &core("pods/unbound")),
        ],
    )
}

fn sets() -> Scenario {
    let one = apps("statefulsets/db");
    let with = |label: &str, change: &dyn Fn(&mut Value)| {
        let mut set = stateful_set("bad");
        change(&mut set["spec"]);
        post(label, &apps("statefulsets"), set)
    };
    Scenario::new(
        "stateful-sets",
        "StatefulSets: defaults, refusals, what may change, scale",
        vec![
            post("create", &apps("statefulsets"), {
                let mut set = stateful_set("db");
                set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
                set
            }),
            with("selector that does not match", &|spec| spec["selector"] = json!({"matchLabels": {"app": "other"}})),
            with("no selector", &|spec| spec["selector"] = json!({})),
            with("negative replicas", &|spec| spec["replicas"] = json!(-1)),
            with("policy", &|spec| spec["podManagementPolicy"] = json!("Sometimes")),
            with("restart policy", &|spec| spec["template"]["spec"]["restartPolicy"] = json!("Never")),
            patch("selector", &one, MERGE_PATCH, json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}})),
            patch("claim templates", &one, MERGE_PATCH, json!({"spec": {"volumeClaimTemplates": []}})),
            get("scale", &apps("statefulsets/db/scale")),
            put(
                "scale update",
                &apps("statefulsets/db/scale"),
                json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "db", "namespace": "{ns}"}, "spec": {"replicas": 0}}),
            ),
            patch("scale below zero", &apps("statefulsets/db/scale"), MERGE_PATCH, json!({"spec": {"replicas": -2}})),
            post(
                "job",
                "/apis/batch/v1/namespaces/{ns}/jobs",
                json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "busybox"}]}}}}),
            ),
            post(
                "job that restarts",
                "/apis/batch/v1/namespaces/{ns}/jobs",
                json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "k"}, "spec": {"template": {"spec": {
                "containers": [{"name": "c", "image": "busybox"}]}}}}),
            ),
            post(
                "cron job",
                "/apis/batch/v1/namespaces/{ns}/cronjobs",
                json!({"apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "c"}, "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}}}}}),
            ),
            post(
                "bad schedule",
                "/apis/batch/v1/namespaces/{ns}/cronjobs",
                json!({"apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "d"}, "spec": {"schedule": "now", "jobTemplate": {"spec": {
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}}}}}),
            ),
        ],
    )
}

fn services() -> Scenario {
    let make = |label: &str, name: &str, spec| {
        post(
            label,
            &core("services"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}),
        )
    };
    Scenario::new(
        "services",
        "Services: defaults, addresses, refusals",
        vec![
            make("cluster IP", "a", json!({"selector": {"a": "b"}, "ports": [{"port": 80}]})),
            make("headless", "b", json!({"clusterIP": "None", "ports": [{"port": 80, "targetPort": "web"}]})),
            make("headless without ports", "c", json!({"clusterIP": "None", "selector": {"a": "b"}})),
            make("external name", "d", json!({"type": "ExternalName", "externalName": "x.example.com"})),
            make("no ports", "bad", json!({"selector": {"a": "b"}})),
            make("ports without names", "bad", json!({"ports": [{"port": 80}, {"port": 81}]})),
            make("port", "bad", json!({"ports": [{"port": 0}]})),
            make("type", "bad", json!({"type": "Other", "ports": [{"port": 80}]})),
            make("address outside", "bad", json!({"clusterIP": "10.1.1.1", "ports": [{"port": 80}]})),
            make("address that is none", "bad", json!({"clusterIP": "x", "ports": [{"port": 80}]})),
            make("protocol", "bad", json!({"ports": [{"port": 80, "protocol": "ICMP"}]})),
            make(
                "publishes not ready",
                "e",
                json!({"clusterIP": "None", "publishNotReadyAddresses": true,
            "ports": [{"port": 1}]}),
            ),
            patch("status", &core("services/a/status"), MERGE_PATCH, json!({"status": {"loadBalancer": {}}})),
        ],
    )
}

fn storage() -> Scenario {
    let claim = |label: &str, name: &str, spec| {
        post(
            label,
            &core("persistentvolumeclaims"),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}),
        )
    };
    let good = || {
        json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none-such",
        "resources": {"requests": {"storage": "1Gi"}}})
    };
    let volume = "/api/v1/persistentvolumes/{ns}-v";
    Scenario::new(
        "storage",
        "claims, volumes and classes",
        vec![
            claim("claim", "a", good()),
            claim("no modes", "bad", json!({"resources": {"requests": {"storage": "1Gi"}}})),
            claim("no size", "bad", json!({"accessModes": ["ReadWriteOnce"]})),
            claim(
                "mode that is none",
                "bad",
                json!({"accessModes": ["Sometimes"], "resources": {"requests": {"storage": "1Gi"}}}),
            ),
            claim(
                "negative size",
                "bad",
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "-1"}}}),
            ),
            patch(
                "what may not change",
                &core("persistentvolumeclaims/a"),
                MERGE_PATCH,
                json!({"spec": {"storageClassName": "x"}}),
            ),
            post(
                "volume",
                "/api/v1/persistentvolumes",
                json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "{ns}-v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "other", "hostPath": {"path": "/tmp/x"}}}),
            ),
            post(
                "volume without a source",
                "/api/v1/persistentvolumes",
                json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "bad"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
            ),
            delete("delete of the volume", volume).silent(),
            get("volume gone", volume).until(Until::Code(404)),
            post(
                "class",
                "/apis/storage.k8s.io/v1/storageclasses",
                json!({"apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass", "metadata": {"name": "{ns}-c"}, "provisioner": "example.com/none"}),
            ),
            delete("delete of the class", "/apis/storage.k8s.io/v1/storageclasses/{ns}-c"),
        ],
    )
    .makes(&["/api/v1/persistentvolumes/{ns}-v", "/apis/storage.k8s.io/v1/storageclasses/{ns}-c"])
}

fn others() -> Scenario {
    Scenario::new(
        "other-kinds",
        "budgets, policies, roles, accounts, events, reviews",
        vec![
            post(
                "budget",
                "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
                json!({"apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"maxUnavailable": 1,
                "selector": {"matchLabels": {"a": "b"}}}}),
            ),
            post(
                "budget with both",
                "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
                json!({"apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget", "metadata": {"name": "c"}, "spec": {"maxUnavailable": 1, "minAvailable": 1}}),
            ),
            post(
                "network policy",
                "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
                json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
            ),
            post(
                "role",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
                json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            ),
            post(
                "binding",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
                json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "jane"}]}),
            ),
            patch(
                "binding to another role",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/r",
                MERGE_PATCH,
                json!({"roleRef": {"name": "other"}}),
            ),
            post(
                "account",
                &core("serviceaccounts"),
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}),
            ),
            post(
                "event",
                &core("events"),
                json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p"}, "reason": "R", "message": "m", "type": "Normal"}),
            ),
            post(
                "event of another namespace",
                &core("events"),
                json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "f"},
            "involvedObject": {"kind": "Pod", "namespace": "other", "name": "p"}, "reason": "R", "type": "Normal"}),
            ),
            get("the same event", "/apis/events.k8s.io/v1/namespaces/{ns}/events/e"),
            post(
                "slice",
                "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
                json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]}),
            ),
            post(
                "may I",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}}}),
            ),
            post(
                "may jane",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "nobody",
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}}}),
            ),
            post(
                "token that is none",
                "/apis/authentication.k8s.io/v1/tokenreviews",
                json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}),
            ),
        ],
    )
}

/// What a deletion answers differs from kind to kind: the object, or a Status.
fn deletions() -> Scenario {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}";
    let made: [(&str, String, Value); 14] = [
        ("service", core("services"), json!({"kind": "Service", "apiVersion": "v1", "spec": {"clusterIP": "None"}})),
        ("secret", core("secrets"), json!({"kind": "Secret", "apiVersion": "v1"})),
        ("account", core("serviceaccounts"), json!({"kind": "ServiceAccount", "apiVersion": "v1"})),
        ("endpoints", core("endpoints"), json!({"kind": "Endpoints", "apiVersion": "v1"})),
        ("set", apps("statefulsets"), stateful_set("x")),
        (
            "revision",
            apps("controllerrevisions"),
            json!({"kind": "ControllerRevision", "apiVersion": "apps/v1", "revision": 1, "data": {"a": 1}}),
        ),
        (
            "lease",
            "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases".to_owned(),
            json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}),
        ),
        ("role", format!("{rbac}/roles"), json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1"})),
        (
            "binding",
            format!("{rbac}/rolebindings"),
            json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
        ),
        (
            "budget",
            "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets".to_owned(),
            json!({"kind": "PodDisruptionBudget", "apiVersion": "policy/v1"}),
        ),
        (
            "policy",
            "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies".to_owned(),
            json!({"kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1", "spec": {"podSelector": {}}}),
        ),
        (
            "slice",
            "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices".to_owned(),
            json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4", "endpoints": []}),
        ),
        (
            "event",
            core("events"),
            json!({"kind": "Event", "apiVersion": "v1", "involvedObject": {"namespace": "{ns}"}}),
        ),
        ("pod", core("pods"), pod("x")),
    ];
    let steps = made.into_iter().flat_map(|(label, path, mut object)| {
        object["metadata"] = json!({"name": "x"});
        let one = format!("{path}/x");
        [post(&format!("{label} made"), &path, object), delete(&format!("{label} deleted"), &one)]
    });
    Scenario::new(
        "deletions",
        "what the least object of each kind looks like, and what its deletion answers",
        steps.collect(),
    )
}
