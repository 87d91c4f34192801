//! The operator's pods.

use super::{Install, NAME, PORT, PORT_NAME, labels, object};
use serde_json::{Value, json};

/// User and group that it runs as: none that an image or a machine knows.
const USER: i64 = 65532;

pub(super) fn deployment(install: &Install) -> Value {
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
    let probe = |path: &str, failures: i32| json!({"httpGet": {"path": path, "port": PORT_NAME}, "periodSeconds": 5, "failureThreshold": failures});
    json!({
        "name": "operator",
        "image": install.image,
        "command": ["coregent", "operator", "--metrics-addr", format!("0.0.0.0:{PORT}")],
        "env": [
            // The name under which it stands in the election.
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            // Where members get their agent from.
            {"name": "COREGENT_IMAGE", "value": install.image},
        ],
        "ports": [{"name": PORT_NAME, "containerPort": PORT}],
        "livenessProbe": probe("/livez", 6),
        "readinessProbe": probe("/readyz", 2),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}
