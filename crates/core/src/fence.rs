//! What the primary Lease of a cluster records beside Kubernetes' own fields (failover.md F1).
//!
//! The Lease `<cluster>-primary` is the only linearization point: `spec.leaseTransitions` is the [`Epoch`],
//! `spec.holderIdentity` the [`HolderIdentity`](crate::names::HolderIdentity) and the annotation
//! [`ANNOTATION`] a [`Fence`]. Only the controller changes epoch, target and proof; only the member that is
//! target makes itself holder and writes attempts, wins, its sync set and, when it stops, its release. Every
//! write is conditional on the resourceVersion it was decided on.

use crate::lsn::{Lsn, Timeline};
use crate::names::{Epoch, MemberName};
use crate::position::Promotion;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Key of the annotation on the primary Lease that holds the [`Fence`] as JSON.
pub const ANNOTATION: &str = "coregent.io/fence";

/// The only format of [`Fence`] that this program understands. Under another one nobody is promoted (F1).
pub const VERSION: u32 = 1;

/// The record beside the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    /// Format of this record: [`VERSION`].
    pub version: u32,
    /// Who may take the Lease in this epoch; empty from the raise until the controller names (F1, F6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// A planned hand-over: the holder stops cleanly and the member named here waits for all of its WAL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// A hand-over that is about to be raised: the holder writes its dirty pages out while it still accepts writes, since
    /// its shutdown, during which nobody does, writes the rest (postgres-recipes.md 9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing: Option<Preparation>,
    /// The sync sets that the next choice must satisfy: the last complete epoch's and every later one's (F7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sync_sets: Vec<SyncSet>,
    /// Every promotion attempted since the cluster began, oldest first; a win has its fork (F9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Attempt>,
    /// The end of WAL that the last recorded winner left when it stopped (F10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// PostgreSQL's system identifier of this cluster's data (F14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    /// Every member of the cluster. The controller adds a name before it creates the member and takes it out once
    /// it is in no sync set; the holder admits only these, by a replication slot per member and epoch (F6).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub members: BTreeSet<MemberName>,
    /// An older copy of the API's store was put back, and this record with it: nobody takes the Lease before the
    /// controller has raised it above what the members know (F14). Set by whoever opened the store, cleared by the raise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
    /// The chain of the member that took the Lease last, its attempt in that epoch included. A follower copies it
    /// before it streams, and follows only if its own chain is a prefix of it (F9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Promotion>,
}

/// The one member that may take the Lease in this epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The member.
    pub member: MemberName,
    /// `host:port` at which the others will stream from it; they follow at the grant (F6).
    pub address: String,
    /// Why it need not wait for the Lease to run out (F1).
    pub proof: Proof,
    /// The initial sync set of the epoch: the members that left for it, less the target (F7). Empty in async mode
    /// and for a single member.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub initial_sync: BTreeSet<MemberName>,
    /// WAL that it must have replayed before it promotes, where the release says so (F10).
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "mustReachLSN")]
    pub must_reach_lsn: Option<Lsn>,
    /// Where it gets the log that only the stopped old primary has (F10). Without `must_reach_lsn` it is tried once
    /// and nothing acknowledged depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_of_log: Option<RestOfLog>,
}

/// The end of the stopped old primary's log, and the agent that reads it out (F10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestOfLog {
    /// The old primary.
    pub member: MemberName,
    /// `host:port` of its agent.
    pub agent: String,
    /// The timeline that its log ends on; the target's data is on it as well.
    pub timeline: Timeline,
    /// Where its valid log ends.
    #[serde(rename = "endLSN")]
    pub end_lsn: Lsn,
}

/// By what the target may take a Lease that has not run out (F1, F4, F7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// Nobody has ever held it.
    Bootstrap,
    /// The holder itself cleared `holderIdentity` (F4 b).
    Released,
    /// The node reported the holder's container of this id terminated, in a status written after the raise (F4 a).
    Terminated {
        /// The containerID.
        container_id: String,
    },
    /// Enough members of every counting sync set have left: the old primary can acknowledge nothing (F7).
    QuorumFence,
    /// The Lease was watched without a change for its whole duration (F2).
    Expired,
    /// A person says that the machine is off (F4 c).
    PoweredOff,
}

/// A planned hand-over of the epoch in which it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// The holder that is to stop.
    pub from: MemberName,
    /// Who waits for all of its WAL before it leaves.
    pub to: MemberName,
}

/// A planned hand-over that has not been raised yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preparation {
    /// The operation that it is part of: each prepares anew.
    pub id: String,
    /// The holder that is to stop.
    pub from: MemberName,
    /// Who takes over.
    pub to: MemberName,
}

