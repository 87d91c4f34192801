//! What a decision wants written, as data. Every write is conditional, and prints as one line.

use std::fmt;
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use serde_json::{Value, json};

/// The object that a write is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The kind.
    pub resource: ApiResource,
    /// The namespace; empty for a cluster-wide kind.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid that was decided on.
    pub uid: String,
    /// The resourceVersion that was decided on.
    pub resource_version: String,
}

impl Target {
    /// The target for an object of a built-in kind as it was read.
    pub fn of<T: kube::Resource<DynamicType = ()>>(object: &T) -> Self {
        Self::from_meta(ApiResource::erase::<T>(&()), object.meta())
    }

    /// The target for an object of which only the metadata is known.
    pub fn known(meta: &super::world::Meta) -> Self {
        Self {
            resource: (*meta.resource).clone(),
            namespace: meta.key.namespace.clone(),
            name: meta.key.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }
    }

    /// The target for an object of any kind from its metadata.
    pub fn from_meta(resource: ApiResource, meta: &ObjectMeta) -> Self {
        Self {
            resource,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.resource.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.resource.kind, self.name),
        }
    }
}

/// How dependents of a deleted object are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

/// One conditional write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create an object; that it exists already is no error.
    Create {
        /// The kind.
        resource: ApiResource,
        /// The object.
        object: Box<DynamicObject>,
    },
    /// A merge patch that holds only for the resourceVersion decided on.
    Patch {
        /// What to patch.
        target: Target,
        /// `status`, or nothing for the object itself.
        subresource: Option<&'static str>,
        /// The merge patch, without the precondition.
        patch: Value,
    },
    /// Delete exactly the object with the uid decided on.
    Delete {
        /// What to delete.
        target: Target,
        /// What becomes of its dependents.
        propagation: Propagation,
        /// Grace period in seconds; the pod's own when absent.
        grace: Option<u32>,
    },
    /// Put a pod on a node.
    Bind {
        /// The pod.
        target: Target,
        /// The node.
        node: String,
    },
    /// Tell people. Lost without harm.
    Event {
        /// What it is about.
        target: Target,
        /// Normal or Warning.
        warning: bool,
        /// The reason in CamelCase.
        reason: &'static str,
        /// The message.
        note: String,
    },
    /// Ask the server itself whether an object is gone, and go on only then. A mirror may be behind or half filled;
    /// nothing is removed on its word alone (rust.md 3.3, pitfall 19).
    ConfirmGone {
        /// The object that must be gone: no object of this name with this uid.
        target: Target,
    },
    /// Ask the server whether a namespace holds nothing but itself, and only then let go of it.
    FinalizeNamespace {
        /// The namespace.
        target: Target,
    },
}

impl Write {
    /// Creation of an object of a built-in kind.
    pub fn create<T>(object: &T) -> Option<Self>
    where
        T: kube::Resource<DynamicType = ()> + serde::Serialize,
    {
        let resource = ApiResource::erase::<T>(&());
        let value = serde_json::to_value(object).ok()?;
        let object = serde_json::from_value(value).ok()?;
        Some(Self::Create { resource, object: Box::new(object) })
    }

    /// A merge patch of the object itself.
    pub fn patch<T: kube::Resource<DynamicType = ()>>(object: &T, patch: Value) -> Self {
        Self::Patch { target: Target::of(object), subresource: None, patch }
    }

    /// A merge patch of the object's status.
    pub fn patch_status<T: kube::Resource<DynamicType = ()>>(object: &T, status: Value) -> Self {
        Self::Patch { target: Target::of(object), subresource: Some("status"), patch: json!({ "status": status }) }
    }

    /// Deletion in the background.
    pub fn delete<T: kube::Resource<DynamicType = ()>>(object: &T) -> Self {
        Self::Delete { target: Target::of(object), propagation: Propagation::Background, grace: None }
    }

    /// An event of type Normal.
    pub fn normal<T: kube::Resource<DynamicType = ()>>(about: &T, reason: &'static str, note: String) -> Self {
        Self::Event { target: Target::of(about), warning: false, reason, note }
    }

    /// An event of type Warning.
    pub fn warning<T: kube::Resource<DynamicType = ()>>(about: &T, reason: &'static str, note: String) -> Self {
        Self::Event { target: Target::of(about), warning: true, reason, note }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { resource, object } => {
                write!(f, "create {}", Target::from_meta(resource.clone(), &object.metadata))
            }
            Self::Patch { target, subresource: None, patch } => write!(f, "patch {target} {patch}"),
            Self::Patch { target, subresource: Some(sub), patch } => write!(f, "patch {sub} of {target} {patch}"),
            Self::Delete { target, propagation: Propagation::Background, .. } => write!(f, "delete {target}"),
            Self::Delete { target, .. } => write!(f, "delete {target} in the foreground"),
            Self::Bind { target, node } => write!(f, "bind {target} to {node}"),
            Self::Event { target, warning, reason, note } => {
                write!(f, "event {} {reason} on {target}: {note}", if *warning { "Warning" } else { "Normal" })
            }
            Self::ConfirmGone { target } => write!(f, "confirm that {target} {} is gone", target.uid),
            Self::FinalizeNamespace { target } => write!(f, "finalize {target}"),
        }
    }
}

/// What a controller wants after one look at one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Groups of writes. Within a group they are carried out in order up to the first failure; groups do not wait
    /// for each other.
    pub groups: Vec<Vec<Write>>,
    /// Look again after this long even if nothing changes.
    pub look_again: Option<Duration>,
}

impl Decision {
    /// Nothing to do.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// These writes, one after the other.
    pub fn in_order(writes: Vec<Write>) -> Self {
        let groups = if writes.is_empty() { Vec::new() } else { vec![writes] };
        Self { groups, look_again: None }
    }

    /// These writes, none of which waits for another.
    pub fn side_by_side(writes: impl IntoIterator<Item = Write>) -> Self {
        Self { groups: writes.into_iter().map(|write| vec![write]).collect(), look_again: None }
    }

    /// Also look again after `after`, or earlier if that was already wanted.
    pub fn again_after(mut self, after: Option<Duration>) -> Self {
        self.look_again = match (self.look_again, after) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self
    }

    /// Whether there is nothing to write.
    pub fn is_quiet(&self) -> bool {
        self.groups.iter().all(Vec::is_empty)
    }

    /// One line a write, for tests, traces and dry runs.
    pub fn lines(&self) -> Vec<String> {
        self.groups.iter().flatten().map(ToString::to_string).collect()
    }
}
