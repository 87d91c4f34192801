//! What a scenario is made of.

use serde_json::Value;

/// A list of requests in a namespace of its own.
#[derive(Clone)]
pub struct Scenario {
    /// Names its recording, its namespace and its API group.
    pub name: &'static str,
    /// What it is about, for CONFORMANCE.md.
    pub about: &'static str,
    pub steps: Vec<Step>,
    /// Whether `metadata.managedFields` are compared.
    pub fields: bool,
    /// Whether what controllers do is looked at. Where it is not, the embedded API runs none, so that none comes between.
    pub controllers: bool,
    /// How many revisions the embedded API keeps.
    pub history: usize,
    /// What it makes outside of its namespace.
    pub outside: Vec<&'static str>,
}

/// One request, and what is done with its answer.
#[derive(Clone)]
pub struct Step {
    /// Names it within its scenario.
    pub label: String,
    pub method: &'static str,
    pub path: String,
    pub body: Body,
    pub content_type: Option<&'static str>,
    pub accept: Option<&'static str>,
    /// Values of the answer that later requests name as `{variable}`: variable and JSON pointer.
    pub captures: Vec<(&'static str, &'static str)>,
    /// Asked again until this is so: what controllers do takes its time.
    pub until: Option<Until>,
    /// The answer is an endless sequence, read until so many events have come.
    pub events: Option<usize>,
    /// The answer is not compared.
    pub silent: bool,
}

/// The body of a request.
#[derive(Clone)]
pub enum Body {
    None,
    Json(Value),
    Text(&'static str),
}

/// What an answer is waited for to be.
#[derive(Clone)]
pub enum Until {
    Code(u16),
    Is(&'static str, Value),
    Has(&'static str),
    Lacks(&'static str),
}

pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
pub const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

impl Scenario {
    pub fn new(name: &'static str, about: &'static str, steps: Vec<Step>) -> Self {
        Self { name, about, steps, fields: false, controllers: false, history: 1_000, outside: Vec::new() }
    }

    /// Compares `metadata.managedFields` as well.
    pub fn with_fields(self) -> Self {
        Self { fields: true, ..self }
    }

    /// Runs the controllers.
    pub fn with_controllers(self) -> Self {
        Self { controllers: true, ..self }
    }

    /// Keeps so few revisions in the embedded API.
    pub fn with_history(self, history: usize) -> Self {
        Self { history, ..self }
    }

    /// Names what a recording has to remove besides the namespace.
    pub fn makes(self, outside: &[&'static str]) -> Self {
        Self { outside: outside.to_vec(), ..self }
    }

    pub fn defines_kinds(&self) -> bool {
        self.outside.iter().any(|path| path.contains("customresourcedefinitions"))
    }

    pub fn namespace(&self) -> String {
        format!("conf-{}", self.name)
    }

    pub fn group(&self) -> String {
        format!("{}.example.com", self.name)
    }
}

fn step(label: &str, method: &'static str, path: &str, body: Body, content_type: Option<&'static str>) -> Step {
    Step {
        label: label.to_owned(),
        method,
        path: path.to_owned(),
        body,
        content_type,
        accept: None,
        captures: Vec::new(),
        until: None,
        events: None,
        silent: false,
    }
}

pub fn get(label: &str, path: &str) -> Step {
    step(label, "GET", path, Body::None, None)
}

pub fn post(label: &str, path: &str, body: Value) -> Step {
    step(label, "POST", path, Body::Json(body), Some("application/json"))
}

pub fn put(label: &str, path: &str, body: Value) -> Step {
    step(label, "PUT", path, Body::Json(body), Some("application/json"))
}

pub fn patch(label: &str, path: &str, content_type: &'static str, body: Value) -> Step {
    step(label, "PATCH", path, Body::Json(body), Some(content_type))
}

pub fn apply(label: &str, path: &str, body: Value) -> Step {
    patch(label, path, APPLY_PATCH, body)
}

pub fn delete(label: &str, path: &str) -> Step {
    step(label, "DELETE", path, Body::None, None)
}

pub fn delete_with(label: &str, path: &str, body: Value) -> Step {
    step(label, "DELETE", path, Body::Json(body), Some("application/json"))
}

/// A request whose body is sent as it is written.
pub fn raw(label: &str, method: &'static str, path: &str, content_type: &'static str, body: &'static str) -> Step {
    step(label, method, path, Body::Text(body), Some(content_type))
}

/// A request without a body.
pub fn bare(label: &str, method: &'static str, path: &str) -> Step {
    step(label, method, path, Body::None, None)
}

/// A watch that is read until so many events have come; it begins at a revision, so that what has happened is in it.
pub fn watch(label: &str, path: &str, events: usize) -> Step {
    Step { events: Some(events), ..get(label, path) }
}

impl Step {
    pub fn capture(mut self, variable: &'static str, pointer: &'static str) -> Self {
        self.captures.push((variable, pointer));
        self
    }

    pub fn accept(self, accept: &'static str) -> Self {
        Self { accept: Some(accept), ..self }
    }

    pub fn until(self, until: Until) -> Self {
        Self { until: Some(until), ..self }
    }

    /// What prepares a scenario, and is no part of what it compares.
    pub fn silent(self) -> Self {
        Self { silent: true, ..self }
    }
}
