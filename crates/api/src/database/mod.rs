//! `DatabaseCluster`: one database of several members, one of them the primary.
//!
//! Field names follow Kubegres where it has the field (kubegres.md 1.1), so that converting is renaming.

mod engine;
mod settings;
mod status;

pub use engine::{Engine, Mysql, Postgresql, SUPPORTED_POSTGRESQL};
pub use settings::{
    Failover, LocalObjectReference, Probe, Replication, ReplicationMode, Scheduler, Storage, Volume, WhenTooFew,
};
pub use status::{DataLoss, DatabaseClusterStatus, LastFailover, Lossless, Member, Phase, PrimaryStatus};

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Port that clients reach the database on unless the spec says otherwise (kubegres.md 1.1).
pub const DEFAULT_PORT: i32 = 5432;
/// Port of the agent in the pod: no port of a database.
pub const AGENT_PORT: i32 = 8008;

/// What a person asks of a database cluster. Everything but `engine` and `storage` has a default.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coregent.io",
    version = "v1alpha1",
    kind = "DatabaseCluster",
    plural = "databaseclusters",
    shortname = "dbc",
    category = "coregent",
    namespaced,
    doc = "A database of several members, one of them the primary, that survives the loss of any of them.",
    status = "DatabaseClusterStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 40")
        .message("metadata.name becomes part of Service names: use at most 40 lower-case letters, digits and '-', beginning with a letter"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Primary", type_ = "string", json_path = ".status.primary.current"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready", description = "Members ready / wanted"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.primary.epoch", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self.port != 8008")
        .message("spec.port 8008 is the agent's own port in each pod: choose another, for example 5432"),
    validation = Rule::new("self.replication.mode != 'Quorum' || self.replication.k <= 1")
        .message("spec.replication.k greater than 1 is not served by this version: a write waits for one member beside the primary")
)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseClusterSpec {
    /// Members, the primary included.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 99))]
    pub replicas: i32,

    /// The database program. Exactly one block.
    pub engine: Engine,

    /// Where each member keeps its data.
    pub storage: Storage,

    /// How many members must have a write before it is acknowledged.
    #[serde(default)]
    pub replication: Replication,

    /// What happens when the primary is lost.
    #[serde(default)]
    pub failover: Failover,

    /// Name of a ConfigMap in the same namespace whose `postgresql.conf` and `pg_hba.conf` are added to the base
    /// configuration. Waits for it, and says so, while it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_config: Option<String>,

    /// Settings of the engine by name, for example `{work_mem: 16MB}`. They win over `customConfig`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::settings")]
    pub config: BTreeMap<String, IntOrString>,

    /// Port of the database in its containers and Services.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: i32,

    /// Image of the database container. Defaults to `postgres:<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// Secrets of the same namespace to pull images with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// ServiceAccount of the pods. When it is absent one is made that may touch only what a member needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// Secret with `username` and `password` of the superuser. Generated as `<name>-superuser` when it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superuser_secret: Option<String>,

    /// Secret with `username` and `password` of the replication user. Generated as `<name>-replication` when it is
    /// not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_secret: Option<String>,

    /// Environment variables of the database container (Kubernetes EnvVar).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::named_objects")]
    pub env: Vec<Value>,

    /// Where pods may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,

    /// Requests and limits of the database container (Kubernetes ResourceRequirements).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub resources: Option<Value>,

    /// Probes that replace the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,

    /// Security context of the pods (Kubernetes PodSecurityContext).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub security_context: Option<Value>,

    /// Security context of the containers (Kubernetes SecurityContext).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object")]
    pub container_security_context: Option<Value>,

    /// Volumes beside the data volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,

    /// Nothing is written for this cluster while this is set: no failover, no repair. The members go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl DatabaseClusterSpec {
    /// A spec with nothing but defaults.
    #[must_use]
    pub fn new(engine: Engine, storage: Storage) -> DatabaseClusterSpec {
        DatabaseClusterSpec {
            replicas: default_replicas(),
            engine,
            storage,
            replication: Replication::default(),
            failover: Failover::default(),
            custom_config: None,
            config: BTreeMap::new(),
            port: DEFAULT_PORT,
            image: None,
            image_pull_secrets: Vec::new(),
            service_account_name: None,
            superuser_secret: None,
            replication_secret: None,
            env: Vec::new(),
            scheduler: None,
            resources: None,
            probe: None,
            security_context: None,
            container_security_context: None,
            volume: None,
            paused: false,
        }
    }

    /// Acknowledgements that a write waits for: `k`, but never more than there are other members, so that a cluster of
    /// one accepts writes; 0 in async mode. Only the default of 1 is ever lowered: the schema refuses any other `k` that
    /// is too great.
    #[must_use]
    pub fn effective_k(&self) -> i32 {
        self.k_among(self.replicas)
    }

    /// [`DatabaseClusterSpec::effective_k`] in a cluster that has `members`: more than `replicas` where that was lowered.
    #[must_use]
    pub fn k_among(&self, members: i32) -> i32 {
        match self.replication.mode {
            ReplicationMode::Async => 0,
            ReplicationMode::Quorum => self.replication.k.min(members - 1).max(0),
        }
    }

    /// Image of the database container.
    #[must_use]
    pub fn database_image(&self) -> String {
        match (&self.image, &self.engine.postgresql) {
            (Some(image), _) => image.clone(),
            (None, Some(postgresql)) => format!("postgres:{}", postgresql.version),
            (None, None) => "postgres".to_owned(),
        }
    }
}

fn default_replicas() -> i32 {
    3
}

fn default_port() -> i32 {
    DEFAULT_PORT
}
