//! The roles that a member can have, and the Services that lead to members by role (rsm.md 1.2, 3.5).

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A role that a member can have.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRole {
    /// Its name. It becomes the value of a label.
    #[serde(default = "default_role_name")]
    #[schemars(length(max = 63), regex(pattern = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"))]
    pub name: String,
    /// What clients may do with a member of this role.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// Whether a member of this role counts in a majority.
    #[serde(default = "yes")]
    pub can_vote: bool,
    /// Whether a member of this role leads.
    #[serde(default)]
    pub is_leader: bool,
    /// Whether at most one member can have this role: the newest claim to it takes the label from whoever had it. The
    /// label is never a fence, however exclusive: the engine itself must see to it that only one member writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exclusive: bool,
}

impl Default for ReplicaRole {
    fn default() -> ReplicaRole {
        ReplicaRole {
            name: default_role_name(),
            access_mode: AccessMode::default(),
            can_vote: true,
            is_leader: false,
            is_exclusive: false,
        }
    }
}

/// What clients may do with a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// Nothing.
    None,
    /// Read.
    Readonly,
    /// Read and write.
    #[default]
    ReadWrite,
}

impl AccessMode {
    /// As the API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AccessMode::None => "None",
            AccessMode::Readonly => "Readonly",
            AccessMode::ReadWrite => "ReadWrite",
        }
    }
}

/// A Service to the members of one role, or of every role with one access mode. A role with the access mode `None` is in
/// no such Service.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("has(self.role) != has(self.accessMode)")
        .message("a role Service needs exactly one of role and accessMode")
)]
#[serde(rename_all = "camelCase")]
pub struct RoleService {
    /// Name of the Service. Absent: `<name of the set>-<role>`, or `<name of the set>-rw` and `-ro` by access mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Name of a role of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub role: Option<String>,
    /// Members of every role with this access mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<ServedMode>,
    /// What else the Service has (Kubernetes Service): labels, annotations, ports, type. Absent: the ports of
    /// `spec.service`. Its selector is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::service")]
    pub service: Option<Value>,
}

/// An access mode that can have a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServedMode {
    /// Members that take writes.
    ReadWrite,
    /// Members that serve reads only.
    Readonly,
}

impl ServedMode {
    /// As the API, and the label of a member, spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ServedMode::ReadWrite => "ReadWrite",
            ServedMode::Readonly => "Readonly",
        }
    }
}

fn default_role_name() -> String {
    "leader".to_owned()
}

fn yes() -> bool {
    true
}
