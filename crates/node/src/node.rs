//! What all parts of the node share.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use coregent_process::Launcher;
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::{
    Options,
    cache::Cache,
    events::Events,
    hosts::Hosts,
    image_map::ImageMap,
    network::PodAddresses,
    pod::{
        container::Running,
        env::{Downward, Objects},
    },
};

/// Everything that workers, proxies and the server need.
pub(crate) struct Node {
    pub client: Client,
    pub name: String,
    pub data_dir: PathBuf,
    pub prefix: Ipv4Addr,
    pub host_ip: Ipv4Addr,
    pub images: ImageMap,
    pub launcher: Launcher,
    pub api_url: String,
    pub ca_pem: String,
    pub node_token: String,
    pub events: Events,
    pub capacity: Capacity,
    pub secrets: Arc<Cache<Secret>>,
    pub config_maps: Arc<Cache<ConfigMap>>,
    pub services: Arc<Cache<Service>>,
    pub slices: Arc<Cache<EndpointSlice>>,
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volumes: Arc<Cache<PersistentVolume>>,
    pub accounts: Arc<Cache<ServiceAccount>>,
    pub hosts: Hosts,
    addresses: Mutex<PodAddresses>,
    running: RwLock<BTreeMap<ContainerKey, Arc<Running>>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Namespace, pod and container.
pub(crate) type ContainerKey = (String, String, String);

/// What the machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub cpus: u64,
    pub memory: u64,
}

impl Node {
    /// Starts the watches that everything else reads from.
    pub fn start(options: &Options, launcher: Launcher, shutdown: &CancellationToken) -> Arc<Self> {
        let client = &options.client;
        fn all<K>(client: &Client, shutdown: &CancellationToken) -> Arc<Cache<K>>
        where
            K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
            K::DynamicType: Default,
        {
            Cache::start(Api::all(client.clone()), shutdown.clone())
        }
        Arc::new(Self {
            client: client.clone(),
            name: options.name.clone(),
            data_dir: options.data_dir.clone(),
            prefix: options.network.prefix(),
            host_ip: options.network.host(),
            images: options.images.clone(),
            launcher,
            api_url: options.api_url.clone(),
            ca_pem: options.ca_pem.clone(),
            node_token: options.node_token.clone(),
            events: Events::start(client.clone(), &options.name),
            capacity: capacity(),
            secrets: all(client, shutdown),
            config_maps: all(client, shutdown),
            services: all(client, shutdown),
            slices: all(client, shutdown),
            claims: all(client, shutdown),
            volumes: all(client, shutdown),
            accounts: all(client, shutdown),
            hosts: Hosts::default(),
            addresses: Mutex::default(),
            running: RwLock::default(),
        })
    }

    /// Waits until every cache is complete.
    pub async fn synced(&self) {
        tokio::join!(
            self.secrets.synced(),
            self.config_maps.synced(),
            self.services.synced(),
            self.slices.synced(),
            self.claims.synced(),
            self.volumes.synced(),
            self.accounts.synced(),
        );
    }

    /// The address of a pod, given on first use; `wanted` is the one in its status.
    pub fn address(&self, uid: &str, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).assign(self.prefix, uid, wanted)
    }

    /// Gives a pod's address back.
    pub fn release_address(&self, uid: &str) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).release(uid);
    }

    /// Secrets and ConfigMaps of a namespace.
    pub fn objects<'a>(&'a self, namespace: &'a str) -> impl Objects + 'a {
        NamespaceObjects { node: self, namespace }
    }

    /// What the downward API tells about a pod.
    pub fn downward<'a>(&self, pod: &'a Pod, ip: Option<Ipv4Addr>) -> Downward<'a> {
        Downward { pod, ip, host_ip: self.host_ip, cpus: self.capacity.cpus, memory: self.capacity.memory }
    }

    /// A container that runs now, for exec and logs.
    pub fn running(&self, key: &ContainerKey) -> Option<Arc<Running>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Makes a container known to exec and logs.
    pub fn add_running(&self, key: ContainerKey, container: Arc<Running>) {
        self.running.write().unwrap_or_else(PoisonError::into_inner).insert(key, container);
    }

    /// Forgets a container, unless a newer run has taken its place.
    pub fn remove_running(&self, key: &ContainerKey, id: &str) {
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        if running.get(key).is_some_and(|r| r.id == id) {
            running.remove(key);
        }
    }
}

struct NamespaceObjects<'a> {
    node: &'a Node,
    namespace: &'a str,
}

impl Objects for NamespaceObjects<'_> {
    fn secret(&self, name: &str) -> Option<Arc<Secret>> {
        self.node.secrets.get(self.namespace, name)
    }

    fn config_map(&self, name: &str) -> Option<Arc<ConfigMap>> {
        self.node.config_maps.get(self.namespace, name)
    }
}

/// What the API said, without the structure around it.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn capacity() -> Capacity {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Capacity { cpus, memory: memory.unwrap_or(1 << 20) * 1024 }
}
