//! `ReplicatedStateMachine`: a StatefulSet whose members have roles (the first seed; rsm.md 1).

mod probe;
mod status;

pub use probe::{Action, Credential, CredentialVar, MembershipReconfiguration, RoleProbe, RoleUpdateMechanism};
pub use status::{MemberStatus, ReplicatedStateMachineStatus};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a person asks of a role-aware set of members.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coregent.io",
    version = "v1alpha1",
    kind = "ReplicatedStateMachine",
    plural = "replicatedstatemachines",
    shortname = "rsm",
    category = "coregent",
    namespaced,
    doc = "A StatefulSet whose members have roles: one leads, others follow.",
    status = "ReplicatedStateMachineStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 49")
        .message("metadata.name becomes part of Service names: use at most 49 lower-case letters, digits and '-', beginning with a letter"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Leader",
        type_ = "string",
        json_path = ".status.membersStatus[?(@.role.isLeader==true)].podName"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.readyReplicas"),
    printcolumn(name = "Replicas", type_ = "string", json_path = ".status.replicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("!has(self.roles) || self.roles.size() == 0 || self.roles.exists(r, r.isLeader && r.name != '')")
        .message("leader is required: one of spec.roles must have isLeader: true and a name"),
    validation = Rule::new("!has(self.service) || (has(self.service.spec) && has(self.service.spec.ports) && self.service.spec.ports.size() > 0)")
        .message("servicePort must provide: spec.service needs at least one port"),
    validation = Rule::new("!has(self.instances) || self.memberLayout == 'Instances'")
        .message("spec.instances needs spec.memberLayout: Instances"),
    validation = Rule::new("self.memberLayout == oldSelf.memberLayout")
        .message("spec.memberLayout cannot be changed: create another set and move the data")
)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedStateMachineSpec {
    /// Members wanted.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,

    /// Labels that tell the members' pods. Only `matchLabels` feed Service selectors.
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub selector: LabelSelector,

    /// Accepted for manifests of the origin and ignored, as there: the governing Service is `<name>-headless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,

    /// The Service to the leader (Kubernetes Service): its labels, ports and type are read. Nothing else of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "service")]
    pub service: Option<Value>,

    /// More Services, emitted as they are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::objects")]
    pub alternative_services: Vec<Value>,

    /// The pods (Kubernetes PodTemplateSpec).
    #[schemars(schema_with = "crate::schema::object")]
    pub template: Value,

    /// Claims that each member gets (Kubernetes PersistentVolumeClaim). Used when a StatefulSet is created only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::objects")]
    pub volume_claim_templates: Vec<Value>,

    /// Order in which members come up. Used when a StatefulSet is created only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_management_policy: Option<PodManagementPolicy>,

    /// How the StatefulSet replaces pods of an old revision by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,

    /// The roles that a member can have. Names are compared without regard to case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub roles: Vec<ReplicaRole>,

    /// How roles are found out. Without it, nothing here writes role labels, and the status reads those that another
    /// controller wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_probe: Option<RoleProbe>,

    /// What is run when members join, leave or hand over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership_reconfiguration: Option<MembershipReconfiguration>,

    /// Order in which members are brought to a new revision, by role. Absent: the StatefulSet's own update strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_update_strategy: Option<MemberUpdateStrategy>,

    /// Nothing is written for this set while this is set; its deletion waits too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,

    /// Account that probes and actions use on the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,

    /// `StatefulSet`: one StatefulSet, ordinals 0 to n-1. `Instances`: one single-replica StatefulSet a member, numbers
    /// never used again, so that one broken member can be replaced while its volume is kept.
    #[serde(default)]
    pub member_layout: MemberLayout,

    /// `Instances` only: the numbers of the members, decided by the owner. Where it is given, `replicas` is not looked
    /// at. Absent: the set numbers its members itself, from `status.lastCreatedInstanceIndex`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub instances: Option<Vec<i32>>,
}

impl ReplicatedStateMachineSpec {
    /// Members wanted: `instances` where the owner gives them, else `replicas`.
    #[must_use]
    pub fn desired_replicas(&self) -> i32 {
        match (&self.instances, self.member_layout) {
            (Some(instances), MemberLayout::Instances) => i32::try_from(instances.len()).unwrap_or(i32::MAX),
            _ => self.replicas,
        }
    }
}

/// A role that a member can have.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRole {
    /// Its name.
    #[serde(default = "default_role_name")]
    #[schemars(length(max = 63))]
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
}

impl Default for ReplicaRole {
    fn default() -> ReplicaRole {
        ReplicaRole { name: default_role_name(), access_mode: AccessMode::default(), can_vote: true, is_leader: false }
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

/// See [`ReplicatedStateMachineSpec::member_layout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberLayout {
    /// One StatefulSet for all members.
    #[default]
    StatefulSet,
    /// One StatefulSet for each member.
    Instances,
}

/// See [`ReplicatedStateMachineSpec::pod_management_policy`].
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

/// See [`ReplicatedStateMachineSpec::member_update_strategy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberUpdateStrategy {
    /// One member after another, the leader last.
    Serial,
    /// Batches that keep a majority of the voters, the leader last.
    BestEffortParallel,
    /// All at once.
    Parallel,
}

/// How the StatefulSet replaces pods of an old revision by itself (Kubernetes StatefulSetUpdateStrategy).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<UpdateStrategyType>,
    /// Parameters of `RollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub rolling_update: Option<Value>,
}

/// See [`UpdateStrategy::type_`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Pods are replaced by the StatefulSet controller.
    RollingUpdate,
    /// Pods are replaced when somebody deletes them.
    OnDelete,
}

fn default_replicas() -> i32 {
    1
}

fn default_role_name() -> String {
    "leader".to_owned()
}

fn yes() -> bool {
    true
}

/// A core Service, of which the rule on ports must see `spec.ports`.
fn service(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "ports": {
                        "type": "array",
                        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                },
            },
        },
    })
}
