//! What a cluster needs so that the operator runs in it: rendered from a few words, the same bytes every time. The Helm
//! chart `charts/coregent` renders the same objects; a test compares them.

mod deployment;
mod rights;

use serde_json::{Value, json};

/// Name of everything here that is not a kind of ours.
const NAME: &str = "coregent-operator";
/// Where `/metrics`, `/livez` and `/readyz` are served in the operator's pods.
const PORT: i32 = 8080;
/// Name of that port.
const PORT_NAME: &str = "metrics";

/// Where and what the operator is.
#[derive(Clone, Debug)]
pub struct Install {
    /// Namespace of the operator's pods and of its Lease; databases may be in any.
    pub namespace: String,
    /// Image of the operator, which members copy their agent from.
    pub image: String,
    /// Pods that run it; one leads, the others wait.
    pub replicas: i32,
    /// A PodMonitor as well: its kind is the Prometheus operator's, and a cluster without it refuses the object.
    pub pod_monitor: bool,
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
        object("rbac.authorization.k8s.io/v1", "ClusterRole", None, json!({"rules": rights::rules()})),
        binding(install),
        disruption_budget(install),
        network_policy(install),
        deployment::deployment(install),
    ]);
    objects.extend(install.pod_monitor.then(|| pod_monitor(install)));
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

/// Nobody but who reads the metrics has anything to say to an operator. Probes come from the node, which no policy stops.
/// What it may reach is left open: nobody can say here at which address and port an API server answers.
fn network_policy(install: &Install) -> Value {
    let rest = json!({"spec": {
        "podSelector": {"matchLabels": labels()},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": PORT_NAME, "protocol": "TCP"}]}],
    }});
    object("networking.k8s.io/v1", "NetworkPolicy", Some(install), rest)
}

fn pod_monitor(install: &Install) -> Value {
    let rest = json!({"spec": {
        "selector": {"matchLabels": labels()},
        "podMetricsEndpoints": [{"port": PORT_NAME, "interval": "15s"}],
    }});
    object("monitoring.coreos.com/v1", "PodMonitor", Some(install), rest)
}
