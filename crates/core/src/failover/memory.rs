//! The part of a DatabaseCluster's status that later decisions depend on. It is written ahead of what it allows.

use crate::lsn::Lsn;
use crate::names::{Epoch, MemberName};
use crate::operation::Operations;
use crate::wallclock::Timestamp;

/// What the status remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The blocking operation and the one before.
    pub operations: Operations,
    /// Who accepts writes: a copy of the Lease for people. No agent acts on it (F1).
    pub primary: PrimaryCopy,
    /// The greatest number ever given to a member.
    pub last_created_index: u32,
    /// PostgreSQL's system identifier of this cluster's data (F14).
    pub system_id: Option<String>,
    /// The request that was handled last: its id, or `id: why not`.
    pub handled_request: Option<String>,
    /// The newest failover or switchover.
    pub last_failover: Option<LastFailover>,
}

/// A copy of the Lease for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrimaryCopy {
    /// Who was named.
    pub target: Option<MemberName>,
    /// Who accepts writes.
    pub current: Option<MemberName>,
    /// Epoch of the Lease.
    pub epoch: Epoch,
    /// Since when `current` is what it is.
    pub since: Option<Timestamp>,
}

/// The newest change of primary (F17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailover {
    /// The primary before.
    pub from: Option<MemberName>,
    /// The primary after.
    pub to: MemberName,
    /// Why, one CamelCase word.
    pub reason: String,
    /// The epoch of the new primary.
    pub epoch: Epoch,
    /// When the loss was noticed.
    pub detected_at: Timestamp,
    /// When the new primary let clients in.
    pub completed_at: Option<Timestamp>,
    /// What may have been lost.
    pub data_loss: DataLoss,
}

/// What a failover may have lost (F17).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLoss {
    /// The promoted position.
    pub from_lsn: Option<Lsn>,
    /// The newest position at which the old primary was seen.
    pub last_seen_primary_lsn: Option<Lsn>,
    /// How long before the loss was noticed that was, milliseconds.
    pub unseen_for: Option<u64>,
    /// Whether it is known that nothing was lost.
    pub lossless: Lossless,
}

/// Whether something acknowledged was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lossless {
    /// Nothing.
    Yes,
    /// Something.
    No,
    /// It cannot be told.
    Unknown,
}
