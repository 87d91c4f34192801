//! What the controller is to do next: data, which prints as one line a step.

use super::memory::Memory;
use super::picture::Picture;
use crate::fence::{Fence, Handover, Preparation, Target};
use crate::names::{Epoch, MemberName};
use std::collections::BTreeSet;
use std::fmt;

/// The outcome of deciding once. Whoever acts carries the steps out in order, stops at the first that fails, observes
/// and decides again: nothing depends on a step that is not seen to have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// In this order.
    pub steps: Vec<Step>,
    /// What the status remembers once a [`Step::Remember`] of `steps` is carried out; else what it remembers now.
    pub memory: Memory,
    /// What the status shows to people. A difference in it alone is never urgent.
    pub picture: Picture,
    /// To be published when the steps are done.
    pub events: Vec<Event>,
    /// Look again after so many milliseconds even if nothing is seen to change.
    pub requeue_after: Option<u64>,
    /// What stands in the way, one line each.
    pub diagnostics: Vec<String>,
    /// Facts that hold now and matter once they have held for a while; see [`World::held`](super::World::held).
    pub holding: BTreeSet<String>,
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write the status, with [`Decision::memory`] in it, before anything after it.
    Remember {
        /// What is written ahead, for the fail point and for people.
        what: Remembered,
    },
    /// Write the base configuration, the generated Secrets and the members' account.
    DeployBaseConfig,
    /// Create the bootstrap grant, create-only (F14).
    CreateGrant {
        /// Who may run initdb.
        member: MemberName,
    },
    /// Create the primary Lease.
    CreateLease {
        /// Its first epoch.
        epoch: Epoch,
        /// Its first record.
        fence: Fence,
    },
    /// Raise the epoch, target and proof empty; the holder stays as it is (F1).
    Raise {
        /// Conditional on this resourceVersion.
        version: String,
        /// The new epoch.
        epoch: Epoch,
        /// The record as it is to be.
        fence: Fence,
    },
    /// Name the target of the epoch, once (F1).
    Name {
        /// Conditional on this resourceVersion.
        version: String,
        /// The epoch that it was decided at.
        epoch: Epoch,
        /// The record as it is to be.
        fence: Fence,
    },
    /// Announce a hand-over to the holder, which prepares for it; epoch and target stay as they are.
    Prepare {
        /// Conditional on this resourceVersion.
        version: String,
        /// The epoch that it was decided at.
        epoch: Epoch,
        /// The record as it is to be.
        fence: Fence,
    },
    /// Change who is a member in the record, the epoch and the target staying as they are.
    Enrol {
        /// Conditional on this resourceVersion.
        version: String,
        /// The epoch that it was decided at.
        epoch: Epoch,
        /// The record as it is to be.
        fence: Fence,
    },
    /// Stamp the pod with the epoch, so that a delete decided before fails on its resourceVersion (F4).
    Stamp {
        /// `metadata.name`.
        pod: String,
        /// `metadata.uid`.
        uid: String,
        /// The epoch.
        epoch: Epoch,
    },
    /// Set or take away the labels of role and access mode (F15).
    Label {
        /// `metadata.name`.
        pod: String,
        /// `metadata.uid`.
        uid: String,
        /// The role, or none.
        role: Option<Role>,
    },
    /// Stop a pod whose engine must be dead before another is promoted (F4).
    FencingDelete {
        /// `metadata.name`.
        pod: String,
        /// `metadata.uid`.
        uid: String,
        /// `metadata.resourceVersion`.
        version: String,
        /// The epoch that it was decided at.
        epoch: Epoch,
    },
    /// Let the RSM have these members.
    SetInstances {
        /// Their numbers, ascending.
        instances: Vec<u32>,
    },
}

/// What a status write records ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembered {
    /// An operation begins.
    OperationStarted,
    /// The operation goes on to another step.
    OperationAdvanced,
    /// The operation has ended.
    OperationEnded,
    /// The number of a member is used up.
    IndexUsed,
    /// A request was answered.
    RequestHandled,
    /// A copy of what the Lease says.
    Facts,
}

/// Role of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It accepts writes.
    Primary,
    /// It follows.
    Replica,
}

impl Role {
    /// As the label says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
        }
    }

    /// The access mode that goes with it.
    pub fn access_mode(self) -> &'static str {
        match self {
            Role::Primary => "ReadWrite",
            Role::Replica => "Readonly",
        }
    }
}

/// Something that a person would ask "why" about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `Warning`, else `Normal`.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// One line.
    pub note: String,
}

