//! The graph of intended writes: which objects are created, changed and deleted, in which order.

use std::fmt::{self, Display};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, PropagationPolicy};
use kube::{Resource, ResourceExt};
use serde::Serialize;

use crate::graph::{Graph, Invalid, VertexId};

/// What is done with an object. Every write is conditional: on the `resourceVersion` of the object it was decided on, on
/// the object not being there (create), or on fields that only we own (apply).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create it. An object of this name that is ours already is fine, one that is somebody else's is an error.
    Create,
    /// Replace it, on the `resourceVersion` that the vertex carries.
    Update,
    /// Server-side apply of exactly the fields of the vertex, as this manager.
    Apply {
        /// Field manager.
        manager: String,
    },
    /// Merge patch with the body of the vertex; on its `resourceVersion` when it carries one.
    Merge,
    /// Delete it, on the uid that the vertex carries.
    Delete {
        /// What becomes of what it owns.
        propagation: Propagation,
        /// A finalizer of ours to take away first.
        finalizer: Option<String>,
        /// Only as it was read: on the `resourceVersion` that the vertex carries too.
        as_read: bool,
    },
    /// Replace its status, on the `resourceVersion` that the vertex carries.
    Status,
    /// Nothing; the vertex only orders others.
    Noop,
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted before.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    pub(crate) fn policy(self) -> PropagationPolicy {
        match self {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Orphan => PropagationPolicy::Orphan,
        }
    }
}

impl Action {
    /// One word.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Action::Create => "Create",
            Action::Update => "Update",
            Action::Apply { .. } => "Apply",
            Action::Merge => "Patch",
            Action::Delete { .. } => "Delete",
            Action::Status => "Status",
            Action::Noop => "Noop",
        }
    }

    /// Deletion in the background, without a finalizer.
    #[must_use]
    pub fn delete() -> Action {
        Action::Delete { propagation: Propagation::Background, finalizer: None, as_read: false }
    }

    /// As [`Action::delete`], but our finalizer is taken away first, where it is there.
    #[must_use]
    pub fn release() -> Action {
        let finalizer = Some(crate::names::FINALIZER.to_owned());
        Action::Delete { propagation: Propagation::Background, finalizer, as_read: false }
    }

    /// As [`Action::delete`], but an object that changed since it was read is left.
    #[must_use]
    pub fn delete_as_read() -> Action {
        Action::Delete { propagation: Propagation::Background, finalizer: None, as_read: true }
    }
}

/// An object and what is done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Kind and path of the object.
    pub resource: ApiResource,
    /// The object as it shall be.
    pub object: DynamicObject,
    /// The object as it was read, where it was.
    pub original: Option<DynamicObject>,
    /// What is done with it.
    pub action: Action,
    /// Name of this step for fail points and traces; `<verb><kind>` unless it was given.
    pub id: Option<String>,
}

impl Step {
    /// A step on a typed object.
    pub fn new<K>(object: &K, action: Action) -> Result<Step, serde_json::Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        Ok(Step { resource: ApiResource::erase::<K>(&()), object: erase(object)?, original: None, action, id: None })
    }

    /// The same step with the object as it was read.
    pub fn with_original<K>(mut self, original: &K) -> Result<Step, serde_json::Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        self.original = Some(erase(original)?);
        Ok(self)
    }

    /// The same step under a name of its own.
    #[must_use]
    pub fn named(mut self, id: &str) -> Step {
        self.id = Some(id.to_owned());
        self
    }

    /// Name for fail points and traces.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.clone().unwrap_or_else(|| format!("{}{}", self.action.verb(), self.resource.kind))
    }

    /// What tells its object from others.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            group: self.resource.group.clone(),
            kind: self.resource.kind.clone(),
            namespace: self.object.namespace().unwrap_or_default(),
            name: self.object.name_any(),
        }
    }

    /// uid that the object had when it was read.
    #[must_use]
    pub fn read_uid(&self) -> Option<&str> {
        let seen: &ObjectMeta = &self.original.as_ref().unwrap_or(&self.object).metadata;
        seen.uid.as_deref()
    }
}

