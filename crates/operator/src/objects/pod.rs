//! The pod of a member: our binary is copied in and is the first process of the database container.

use super::{account_name, bootstrap_lease, config_name, replication_secret_name, superuser_secret_name};
use coregent_api::database::{AGENT_PORT, ReplicationMode, WhenTooFew};
use coregent_api::{DatabaseCluster, annotations, labels};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

/// User and group that the engine runs as: those of the official image.
const USER: i64 = 999;
const DATA: &str = "/var/lib/postgresql/data";
/// The node puts the end of the log into the pod's status, where the controller finds why a member does not run.
const LAST_WORDS: &str = "FallbackToLogsOnError";
const BINARIES: &str = "/coregent-bin";

/// The template of the pods of a cluster with so many members; `image` holds our binary.
pub(super) fn template(cluster: &DatabaseCluster, members: i32, image: &str) -> Value {
    let name = cluster.name_any();
    let spec = &cluster.spec;
    let mut pod = json!({
        "serviceAccountName": account_name(cluster),
        "terminationGracePeriodSeconds": 30,
        "securityContext": spec.security_context.clone().unwrap_or_else(|| json!({
            "runAsUser": USER, "runAsGroup": USER, "runAsNonRoot": true, "fsGroup": USER,
            // A node would otherwise walk through the whole volume at each start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        })),
        "initContainers": [installer(cluster, image)],
        "containers": [container(cluster, members)],
        "volumes": volumes(cluster),
    });
    if let Some(fields) = pod.as_object_mut() {
        schedule(cluster, fields);
    }
    json!({
        "metadata": {
            "labels": {labels::CLUSTER: name},
            // There from the beginning, so that a stamp only ever replaces it (failover.md F4).
            "annotations": {annotations::EPOCH: "0"},
        },
        "spec": pod,
    })
}

fn installer(cluster: &DatabaseCluster, image: &str) -> Value {
    with_context(
        cluster,
        json!({
            "name": "coregent",
            "image": image,
            "command": ["coregent", "agent", "install", BINARIES],
            "volumeMounts": [{"name": "coregent-bin", "mountPath": BINARIES}],
            "terminationMessagePolicy": LAST_WORDS,
        }),
    )
}

fn container(cluster: &DatabaseCluster, members: i32) -> Value {
    let spec = &cluster.spec;
    let probe = |path: &str, delay: i32, period: i32, failures: i32| {
        json!({
            "httpGet": {"path": path, "port": "agent"}, "initialDelaySeconds": delay,
            "periodSeconds": period, "timeoutSeconds": 2, "failureThreshold": failures,
        })
    };
    let given = spec.probe.as_ref();
    // An election round ends a replica's stream for about a second. Were it NotReady at once, the new primary would often
    // get its label as such, and no Service would lead to it until the kubelet's next look.
    let readiness = given.and_then(|probe| probe.readiness_probe.clone()).unwrap_or_else(|| probe("/readyz", 0, 1, 3));
    let liveness = given.and_then(|probe| probe.liveness_probe.clone()).unwrap_or_else(|| probe("/livez", 10, 10, 6));
    let mut mounts = vec![
        json!({"name": "data", "mountPath": DATA}),
        json!({"name": "coregent-bin", "mountPath": BINARIES, "readOnly": true}),
        json!({"name": "run", "mountPath": "/run/coregent"}),
        json!({"name": "config", "mountPath": "/etc/coregent/config", "readOnly": true}),
        json!({"name": "superuser", "mountPath": "/etc/coregent/credentials/superuser", "readOnly": true}),
        json!({"name": "replication", "mountPath": "/etc/coregent/credentials/replication", "readOnly": true}),
    ];
    mounts.extend(spec.volume.iter().flat_map(|volume| volume.volume_mounts.iter().cloned()));
    let mut container = json!({
        "name": "postgresql",
        "image": spec.database_image(),
        "command": [format!("{BINARIES}/coregent"), "agent", "postgresql"],
        "env": environment(cluster, members),
        "ports": [
            {"name": "postgresql", "containerPort": spec.port},
            {"name": "agent", "containerPort": AGENT_PORT},
        ],
        "volumeMounts": mounts,
        "readinessProbe": readiness,
        "livenessProbe": liveness,
        "terminationMessagePolicy": LAST_WORDS,
    });
    if let (Some(resources), Some(fields)) = (&spec.resources, container.as_object_mut()) {
        fields.insert("resources".to_owned(), resources.clone());
    }
    with_context(cluster, container)
}

/// Without a context of the user's own a container is what the strictest of the Pod Security Standards asks for.
fn with_context(cluster: &DatabaseCluster, mut container: Value) -> Value {
    let context = cluster.spec.container_security_context.clone();
    container["securityContext"] =
        context.unwrap_or_else(|| json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}));
    container
}

fn environment(cluster: &DatabaseCluster, members: i32) -> Vec<Value> {
    let (name, spec) = (cluster.name_any(), &cluster.spec);
    let uid = cluster.meta().uid.clone().unwrap_or_default();
    let alone = members == 1 || spec.replication.mode == ReplicationMode::Async;
    let too_few = match spec.replication.when_too_few {
        WhenTooFew::Block => "Block",
        WhenTooFew::Degrade => "Degrade",
    };
    let value = |name: &str, value: &str| json!({"name": name, "value": value});
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut env = vec![
        value("COREGENT_CLUSTER", &name),
        field("COREGENT_MEMBER", &format!("metadata.labels['{}']", labels::INSTANCE)),
        field("COREGENT_NAMESPACE", "metadata.namespace"),
        field("POD_NAME", "metadata.name"),
        field("POD_UID", "metadata.uid"),
        field("POD_IP", "status.podIP"),
        value("PGDATA", &format!("{DATA}/pgdata")),
        value("COREGENT_REPLICATION_MODE", if alone { "Async" } else { "Quorum" }),
        value("COREGENT_WHEN_TOO_FEW", too_few),
        value("COREGENT_BOOTSTRAP_LEASE", &bootstrap_lease(&name, &uid)),
        value("COREGENT_PORT", &spec.port.to_string()),
        value("COREGENT_AGENT_PORT", &AGENT_PORT.to_string()),
    ];
    env.extend(spec.env.iter().cloned());
    env
}

fn volumes(cluster: &DatabaseCluster) -> Vec<Value> {
    let secret =
        |name: &str, secret: String| json!({"name": name, "secret": {"secretName": secret, "defaultMode": 288}});
    let mut volumes = vec![
        json!({"name": "coregent-bin", "emptyDir": {}}),
        json!({"name": "run", "emptyDir": {}}),
        json!({"name": "config", "configMap": {"name": config_name(&cluster.name_any())}}),
        secret("superuser", superuser_secret_name(cluster)),
        secret("replication", replication_secret_name(cluster)),
    ];
    volumes.extend(cluster.spec.volume.iter().flat_map(|volume| volume.volumes.iter().cloned()));
    volumes
}

fn schedule(cluster: &DatabaseCluster, pod: &mut Map<String, Value>) {
    let scheduler = cluster.spec.scheduler.clone().unwrap_or_default();
    // Members prefer to be on different hosts, and one host alone still runs them all.
    let affinity = scheduler.affinity.unwrap_or_else(|| {
        json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {labels::CLUSTER: cluster.name_any()}},
                "topologyKey": "kubernetes.io/hostname",
            },
        }]}})
    });
    pod.insert("affinity".to_owned(), affinity);
    if !scheduler.tolerations.is_empty() {
        pod.insert("tolerations".to_owned(), json!(scheduler.tolerations));
    }
    if !scheduler.node_selector.is_empty() {
        pod.insert("nodeSelector".to_owned(), json!(scheduler.node_selector));
    }
    if !cluster.spec.image_pull_secrets.is_empty() {
        pod.insert("imagePullSecrets".to_owned(), json!(cluster.spec.image_pull_secrets));
    }
}
