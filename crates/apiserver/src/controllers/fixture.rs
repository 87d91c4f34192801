//! Worlds for tests of decisions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::registry::Controller;
use super::world::{Now, ObjectKey, World, typed_resources};
use super::write::{Decision, Write};
use super::{Clock, Options};

/// A world that objects are put into as JSON.
pub struct Fixture {
    /// The world.
    pub world: World,
    /// The moment of the next decision.
    pub now: Now,
    /// The options.
    pub options: Options,
    version: u64,
}

impl Fixture {
    /// An empty world at a fixed moment.
    pub fn new() -> Self {
        let wall = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut options = Options::new(PathBuf::from("/data"));
        options.clock = Clock::new(move || wall);
        Self { world: World::default(), now: Now { wall, mono: Duration::ZERO }, options, version: 0 }
    }

    /// Puts an object, with what a server would have added.
    pub fn put(&mut self, mut object: Value) -> &mut Self {
        self.version += 1;
        let resource = resource(&object);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let meta = object["metadata"].as_object_mut().unwrap();
        meta.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        meta.entry("uid").or_insert_with(|| json!(format!("uid-{name}")));
        meta.entry("creationTimestamp").or_insert_with(|| json!("2026-01-01T00:00:00Z"));
        if !["Node", "PersistentVolume", "StorageClass", "Namespace"].contains(&resource.kind.as_str()) {
            meta.entry("namespace").or_insert_with(|| json!("default"));
        }
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.world.apply(&Arc::new(resource), &object, self.now);
        self
    }

    /// Changes a known object by a merge patch.
    pub fn change(&mut self, kind: &str, name: &str, patch: Value) -> &mut Self {
        let mut object = self.get(kind, name).unwrap_or_else(|| panic!("no {kind} {name}"));
        json_patch::merge(&mut object, &patch);
        self.put(object)
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: &str, name: &str) -> &mut Self {
        let object: DynamicObject = serde_json::from_value(self.get(kind, name).unwrap()).unwrap();
        let resource = typed_resources().into_iter().find(|resource| resource.kind == kind).unwrap();
        self.world.remove(&Arc::new(resource), &object.metadata);
        self
    }

    /// An object as JSON.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let tables = &self.world.tables;
        let namespaced = ObjectKey::new("default", name);
        macro_rules! find {
            ($table:ident) => {
                tables.$table.all().find(|o| o.metadata.name.as_deref() == Some(&namespaced.name)).map(|o| json!(**o))
            };
        }
        let mut found = match kind {
            "Pod" => find!(pods),
            "Node" => find!(nodes),
            "StatefulSet" => find!(stateful_sets),
            "ControllerRevision" => find!(revisions),
            "PersistentVolumeClaim" => find!(claims),
            "PersistentVolume" => find!(volumes),
            "Service" => find!(services),
            "EndpointSlice" => find!(slices),
            "Job" => find!(jobs),
            "Namespace" => find!(namespaces),
            "ServiceAccount" => find!(service_accounts),
            "StorageClass" => find!(storage_classes),
            other => panic!("the fixture does not read {other}"),
        }?;
        let resource = typed_resources().into_iter().find(|resource| resource.kind == kind).unwrap();
        found["apiVersion"] = json!(resource.api_version);
        found["kind"] = json!(kind);
        Some(found)
    }

    /// The decision for a key, taken twice: the same world gives the same decision.
    pub fn decide(&self, controller: Controller, name: &str) -> Decision {
        let namespace = match controller {
            Controller::Volume
            | Controller::Scheduler
            | Controller::StorageClass
            | Controller::Garbage
            | Controller::Node
            | Controller::Namespace
            | Controller::ServiceAccount => "",
            _ => "default",
        };
        let key = ObjectKey::new(namespace, name);
        let decision = controller.decide(&self.world, &self.options, &key, self.now);
        assert_eq!(decision, controller.decide(&self.world, &self.options, &key, self.now));
        decision
    }

    /// The writes of a decision as lines, events left out.
    pub fn lines(&self, controller: Controller, name: &str) -> Vec<String> {
        let decision = self.decide(controller, name);
        let writes = decision.groups.iter().flatten().filter(|write| !matches!(write, Write::Event { .. }));
        writes.map(ToString::to_string).collect()
    }

    /// Carries out the decision on this world as a server would.
    pub fn step(&mut self, controller: Controller, name: &str) {
        let decision = self.decide(controller, name);
        for write in decision.groups.into_iter().flatten() {
            self.carry_out(write);
        }
    }

    /// Takes looks until nothing is left to write.
    pub fn settle(&mut self, controller: Controller, name: &str) {
        for _ in 0..20 {
            if self.decide(controller, name).is_quiet() {
                return;
            }
            self.step(controller, name);
        }
        panic!("{controller:?} does not come to rest: {:?}", self.lines(controller, name));
    }

    fn carry_out(&mut self, write: Write) {
        match write {
            Write::Create { resource, object } => {
                let mut value = serde_json::to_value(&*object).unwrap();
                value["apiVersion"] = json!(resource.api_version);
                value["kind"] = json!(resource.kind);
                self.put(value);
            }
            Write::Patch { target, patch, .. } => {
                self.change(&target.resource.kind, &target.name, patch);
                self.collect(&target.resource.kind, &target.name);
            }
            Write::Delete { target, .. } => {
                let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
                self.change(&target.resource.kind, &target.name, deleting);
                if target.resource.kind != "Pod" {
                    self.collect(&target.resource.kind, &target.name);
                }
            }
            Write::Bind { target, node } => {
                self.change("Pod", &target.name, json!({ "spec": { "nodeName": node } }));
            }
            Write::Event { .. } | Write::ConfirmGone { .. } | Write::FinalizeNamespace { .. } => {}
        }
    }

    fn collect(&mut self, kind: &str, name: &str) {
        let object = self.get(kind, name).unwrap();
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if object["metadata"]["deletionTimestamp"].is_string() && !held {
            self.remove(kind, name);
        }
    }

    /// Makes ConfigMaps a kind that is served.
    pub fn serve_config_maps(&mut self) {
        let kind = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        self.world.serve([(kind, true)]);
    }

    /// A node that is ready.
    pub fn node(&mut self, name: &str) -> &mut Self {
        self.put(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
    }

    /// Marks a pod as running and ready on `node`, as a kubelet does.
    pub fn ready(&mut self, pod: &str) -> &mut Self {
        let since = self.now.wall.to_string();
        self.change(
            "Pod",
            pod,
            json!({ "status": {
                "phase": "Running",
                "podIP": "127.64.0.2",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": since }],
            }}),
        )
    }
}

fn resource(object: &Value) -> ApiResource {
    let kind = object["kind"].as_str().unwrap();
    if let Some(known) = typed_resources().into_iter().find(|resource| resource.kind == kind) {
        return known;
    }
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