/// `Create StatefulSet default/orders`.
impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.verb(), self.key())
    }
}

/// Kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for objects without one.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// The key of a typed object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> ObjectKey {
        ObjectKey {
            group: K::group(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// A typed object as a plain one, with its `apiVersion` and `kind`.
pub fn erase<K>(object: &K) -> Result<DynamicObject, serde_json::Error>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let mut value = serde_json::to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".into(), K::api_version(&()).into());
        fields.insert("kind".into(), K::kind(&()).into());
    }
    serde_json::from_value(value)
}

/// Intended writes. The root is written last; everything else hangs below it.
///
/// A second intention about the same object replaces the action of the first and keeps its object, so that a later
/// [`Action::Noop`] cancels an update and a later delete overrides it (rsm.md 2.4). [`Dag::replace`] takes the object too.
#[derive(Clone, Debug, Default)]
pub struct Dag {
    graph: Graph<Step>,
    root: Option<VertexId>,
}

impl Dag {
    /// Sets the root, or the action of the root that is there, and hangs every other vertex below it.
    pub fn set_root(&mut self, step: Step) {
        let root = match self.root.or_else(|| self.find(&step.key())) {
            Some(id) => {
                if let Some(vertex) = self.graph.get_mut(id) {
                    *vertex = step;
                }
                id
            }
            None => self.graph.add(step),
        };
        self.root = Some(root);
        let others: Vec<VertexId> = self.graph.iter().map(|(id, _)| id).filter(|id| *id != root).collect();
        for id in others {
            self.graph.connect(root, id);
        }
    }

    /// The root's step.
    #[must_use]
    pub fn root(&self) -> Option<&Step> {
        self.root.and_then(|id| self.graph.get(id))
    }

    /// The root's step, to be changed.
    pub fn root_mut(&mut self) -> Option<&mut Step> {
        self.root.and_then(|id| self.graph.get_mut(id))
    }

    /// Adds a step below the root; on an object that is there already only the action changes.
    pub fn add(&mut self, step: Step) -> VertexId {
        match self.find(&step.key()) {
            Some(id) => {
                if let Some(vertex) = self.graph.get_mut(id) {
                    vertex.action = step.action;
                }
                id
            }
            None => {
                let id = self.graph.add(step);
                if let Some(root) = self.root {
                    self.graph.connect(root, id);
                }
                id
            }
        }
    }

    /// As [`Dag::add`], but the object is replaced too.
    pub fn replace(&mut self, step: Step) -> VertexId {
        match self.find(&step.key()) {
            Some(id) => {
                if let Some(vertex) = self.graph.get_mut(id) {
                    *vertex = step;
                }
                id
            }
            None => self.add(step),
        }
    }

    /// Carries out every one of `dependencies` before `object`. Vertices that are not there are passed over.
    pub fn depend_on(&mut self, object: &ObjectKey, dependencies: &[ObjectKey]) {
        let Some(from) = self.find(object) else { return };
        for to in dependencies.iter().filter_map(|key| self.find(key)).collect::<Vec<_>>() {
            if to != from {
                self.graph.connect(from, to);
            }
        }
    }

    /// The vertex of an object.
    #[must_use]
    pub fn find(&self, key: &ObjectKey) -> Option<VertexId> {
        self.graph.iter().find(|(_, step)| step.key() == *key).map(|(id, _)| id)
    }

    /// The step on an object.
    #[must_use]
    pub fn step(&self, key: &ObjectKey) -> Option<&Step> {
        self.find(key).and_then(|id| self.graph.get(id))
    }

