//! Blocking operations: a step that has been started, excludes others, takes time and survives a crash of the
//! controller (kubegres.md 4).

mod machine;

pub use machine::{Excluded, Operations, Start};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The operation of a cluster; its display text is the origin's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OperationId {
    /// The base configuration.
    BaseConfigCountSpecEnforcement,
    /// The primary: deploying, waiting before failing over, failing over, switching over.
    PrimaryDbCountSpecEnforcement,
    /// The replicas: deploying, undeploying.
    ReplicaDbCountSpecEnforcement,
    /// Bringing a StatefulSet to its spec.
    StatefulSetSpecEnforcing,
}

/// One step of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StepId {
    /// The base configuration is being written.
    BaseConfigDeploying,
    /// The first primary is being created.
    PrimaryDbDeploying,
    /// The primary is gone; waits until it is fenced and an election round has its reports.
    PrimaryDbWaitingBeforeFailingOver,
    /// A replica has been named and is being promoted.
    PrimaryDbFailingOver,
    /// A planned hand-over runs.
    PrimaryDbSwitchingOver,
    /// A replica is being created.
    ReplicaDbDeploying,
    /// A replica is being removed.
    ReplicaDbUndeploying,
    /// Between two steps: nothing else may start.
    Transition,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its condition holds.
    Completed,
    /// Its time ran out.
    TimedOut,
    /// It was given up and what it had done was undone.
    Undone,
    /// A person cleared it.
    Cleared,
    /// It was never started: what was asked for cannot be done; see the message.
    Refused,
    /// Something more urgent took its place: a failover goes before everything (kubegres.md 4.6).
    PreEmpted,
}

/// The operation in a status. Times are RFC 3339 texts, written by whoever starts the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockingOperation {
    /// Which operation.
    pub operation_id: OperationId,
    /// Which step.
    pub step_id: StepId,
    /// Names this very start, so that an old request cannot clear a new operation.
    pub id: String,
    /// When the step was started.
    pub started_at: String,
    /// When its time is out.
    pub deadline: String,
    /// 1 for the first try.
    pub attempt: u32,
    /// The member that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The epoch that it was decided at.
    #[serde(default)]
    pub epoch: u64,
    /// Why it was started, one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a person should know about its end or its delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How it ended; absent while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperationId::BaseConfigCountSpecEnforcement => "Base config count spec enforcement",
            OperationId::PrimaryDbCountSpecEnforcement => "Primary DB count spec enforcement",
            OperationId::ReplicaDbCountSpecEnforcement => "Replica DB count spec enforcement",
            OperationId::StatefulSetSpecEnforcing => "Enforcing StatefulSet's Spec",
        })
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StepId::BaseConfigDeploying => "Base config is deploying",
            StepId::PrimaryDbDeploying => "Primary DB is deploying",
            StepId::PrimaryDbWaitingBeforeFailingOver => "Waiting before failing over: the old primary is being fenced",
            StepId::PrimaryDbFailingOver => "Failing over by promoting a Replica DB as a Primary DB",
            StepId::PrimaryDbSwitchingOver => "Switching over to another Primary DB",
            StepId::ReplicaDbDeploying => "Replica DB is deploying",
            StepId::ReplicaDbUndeploying => "Replica DB is undeploying",
            StepId::Transition => "Transition step: waits for the next step or for the operation to be removed",
        })
    }
}
