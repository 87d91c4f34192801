//! The list of controllers: what concerns each, and how it decides.

use super::Options;
use super::world::{Change, Now, ObjectKey, World};
use super::write::Decision;
use super::{
    endpoints, event, garbage, job, namespace, node, scheduler, service_account, stateful_set, stray_pod, volumes,
};

/// A built-in controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// StatefulSets into pods, claims and revisions.
    StatefulSet,
    /// Pods onto nodes.
    Scheduler,
    /// The storage class that claims get by default.
    StorageClass,
    /// Claims to volumes.
    Claim,
    /// The phases and the end of volumes.
    Volume,
    /// Services to addresses.
    Endpoints,
    /// Jobs into pods.
    Job,
    /// The default account of each namespace.
    ServiceAccount,
    /// Silent nodes.
    Node,
    /// The end of pods whose node is gone.
    StrayPod,
    /// The end of events.
    Event,
    /// The end of what an owner leaves behind.
    Garbage,
    /// The end of namespaces.
    Namespace,
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 13] = [
        Self::StatefulSet,
        Self::Scheduler,
        Self::StorageClass,
        Self::Claim,
        Self::Volume,
        Self::Endpoints,
        Self::Job,
        Self::ServiceAccount,
        Self::Node,
        Self::StrayPod,
        Self::Event,
        Self::Garbage,
        Self::Namespace,
    ];

    /// The name, which is also the field manager of its writes.
    pub fn name(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulset-controller",
            Self::Scheduler => "default-scheduler",
            Self::StorageClass => "storageclass-controller",
            Self::Claim => "persistentvolume-binder",
            Self::Volume => "persistentvolume-controller",
            Self::Endpoints => "endpointslice-controller",
            Self::Job => "job-controller",
            Self::ServiceAccount => "serviceaccount-controller",
            Self::Node => "node-controller",
            Self::StrayPod => "pod-garbage-collector",
            Self::Event => "event-controller",
            Self::Garbage => "generic-garbage-collector",
            Self::Namespace => "namespace-controller",
        }
    }

    /// Whether it must know every kind that is served before it may decide.
    pub fn needs_all_kinds(self) -> bool {
        matches!(self, Self::Garbage | Self::Namespace)
    }

    /// The keys to look at once at the start, whatever there is.
    pub fn at_start(self) -> Vec<ObjectKey> {
        match self {
            Self::Scheduler | Self::StorageClass => vec![ObjectKey::default()],
            _ => Vec::new(),
        }
    }

    /// The keys that a change concerns.
    pub fn touched(self, world: &World, change: &Change) -> Vec<ObjectKey> {
        match self {
            Self::StatefulSet => stateful_set::touched(world, change),
            Self::Scheduler => scheduler::touched(change),
            Self::StorageClass => Vec::new(),
            Self::Claim => volumes::claim::touched(world, change),
            Self::Volume => volumes::volume::touched(change),
            Self::Endpoints => endpoints::touched(world, change),
            Self::Job => job::touched(change),
            Self::ServiceAccount => service_account::touched(change),
            Self::Node => node::touched(change),
            Self::StrayPod => stray_pod::touched(world, change),
            Self::Event => event::touched(change),
            Self::Garbage => garbage::touched(world, change),
            Self::Namespace => namespace::touched(world, change),
        }
    }

    /// What to write for a key.
    pub fn decide(self, world: &World, options: &Options, key: &ObjectKey, now: Now) -> Decision {
        match self {
            Self::StatefulSet => stateful_set::decide(world, key, now),
            Self::Scheduler => scheduler::decide(world, now),
            Self::StorageClass => volumes::class::decide(world),
            Self::Claim => volumes::claim::decide(world, options, key),
            Self::Volume => volumes::volume::decide(world, key),
            Self::Endpoints => endpoints::decide(world, key),
            Self::Job => job::decide(world, key, now),
            Self::ServiceAccount => service_account::decide(world, key),
            Self::Node => node::decide(world, options, key, now),
            Self::StrayPod => stray_pod::decide(world, key),
            Self::Event => event::decide(world, options, key, now),
            Self::Garbage => garbage::decide(world, &key.name),
            Self::Namespace => namespace::decide(world, key),
        }
    }
}
