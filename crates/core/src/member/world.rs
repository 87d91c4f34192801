//! What the decision of a member is made from.

use crate::fence::Fence;
use crate::lsn::{Lsn, Timeline};
use crate::member::action::{Names, Source};
use crate::names::{Epoch, HolderIdentity, MemberName, Monotonic};
use crate::position::{Position, Promotion};
use std::collections::{BTreeMap, BTreeSet};

/// How commits are acknowledged (failover.md F7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A commit waits for k other members.
    Quorum,
    /// A commit waits for nobody; also a cluster of a single member.
    Async,
}

/// What a holder does that is short of acknowledgements (failover.md F7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenTooFew {
    /// After a while commits no longer wait, and the record says so first.
    Degrade,
    /// Commits wait for as long as it takes.
    Block,
}

/// The lengths of time of failover.md F2, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Silence after which an observer calls the Lease expired.
    pub duration: u64,
    /// Time between two renewals.
    pub renew: u64,
    /// Time after which a request to the API is given up.
    pub request: u64,
    /// A holder's engine is dead this long after the request that was answered last was sent.
    pub stop_by: u64,
}

/// Lengths of time that cannot keep the promise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "renew {renew} ms + request {request} ms + 500 ms to kill do not fit into stop-by {stop_by} ms, or that leaves less than 1 s of the Lease's {duration} ms: lengthen the duration"
)]
pub struct TimingError {
    renew: u64,
    request: u64,
    stop_by: u64,
    duration: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { duration: 6_000, renew: 1_500, request: 1_000, stop_by: 4_500 }
    }
}

impl Timing {
    /// Refuses lengths in which a holder could outlive its Lease (F2).
    ///
    /// # Errors
    /// When renew, request and kill do not fit below the duration less its margin.
    pub fn check(self) -> Result<Timing, TimingError> {
        let Timing { duration, renew, request, stop_by } = self;
        let killed = renew.checked_add(request).and_then(|tried| tried.checked_add(500));
        let fits = killed.is_some_and(|killed| killed <= stop_by)
            && stop_by.checked_add(1_000).is_some_and(|expired| expired <= duration);
        if fits { Ok(self) } else { Err(TimingError { renew, request, stop_by, duration }) }
    }
}

/// What does not change while the agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Replication mode.
    pub mode: Mode,
    /// Too few acknowledgements.
    pub when_too_few: WhenTooFew,
    /// Lengths of time.
    pub timing: Timing,
}

/// The primary Lease as this agent received it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryLease {
    /// `spec.leaseTransitions`.
    pub epoch: Epoch,
    /// `spec.holderIdentity`, as text: a stranger's may have any form.
    pub holder: Option<String>,
    /// The record; the text says why it cannot be used (then nobody is promoted).
    pub fence: Result<Fence, String>,
    /// When this agent received this state, or began to observe it anew after a gap (F2).
    pub since: Monotonic,
    /// When this agent first saw this epoch.
    pub epoch_since: Monotonic,
}

impl PrimaryLease {
    /// Some run of the agent of `member` holds it. A text that is no identity of ours is a stranger's, whatever it begins
    /// with: only its running out frees the Lease.
    pub(super) fn is_held_by(&self, member: &MemberName) -> bool {
        let identity = self.holder.as_deref().and_then(|holder| holder.parse::<HolderIdentity>().ok());
        identity.is_some_and(|identity| identity.member == *member)
    }
}

/// That this very process made itself holder (F1, F5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// In this epoch.
    pub epoch: Epoch,
    /// When the newest answered request was **sent**: the deadline counts from here (F2).
    pub sent: Monotonic,
    /// When the newest request was sent, answered or not.
    pub tried: Monotonic,
    /// The newest request failed, so that the next one is not put off for a whole period.
    pub failed: bool,
}

/// The data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Nothing there.
    Absent,
    /// Complete.
    Present {
        /// PostgreSQL's system identifier.
        system_id: String,
    },
    /// It must not be started or followed with: an interrupted rewind, a promotion nobody asked for. Only a fresh
    /// copy helps (F12).
    Unusable(String),
    /// A person has to look; the agent leaves it alone (wrong owner, a newer major version, another cluster's).
    Broken(String),
}

