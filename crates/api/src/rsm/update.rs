//! How members are brought to a new revision, and what becomes of their volumes (rsm.md 5, 8.5).

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// See [`super::ReplicatedStateMachineSpec::pod_management_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodManagementPolicy {
    /// One after another, each ready before the next (the default of Kubernetes).
    OrderedReady,
    /// All at once.
    Parallel,
}

impl PodManagementPolicy {
    /// As the API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PodManagementPolicy::OrderedReady => "OrderedReady",
            PodManagementPolicy::Parallel => "Parallel",
        }
    }
}

/// See [`super::ReplicatedStateMachineSpec::member_update_strategy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberUpdateStrategy {
    /// One member after another, the leader last.
    Serial,
    /// Batches that keep a strict majority of the voters, the leader last. Without roles: one after another.
    BestEffortParallel,
    /// All at once.
    Parallel,
}

/// How pods of an old revision are replaced (Kubernetes StatefulSetUpdateStrategy, and a bound of ours).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`: what the StatefulSet does by itself. With `memberUpdateStrategy` it is `OnDelete`,
    /// whatever is written here.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<UpdateStrategyType>,
    /// Parameters of `RollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub rolling_update: Option<Value>,
    /// With `memberUpdateStrategy`: members that may be away at once because of an update, as a number or a percentage
    /// of all (rounded down, at least 1). Members that are not ready for another reason count. Absent: what the strategy
    /// allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::count_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
}

impl UpdateStrategy {
    /// Pods are replaced when somebody deletes them.
    #[must_use]
    pub fn on_delete() -> UpdateStrategy {
        UpdateStrategy { type_: Some(UpdateStrategyType::OnDelete), ..UpdateStrategy::default() }
    }

    /// `maxUnavailable` of `members`, where it is given: at least 1, since nothing would ever be updated otherwise.
    #[must_use]
    pub fn unavailable_of(&self, members: usize) -> Option<usize> {
        let bound = match self.max_unavailable.as_ref()? {
            IntOrString::Int(count) => usize::try_from(*count).unwrap_or_default(),
            IntOrString::String(text) => {
                let percent: usize = text.strip_suffix('%')?.parse().ok()?;
                members.saturating_mul(percent.min(100)) / 100
            }
        };
        Some(bound.max(1))
    }
}

/// See [`UpdateStrategy::type_`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Pods are replaced by the StatefulSet controller.
    RollingUpdate,
    /// Pods are replaced when somebody deletes them.
    OnDelete,
}

/// What becomes of a member's claims (Kubernetes StatefulSetPersistentVolumeClaimRetentionPolicy).
#[derive(KubeSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRetentionPolicy {
    /// When the set is deleted.
    #[serde(default)]
    pub when_deleted: ClaimRetention,
    /// When the set gets smaller. A member that is taken out of service by `offlineInstances` keeps its claims whatever
    /// is said here.
    #[serde(default)]
    pub when_scaled: ClaimRetention,
}

/// See [`ClaimRetentionPolicy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimRetention {
    /// They stay.
    #[default]
    Retain,
    /// They are deleted, and the data with them.
    Delete,
}

impl ClaimRetention {
    /// As the API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimRetention::Retain => "Retain",
            ClaimRetention::Delete => "Delete",
        }
    }
}
