//! `ReplicatedStateMachine`: a StatefulSet whose members have roles (the first seed; rsm.md 1).

mod membership;
mod probe;
mod role;
mod status;
mod update;

pub use membership::{ActionKind, ActionVia, MemberAction, MembershipReconfiguration};
pub use probe::{Action, BUILTIN_HANDLERS, Credential, CredentialVar, RoleProbe, RoleUpdateMechanism};
pub use role::{AccessMode, ReplicaRole, RoleService, ServedMode};
pub use status::{MemberOperation, MemberStatus, OperationCause, OperationPhase, ReplicatedStateMachineStatus};
pub use update::{
    ClaimRetention, ClaimRetentionPolicy, MemberUpdateStrategy, PodManagementPolicy, UpdateStrategy, UpdateStrategyType,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
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
    validation = Rule::new("self.spec.memberLayout != 'Instances' || self.metadata.name.size() <= 45")
        .message("metadata.name becomes part of the names of the members' StatefulSets: use at most 45 characters with memberLayout: Instances"),
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
    validation = Rule::new("!has(self.roles) || self.roles.all(r, r.name != '')")
        .message("spec.roles: every role needs a name"),
    validation = Rule::new("!has(self.roles) || self.roles.all(a, self.roles.exists_one(b, b.name.lowerAscii() == a.name.lowerAscii()))")
        .message("spec.roles: names must differ by more than the case of their letters, since roles are compared without regard to it"),
    validation = Rule::new("!has(self.roles) || self.roles.filter(r, r.isLeader && has(r.isExclusive) && r.isExclusive).size() <= 1")
        .message("spec.roles: at most one role can be both isLeader and isExclusive, since there is one leader"),
    validation = Rule::new("!has(self.service) || (has(self.service.spec) && has(self.service.spec.ports) && self.service.spec.ports.size() > 0)")
        .message("servicePort must provide: spec.service needs at least one port"),
    validation = Rule::new("!has(self.service) || !has(self.roles) || !self.roles.exists(r, r.isLeader) || self.roles.exists(r, r.isLeader && r.accessMode != 'None')")
        .message("spec.service leads to the leader, and no client may use a role with accessMode: None: leave spec.service out or give the leader another accessMode"),
    validation = Rule::new("!has(self.roleServices) || has(self.service) || self.roleServices.all(s, has(s.service) && has(s.service.spec) && has(s.service.spec.ports) && s.service.spec.ports.size() > 0)")
        .message("spec.roleServices need ports: give each a service with ports, or set spec.service, whose ports they take"),
    validation = Rule::new("!has(self.roleServices) || self.roleServices.all(s, !has(s.role) || (has(self.roles) && self.roles.exists(r, r.accessMode != 'None' && r.name.lowerAscii() == s.role.lowerAscii())))")
        .message("spec.roleServices: role must be one of spec.roles whose accessMode is not None"),
    validation = Rule::new("has(self.selector.matchLabels) && self.selector.matchLabels.size() > 0")
        .message("spec.selector.matchLabels needs at least one label: without any it would select every pod of the namespace"),
    validation = Rule::new("!has(self.selector.matchLabels) || self.selector.matchLabels.all(k, has(self.template.metadata) && has(self.template.metadata.labels) && k in self.template.metadata.labels && self.template.metadata.labels[k] == self.selector.matchLabels[k])")
        .message("spec.template.metadata.labels must have every label of spec.selector.matchLabels with the same value"),
    validation = Rule::new("!has(self.updateStrategy) || !has(self.updateStrategy.maxUnavailable) || has(self.memberUpdateStrategy)")
        .message("spec.updateStrategy.maxUnavailable bounds updates by role: set spec.memberUpdateStrategy too"),
    validation = Rule::new("!has(self.instances) || self.memberLayout == 'Instances'")
        .message("spec.instances needs spec.memberLayout: Instances"),
    validation = Rule::new("!has(self.offlineInstances) || self.offlineInstances.size() == 0 || (self.memberLayout == 'Instances' && !has(self.instances))")
        .message("spec.offlineInstances needs spec.memberLayout: Instances, and no spec.instances: one StatefulSet cannot leave out a member, and who gives the numbers leaves out a number"),
    validation = Rule::new("self.memberLayout == oldSelf.memberLayout")
        .message("spec.memberLayout cannot be changed: create another set and move the data")
)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedStateMachineSpec {
    /// Members wanted.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,

    /// Labels that tell the members' pods. Only `matchLabels` feed Service selectors, and the template must have them.
    #[schemars(schema_with = "crate::schema::pod_selector")]
    pub selector: LabelSelector,

    /// Accepted for manifests of the origin and ignored, as there: the governing Service is `<name>-headless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,

    /// The Service to the leader (Kubernetes Service): its labels and its spec are read, save for the selector. Without
    /// roles it leads to every member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::service")]
    pub service: Option<Value>,

    /// More Services, emitted as they are given; whom they select is up to their author. They come with `service` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::objects")]
    pub alternative_services: Vec<Value>,

    /// Services by role or access mode, which select by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub role_services: Vec<RoleService>,

    /// The pods (Kubernetes PodTemplateSpec).
    #[schemars(schema_with = "crate::schema::pod_template")]
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

    /// What becomes of the members' claims when the set is deleted or gets smaller. Absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<ClaimRetentionPolicy>,

    /// Nothing is written for this set while this is set, save a condition that says so; its deletion waits too.
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

    /// `Instances` only: members to take out of service, by the names of their StatefulSets (`orders-2`). Their pods go,
    /// their volumes stay, and `replicas` others run. A member that is taken off this list comes back, data and all,
    /// before a new one is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63), regex(pattern = r"^[a-z][-a-z0-9]*-[1-9][0-9]{0,8}$")), extend("x-kubernetes-list-type" = "set"))]
    pub offline_instances: Vec<String>,
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

/// See [`ReplicatedStateMachineSpec::member_layout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberLayout {
    /// One StatefulSet for all members.
    #[default]
    StatefulSet,
    /// One StatefulSet for each member.
    Instances,
}

fn default_replicas() -> i32 {
    1
}