/// What is durable in the volume outside the data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The newest epoch made durable.
    pub epoch: Epoch,
    /// The value of `epoch` when this process started (F5).
    pub epoch_at_start: Epoch,
    /// The newest promotion that this folder tried (F9).
    pub attempt: Option<Promotion>,
    /// That promotion was seen recorded as won.
    pub attempt_recorded: bool,
    /// The data folder.
    pub data: Data,
    /// It was rewound and has not been consistent since: it can only go on with the source (F12).
    pub inconsistent: bool,
}

/// The engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// Every process is gone. The position is the end of valid local WAL; absent until read, or without data.
    Stopped {
        /// The end of WAL.
        position: Option<Position>,
    },
    /// The server starts or recovers; SQL is not answered yet.
    Starting,
    /// In recovery and answering.
    Standby(Standby),
    /// Out of recovery.
    Writable(Writable),
}

/// A server in recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    /// Whom it is told to stream from.
    pub source: Option<Source>,
    /// A WAL receiver process exists.
    pub receiver: bool,
    /// It streams.
    pub streaming: bool,
    /// It has no receiver and has replayed all local WAL: its position is final (F6).
    pub settled: bool,
    /// Its log ends within a record. A server that waits for the rest of one cannot follow another timeline; started anew
    /// it does.
    pub cut: bool,
    /// How far it has replayed.
    pub replayed: Lsn,
    /// The greater of received and replayed.
    pub position: Position,
    /// Clients are let in.
    pub open: bool,
    /// The members that a slot of the **next** epoch exists for here: should this member win it, they find theirs.
    pub next_slots: BTreeSet<MemberName>,
}

/// A server out of recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writable {
    /// When it was first seen so.
    pub since: Monotonic,
    /// Its position; the chain holds the fork of its own promotion.
    pub position: Position,
    /// Timeline in the control file: rewinding from it works only once it is the current one (F12). While a
    /// checkpoint is under way this is the current one already.
    pub checkpoint_timeline: Timeline,
    /// A checkpoint that was asked for is under way.
    pub checkpointing: bool,
    /// The operation for whose hand-over one has ended.
    pub prepared: Option<String>,
    /// Roles and passwords exist: false only straight after initdb.
    pub set_up: bool,
    /// Clients are let in.
    pub open: bool,
    /// `synchronous_standby_names` in force.
    pub names: Names,
    /// The names in force were proved on a new connection and by a marker commit (F8).
    pub proved: bool,
    /// The members that a slot of this epoch exists for (F6).
    pub slots: BTreeSet<MemberName>,
    /// What streams from it.
    pub standbys: BTreeMap<MemberName, StandbySeen>,
}

/// A standby as its primary sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StandbySeen {
    /// It streams and has caught up.
    pub caught_up: bool,
    /// `sync_state` is quorum or sync.
    pub sync: bool,
    /// When it was last seen streaming.
    pub seen: Monotonic,
}

/// Which job runs on the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named as the jobs of Job")]
pub enum JobKind {
    InitDb,
    Clone,
    Rewind,
    Start,
    SetUp,
    Leave,
    Fetch,
    Follow,
    Promote,
    Open,
    Checkpoint,
    SetNames,
    Strengthen,
    Marker,
    Slots,
    Stop,
}

