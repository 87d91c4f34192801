//! A control plane on tokio's paused clock: the real API server, its real controllers, the real operator and real
//! agents over modelled servers, on modelled nodes. Days pass in seconds.
//!
//! Everything is drawn from one seed. A seed that fails usually fails again; it need not, byte for byte: the order in
//! which kube's Controller takes up objects depends on hash maps with a random state, uids are random, and the answers
//! of the machine's wall clock differ. Nothing that is decided depends on these (`core` reads no clock and no hash map).

use crate::host::{Ground, Host};
use crate::net::Net;
use crate::oracle::Oracle;
use coregent_api::DatabaseCluster;
use coregent_apiserver::faults::{Dice, Faults, Journal};
use coregent_apiserver::{ApiServer, Options as ServerOptions, controllers};
use coregent_operator::Options;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::task::{JoinHandle, LocalSet};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Virtual time that anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a test on a clock of its own, which moves on when everybody waits.
pub fn run(test: impl Future<Output = ()>) {
    count_panics();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(std::env::var("TEST_LOG").unwrap_or_default())
        .with_test_writer()
        .try_init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let ended = stall_watch();
    LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(tick(ended.1));
        test.await;
    });
    drop(ended.0);
    assert_eq!(PANICS.replace(0), 0, "panics in tasks, see above");
}

/// Real time in which some virtual time must pass. A loop that never waits stops the clock, and would hang the tests.
const STALL: Duration = Duration::from_secs(180);

/// Ends the process with a word when the virtual clock stands still. The thread wakes nobody, so that it does not
/// disturb the paused clock.
fn stall_watch() -> (std::sync::mpsc::Sender<()>, Arc<AtomicU64>) {
    let (alive, ended) = std::sync::mpsc::channel::<()>();
    let ticks = Arc::new(AtomicU64::new(0));
    let seen = ticks.clone();
    std::thread::spawn(move || {
        let mut before = 0;
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(STALL) {
            let now = seen.load(Ordering::Relaxed);
            if now == before {
                eprintln!("the virtual clock has stood still for {STALL:?} after {now} s: something never waits");
                std::process::abort();
            }
            before = now;
        }
    });
    (alive, ticks)
}

async fn tick(ticks: Arc<AtomicU64>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        ticks.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// Panics on this thread, which runs all tasks of one test.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// A panic in a task ends nothing but that task; here it is to end the test.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
    PANICS.set(0);
}

/// An operator process.
pub struct Operator {
    pub name: String,
    pub faults: Faults,
    stop: CancellationToken,
    task: JoinHandle<Result<(), coregent_operator::Error>>,
}

impl Operator {
    /// It ends wherever it is; nothing that it was about to do is done.
    pub fn kill(self) {
        self.faults.script(|_| Some(coregent_apiserver::faults::Fault::Swallowed));
        self.stop.cancel();
        self.task.abort();
    }

