//! A server in memory behind a layer that counts writes and can make one fail.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coregent_api::ReplicatedStateMachine;
use coregent_apiserver::{ApiServer, Options, UserInfo};
use coregent_rsm::controller::{Error, Reconciler, pass};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::ServiceExt;

/// How long a test waits for what must happen before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
pub struct Writes {
    log: Arc<Mutex<Vec<String>>>,
    reads: Arc<Mutex<Vec<String>>>,
    faults: Arc<Mutex<VecDeque<(String, Fault)>>>,
}

#[derive(Clone, Copy)]
pub enum Fault {
    /// Answered with 500, not carried out.
    Refused,
    /// Carried out, answered with 500.
    AnswerLost,
}

impl Writes {
    /// Writes since the last call, as `VERB last/parts/of/the/path`.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Reads since the last call, watches that go on left out.
    pub fn take_reads(&self) -> Vec<String> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }

    /// How many reads there were since they were taken.
    pub fn reads(&self) -> usize {
        self.reads.lock().unwrap().len()
    }

    /// Lets the next write fail whose text contains `part`.
    pub fn fail(&self, part: &str, fault: Fault) {
        self.faults.lock().unwrap().push_back((part.to_owned(), fault));
    }

    fn fault(&self, text: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let at = faults.iter().position(|(part, _)| text.contains(part.as_str()))?;
        faults.remove(at).map(|(_, fault)| fault)
    }
}

/// An API server with our kinds.
pub struct Plane {
    /// Of the test itself; not counted.
    pub client: Client,
    /// Of the controller; counted.
    pub counted: Client,
    pub writes: Writes,
    reconciler: Reconciler,
}

impl Plane {
    pub async fn start() -> Plane {
        let server = ApiServer::open(Options::default()).await.unwrap();
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in coregent_api::crds() {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        let writes = Writes::default();
        let counted = counting(server.service_as(UserInfo::admin()), writes.clone());
        Plane { client, reconciler: Reconciler::new(counted.clone()), counted, writes }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    pub async fn get<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.api().get_opt(name).await.unwrap()
    }

    pub async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn patch_status<K>(&self, name: &str, status: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let patch = json!({"status": status});
        self.api::<K>().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn rsm(&self, name: &str) -> ReplicatedStateMachine {
        self.get(name).await.unwrap()
    }

    /// One pass over an RSM and what it wrote.
    pub async fn pass(&self, name: &str) -> Vec<String> {
        self.try_pass(name).await.unwrap()
    }

    pub async fn try_pass(&self, name: &str) -> Result<Vec<String>, Error> {
        self.writes.take();
        pass(&self.reconciler, "default", name).await?;
        Ok(self.writes.take())
    }

    /// The same plane with `RSM_COMPATIBILITY_MODE`.
    pub fn compatible(mut self, compatibility: bool) -> Plane {
        self.reconciler = self.reconciler.compatible(compatibility);
        self
    }

    /// A pass beside others.
    pub async fn pass_alone(&self, name: &str) -> Result<(), Error> {
        pass(&Reconciler::new(self.counted.clone()), "default", name).await.map(|_| ())
    }

    /// Passes until one writes nothing.
    pub async fn settle(&self, name: &str) {
        for _ in 0..10 {
            if self.pass(name).await.is_empty() {
                return;
            }
        }
        panic!("{name} is never settled");
    }
}

fn counting(router: axum::Router, writes: Writes) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (router, writes) = (router.clone(), writes.clone());
        async move {
            let text = text(&request);
            let fault = if request.method() == http::Method::GET { None } else { writes.fault(&text) };
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if request.method() != http::Method::GET {
                writes.log.lock().unwrap().push(text);
            } else if !watches {
                let query = request.uri().query().unwrap_or_default();
                writes.reads.lock().unwrap().push(format!("{text}?{query}"));
            }
            if let Some(Fault::Refused) = fault {
                return Ok::<_, std::convert::Infallible>(broken());
            }
            let answer = router.oneshot(request).await?;
            Ok(if fault.is_some() { broken() } else { answer })
        }
    });
    Client::new(service, "default")
}

fn text(request: &http::Request<Body>) -> String {
    let path = request.uri().path();
    let path = path.split_once("/namespaces/default/").map_or(path, |(_, rest)| rest);
    format!("{} {path}", request.method())
}

fn broken() -> http::Response<axum::body::Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError",
        "message": "injected", "code": 500});
    http::Response::builder().status(500).body(axum::body::Body::from(status.to_string())).unwrap()
}

/// Waits until `found` gives something.
pub async fn wait<T, F: Future<Output = Option<T>>>(what: &str, found: impl Fn() -> F) -> T {
    let look = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// The RSM of rsm.md 10.1: three replicas, four roles.
pub fn manifest(name: &str, spec: Value) -> Value {
    let mut whole = json!({
        "replicas": 3,
        "selector": {"matchLabels": {"app": name}},
        "roles": [
            {"name": "leader", "accessMode": "ReadWrite", "isLeader": true},
            {"name": "follower", "accessMode": "Readonly"},
            {"name": "logger", "accessMode": "None"},
            {"name": "learner", "accessMode": "Readonly", "canVote": false},
        ],
        "service": {"spec": {"ports": [{"name": "db", "port": 5432, "targetPort": "db"}]}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "db", "image": "db:1", "ports": [{"name": "db", "containerPort": 5432}],
                "resources": {"limits": {"cpu": "0.1", "memory": "1024Mi"}}}]},
        },
    });
    let fields = whole.as_object_mut().unwrap();
    for (key, value) in spec.as_object().unwrap() {
        fields.insert(key.clone(), value.clone());
    }
    json!({"metadata": {"name": name}, "spec": whole})
}
