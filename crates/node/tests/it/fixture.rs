//! A node over an API server in memory.

use std::{path::PathBuf, time::Duration};

use coregent_apiserver::{ApiServer, Storage};
use coregent_node::{ImageMap, Options, network};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A condition that does not come within this is a failure; no test waits for time to pass.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub client: Client,
    pub data_dir: PathBuf,
    pub prefix: String,
    api: ApiServer,
    shutdown: CancellationToken,
    node: JoinHandle<Result<(), coregent_node::Error>>,
    _folder: Option<tempfile::TempDir>,
}

/// Runs a test on a runtime of its own.
pub fn run<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let api = memory_api().await;
        let data_dir = folder.path().to_owned();
        let mut world = start(api, data_dir).await;
        world._folder = Some(folder);
        tokio::time::timeout(PATIENCE * 2, test(world)).await.expect("the test takes too long");
    });
}

pub async fn memory_api() -> ApiServer {
    let options = coregent_apiserver::Options {
        store: Storage::Memory,
        service_ips: None,
        node_token: "token".into(),
        history: 10_000,
    };
    ApiServer::open(options).await.unwrap()
}

async fn start(api: ApiServer, data_dir: PathBuf) -> World {
    let client = api.client();
    for namespace in ["default", "kube-node-lease"] {
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let _ = api.create(&PostParams::default(), &object).await;
    }
    let network = network::claim(&data_dir).unwrap();
    let prefix = network.prefix().to_string();
    let self_exe = std::env::current_exe().unwrap();
    let options = Options {
        client: client.clone(),
        name: "node-1".into(),
        data_dir: data_dir.clone(),
        images: ImageMap::load(&data_dir, &self_exe).unwrap(),
        api_url: format!("https://{}:6443", network.host()),
        network,
        self_exe,
        ca_pem: "ca".into(),
        node_token: "token".into(),
        longest_stop: None,
        stops_last: Some(("stops".to_owned(), "last".to_owned())),
    };
    let shutdown = CancellationToken::new();
    let node = tokio::spawn(coregent_node::run(options, shutdown.clone()));
    World { client, data_dir, prefix, api, shutdown, node, _folder: None }
}

impl World {
    /// Stops the node as `down` does.
    pub async fn stop_node(&mut self) {
        self.shutdown.cancel();
        (&mut self.node).await.unwrap().unwrap();
    }

    /// Stops it, and starts it again on the same folder.
    pub async fn restart_node(&mut self) {
        self.stop_node().await;
        let folder = self._folder.take();
        *self = start(self.api.clone(), self.data_dir.clone()).await;
        self._folder = folder;
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates an object of any built-in kind in the default namespace.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + serde::Serialize
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Creates a pod that is bound to the node; `spec` needs containers only.
    pub async fn pod(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = "node-1".into();
        spec["automountServiceAccountToken"] = false.into();
        self.create(json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})).await
    }

    /// Waits until the status of a pod fulfils `condition`.
    pub async fn until(&self, name: &str, what: &str, condition: impl Fn(&PodStatus) -> bool) -> Pod {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let objects = watcher(self.pods(), config).applied_objects();
        let mut last = None;
        let found = tokio::time::timeout(PATIENCE, async {
            let mut objects = std::pin::pin!(objects);
            while let Some(pod) = objects.try_next().await.unwrap() {
                if pod.status.as_ref().is_some_and(&condition) {
                    return Some(pod);
                }
                last = Some(pod);
            }
            None
        })
        .await;
        match found {
            Ok(Some(pod)) => pod,
            _ => panic!(
                "pod {name}: no {what}; its status is {}",
                serde_json::to_string_pretty(&last.and_then(|p| p.status)).unwrap()
            ),
        }
    }

    /// Waits until a pod is gone from the API.
    pub async fn until_gone(&self, name: &str) {
        let gone = kube::runtime::wait::await_condition(self.pods(), name, |pod: Option<&Pod>| pod.is_none());
        tokio::time::timeout(PATIENCE, gone).await.expect("the pod stays").unwrap();
    }

    /// What a container wrote, read from its log file.
    pub fn log(&self, pod: &Pod, container: &str, restart: u32) -> String {
        let meta = &pod.metadata;
        let folder = format!("default_{}_{}", meta.name.as_deref().unwrap(), meta.uid.as_deref().unwrap());
        let path = self.data_dir.join("logs").join(folder).join(container).join(format!("{restart}.log"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
    }

    /// An address of the node's network.
    pub fn address(&self, last: u8) -> String {
        format!("{}{last}", self.prefix.trim_end_matches('0'))
    }

    /// Tries something outside the API until it works.
    pub async fn eventually<T>(&self, what: &str, attempt: impl Fn() -> Result<T, String>) -> T {
        let started = std::time::Instant::now();
        loop {
            match attempt() {
                Ok(value) => return value,
                Err(e) if started.elapsed() > PATIENCE => panic!("no {what}: {e}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub async fn node_object(&self) -> Node {
        Api::all(self.client.clone()).get("node-1").await.unwrap()
    }
}

/// The state of a container by name.
pub fn container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a k8s_openapi::api::core::v1::ContainerStatus> {
    status.init_container_statuses.iter().chain(&status.container_statuses).flatten().find(|c| c.name == name)
}

pub fn phase(status: &PodStatus) -> &str {
    status.phase.as_deref().unwrap_or_default()
}

pub fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}
