//! What a member's agent is told to do.

use crate::fence::{Fence, RestOfLog};
use crate::member::world::JobKind;
use crate::names::{Epoch, MemberName, Monotonic};
use crate::position::Promotion;
use crate::report::MemberState;
use std::collections::BTreeSet;

/// Whom a standby streams from, and under which epoch it was told so (F6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The epoch of the grant.
    pub epoch: Epoch,
    /// The holder.
    pub member: MemberName,
    /// `host:port`.
    pub address: String,
}

/// `synchronous_standby_names` (F7, F8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// Commits wait for nobody: async mode, or degraded.
    Nobody,
    /// A name that matches no member: a server that is writable by accident acknowledges nothing.
    Placeholder,
    /// `ANY k (members)`.
    Any {
        /// How many.
        k: u32,
        /// Of whom; never empty (an empty set is the placeholder).
        members: BTreeSet<MemberName>,
    },
}

/// One write of the primary Lease, on the resourceVersion of the state that was decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseWrite {
    /// What for.
    pub purpose: Purpose,
    /// The whole record to write.
    pub fence: Fence,
}

/// What a write of the Lease is for; decides what becomes of `holderIdentity` and `renewTime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Makes this process holder.
    Take,
    /// Renews, with or without a change of the record.
    Renew,
    /// Clears the holder.
    Release,
}

/// Work on the engine. One at a time; [`Job::Stop`] ends any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// initdb into a temporary folder, then rename (F14: only with the bootstrap grant).
    InitDb,
    /// A base copy into a temporary folder, then rename; what is there now is set aside (F12).
    Clone {
        /// The holder.
        source: Source,
        /// Its chain, which the copy carries.
        chain: Vec<Promotion>,
    },
    /// pg_rewind, after the source's control file shows its timeline (F12).
    Rewind {
        /// The holder.
        source: Source,
        /// Its chain.
        chain: Vec<Promotion>,
    },
    /// Starts the server.
    Start {
        /// Without `standby.signal`: only while this process holds the Lease (F5).
        writable: bool,
        /// Whom to stream from, with the chain to adopt before.
        follow: Option<(Source, Vec<Promotion>)>,
        /// Names in force from the first moment.
        names: Names,
    },
    /// Makes roles and passwords after initdb.
    SetUp,
    /// Leaves for an epoch: persist it, stop the receiver, replay what is there (F6).
    Leave {
        /// The epoch.
        epoch: Epoch,
    },
    /// Gets the end of the stopped old primary's log from its agent and replays it (F10).
    Fetch {
        /// What, from whom.
        rest: RestOfLog,
        /// Given up after so many milliseconds; absent where nobody may be promoted without it.
        within: Option<u64>,
    },
    /// Streams from a holder by reload.
    Follow {
        /// The holder.
        source: Source,
        /// Its chain, copied before the receiver passes a fork (F9).
        chain: Vec<Promotion>,
    },
    /// Marker, dummy histories, names, clients out, `pg_promote` (F9, F11).
    Promote {
        /// The attempt as recorded in the Lease.
        attempt: Promotion,
        /// The whole chain with the attempt at its end.
        chain: Vec<Promotion>,
        /// Names in force before the promotion.
        names: Names,
        /// Members that get a slot of the epoch.
        slots: BTreeSet<MemberName>,
    },
    /// Lets clients in.
    Open,
    /// CHECKPOINT, so that others can rewind from here, or so that a shutdown has little left to write.
    Checkpoint {
        /// The operation that is about to hand over.
        prepares: Option<String>,
    },
    /// Puts names in force that the Lease records already (weaker or equal, F8).
    SetNames(Names),
    /// Puts stronger names in force and proves them; they are recorded afterwards (F8).
    Strengthen(Names),
    /// A marker commit acknowledged under the names in force (F7).
    Marker,
    /// Makes and drops slots so that exactly these members have one of the epoch (F6).
    Slots {
        /// The epoch.
        epoch: Epoch,
        /// The members.
        members: BTreeSet<MemberName>,
    },
    /// Ends every process of the engine and reads the end of its WAL.
    Stop {
        /// A fast shutdown for at most a second before SIGKILL; else SIGKILL at once.
        fast: bool,
        /// The data is marked unusable: nobody asked for what it did (F11).
        diverged: bool,
        /// Why, for the event and the log.
        reason: &'static str,
    },
}

/// One step. Steps of one decision are independent of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes an epoch durable.
    PersistEpoch(Epoch),
    /// Makes durable that this promotion is recorded as won.
    PersistWin(Promotion),
    /// Writes the Lease.
    Lease(Box<LeaseWrite>),
    /// Starts a job.
    Engine(Job),
    /// Ends the agent.
    Exit,
}

/// What to do and what to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub actions: Vec<Action>,
    /// State to report.
    pub state: MemberState,
    /// It has left for this epoch (F6).
    pub left: Option<Epoch>,
    /// It serves what its role is for.
    pub ready: bool,
    /// Look again at this instant at the latest.
    pub wake: Option<Monotonic>,
    /// Why it does not go on, in one line.
    pub waiting_for: Option<String>,
    /// Why its data folder cannot be used and what can be done, in one line.
    pub trouble: Option<String>,
}

impl Job {
    /// Whom it makes the server stream from, where it is about that.
    pub fn towards(&self) -> Option<Option<&Source>> {
        match self {
            Job::Start { follow, .. } => Some(follow.as_ref().map(|(source, _)| source)),
            Job::Follow { source, .. } => Some(Some(source)),
            _ => None,
        }
    }

    /// Which it is.
    pub fn kind(&self) -> JobKind {
        match self {
            Job::InitDb => JobKind::InitDb,
            Job::Clone { .. } => JobKind::Clone,
            Job::Rewind { .. } => JobKind::Rewind,
            Job::Start { .. } => JobKind::Start,
            Job::SetUp => JobKind::SetUp,
            Job::Leave { .. } => JobKind::Leave,
            Job::Fetch { .. } => JobKind::Fetch,
            Job::Follow { .. } => JobKind::Follow,
            Job::Promote { .. } => JobKind::Promote,
            Job::Open => JobKind::Open,
            Job::Checkpoint { .. } => JobKind::Checkpoint,
            Job::SetNames(_) => JobKind::SetNames,
            Job::Strengthen(_) => JobKind::Strengthen,
            Job::Marker => JobKind::Marker,
            Job::Slots { .. } => JobKind::Slots,
            Job::Stop { .. } => JobKind::Stop,
        }
    }
}
