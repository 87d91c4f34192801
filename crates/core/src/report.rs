//! What a member publishes about itself: annotation [`ANNOTATION`] on its own Lease `<member>-member` (failover.md F6).
//!
//! A report is written at once on every change of state, the position alone at most every 10 s. It is only ever
//! written by the member's own agent.

use crate::lsn::Lsn;
use crate::names::{Epoch, MemberName};
use crate::position::{Position, Promotion};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Key of the annotation that holds a [`MemberReport`] as JSON.
pub const ANNOTATION: &str = "coregent.io/member";

/// Format of [`MemberReport`].
pub const VERSION: u32 = 1;

/// The report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    /// [`VERSION`].
    pub version: u32,
    /// The member.
    pub member: MemberName,
    /// `metadata.uid` of its pod.
    pub pod_uid: String,
    /// Nonce of this agent process.
    pub nonce: String,
    /// `host:port` of its engine.
    pub address: String,
    /// `host:port` of the agent, where a successor fetches the rest of a stopped engine's log (F10).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// The newest epoch that it has made durable in its volume.
    pub epoch: Epoch,
    /// It has *left* for this epoch: nobody streams to it, its position below is final for that round (F6). A
    /// stopped old primary that reports its end of WAL has left too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Epoch>,
    /// What it is doing.
    pub state: MemberState,
    /// How far its data goes; absent while unknown (an empty volume, or not yet read).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The newest attempt in its volume that is not a recorded win there (F9): such a member follows nobody without
    /// a fresh copy, but is a candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded_attempt: Option<Promotion>,
    /// Its folder was given up for that of a primary, by a rewind, and has not been consistent since (F12): it says no
    /// position, and holds nothing that whoever it was rewound to has not had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inconsistent: bool,
    /// PostgreSQL's system identifier of its data folder (F14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    /// The primary only: every standby that streams from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standbys: Vec<Standby>,
    /// The primary only: the newest position of its log that it has flushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed_lsn: Option<Lsn>,
    /// Its server accepts the connections that its role is for: what /readyz answers.
    #[serde(default)]
    pub ready: bool,
    /// What a person should know: a weakened synchronous_commit, too few acknowledgements (F16), one line each.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub warnings: BTreeSet<String>,
    /// What came of the last connection that it tried to its source's agent after its stream had ended. It stands until the
    /// member streams again: whoever judges the old primary in a round still wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceReached>,
    /// The last thing that went wrong, in one line without secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The operation for whose hand-over it has written its dirty pages out, or tried to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<String>,
    /// The last request (`coregent.io/request` id) that it has carried out, with its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_request: Option<HandledRequest>,
}

/// What a member is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// The agent has started; the data folder is not looked at yet.
    Starting,
    /// No data, and no grant to make any: waits for a primary to copy from or for the bootstrap grant (F14).
    WaitingForSource,
    /// initdb runs.
    Initialising,
    /// A base copy runs.
    Copying,
    /// The server starts or recovers.
    Recovering,
    /// pg_rewind runs (F12).
    Rewinding,
    /// A standby that streams.
    Streaming,
    /// A standby without a stream: before the first grant, during a round, or because its source is away.
    Standby,
    /// It is named and fetches the rest of the old primary's log from that one's agent (F10).
    Fetching,
    /// The server has been asked to promote.
    Promoting,
    /// The holder, open for clients.
    Primary,
    /// The engine is being stopped.
    Stopping,
    /// The engine does not run: every process is gone.
    Stopped,
    /// The data cannot be used as it is; see `lastError`.
    Failed,
}

/// How far a member got with its source, having lost the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReached {
    /// The source.
    pub member: MemberName,
    /// What came of it.
    pub reach: Reach,
}

/// What comes of a connection to the agent of another member: it is the first process of its container, and its kernel
/// answers for it while it lives, frozen or not. None of it proves death (F4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// The connection was made.
    Answers,
    /// Its host answers, and nobody listens there: the agent is gone, and every process of its container with it.
    Refuses,
    /// Nothing comes back.
    Silent,
}

/// A standby as its primary sees it (`pg_stat_replication`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standby {
    /// The member (its application_name).
    pub member: MemberName,
    /// It streams and has caught up.
    pub streaming: bool,
    /// It is named in the sync set in force.
    pub sync: bool,
    /// Bytes between the primary's flushed end and what this standby has replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<u64>,
}

/// The outcome of a request that a person or the controller made of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandledRequest {
    /// Its id.
    pub id: String,
    /// Absent when it was carried out, else why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl MemberReport {
    /// Reads the annotation; a report of another format or one that is not readable counts as no report.
    pub fn parse(text: &str) -> Option<MemberReport> {
        serde_json::from_str::<MemberReport>(text).ok().filter(|report| report.version == VERSION)
    }

    /// The annotation's text.
    pub fn to_annotation(&self) -> String {
        // A struct of strings, numbers and lists cannot fail to serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}
