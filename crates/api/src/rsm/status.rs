//! What the RSM controller reports (rsm.md 1.3).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::ReplicaRole;

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
}

fn unknown() -> String {
    "Unknown".to_owned()
}
