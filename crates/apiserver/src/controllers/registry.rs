//! The list of controllers: what concerns each, and how it decides.

use super::Options;
use super::world::{Change, Now, ObjectKey, World};
use super::write::Decision;
use super::{endpoints, scheduler, stateful_set, volumes};

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
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 6] =
        [Self::StatefulSet, Self::Scheduler, Self::StorageClass, Self::Claim, Self::Volume, Self::Endpoints];

    /// The name, which is also the field manager of its writes.
    pub fn name(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulset-controller",
            Self::Scheduler => "default-scheduler",
            Self::StorageClass => "storageclass-controller",
            Self::Claim => "persistentvolume-binder",
            Self::Volume => "persistentvolume-controller",
            Self::Endpoints => "endpointslice-controller",
        }
    }

    /// Whether it must know every kind that is served before it may decide.
    pub fn needs_all_kinds(self) -> bool {
        false
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
        }
    }
}