    /// It is told to end, and does.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// It is told to end, and nobody waits for that.
    pub fn stop_beside(self) {
        tokio::task::spawn_local(self.stop());
    }

    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

/// What lies between a host and the API, and its work while it has power.
type Power = (Faults, Option<JoinHandle<()>>);

pub struct Plane {
    pub server: ApiServer,
    /// A client without faults, that is not counted.
    pub client: Client,
    pub net: Net,
    pub journal: Journal,
    pub ground: Rc<Ground>,
    pub oracle: Oracle,
    /// What lies between the built-in controllers and the API.
    pub controllers: Faults,
    hosts: RefCell<BTreeMap<String, Power>>,
    pub operators: Vec<Operator>,
    serial: u32,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl Plane {
    /// Everything but an operator, on `hosts` nodes.
    pub async fn bare(seed: u64, hosts: u32) -> Plane {
        let mut dice = Dice::new(seed);
        let server = ApiServer::open(ServerOptions::default()).await.unwrap();
        let client = server.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in coregent_api::crds() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let journal = Journal::default();
        let net = Net::new(dice.draw());
        let ground = Ground::new(&server, &net, &journal, dice.draw());
        let stop = CancellationToken::new();
        let built_in = Faults::new("controllers", dice.draw(), &journal);
        let options = controllers::Options::new("/data");
        tokio::spawn(controllers::run(built_in.client(&server), options, stop.clone()));
        let guard = stop.clone().drop_guard();
        let oracle = Oracle::start(&client, &net);
        let plane = Plane {
            server,
            client,
            net,
            journal,
            ground,
            oracle,
            controllers: built_in,
            hosts: RefCell::default(),
            operators: Vec::new(),
            serial: 0,
            stop,
            _guard: guard,
        };
        for host in 1..=hosts {
            plane.power_on(&format!("n{host}"));
        }
        plane
            .wait("the definitions to be established", |plane| async move {
                plane.clusters().list(&ListParams::default()).await.ok()
            })
            .await;
        plane
    }

    /// One operator, one host.
    pub async fn start() -> Plane {
        let mut plane = Plane::bare(1, 1).await;
        plane.start_operator();
        plane
    }

    /// A plane with a cluster of three that is ready.
    pub async fn with_cluster(spec: Value) -> Plane {
        let plane = Plane::start().await;
        plane.create_cluster(spec).await;
        plane.wait_ready(3).await;
        plane
    }

    /// Starts an operator that works at once.
    pub fn start_operator(&mut self) -> Faults {
        self.start_operator_with(Options::default())
    }

    /// Starts one that works when it leads.
    pub fn start_candidate(&mut self) -> Faults {
        self.start_operator_with(Options { leader_election: Some("default".into()), ..Options::default() })
    }

    pub fn start_operator_with(&mut self, options: Options) -> Faults {
        self.start_operator_through(options, Faults::client)
    }

    /// Starts one whose way to the API is `client`.
    pub fn start_operator_through(
        &mut self,
        options: Options,
        client: impl FnOnce(&Faults, &ApiServer) -> Client,
    ) -> Faults {
        self.serial += 1;
        let name = format!("operator-{}", self.serial);
        let faults = Faults::new(&name, self.ground.seed(), &self.journal);
        let stop = self.stop.child_token();
        let options = Options { identity: name.clone(), ..options };
        let client = client(&faults, &self.server);
        let task = tokio::spawn(coregent_operator::run(client, options, stop.clone()));
        self.operators.push(Operator { name, faults: faults.clone(), stop, task });
        faults
    }

    /// The operator of this name, out of the plane's hands.
    pub fn take_operator(&mut self, name: &str) -> Operator {
        let at = self.operators.iter().position(|operator| operator.name == name).unwrap();
        self.operators.remove(at)
    }

    /// Ends every operator wherever it is.
    pub fn kill_operators(&mut self) {
        self.operators.drain(..).for_each(Operator::kill);
    }

    /// What lies between a host and the API.
    pub fn host(&self, name: &str) -> Faults {
        let mut hosts = self.hosts.borrow_mut();
        let new = || (Faults::new(name, self.ground.seed(), &self.journal), None);
        hosts.entry(name.to_owned()).or_insert_with(new).0.clone()
    }

    pub fn power_on(&self, name: &str) {
        let faults = self.host(name);
        let work = tokio::task::spawn_local({
            let (name, ground) = (name.to_owned(), self.ground.clone());
            async move { LocalSet::new().run_until(Host::run(name, faults, ground)).await }
        });
        if let Some((_, running)) = self.hosts.borrow_mut().get_mut(name) {
            *running = Some(work);
        }
    }

    /// Everything on the host ends at once, and nobody says so.
    pub fn power_off(&self, name: &str) {
        let running = self.hosts.borrow_mut().get_mut(name).and_then(|(_, running)| running.take());
        if let Some(running) = running {
            running.abort();
        }
    }

    /// Every client's faults: operators, controllers, hosts, agents.
    pub fn all_faults(&self) -> Vec<Faults> {
        let hosts = self.hosts.borrow();
        let agents = self.ground.agent_faults.borrow();
        let operators = self.operators.iter().map(|operator| &operator.faults);
        let hosts = hosts.values().map(|(faults, _)| faults);
        [&self.controllers].into_iter().chain(operators).chain(hosts).chain(agents.values()).cloned().collect()
    }

    pub async fn create_cluster(&self, spec: Value) {
        let mut object = json!({
            "apiVersion": "coregent.io/v1alpha1",
            "kind": "DatabaseCluster",
            "metadata": {"name": "orders"},
            "spec": {"replicas": 3, "engine": {"postgresql": {"version": "15"}}, "storage": {"size": "1Gi"}},
        });
        merge(&mut object["spec"], &spec);
        if object["spec"]["replication"]["mode"] == "Async" {
            self.net.may_lose();
        }
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
        self.wait_within(PATIENCE, what, found).await
    }

    /// Waits for something in virtual time, and stops at what no test forgives.
    pub async fn wait_within<'a, T, F>(&'a self, patience: Duration, what: &str, found: impl Fn(&'a Plane) -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        let look = async {
            loop {
                self.assert_sound();
                if let Some(found) = found(self).await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if let Ok(found) = tokio::time::timeout(patience, look).await {
            return found;
        }
        panic!("waited in vain for {what}\n{}", self.picture().await);
    }

    /// Nothing has happened that must not.
    pub fn assert_sound(&self) {
        let violations = self.net.violations();
        assert!(violations.is_empty(), "{violations:#?}\n{:#?}", self.oracle.trace());
    }

    /// What a person would look at.
    pub async fn picture(&self) -> String {
        let status = self.clusters().get_opt("orders").await.ok().flatten().and_then(|cluster| cluster.status);
        let lease: Option<Lease> =
            Api::default_namespaced(self.client.clone()).get_opt("orders-primary").await.ok().flatten();
        let writes: Vec<String> = self.journal.newest(40).iter().map(ToString::to_string).collect();
        format!(
            "status: {}\nlease: {}\nnet: {:#?}\nwrites: {:#?}\ntrace: {:#?}",
            serde_json::to_string_pretty(&status).unwrap(),
            serde_json::to_string_pretty(&lease).unwrap(),
            self.net.all(),
            writes,
            self.oracle.trace(),
        )
    }

    pub async fn wait_ready(&self, members: i32) {
        self.wait("the cluster to be ready", |plane| plane.is_ready(members)).await;
    }

    /// All of them are ready and nothing is under way.
    pub async fn is_ready(&self, members: i32) -> Option<()> {
        let status = self.clusters().get_opt("orders").await.ok()??.status?;
        let ready = status.ready_replicas == Some(members) && status.blocking_operation.is_none();
        (ready && status.primary.is_some_and(|primary| primary.current.is_some())).then_some(())
    }

    /// They are ready, and status, label and the databases themselves agree who is primary.
    pub async fn is_whole(&self, members: i32) -> Option<()> {
        self.is_ready(members).await?;
        let current = self.cluster().await.status?.primary?.current?;
        let agreed = self.net.primaries() == [current.as_str().into()];
        (agreed && self.labelled().await == [format!("{current}-0")]).then_some(())
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

    /// Kills the engine of orders-1 after an acknowledged write: another takes over with it, and all are ready again.
    pub async fn survives_its_first_primary(&self) {
        assert_eq!(self.write_until_acknowledged(1).await, "orders-1");
        self.net.kill_engine("orders-1");
        self.wait_for_silence().await;
        let next = self.write_until_acknowledged(2).await;
        assert!(self.net.rows(&next).contains(&1));
        self.wait_ready(3).await;
    }

    /// Waits until a member accepts a write that a client is told of.
    pub async fn write_until_acknowledged(&self, number: u64) -> String {
        self.wait("an acknowledged write", |plane| async move {
            for member in plane.net.primaries() {
                if plane.net.write(member.as_str(), number).await {
                    return Some(member.to_string());
                }
            }
            None
        })
        .await
    }

    /// Waits until nobody accepts writes.
    pub async fn wait_for_silence(&self) {
        self.wait("the engine to stop", |plane| async move { plane.net.primaries().is_empty().then_some(()) }).await;
    }

    /// Kills everything in the pod of `member`; its node says so and starts the container anew.
    pub fn kill_member(&self, member: &str) {
        self.ground.kill(member);
    }

    /// The same, and the node never starts it again.
    pub fn kill_member_for_good(&self, member: &str) {
        self.ground.off.borrow_mut().insert(member.into());
        self.ground.kill(member);
    }

    /// Asks for a switchover.
    pub async fn switch_over(&self, id: &str, to: Option<&str>) {
        let request = json!({"id": id, "to": to}).to_string();
        let patch = json!({"metadata": {"annotations": {"coregent.io/switchover": request}}});
        self.clusters().patch("orders", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
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
