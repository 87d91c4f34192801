//! Sends the requests of a scenario to a server and writes down what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coregent_apiserver::controllers;
use coregent_apiserver::{ApiServer, Options};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body as ClientBody;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::normalize::Normalizer;
use crate::scenario::{Body, Scenario, Step, Until};

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that is asked.
#[derive(Clone)]
pub struct Place {
    client: Client,
    server: Option<ApiServer>,
    _stop: Option<Arc<DropGuard>>,
}

/// A request and its answer, in the form in which they are compared and recorded.
pub struct Exchange {
    pub step: String,
    pub request: Value,
    pub answer: Value,
}

impl Place {
    /// The embedded server, if this is one.
    pub fn server(&self) -> Option<&ApiServer> {
        self.server.as_ref()
    }

    /// The real server to record from, if one is named.
    pub async fn recorded_from() -> Option<Self> {
        let file = std::env::var_os("COREGENT_CONFORMANCE_KUBECONFIG")?;
        let kubeconfig = Kubeconfig::read_from(file).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        // A refusal with a time to wait is an answer too.
        config.default_retry = false;
        Some(Self { client: Client::try_from(config).unwrap(), server: None, _stop: None })
    }
}

/// An embedded API. Its Services take addresses of the range that `dev/kubernetes` gives.
pub async fn embedded(scenario: &Scenario) -> Place {
    let range = ("10.212.0.2".parse().unwrap(), "10.212.255.254".parse().unwrap());
    let options = Options { history: scenario.history, service_ips: Some(range), ..Options::default() };
    let server = ApiServer::open(options).await.unwrap();
    let client = server.client();
    let shutdown = CancellationToken::new();
    if scenario.controllers {
        tokio::spawn(controllers::run(client.clone(), controllers::Options::new("/data"), shutdown.clone()));
    }
    Place { client, server: Some(server), _stop: Some(Arc::new(shutdown.drop_guard())) }
}

/// Runs a scenario in a namespace of its own.
pub async fn run(scenario: &Scenario, place: &Place) -> Vec<Exchange> {
    let namespace = scenario.namespace();
    let mut run = Run {
        place,
        variables: BTreeMap::from([("ns", namespace.clone()), ("group", scenario.group())]),
        normalizer: Normalizer::new(scenario.fields),
    };
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let (status, answer) = run.send(&crate::scenario::post("namespace", "/api/v1/namespaces", made)).await;
    assert_eq!(status, 201, "{}: {answer}", scenario.name);
    if place.server.is_none() {
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        run.exchange(&crate::scenario::get("account", &account).until(Until::Code(200)).silent()).await;
    }
    let mut exchanges = Vec::new();
    for step in &scenario.steps {
        let exchange = run.exchange(step).await;
        if !step.silent {
            exchanges.push(exchange);
        }
    }
    exchanges
}

/// Removes what a scenario made on a server that goes on living.
pub async fn tidy(scenario: &Scenario, place: &Place) {
    let mut run =
        Run { place, variables: BTreeMap::from([("ns", scenario.namespace())]), normalizer: Normalizer::new(false) };
    let namespace = format!("/api/v1/namespaces/{}", scenario.namespace());
    let outside = scenario
        .outside
        .iter()
        .map(|path| path.replace("{group}", &scenario.group()).replace("{ns}", &scenario.namespace()));
    for path in outside.chain([namespace]) {
        run.send(&crate::scenario::delete("tidy", &path)).await;
        run.exchange(&crate::scenario::get("gone", &path).until(Until::Code(404)).silent()).await;
    }
}

struct Run<'p> {
    place: &'p Place,
    variables: BTreeMap<&'static str, String>,
    normalizer: Normalizer,
}

impl Run<'_> {
    fn filled(&self, text: &str) -> String {
        self.variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    async fn exchange(&mut self, step: &Step) -> Exchange {
        let began = Instant::now();
        let mut answer = loop {
            let (status, mut answer) = self.send(step).await;
            if step.until.as_ref().is_none_or(|until| holds(until, status, &answer["body"])) {
                break answer;
            }
            if began.elapsed() > if self.place.server().is_none() { 6 * PATIENCE } else { PATIENCE } {
                answer["waited"] = "in vain".into();
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        for (variable, pointer) in &step.captures {
            let value = answer["body"].pointer(pointer);
            let value = value
                .unwrap_or_else(|| panic!("{} of {:?}: no {pointer} in {answer}", step.label, self.variables["ns"]));
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if *pointer == "/metadata/name" {
                self.normalizer.name(&text, variable);
            }
            self.variables.insert(variable, text);
        }
        // What prepares a scenario numbers nothing: how often controllers write meanwhile differs.
        if !step.silent {
            self.normalizer.answer(&mut answer);
        }
        Exchange { step: step.label.clone(), request: described(step), answer }
    }

    /// The status and the answer as it came.
    async fn send(&self, step: &Step) -> (u16, Value) {
        let mut request = http::Request::builder().method(step.method).uri(self.filled(&step.path));
        request = request.header("user-agent", "conformance/1").header("accept", step.accept.unwrap_or("*/*"));
        if let Some(content_type) = step.content_type {
            request = request.header("content-type", content_type);
        }
        let body = match &step.body {
            Body::None => Vec::new(),
            Body::Json(value) => self.filled(&value.to_string()).into_bytes(),
            Body::Text(text) => self.filled(text).into_bytes(),
        };
        let response = self.place.client.send(request.body(ClientBody::from(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let mut answer = described_head(status, response.headers());
        let body = response.into_body();
        answer["body"] = match step.events {
            Some(count) if status == 200 => events(body, count).await,
            _ => parsed(&body.collect_bytes().await.unwrap()),
        };
        (status, answer)
    }
}

/// An answer without its body.
fn described_head(status: u16, headers: &http::HeaderMap) -> Value {
    let header = |name: &str| {
        let values = headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let mut answer = json!({"status": status, "type": header("content-type").concat()});
    let warnings = header("warning");
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    answer
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// Reads a watch until so many events have come, or it ends.
async fn events(mut body: ClientBody, count: usize) -> Value {
    let (mut events, mut rest) = (Vec::new(), Vec::new());
    while events.len() < count {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        let Some(frame) = frame.unwrap_or_else(|_| panic!("waited in vain for event {}: {events:?}", events.len() + 1))
        else {
            break;
        };
        rest.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            events.push(parsed(&line));
        }
    }
    // What is no watch ends without the end of a line.
    if !rest.is_empty() {
        events.push(parsed(&rest));
    }
    events.truncate(count);
    Value::Array(events)
}

fn holds(until: &Until, status: u16, body: &Value) -> bool {
    match until {
        Until::Code(code) => status == *code,
        Until::Is(pointer, value) => body.pointer(pointer) == Some(value),
        Until::Has(pointer) => body.pointer(pointer).is_some(),
        Until::Lacks(pointer) => status == 200 && body.pointer(pointer).is_none(),
    }
}

/// The request as it is recorded: with its variables, so that it is the same wherever it runs.
pub fn described(step: &Step) -> Value {
    let mut request = json!({"method": step.method, "path": step.path});
    let body = match &step.body {
        Body::None => None,
        Body::Json(value) => Some(value.clone()),
        Body::Text(text) => Some(json!(text)),
    };
    let optional = [
        ("contentType", step.content_type.map(|text| json!(text))),
        ("accept", step.accept.map(|text| json!(text))),
        ("body", body),
        ("events", step.events.map(|count| json!(count))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            request[name] = value;
        }
    }
    request
}