/// A sync set as recorded: `ANY k (members)` in one epoch (F7, F8). It is never stronger than what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncSet {
    /// The epoch whose primary commits under it.
    pub epoch: Epoch,
    /// How many of the members must have flushed a commit before it is acknowledged.
    pub k: u32,
    /// The members.
    pub members: BTreeSet<MemberName>,
    /// Who is primary of that epoch: once stopped, its report alone satisfies this set (F7). Filled in by the member
    /// that records the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<MemberName>,
    /// A marker commit of this epoch was acknowledged under it (F7 «complete»).
    #[serde(default)]
    pub complete: bool,
    /// Commits no longer wait: from here on failover is by Lease alone (F8).
    #[serde(default)]
    pub degraded: bool,
}

/// One allotted timeline (F9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Who, when and which timeline; `forkLSN` is present once it is won.
    #[serde(flatten)]
    pub promotion: Promotion,
    /// Recorded as won: recovery ended on exactly this timeline.
    #[serde(default)]
    pub won: bool,
}

/// What a recorded winner wrote when it stopped (F10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Who stopped.
    pub member: MemberName,
    /// The epoch in which it was holder.
    pub epoch: Epoch,
    /// The timeline that its log ends on.
    pub timeline: Timeline,
    /// The end of valid local WAL, read when every process of the engine was gone.
    #[serde(rename = "endLSN")]
    pub end_lsn: Lsn,
}

/// A record that cannot be acted on; nobody is promoted under it.
#[derive(Debug, thiserror::Error)]
pub enum InvalidFence {
    /// The text is not the JSON of a [`Fence`].
    #[error("the annotation coregent.io/fence is not readable: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// It was written by a newer program.
    #[error("the annotation coregent.io/fence has format {0}, this program knows format {VERSION}: upgrade it")]
    UnknownVersion(u32),
}

impl Default for Fence {
    fn default() -> Self {
        Fence {
            version: VERSION,
            target: None,
            handover: None,
            preparing: None,
            sync_sets: Vec::new(),
            history: Vec::new(),
            release: None,
            system_id: None,
            members: BTreeSet::new(),
            restored: false,
            chain: Vec::new(),
        }
    }
}

impl Fence {
    /// Reads the annotation.
    ///
    /// # Errors
    /// When it is not readable or of another format version.
    pub fn parse(text: &str) -> Result<Fence, InvalidFence> {
        #[derive(Deserialize)]
        struct Format {
            version: u32,
        }
        let format: Format = serde_json::from_str(text)?;
        if format.version != VERSION {
            return Err(InvalidFence::UnknownVersion(format.version));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The annotation's text.
    pub fn to_annotation(&self) -> String {
        // A struct of strings, numbers and lists cannot fail to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The timeline that the next attempt must use as far as this record knows: the greatest ever attempted plus one
    /// (F9). The first is 2, since initdb makes timeline 1. None is left after the last there can be.
    pub fn next_timeline(&self) -> Option<Timeline> {
        let used = self.history.iter().map(|attempt| attempt.promotion.timeline.0).max().unwrap_or(1).max(1);
        used.checked_add(1).map(Timeline)
    }

    /// The newest recorded win.
    pub fn last_win(&self) -> Option<&Promotion> {
        self.history.iter().rev().find(|attempt| attempt.won).map(|attempt| &attempt.promotion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_unknown_version_is_refused_even_if_its_fields_look_familiar() {
        let newer = Fence { version: 2, ..Fence::default() }.to_annotation();
        assert!(matches!(Fence::parse(&newer), Err(InvalidFence::UnknownVersion(2))));
        assert!(matches!(Fence::parse("{"), Err(InvalidFence::Unreadable(_))));
    }

    #[test]
    fn an_attempt_that_was_not_won_still_uses_up_its_timeline() {
        let attempt = |timeline: u32, won: bool| Attempt {
            promotion: Promotion {
                epoch: Epoch(2),
                member: "orders-2".into(),
                timeline: Timeline(timeline),
                fork_lsn: won.then_some(Lsn(100)),
            },
            won,
        };
        let fence = Fence { history: vec![attempt(2, true), attempt(3, false)], ..Fence::default() };
        assert_eq!(fence.next_timeline(), Some(Timeline(4)));
        assert_eq!(fence.last_win().map(|win| win.timeline), Some(Timeline(2)));
        assert_eq!(Fence::default().next_timeline(), Some(Timeline(2)));
    }

    #[test]
    fn the_record_reads_back_what_it_prints() -> Result<(), InvalidFence> {
        let fence = Fence {
            target: Some(Target {
                member: "orders-2".into(),
                address: "127.64.0.3:5432".into(),
                proof: Proof::Terminated { container_id: "coregent://1".into() },
                initial_sync: BTreeSet::from(["orders-3".into()]),
                must_reach_lsn: Some(Lsn(77)),
                rest_of_log: Some(RestOfLog {
                    member: "orders-1".into(),
                    agent: "127.64.0.2:8008".into(),
                    timeline: Timeline(1),
                    end_lsn: Lsn(77),
                }),
            }),
            release: Some(Release {
                member: "orders-1".into(),
                epoch: Epoch(1),
                timeline: Timeline(1),
                end_lsn: Lsn(77),
            }),
            ..Fence::default()
        };
        assert_eq!(Fence::parse(&fence.to_annotation())?, fence);
        Ok(())
    }
}
