//! The Node object and its Lease: what tells the cluster that this node is there.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            DaemonEndpoint, Node as NodeObject, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus,
            NodeSystemInfo,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{events::about_node, node::Node};

const LEASE_NAMESPACE: &str = "kube-node-lease";
const RENEW_EVERY: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// As many pods as there are addresses for them.
const MAX_PODS: &str = "178";

/// Registers the node as ready, with its server on `port`.
pub(crate) async fn register(node: &Node, port: u16) -> Result<NodeObject, kube::Error> {
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let wanted = object(node);
    let registered = match api.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(e)) if e.code == 409 => {
            let labels = json!({"metadata": {"labels": wanted.metadata.labels}});
            api.patch(&node.name, &PatchParams::default(), &Patch::Merge(&labels)).await?
        }
        other => other?,
    };
    let known = registered.status.clone().unwrap_or_default();
    let status = status(node, port, &known, Timestamp::now());
    let registered = patch_status(&api, &node.name, &status).await?;
    node.events.normal(&about_node(&node.name), "NodeReady", format!("Node {} is ready", node.name));
    Ok(registered)
}

/// Says that the node runs no pods any more.
pub(crate) async fn set_not_ready(node: &Node) -> Result<(), kube::Error> {
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let mut status = api.get(&node.name).await?.status.unwrap_or_default();
    let condition = ready(false, "NodeShutdown", "the node was stopped and runs no pods");
    set_condition(&mut status, condition, Timestamp::now());
    patch_status(&api, &node.name, &NodeStatus { conditions: status.conditions, ..NodeStatus::default() }).await?;
    Ok(())
}

async fn patch_status(api: &Api<NodeObject>, name: &str, status: &NodeStatus) -> Result<NodeObject, kube::Error> {
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&json!({"status": status}))).await
}

fn object(node: &Node) -> NodeObject {
    let labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), node.name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture().to_owned()),
    ]);
    NodeObject {
        metadata: ObjectMeta { name: Some(node.name.clone()), labels: Some(labels), ..ObjectMeta::default() },
        ..NodeObject::default()
    }
}

/// Go's name of the architecture, which is what labels use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn status(node: &Node, port: u16, known: &NodeStatus, now: Timestamp) -> NodeStatus {
    let capacity = BTreeMap::from([
        ("cpu".to_owned(), Quantity(node.capacity.cpus.to_string())),
        ("memory".to_owned(), Quantity(format!("{}Ki", node.capacity.memory / 1024))),
        ("pods".to_owned(), Quantity(MAX_PODS.to_owned())),
    ]);
    let address = |type_: &str, address: String| NodeAddress { type_: type_.into(), address };
    let mut status = NodeStatus {
        addresses: Some(vec![address("InternalIP", node.host_ip.to_string()), address("Hostname", node.name.clone())]),
        capacity: Some(capacity.clone()),
        allocatable: Some(capacity),
        conditions: known.conditions.clone(),
        daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: port.into() }) }),
        node_info: Some(system_info()),
        ..NodeStatus::default()
    };
    set_condition(&mut status, ready(true, "KubeletReady", "the node runs pods"), now);
    status
}

fn system_info() -> NodeSystemInfo {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let os = read("/etc/os-release");
    let pretty = os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"');
    NodeSystemInfo {
        architecture: architecture().into(),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: format!("coregent://{}", env!("CARGO_PKG_VERSION")),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        kube_proxy_version: String::new(),
        kubelet_version: format!("v{}-coregent", env!("CARGO_PKG_VERSION")),
        machine_id: read("/etc/machine-id"),
        operating_system: "linux".into(),
        os_image: pretty.to_owned(),
        system_uuid: read("/etc/machine-id"),
        ..NodeSystemInfo::default()
    }
}

fn ready(ready: bool, reason: &str, message: &str) -> NodeCondition {
    NodeCondition {
        type_: "Ready".into(),
        status: if ready { "True".into() } else { "False".into() },
        reason: Some(reason.into()),
        message: Some(message.into()),
        ..NodeCondition::default()
    }
}

fn set_condition(status: &mut NodeStatus, mut condition: NodeCondition, now: Timestamp) {
    let now = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().position(|c| c.type_ == condition.type_);
    condition.last_heartbeat_time.clone_from(&now);
    condition.last_transition_time = match old {
        Some(i) if conditions[i].status == condition.status => conditions[i].last_transition_time.clone(),
        _ => now,
    };
    match old {
        Some(i) => conditions[i] = condition,
        None => conditions.push(condition),
    }
}

/// Renews the node's Lease; its silence is what makes the node NotReady.
pub(crate) async fn keep_lease(client: Client, registered: NodeObject, shutdown: CancellationToken) {
    let api: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    let name = registered.name_any();
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(e) = renew(&api, &name, &registered).await {
            tracing::warn!("Lease of the node not renewed: {e}");
            ticks.reset_after(Duration::from_secs(1));
        }
    }
}

async fn renew(api: &Api<Lease>, name: &str, registered: &NodeObject) -> Result<(), kube::Error> {
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&json!({"spec": spec}))).await;
    match patched {
        Err(kube::Error::Api(e)) if e.code == 404 => {}
        other => return other.map(drop),
    }
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.to_owned(),
        uid: registered.uid().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_moment_until_it_flips() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let mut status = NodeStatus::default();
        let mut moment = |good, second| {
            set_condition(&mut status, ready(good, "R", "m"), at(second));
            status.conditions.as_ref().unwrap()[0].last_transition_time.as_ref().unwrap().0.as_second()
        };
        assert_eq!([moment(true, 1), moment(true, 2), moment(false, 3), moment(false, 4)], [1, 1, 3, 3]);
    }
}
