//! What the RSM controller reports (rsm.md 1.3).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ActionKind, ReplicaRole};

/// Status of a ReplicatedStateMachine: that of its StatefulSets together, and its members by role.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedStateMachineStatus {
    /// Generation of the spec that was rendered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Pods of the current revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Pods of the newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Pods that have been ready for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// Revision before the newest. `StatefulSet` layout only: with `Instances` each member has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// Newest revision. `StatefulSet` layout only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// Collisions of revision names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Facts, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Members asked for when the set was first seen. Never changed afterwards.
    #[serde(default)]
    pub init_replicas: i32,
    /// Members that had a role during the first start; frozen once it reaches `initReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_init_replicas: Option<i32>,
    /// Generation of this set that the live StatefulSets were rendered from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_generation: Option<i64>,
    /// One entry per ready member that has a role, the leader first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members_status: Vec<MemberStatus>,

    /// `Instances` layout: the numbers of the members that this set decided on, when the owner gives none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<i32>,
    /// `Instances` layout: the greatest number ever given. Written before the StatefulSet is created, never lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_created_instance_index: Option<i32>,
    /// Numbers of members that are out of service with their volumes kept: `spec.offlineInstances`, and those that once
    /// were and have not come back. Such a number is used again before a new one is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offline_instances: Vec<i32>,
    /// The action that is being carried out on a member; nothing else about membership begins meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_operation: Option<MemberOperation>,
    /// With `membershipReconfiguration`: numbers of the members that are in the cluster, from the end of their way out to
    /// the end of their way in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined_members: Vec<i32>,
    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// A member and its role.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of its pod.
    #[serde(default = "unknown")]
    pub pod_name: String,
    /// Its role as the spec declares it.
    pub role: ReplicaRole,
    /// Whether it serves although nobody leads: its pod has the label `coregent.io/ready-without-primary: "true"`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ready_without_primary: bool,
}

/// An action on a member, written before it is begun.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberOperation {
    /// Which action.
    pub action: ActionKind,
    /// Name of the pod of the member that it is about.
    pub member: String,
    /// Name of the pod that takes over, for a switchover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why it was begun.
    pub cause: OperationCause,
    /// Names this very start, so that an old answer or an old request of a person cannot be taken for a new one.
    pub id: String,
    /// 1 for the first try.
    pub attempt: i32,
    /// When this attempt was begun, RFC 3339.
    #[schemars(schema_with = "crate::schema::time")]
    pub started_at: String,
    /// When this attempt counts as failed, RFC 3339.
    #[schemars(schema_with = "crate::schema::time")]
    pub deadline: String,
    /// How it stands.
    #[serde(default)]
    pub phase: OperationPhase,
    /// What a person should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why an action on a member was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationCause {
    /// The set gets larger or smaller.
    Scale,
    /// The member is brought to a new revision.
    Update,
}

/// How an action on a member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationPhase {
    /// It runs.
    #[default]
    Running,
    /// It failed and is tried again after `deadline`.
    BackingOff,
    /// It failed for good: a person skips or retries it.
    Failed,
    /// It succeeded; its effect is waited for.
    Succeeded,
    /// A person skipped it.
    Skipped,
}

fn unknown() -> String {
    "Unknown".to_owned()
}
