//! What a cluster needs so that the operator runs in it: rendered from three words, the same bytes every time.

use coregent_api::GROUP;
use serde_json::{Value, json};

/// Name of everything here that is not a kind of ours.
const NAME: &str = "coregent-operator";
/// Where `/metrics`, `/livez` and `/readyz` are served in the operator's pods.
const PORT: i32 = 8080;
/// User and group that it runs as: none that an image or a machine knows.
const USER: i64 = 65532;

/// Where and what the operator is.
#[derive(Clone, Debug)]
pub struct Install {
    /// Namespace of the operator's pods and of its Lease; databases may be in any.
    pub namespace: String,
    /// Image of the operator.
    pub image: String,
    /// Pods that run it; one leads, the others wait.
    pub replicas: i32,
}

/// Every object, in the order in which they can be created.
///
/// # Errors
/// When a definition of ours cannot be rendered.
pub fn install(install: &Install) -> Result<Vec<Value>, serde_json::Error> {
    let mut objects: Vec<Value> =
        coregent_api::crds().iter().map(serde_json::to_value).collect::<Result<_, serde_json::Error>>()?;
    objects.extend([
        namespace(install),
        object("v1", "ServiceAccount", Some(install), json!({})),
        object("rbac.authorization.k8s.io/v1", "ClusterRole", None, json!({"rules": rules()})),
        binding(install),
        disruption_budget(install),
        deployment(install),
    ]);
    Ok(objects)
}

fn object(api_version: &str, kind: &str, within: Option<&Install>, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": NAME, "labels": labels()},
    });
    if let Some(install) = within {
        object["metadata"]["namespace"] = json!(install.namespace);
    }
    if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
        object.extend(rest);
    }
    object
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

/// Pods in it are held to the strictest of the Pod Security Standards.
fn namespace(install: &Install) -> Value {
    let mut namespace = object("v1", "Namespace", None, json!({}));
    namespace["metadata"]["name"] = json!(install.namespace);
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("restricted");
    namespace
}

/// The rights of the operator: what it asks of the API server, and what the accounts that it makes for members may, since
/// nobody may grant what they may not themselves.
fn rules() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    vec![
        rule(GROUP, &["databaseclusters"], &["get", "list", "watch"]),
        rule(GROUP, &["databaseclusters/status", "replicatedstatemachines/status"], &["update"]),
        // An apply that makes an object is a `patch` and a `create`.
        rule(GROUP, &["replicatedstatemachines"], &["get", "list", "watch", "create", "patch"]),
        rule("apps", &["statefulsets"], &["get", "list", "watch", "create", "update", "delete"]),
        rule("", &["services"], &["get", "list", "watch", "create", "update", "delete"]),
        rule("", &["configmaps"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule("", &["pods"], &["get", "list", "watch", "patch", "delete"]),
        rule("", &["persistentvolumeclaims", "nodes"], &["list", "watch"]),
        rule("", &["secrets"], &["get", "list", "watch", "create"]),
        rule("", &["serviceaccounts"], &["create", "patch"]),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &["create", "patch"]),
        rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]),
        rule("", &["events"], &["list", "watch", "create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

fn binding(install: &Install) -> Value {
    let rest = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": install.namespace}],
    });
    object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None, rest)
}

/// A drain takes one of them at a time, so that somebody can lead meanwhile.
fn disruption_budget(install: &Install) -> Value {
    let rest = json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}}});
    object("policy/v1", "PodDisruptionBudget", Some(install), rest)
}

fn deployment(install: &Install) -> Value {
    let spec = json!({
        "replicas": install.replicas,
        "selector": {"matchLabels": labels()},
        "template": {"metadata": {"labels": labels()}, "spec": pod(install)},
    });
    object("apps/v1", "Deployment", Some(install), json!({"spec": spec}))
}

fn pod(install: &Install) -> Value {
    json!({
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // Never two of them on one node as long as there is another: the leader's node may be the one that is lost.
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": labels()}, "topologyKey": "kubernetes.io/hostname",
            },
        }]}},
        "containers": [container(install)],
    })
}

fn container(install: &Install) -> Value {
    let probe = |path: &str, failures: i32| json!({"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": 5, "failureThreshold": failures});
    json!({
        "name": "operator",
        "image": install.image,
        "command": ["coregent", "operator", "--metrics-addr", format!("0.0.0.0:{PORT}")],
        // The name under which it stands in the election.
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": probe("/livez", 6),
        "readinessProbe": probe("/readyz", 2),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}
