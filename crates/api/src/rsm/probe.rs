//! How roles are found out, and the account that is used for it (rsm.md 1.2, 3.8).

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Engines that the probe knows.
pub const BUILTIN_HANDLERS: [&str; 6] = ["postgresql", "mysql", "mariadb", "redis", "etcd", "mongodb"];

/// How roles are found out. With neither a builtin nor a custom handler no probe is added to the pods: roles are taken
/// from the Events of a probe that the template has.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("!(has(self.builtinHandlerName) && has(self.customHandler) && self.customHandler.size() > 0)")
        .message("set builtinHandlerName or customHandler, not both"),
    validation = Rule::new("!has(self.builtinHandlerName) || self.builtinHandlerName in ['postgresql', 'mysql', 'mariadb', 'redis', 'etcd', 'mongodb']")
        .message("builtinHandlerName must be one of postgresql, mysql, mariadb, redis, etcd, mongodb; for any other engine use customHandler")
)]
#[serde(rename_all = "camelCase")]
pub struct RoleProbe {
    /// Name of an engine that the probe knows, for example `postgresql`, `redis`, `etcd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub builtin_handler_name: Option<String>,
    /// Commands run in order; each sees the output of the one before it as `KB_RSM_LAST_STDOUT`, and the output of the
    /// last is the role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
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
    /// Seconds after which a role that did not change is reported again, in case a report was lost. Absent: a role is
    /// reported when it changes and when the probe starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub report_period_seconds: Option<i32>,
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
            report_period_seconds: None,
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

/// A command of a custom handler, and the image to run it in.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// Image. Absent: the default one of the probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Command.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
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