impl Step {
    /// The name by which tests stop the controller at this step.
    pub fn id(&self) -> &'static str {
        match self {
            Step::Remember { what: Remembered::OperationStarted } => "failover.write-operation",
            Step::Remember { what: Remembered::OperationAdvanced } => "failover.advance-operation",
            Step::Remember { what: Remembered::OperationEnded } => "failover.complete",
            Step::Remember { what: Remembered::IndexUsed } => "failover.write-index",
            Step::Remember { what: Remembered::RequestHandled } => "failover.answer-request",
            Step::Remember { what: Remembered::Facts } => "failover.write-facts",
            Step::DeployBaseConfig => "failover.deploy-base-config",
            Step::CreateGrant { .. } => "failover.create-grant",
            Step::CreateLease { .. } => "failover.create-lease",
            Step::Raise { .. } => "failover.raise",
            Step::Name { .. } => "failover.name",
            Step::Prepare { .. } => "failover.prepare",
            Step::Enrol { .. } => "failover.enrol",
            Step::Stamp { .. } => "failover.stamp",
            Step::Label { role: Some(_), .. } => "failover.label",
            Step::Label { role: None, .. } => "failover.strip-label",
            Step::FencingDelete { .. } => "failover.fencing-delete",
            Step::SetInstances { .. } => "failover.set-instances",
        }
    }

    /// Every id, for tests that enumerate (step × phase).
    pub const IDS: [&'static str; 18] = [
        "failover.deploy-base-config",
        "failover.write-operation",
        "failover.advance-operation",
        "failover.complete",
        "failover.write-index",
        "failover.answer-request",
        "failover.write-facts",
        "failover.create-grant",
        "failover.create-lease",
        "failover.raise",
        "failover.name",
        "failover.prepare",
        "failover.enrol",
        "failover.stamp",
        "failover.label",
        "failover.strip-label",
        "failover.fencing-delete",
        "failover.set-instances",
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Remember { what } => write!(f, "write status: {what:?}"),
            Step::DeployBaseConfig => f.write_str("write the base configuration"),
            Step::CreateGrant { member } => write!(f, "create bootstrap grant for {member}"),
            Step::CreateLease { epoch, .. } => write!(f, "create primary Lease at epoch {epoch}"),
            Step::Raise { version, epoch, fence } => {
                write!(f, "raise to epoch {epoch} (if version {version})")?;
                match &fence.handover {
                    Some(Handover { from, to, .. }) => write!(f, ", hand over from {from} to {to}"),
                    None => Ok(()),
                }
            }
            Step::Name { version, epoch, fence } => {
                write!(f, "name in epoch {epoch} (if version {version}): ")?;
                match &fence.target {
                    Some(target) => name_line(f, target),
                    None => f.write_str("nobody"),
                }
            }
            Step::Prepare { version, epoch, fence } => {
                write!(f, "announce in epoch {epoch} (if version {version})")?;
                match &fence.preparing {
                    Some(Preparation { from, to, .. }) => write!(f, " that {from} hands over to {to}"),
                    None => Ok(()),
                }
            }
            Step::Enrol { version, epoch, fence } => {
                let names: Vec<&str> = fence.members.iter().map(MemberName::as_str).collect();
                write!(f, "enrol {} in epoch {epoch} (if version {version})", names.join(","))
            }
            Step::Stamp { pod, epoch, .. } => write!(f, "stamp pod {pod} with epoch {epoch}"),
            Step::Label { pod, role: Some(role), .. } => write!(f, "label pod {pod} as {}", role.as_str()),
            Step::Label { pod, role: None, .. } => write!(f, "strip the role label of pod {pod}"),
            Step::FencingDelete { pod, uid, version, epoch } => {
                write!(f, "delete pod {pod} (if uid {uid} and version {version}) as a fence for epoch {epoch}")
            }
            Step::SetInstances { instances } => write!(f, "let the RSM have members {instances:?}"),
        }
    }
}

fn name_line(f: &mut fmt::Formatter<'_>, target: &Target) -> fmt::Result {
    let sync: Vec<&str> = target.initial_sync.iter().map(MemberName::as_str).collect();
    write!(f, "{} at {}, proof {:?}, initial set {{{}}}", target.member, target.address, target.proof, sync.join(","))?;
    if let Some(lsn) = target.must_reach_lsn {
        write!(f, ", must reach {lsn}")?;
    }
    match &target.rest_of_log {
        Some(rest) => write!(f, ", fetches the log up to {} from {}", rest.end_lsn, rest.member),
        None => Ok(()),
    }
}
