//! A modelled node: it runs the real agent over a modelled server in each pod that is bound to it, says what became of
//! it, and starts it anew, as `coregent-node` does with processes.

use crate::engine::Modelled;
use crate::net::Net;
use coregent_agent::clock::Clock;
use coregent_agent::{Config, Health, member};
use coregent_apiserver::ApiServer;
use coregent_apiserver::faults::{Dice, Faults, Journal};
use coregent_core::names::{HolderIdentity, MemberName};
use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, LocalSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a node renews its Lease, as ours does.
const RENEW: Duration = Duration::from_secs(10);
/// Pause before a container is started again.
const BACK_OFF: Duration = Duration::from_millis(200);
/// Period of the readiness probe.
const PROBE: Duration = Duration::from_secs(1);

/// What all hosts share: the faults of each agent outlive it.
pub struct Ground {
    pub server: ApiServer,
    pub net: Net,
    pub journal: Journal,
    pub agent_faults: RefCell<BTreeMap<MemberName, Faults>>,
    /// The running agent of each member.
    pub agents: RefCell<BTreeMap<MemberName, AbortHandle>>,
    /// Members whose node does not start them again.
    pub off: RefCell<BTreeSet<MemberName>>,
    dice: RefCell<Dice>,
    serial: Cell<u32>,
}

impl Ground {
    pub fn new(server: &ApiServer, net: &Net, journal: &Journal, seed: u64) -> Rc<Ground> {
        Rc::new(Ground {
            server: server.clone(),
            net: net.clone(),
            journal: journal.clone(),
            agent_faults: RefCell::default(),
            agents: RefCell::default(),
            off: RefCell::default(),
            dice: RefCell::new(Dice::new(seed)),
            serial: Cell::new(0),
        })
    }

    pub fn seed(&self) -> u64 {
        self.dice.borrow_mut().draw()
    }

    /// What lies between an agent and the API.
    pub fn faults_of(&self, member: &str) -> Faults {
        let mut all = self.agent_faults.borrow_mut();
        all.entry(member.into()).or_insert_with(|| Faults::new(member, self.seed(), &self.journal)).clone()
    }

    fn next(&self) -> u32 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Kills everything in the pod of a member.
    pub fn kill(&self, member: &str) {
        if let Some(agent) = self.agents.borrow_mut().remove(&member.into()) {
            agent.abort();
        }
        self.net.stop(member);
        self.net.thaw(member);
        self.net.with(member, |member| member.agent = false);
    }
}

/// One node.
pub struct Host {
    name: String,
    client: Client,
    ground: Rc<Ground>,
}

impl Host {
    /// Runs until dropped.
    pub async fn run(name: String, faults: Faults, ground: Rc<Ground>) {
        let client = faults.client(&ground.server);
        let host = Rc::new(Host { name, client, ground });
        futures::join!(host.keep_lease(), host.clone().look_after_pods());
    }

    /// Says that it is there, again and again; a node that was called silent says that it is ready.
    async fn keep_lease(&self) {
        loop {
            if let Err(error) = self.renew().await {
                tracing::debug!(node = self.name, %error, "the node could not renew");
                tokio::time::sleep(Duration::from_secs(1)).await;
            } else {
                tokio::time::sleep(RENEW).await;
            }
        }
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let spec = LeaseSpec { renew_time: Some(MicroTime(jiff::Timestamp::now())), ..LeaseSpec::default() };
        let patch = Patch::Merge(json!({"spec": spec}));
        if let Err(kube::Error::Api(status)) = leases.patch(&self.name, &PatchParams::default(), &patch).await {
            if status.code != 404 {
                return Err(kube::Error::Api(status));
            }
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await?;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let Some(node) = nodes.get_opt(&self.name).await? else {
            let node = json!({"metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}}});
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await?;
            return self.say_ready(&nodes).await;
        };
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            return Ok(());
        }
        self.say_ready(&nodes).await
    }

    async fn say_ready(&self, nodes: &Api<Node>) -> Result<(), kube::Error> {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(ready)).await.map(drop)
    }

    async fn look_after_pods(self: Rc<Self>) {
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.name));
        let pods = Api::<Pod>::all(self.client.clone());
        let mut events = pin!(watcher(pods, mine).default_backoff());
        let mut workers: BTreeMap<String, (watch::Sender<Pod>, JoinHandle<()>)> = BTreeMap::new();
        let mut listed = BTreeSet::new();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Apply(pod))) => self.look_after(&mut workers, pod),
                Ok(Some(watcher::Event::InitApply(pod))) => {
                    listed.insert(pod.uid().unwrap());
                    self.look_after(&mut workers, pod);
                }
                Ok(Some(watcher::Event::Init)) => listed.clear(),
                Ok(Some(watcher::Event::InitDone)) => workers.retain(|uid, worker| kept(worker, listed.contains(uid))),
                Ok(Some(watcher::Event::Delete(pod))) => {
                    let uid = pod.uid().unwrap();
                    workers.retain(|other, worker| kept(worker, *other != uid));
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn look_after(self: &Rc<Self>, workers: &mut BTreeMap<String, (watch::Sender<Pod>, JoinHandle<()>)>, pod: Pod) {
        let uid = pod.uid().unwrap();
        if let Some((known, _)) = workers.get(&uid) {
            known.send_replace(pod);
            return;
        }
        let (sender, receiver) = watch::channel(pod);
        let worker = Worker { host: self.clone(), uid: uid.clone(), pod: receiver, runs: 0 };
        workers.insert(uid, (sender, tokio::task::spawn_local(worker.run())));
    }
}