    /// Steps on objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Step> {
        self.graph.iter().map(|(_, step)| step).filter(move |step| step.resource.kind == kind)
    }

    /// Every step in the order in which it is carried out: dependencies first, the root last.
    pub fn ordered(&self) -> Result<Vec<&Step>, Invalid> {
        if self.graph.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.graph.dependencies_first()?.into_iter().filter_map(|id| self.graph.get(id)).collect())
    }

    /// Takes over what `other` changed since both were `base`, and its edges. Where two changed the same object the
    /// later merge wins, as the later of two transformers in a row would.
    pub fn merge(&mut self, base: &Dag, other: &Dag) {
        let mut edges = Vec::new();
        for (id, step) in other.graph.iter() {
            edges.extend(other.graph.successors(id).filter_map(|to| Some((step.key(), other.graph.get(to)?.key()))));
            if base.step(&step.key()) == Some(step) {
                continue;
            }
            if Some(id) == other.root {
                self.set_root(step.clone());
            } else {
                self.replace(step.clone());
            }
        }
        for (from, to) in edges {
            self.depend_on(&from, &[to]);
        }
    }

    /// Number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.graph.len()
    }

    /// Whether there is nothing to do at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.graph.is_empty()
    }
}

impl PartialEq for Dag {
    fn eq(&self, other: &Dag) -> bool {
        self.graph == other.graph
    }
}

/// One line per step, in order; the dry run of a plan.
impl Display for Dag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in self.ordered().map_err(|_| fmt::Error)? {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Service};

    fn config_map(name: &str, action: Action) -> Step {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("default".to_owned());
        Step::new(&object, action).unwrap()
    }

    fn service(name: &str, action: Action) -> Step {
        let mut object = Service::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("default".to_owned());
        Step::new(&object, action).unwrap()
    }

    #[test]
    fn the_root_is_last_whenever_it_was_set() {
        let mut dag = Dag::default();
        dag.add(config_map("a", Action::Create));
        dag.set_root(service("root", Action::Status));
        dag.add(config_map("b", Action::Create));
        assert_eq!(
            dag.to_string(),
            "Create ConfigMap default/a\nCreate ConfigMap default/b\nStatus Service default/root\n"
        );
    }

    #[test]
    fn a_later_intention_replaces_the_action_and_keeps_the_object() {
        let mut dag = Dag::default();
        dag.set_root(service("root", Action::Status));
        let mut first = config_map("a", Action::Update);
        first.object.data["data"] = serde_json::json!({"k": "1"});
        dag.add(first);
        dag.add(config_map("a", Action::Noop));
        let key = config_map("a", Action::Noop).key();
        assert_eq!(dag.step(&key).unwrap().action, Action::Noop);
        assert_eq!(dag.step(&key).unwrap().object.data["data"]["k"], "1");
        dag.replace(config_map("a", Action::delete()));
        assert!(dag.step(&key).unwrap().object.data.get("data").is_none());
        assert_eq!(dag.len(), 2);
    }

    #[test]
    fn dependencies_are_carried_out_before_and_missing_ones_passed_over() {
        let mut dag = Dag::default();
        dag.set_root(service("root", Action::Status));
        let (a, z) = (config_map("a", Action::Create), config_map("z", Action::Create));
        let (a_key, z_key) = (a.key(), z.key());
        dag.add(a);
        dag.add(z);
        dag.depend_on(&a_key, &[z_key, service("absent", Action::Noop).key(), a_key.clone()]);
        assert!(dag.to_string().starts_with("Create ConfigMap default/z\nCreate ConfigMap default/a\n"), "{dag}");
    }

    #[test]
    fn merging_takes_over_vertices_edges_and_the_changed_root() {
        let mut dag = Dag::default();
        dag.set_root(service("root", Action::Status));
        let base = dag.clone();
        let mut other = base.clone();
        other.add(config_map("a", Action::Create));
        other.add(config_map("z", Action::Create));
        other.depend_on(&config_map("a", Action::Noop).key(), &[config_map("z", Action::Noop).key()]);
        other.set_root(service("root", Action::Update));
        dag.merge(&base, &other);
        assert_eq!(dag, other);
    }
}