impl JobKind {
    /// It waits for another member and is given up when the next round begins.
    pub fn gives_way(self) -> bool {
        matches!(self, JobKind::Fetch | JobKind::Follow)
    }
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// CLOCK_BOOTTIME.
    pub now: Monotonic,
    /// This run of this agent.
    pub me: HolderIdentity,
    /// `host:port` of the engine here.
    pub address: String,
    /// What does not change.
    pub settings: Settings,
    /// Absent until the first read.
    pub lease: Option<PrimaryLease>,
    /// The create-only bootstrap grant names this member (F14).
    pub bootstrap_grant: bool,
    /// Whether this process holds the Lease. Kept after the deadline until it is released.
    pub held: Option<Held>,
    /// The epoch in which this process has released; it does not take the Lease again in it.
    pub released: Option<Epoch>,
    /// The volume.
    pub volume: Volume,
    /// The engine.
    pub engine: Engine,
    /// The engine has been writable, or was told to promote, since this process took the Lease: with it gone there
    /// is nothing left to hold for.
    pub was_writable: bool,
    /// The job that runs on the engine.
    pub job: Option<JobKind>,
    /// Whom the newest start or follow that was begun is to stream from. A server that starts, and a follow that waits for
    /// its source to listen, show nothing of it themselves.
    pub towards: Option<Source>,
    /// A job of this kind failed: none is started before this instant.
    pub retry: Option<(JobKind, Monotonic)>,
    /// The server has ended several times while it was starting: see [`World::is_given_up`].
    pub failing: bool,
    /// A write of the Lease is on its way.
    pub writing: bool,
    /// The agent has been told to end.
    pub leaving: bool,
}

impl World {
    /// The record, if it can be used.
    pub fn fence(&self) -> Option<&Fence> {
        self.lease.as_ref().and_then(|lease| lease.fence.as_ref().ok())
    }

    /// Epoch of the Lease.
    pub fn epoch(&self) -> Option<Epoch> {
        self.lease.as_ref().map(|lease| lease.epoch)
    }

    /// This member is the target of the Lease's epoch.
    pub fn is_target(&self) -> bool {
        self.fence().and_then(|fence| fence.target.as_ref()).is_some_and(|target| target.member == self.me.member)
    }

    /// It is no candidate after several starts that failed, until the pause after the last one is over. For good would
    /// be for ever: a full disk or a port that was taken ends, and it may be the only one there is.
    pub fn is_given_up(&self) -> bool {
        self.failing && self.retry.is_some_and(|(kind, at)| kind == JobKind::Start && at > self.now)
    }

    /// `holderIdentity` is this process.
    pub fn is_holder(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.holder.as_deref() == Some(self.me.to_string().as_str()))
    }

    /// When every process of the engine must be gone unless a renewal is answered before (F2).
    pub fn deadline(&self) -> Option<Monotonic> {
        self.held.map(|held| held.sent.plus(self.settings.timing.stop_by))
    }

    /// **This very process holds the Lease now**: only then may its engine be writable (F5).
    pub fn holding(&self) -> bool {
        let current = self.held.is_some_and(|held| Some(held.epoch) == self.epoch());
        current && self.is_target() && self.is_holder() && self.deadline().is_some_and(|deadline| self.now < deadline)
    }

    /// The member that holds the Lease by a grant: a holder that is not the target counts for nothing (F1).
    pub fn granted(&self) -> Option<&MemberName> {
        let lease = self.lease.as_ref()?;
        let target = &lease.fence.as_ref().ok()?.target.as_ref()?.member;
        lease.is_held_by(target).then_some(target)
    }

    /// The newest attempt in the volume if the Lease does not record it as won, nor has ever done so to this folder's
    /// knowledge (F9, F14). Such a member is a candidate and follows nobody without a fresh copy.
    pub fn unrecorded_attempt(&self) -> Option<&Promotion> {
        let attempt = self.volume.attempt.as_ref()?;
        (!self.volume.attempt_recorded && self.recorded_attempt().is_none()).then_some(attempt)
    }

    /// The newest attempt in the volume if the Lease records it as won, by itself or beneath a later win (F9).
    pub fn recorded_attempt(&self) -> Option<&Promotion> {
        let (attempt, fence) = (self.volume.attempt.as_ref()?, self.fence()?);
        let same = |other: &Promotion| {
            other.epoch == attempt.epoch && other.member == attempt.member && other.timeline == attempt.timeline
        };
        let won = fence.history.iter().any(|other| other.won && same(&other.promotion));
        let covered =
            fence.chain.iter().position(same).is_some_and(|at| {
                fence.chain.iter().skip(at + 1).any(|later| {
                    fence.history.iter().any(|other| other.won && other.promotion.timeline == later.timeline)
                })
            });
        (won || covered).then_some(attempt)
    }
}