/// A pod that is gone from the API is ended without a word.
fn kept(worker: &mut (watch::Sender<Pod>, JoinHandle<()>), there: bool) -> bool {
    if !there {
        worker.1.abort();
    }
    there
}

/// Runs one pod.
struct Worker {
    host: Rc<Host>,
    uid: String,
    pod: watch::Receiver<Pod>,
    runs: u32,
}

/// An agent that runs; dropped, it is dead with everything under it.
struct Run {
    ground: Rc<Ground>,
    member: MemberName,
    task: JoinHandle<()>,
    told_to_end: CancellationToken,
    health: Health,
    container: String,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.task.abort();
        self.ground.net.stop(self.member.as_str());
        self.ground.net.with(self.member.as_str(), |member| member.agent = false);
    }
}

impl Worker {
    async fn run(mut self) {
        let Some(member) = self.pod.borrow().labels().get("coregent.io/instance").cloned() else { return };
        let predecessor = runs_already(&self.pod.borrow());
        if let Some(container) = predecessor {
            // The node has just come up: nothing of what its predecessor ran is alive.
            self.say(&ended(&container)).await;
        }
        loop {
            if self.is_deleted() {
                return self.remove().await;
            }
            if self.host.ground.off.borrow().contains(&member.as_str().into()) {
                self.changed_within(BACK_OFF).await;
                continue;
            }
            let ip = format!("127.64.0.{}", self.host.ground.next() % 250 + 2);
            let run = self.start(&member, &ip);
            let container = run.container.clone();
            self.look_on(run, &ip).await;
            self.say(&ended(&container)).await;
            if !self.is_deleted() {
                self.changed_within(BACK_OFF).await;
            }
        }
    }

    fn is_deleted(&self) -> bool {
        self.pod.borrow().metadata.deletion_timestamp.is_some()
    }

    async fn changed_within(&mut self, time: Duration) {
        let _ = tokio::time::timeout(time, self.pod.changed()).await;
    }

    /// Starts the agent on a task set of its own, so that dropping it leaves nothing.
    fn start(&mut self, member: &str, ip: &str) -> Run {
        self.runs += 1;
        let ground = self.host.ground.clone();
        let config = config(&self.pod.borrow(), ip);
        let name = MemberName::from(member);
        let clock = Clock::Runtime(Instant::now());
        let nonce = format!("n{}", ground.next());
        let me = HolderIdentity { member: name.clone(), pod_uid: self.uid.clone(), nonce };
        let client = ground.faults_of(member).client(&ground.server);
        ground.net.with(member, |member| member.agent = true);
        let engine = Rc::new(Modelled::new(&ground.net, &name, clock));
        let (health, told_to_end) = (Health::default(), CancellationToken::new());
        let leases = Api::namespaced(client, &config.namespace);
        let parts = member::Parts { config, me, leases, engine, clock, health: health.clone() };
        let (net, frozen, told) = (ground.net.clone(), name.clone(), told_to_end.clone());
        let task = tokio::task::spawn_local(async move {
            let tasks = LocalSet::new();
            stopped_while_frozen(&net, &frozen, tasks.run_until(member::run(parts, told))).await;
        });
        ground.agents.borrow_mut().insert(name.clone(), task.abort_handle());
        let container = format!("coregent://{}/{}", self.uid, self.runs);
        Run { ground, member: name, task, told_to_end, health, container }
    }

