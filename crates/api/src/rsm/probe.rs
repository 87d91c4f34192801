//! How roles are found out, and what is run when membership changes (rsm.md 1.2).

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How roles are found out.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleProbe {
    /// Name of an engine that the probe knows, for example `postgresql`, `redis`, `etcd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin_handler_name: Option<String>,
    /// Commands run in order; the output of the last is the role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub custom_handler: Vec<Action>,
    /// Seconds before the first probe.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub initial_delay_seconds: i32,
    /// Seconds that a probe may take.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: i32,
    /// Seconds between probes.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub period_seconds: i32,
    /// Successes after which a failed probe counts as good.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub success_threshold: i32,
    /// Failures after which a good probe counts as failed.
    #[serde(default = "three")]
    #[schemars(range(min = 1))]
    pub failure_threshold: i32,
    /// How a role reaches the API.
    #[serde(default)]
    pub role_update_mechanism: RoleUpdateMechanism,
}

impl Default for RoleProbe {
    fn default() -> RoleProbe {
        RoleProbe {
            builtin_handler_name: None,
            custom_handler: Vec::new(),
            initial_delay_seconds: 0,
            timeout_seconds: one(),
            period_seconds: two(),
            success_threshold: one(),
            failure_threshold: three(),
            role_update_mechanism: RoleUpdateMechanism::default(),
        }
    }
}

/// See [`RoleProbe::role_update_mechanism`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RoleUpdateMechanism {
    /// Through the Event that the kubelet makes of a failed readiness probe.
    #[default]
    ReadinessProbeEventUpdate,
    /// Through an Event that the probe makes itself.
    #[serde(rename = "DirectAPIServerEventUpdate")]
    DirectApiServerEventUpdate,
}

/// What is run when members join, leave or hand over.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MembershipReconfiguration {
    /// Before the leader goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switchover_action: Option<Action>,
    /// After a member came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_join_action: Option<Action>,
    /// Before a member goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_leave_action: Option<Action>,
    /// After a member joined, until it has the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_sync_action: Option<Action>,
    /// After a member has the log, to let it vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_action: Option<Action>,
}

/// A command, and the image to run it in.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Image. Absent: that of the closest earlier action that has one (rsm.md 1.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Command and its arguments.
    pub command: Vec<String>,
}

/// Account that probes and actions use on the database.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// Its name.
    pub username: CredentialVar,
    /// Its password.
    pub password: CredentialVar,
}

/// A value, or where to find it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("!(has(self.value) && has(self.valueFrom))").message("set value or valueFrom, not both")
)]
#[serde(rename_all = "camelCase")]
pub struct CredentialVar {
    /// The value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where to find it (Kubernetes EnvVarSource).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub value_from: Option<Value>,
}

fn one() -> i32 {
    1
}

fn two() -> i32 {
    2
}

fn three() -> i32 {
    3
}
