//! A control plane with the operator, one node that answers, and the modelled agents in its pods.

use crate::agent::Agent;
use crate::net::Net;
use coregent_api::DatabaseCluster;
use coregent_apiserver::{ApiServer, Options as ServerOptions, controllers};
use coregent_operator::Options;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

const PATIENCE: Duration = Duration::from_secs(30);

/// The running agents by pod uid.
type Agents = Arc<Mutex<BTreeMap<String, JoinHandle<()>>>>;

pub struct Plane {
    pub server: ApiServer,
    pub client: Client,
    pub net: Net,
    pub agents: Agents,
    stop: CancellationToken,
    operator: Option<(CancellationToken, JoinHandle<Result<(), coregent_operator::Error>>)>,
    _guard: DropGuard,
}

impl Plane {
    /// Everything but the operator.
    pub async fn bare() -> Plane {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(std::env::var("TEST_LOG").unwrap_or_default())
            .with_test_writer()
            .try_init();
        let server = ApiServer::open(ServerOptions::default()).await.unwrap();
        let client = server.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in coregent_api::crds() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let node = json!({"metadata": {"name": "n1"}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes.patch_status("n1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
        let stop = CancellationToken::new();
        let mut options = controllers::Options::new("/data");
        options.node_silence = Duration::from_secs(3_600);
        tokio::spawn(controllers::run(client.clone(), options, stop.clone()));
        let (net, agents) = (Net::default(), Agents::default());
        tokio::spawn(kubelet(client.clone(), net.clone(), agents.clone(), stop.clone()));
        let guard = stop.clone().drop_guard();
        let plane = Plane { server, client, net, agents, stop, operator: None, _guard: guard };
        plane
            .wait("the definitions to be established", |plane| async move {
                Api::<DatabaseCluster>::default_namespaced(plane.client.clone()).list(&ListParams::default()).await.ok()
            })
            .await;
        plane
    }

    pub async fn start() -> Plane {
        let mut plane = Plane::bare().await;
        plane.start_operator(plane.client.clone());
        plane
    }

    /// A plane with a cluster of three that is ready.
    pub async fn with_cluster(spec: Value) -> Plane {
        let plane = Plane::start().await;
        plane.create_cluster(spec).await;
        plane.wait_ready(3).await;
        plane
    }

    pub fn start_operator(&mut self, client: Client) {
        let stop = self.stop.child_token();
        let options = Options { identity: "test".into(), ..Options::default() };
        let task = tokio::spawn(coregent_operator::run(client, options, stop.clone()));
        self.operator = Some((stop, task));
    }

    /// Ends the operator wherever it is.
    pub fn kill_operator(&mut self) {
        if let Some((stop, task)) = self.operator.take() {
            task.abort();
            stop.cancel();
        }
    }

    pub async fn create_cluster(&self, spec: Value) {
        let mut object = json!({
            "apiVersion": "coregent.io/v1alpha1",
            "kind": "DatabaseCluster",
            "metadata": {"name": "orders"},
            "spec": {"replicas": 3, "engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
        });
        merge(&mut object["spec"], &spec);
        let api = self.clusters();
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    pub fn clusters(&self) -> Api<DatabaseCluster> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn cluster(&self) -> DatabaseCluster {
        self.clusters().get("orders").await.unwrap()
    }

    pub async fn lease(&self) -> Lease {
        Api::default_namespaced(self.client.clone()).get("orders-primary").await.unwrap()
    }

    pub async fn epoch(&self) -> i32 {
        self.lease().await.spec.and_then(|spec| spec.lease_transitions).unwrap_or(0)
    }

    /// The pods that carry the leader's label.
    pub async fn labelled(&self) -> Vec<String> {
        let params = ListParams::default().labels("coregent.io/role=primary");
        self.pods().list(&params).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
    }

    pub async fn wait<'a, T, F>(&'a self, what: &str, found: impl Fn(&'a Plane) -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        let look = async {
            loop {
                if let Some(found) = found(self).await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if let Ok(found) = tokio::time::timeout(PATIENCE, look).await {
            return found;
        }
        let status = self.clusters().get_opt("orders").await.ok().flatten().and_then(|cluster| cluster.status);
        let lease: Option<Lease> =
            Api::default_namespaced(self.client.clone()).get_opt("orders-primary").await.ok().flatten();
        panic!(
            "waited in vain for {what}\nstatus: {}\nlease: {}\nnet: {:#?}",
            serde_json::to_string_pretty(&status).unwrap(),
            serde_json::to_string_pretty(&lease).unwrap(),
            self.net.all(),
        );
    }

    pub async fn wait_ready(&self, members: i32) {
        self.wait("the cluster to be ready", |plane| async move {
            let status = plane.clusters().get_opt("orders").await.ok()??.status?;
            let ready = status.ready_replicas == Some(members) && status.blocking_operation.is_none();
            (ready && status.primary.is_some_and(|primary| primary.current.is_some())).then_some(())
        })
        .await;
    }

    /// The primary that the status names, once no operation runs.
    pub async fn settled_primary(&self) -> String {
        self.wait("a settled primary", |plane| async move {
            let status = plane.cluster().await.status?;
            let idle = status.blocking_operation.is_none();
            status.primary.and_then(|primary| primary.current).filter(|_| idle)
        })
        .await
    }

    /// Waits until `member` accepts a write that a client is told of.
    pub async fn write_until_acknowledged(&self, number: u64) -> String {
        self.wait("an acknowledged write", |plane| async move {
            plane.net.primaries().into_iter().map(|m| m.to_string()).find(|m| plane.net.write(m, number))
        })
        .await
    }

    /// Kills everything in the pod of `member`; its node says so and starts the container anew.
    pub async fn kill_member(&self, member: &str) {
        let pod = self.pods().get(&format!("{member}-0")).await.unwrap();
        let uid = pod.uid().unwrap();
        kill(&self.agents, &self.net, &pod);
        // Stands in for the agent, so that the node starts the next one only after the death of this one is reported.
        self.agents.lock().unwrap().insert(uid.clone(), tokio::spawn(std::future::pending()));
        let status = json!({"status": {"containerStatuses": [container(&pod, json!({
            "terminated": {"exitCode": 137, "containerID": "coregent://1"},
        }))]}});
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        if let Some(stand_in) = self.agents.lock().unwrap().remove(&uid) {
            stand_in.abort();
        }
    }

    /// The same, and the node never starts it again.
    pub async fn kill_member_for_good(&self, member: &str) {
        let mark = json!({"metadata": {"annotations": {"test/off": "true"}}});
        self.pods().patch(&format!("{member}-0"), &PatchParams::default(), &Patch::Merge(mark)).await.unwrap();
        self.kill_member(member).await;
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn kill(agents: &Agents, net: &Net, pod: &Pod) {
    if let Some(agent) = agents.lock().unwrap().remove(&pod.uid().unwrap()) {
        agent.abort();
    }
    if let Some(member) = pod.labels().get("coregent.io/instance") {
        net.with(member, |volume| {
            volume.engine = crate::net::Engine::Off;
            volume.source = None;
            volume.frozen = false;
        });
    }
}

fn container(pod: &Pod, state: Value) -> Value {
    let _ = pod;
    json!({"name": "postgresql", "image": "postgres:15", "imageID": "", "ready": true, "restartCount": 0, "state": state})
}

/// The one node: runs an agent in every pod, starts ended ones anew, ends deleted ones.
async fn kubelet(client: Client, net: Net, agents: Agents, stop: CancellationToken) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut runs = 0;
    while !stop.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let Ok(list) = pods.list(&ListParams::default()).await else { continue };
        for pod in list.items.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())) {
            runs += 1;
            look_after(&client, &net, &agents, pod, runs).await;
        }
    }
    for (_, agent) in std::mem::take(&mut *agents.lock().unwrap()) {
        agent.abort();
    }
}

async fn look_after(client: &Client, net: &Net, agents: &Agents, pod: &Pod, run: u32) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let (name, uid) = (pod.name_any(), pod.uid().unwrap());
    let Some(member) = pod.labels().get("coregent.io/instance").cloned() else { return };
    if pod.metadata.deletion_timestamp.is_some() {
        kill(agents, net, pod);
        let ended = json!({"terminated": {"exitCode": 137, "containerID": format!("coregent://{run}")}});
        let status = json!({"status": {"containerStatuses": [container(pod, ended)]}});
        let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
        return;
    }
    if agents.lock().unwrap().contains_key(&uid) || pod.annotations().contains_key("test/off") {
        return;
    }
    let env = |name: &str| {
        let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == "postgresql")?;
        container.env.as_ref()?.iter().find(|env| env.name == name)?.value.clone()
    };
    let address = format!("127.64.{}.{}:5432", run / 250, run % 250);
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container(pod, json!({"running": {}}))],
    }});
    if pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.is_err() {
        return;
    }
    let cluster = pod.labels().get("coregent.io/cluster").cloned().unwrap_or_default();
    let asynchronous = env("COREGENT_REPLICATION_MODE").as_deref() == Some("Async");
    let agent = Agent::new(
        client.clone(),
        net.clone(),
        &cluster,
        &member,
        uid.clone(),
        address,
        format!("n{run}"),
        asynchronous,
    );
    agents.lock().unwrap().insert(uid, tokio::spawn(agent.run()));
}