    /// Returns when the container is empty.
    async fn look_on(&mut self, mut run: Run, ip: &str) {
        let mut said = None;
        loop {
            let ready = run.health.is_ready() && !run.ground.net.frozen().borrow().contains(&run.member);
            if said != Some(ready) && self.try_to_say(&running(&run.container, ip, ready)).await {
                said = Some(ready);
            }
            if self.is_deleted() {
                return self.end(run).await;
            }
            tokio::select! {
                _ = &mut run.task => return,
                _ = self.pod.changed() => {}
                () = tokio::time::sleep(PROBE) => {}
            }
        }
    }

    /// Tells it to end and kills it after its grace period.
    async fn end(&self, mut run: Run) {
        run.told_to_end.cancel();
        let grace = self.pod.borrow().metadata.deletion_grace_period_seconds.unwrap_or(30);
        let _ = tokio::time::timeout(Duration::from_secs(grace.max(0).unsigned_abs()), &mut run.task).await;
    }

    async fn remove(&mut self) {
        let (name, namespace) = (self.pod.borrow().name_any(), self.pod.borrow().namespace().unwrap_or_default());
        let pods: Api<Pod> = Api::namespaced(self.host.client.clone(), &namespace);
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0);
        loop {
            match pods.delete(&name, &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                    // Gone, or another of that name; the watch says which.
                    self.changed_within(BACK_OFF).await;
                }
                Err(_) => tokio::time::sleep(BACK_OFF).await,
            }
        }
    }

    /// Says it until the API has heard it, or the pod is gone.
    async fn say(&mut self, status: &Value) {
        while !self.try_to_say(status).await {
            tokio::time::sleep(BACK_OFF).await;
        }
    }

    async fn try_to_say(&self, status: &Value) -> bool {
        let (name, namespace) = (self.pod.borrow().name_any(), self.pod.borrow().namespace().unwrap_or_default());
        let pods: Api<Pod> = Api::namespaced(self.host.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"metadata": {"uid": self.uid}, "status": status}));
        match pods.patch_status(&name, &PatchParams::default(), &patch).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => matches!(status.code, 404 | 422),
            Err(_) => false,
        }
    }
}

fn runs_already(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.running.as_ref()?;
    status.container_id.clone()
}

fn running(container: &str, ip: &str, ready: bool) -> Value {
    let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    let containers = json!([{"name": "postgresql", "image": "postgres:15", "imageID": "", "restartCount": 0,
        "ready": ready, "containerID": container, "state": {"running": {}}}]);
    json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition],
        "containerStatuses": containers})
}

fn ended(container: &str) -> Value {
    let state = json!({"terminated": {"exitCode": 137, "containerID": container}});
    let containers = json!([{"name": "postgresql", "image": "postgres:15", "imageID": "", "restartCount": 0,
        "ready": false, "containerID": container, "state": state}]);
    json!({"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": containers})
}

/// The configuration that the container's own environment gives.
fn config(pod: &Pod, ip: &str) -> Config {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.clone()).unwrap_or_default();
    let container = containers.iter().find(|container| container.name == "postgresql").unwrap();
    let environment = container.env.clone().unwrap_or_default();
    let field = |path: &str| match path {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "status.podIP" => Some(ip.to_owned()),
        path => {
            let label = path.strip_prefix("metadata.labels['")?.strip_suffix("']")?;
            pod.labels().get(label).cloned()
        }
    };
    Config::from(|name| {
        if name == "COREGENT_BIN_DIR" {
            return Some("/nowhere".to_owned());
        }
        let variable = environment.iter().find(|variable| variable.name == name)?;
        let from = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        variable.value.clone().or_else(|| from.and_then(|from| field(&from.field_path)))
    })
    .unwrap()
}

/// Runs `work`, and does not touch it while its member is frozen.
async fn stopped_while_frozen(net: &Net, member: &MemberName, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut frozen = net.frozen();
    loop {
        // The handle that freezes lives as long as the net.
        let _ = frozen.wait_for(|frozen| !frozen.contains(member)).await;
        tokio::select! {
            biased;
            _ = frozen.wait_for(|frozen| frozen.contains(member)) => {}
            () = &mut work => return,
        }
    }
}
