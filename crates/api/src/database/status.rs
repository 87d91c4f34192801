//! What the database controller reports (interface.md, "Status of a DatabaseCluster").

use coregent_core::operation::BlockingOperation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a DatabaseCluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseClusterStatus {
    /// One word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Facts, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Who accepts writes: a copy of the Lease for people (failover.md F1). No agent acts on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<PrimaryStatus>,

    /// One entry per member, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,

    /// Members ready and wanted, for example `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,

    /// Members that exist, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Members that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,

    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// The greatest number ever given to a member. Numbers are never used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_created_instance_index: Option<i32>,

    /// Members that the controller has deployed (kubegres.md 1.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced_replicas: Option<i32>,

    /// The step that is being carried out and excludes others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::blocking_operation")]
    pub blocking_operation: Option<BlockingOperation>,

    /// The operation that ended last, with its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::blocking_operation")]
    pub previous_blocking_operation: Option<BlockingOperation>,

    /// The newest failover or switchover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failover: Option<LastFailover>,

    /// Identifier that the engine gave this database when it was created. A data folder with another is never touched
    /// (failover.md F14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,

    /// The request in `spec.failover.promotePod` or a switchover annotation that was handled last, so that it is handled
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_request: Option<String>,
}

/// One word for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Members are being made for the first time.
    Creating,
    /// All members are there, ready and replicating.
    Ready,
    /// It accepts writes with fewer members or less protection than asked for.
    Degraded,
    /// The primary was lost and another is being chosen.
    FailingOver,
    /// The primary is being handed over as planned.
    SwitchingOver,
    /// Members are changed to a new spec.
    Updating,
    /// It accepts no writes, and nothing can be done without a person or a lost member.
    Unavailable,
    /// It waits for something that is named in the conditions, for example a Secret.
    Waiting,
    /// The spec cannot be carried out; see condition `SpecValid`.
    Invalid,
    /// `spec.paused` is set.
    Paused,
    /// It is being deleted.
    Deleting,
}

/// Who accepts writes.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryStatus {
    /// The member that was named to be primary. Written ahead of the Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The member that holds the Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Epoch of the Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::epoch")]
    pub epoch: Option<u64>,
    /// Since when `current` has been what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub since: Option<Time>,
}

/// A member as it reports itself.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Name of the member, for example `orders-1`.
    pub name: String,
    /// `primary`, `replica` or nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether its pod is ready.
    #[serde(default)]
    pub ready: bool,
    /// What it is doing, for example `streaming`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Timeline of its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<i64>,
    /// Position in the log, for example `0/3000148`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Bytes behind the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// Host that its pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The newest thing that went wrong, while it still matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The newest change of primary.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastFailover {
    /// The primary before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The primary after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why, one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Epoch that it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::epoch")]
    pub epoch: Option<u64>,
    /// When the loss was noticed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub detected_at: Option<Time>,
    /// When the new primary accepted writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub completed_at: Option<Time>,
    /// What may have been lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_loss: Option<DataLoss>,
}

/// What a failover may have lost (failover.md F17).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataLoss {
    /// Position that was promoted.
    #[serde(default, rename = "fromLSN", skip_serializing_if = "Option::is_none")]
    pub from_lsn: Option<String>,
    /// Newest position that the old primary was seen at.
    #[serde(default, rename = "lastSeenPrimaryLSN", skip_serializing_if = "Option::is_none")]
    pub last_seen_primary_lsn: Option<String>,
    /// How long before the failover that was, for example `1.2s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_for: Option<String>,
    /// Whether it is known that nothing was lost.
    #[serde(default)]
    pub lossless: Lossless,
}

/// See [`DataLoss::lossless`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lossless {
    /// Nothing acknowledged was lost.
    True,
    /// Something acknowledged was lost.
    False,
    /// It cannot be told.
    #[default]
    Unknown,
}
