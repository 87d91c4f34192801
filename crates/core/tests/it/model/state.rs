//! One state of the modelled world. What the core itself has a value for (the Lease with its record, the status) is kept
//! as that value in a table, and the state holds its number.

use super::log::{Log, index, name};
use coregent_core::failover::Memory;
use coregent_core::fence::Fence;
use coregent_core::names::{Epoch, HolderIdentity};
use coregent_core::report::MemberState;
use std::collections::BTreeMap;

/// Number of a value in a [`Table`].
pub(super) type Id = u32;

/// Values that states refer to.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: Vec<T>,
    numbers: BTreeMap<String, Id>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { values: Vec::new(), numbers: BTreeMap::new() }
    }
}

impl<T: std::fmt::Debug> Table<T> {
    pub(super) fn put(&mut self, value: T) -> Id {
        let next = Id::try_from(self.values.len()).unwrap_or(Id::MAX);
        let id = *self.numbers.entry(format!("{value:?}")).or_insert(next);
        if id == next {
            self.values.push(value);
        }
        id
    }

    pub(super) fn get(&self, id: Id) -> &T {
        &self.values[id as usize]
    }
}

/// The primary Lease.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) epoch: u8,
    pub(super) holder: Option<HolderIdentity>,
    pub(super) fence: Fence,
}

impl Lease {
    pub(super) fn target(&self) -> Option<usize> {
        self.fence.target.as_ref().map(|target| index(&target.member))
    }

    pub(super) fn core_epoch(&self) -> Epoch {
        Epoch(u64::from(self.epoch))
    }

    /// Commits of `epoch` wait for nobody by the record.
    pub(super) fn is_degraded(&self, epoch: u8) -> bool {
        self.fence.sync_sets.iter().any(|set| set.epoch.0 == u64::from(epoch) && set.degraded)
    }
}

/// Where a member runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Host {
    Runs,
    /// Its processes stand still, its node answers.
    PodFrozen,
    /// The whole host stands still.
    AllFrozen,
    Off,
}

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Server {
    Stopped,
    Standby,
    Writable,
}

/// `synchronous_standby_names`: a bit for each member, or one of these.
pub(super) type Names = u8;
/// Commits wait for nobody.
pub(super) const NOBODY: Names = 8;
/// Commits wait for a name that is none.
pub(super) const PLACEHOLDER: Names = 16;

/// What a node said of a container that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ended {
    Unsaid,
    BeforeRaise,
    AfterRaise,
}

/// What a member last published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Report {
    pub(super) run: u8,
    pub(super) pod: u8,
    pub(super) left: u8,
    pub(super) state: u8,
    pub(super) ready: bool,
    pub(super) log: Option<Log>,
    /// What came of a connection to the agent of the holder, without a stream from it.
    pub(super) reached: Option<(u8, Reached)>,
}

impl Report {
    /// Nothing yet.
    pub(super) const NONE: Report =
        Report { run: 0, pod: 1, left: 0, state: 0, ready: false, log: None, reached: None };
}

/// How far a connection got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reached {
    Answers,
    Refuses,
    Silent,
}

/// One member. Epochs are never 0, which means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Member {
    pub(super) log: Log,
    pub(super) host: Host,
    /// It reaches the API.
    pub(super) api: bool,
    pub(super) agent: bool,
    /// Counts agent processes and pods.
    pub(super) run: u8,
    pub(super) pod: u8,
    /// Epoch for which the pod is stamped.
    pub(super) stamp: u8,
    /// Whether this pod's container, and the one of the pod before, were reported terminated.
    pub(super) ended: [Ended; 2],
    pub(super) server: Server,
    /// The server's first process has ended and the agent has not swept what it left.
    pub(super) unswept: bool,
    /// Backends that outlive their server, with the names that they know.
    pub(super) orphans: Option<Names>,
    /// Whom it streams from, under which epoch.
    pub(super) source: Option<(u8, u8)>,
    pub(super) settled: bool,
    /// `pg_promote` has been prepared, not asked for.
    pub(super) promoting: Option<(u8, u8)>,
    pub(super) open: bool,
    /// A renewal sent after recovery had ended was answered.
    pub(super) renewed: bool,
    /// In the files, and what older backends still go by.
    pub(super) names: Names,
    pub(super) older: Names,
    pub(super) proved: bool,
    /// Writes whose clients wait, a bit each.
    pub(super) waiting: u8,
    /// Durable: epoch, the same when the agent started, attempt (epoch, timeline).
    pub(super) epoch: u8,
    pub(super) at_start: u8,
    pub(super) attempt: Option<(u8, u8)>,
    pub(super) recorded: bool,
    pub(super) unusable: bool,
    /// It holds the Lease as far as it knows.
    pub(super) held: Option<u8>,
    /// Its deadline has passed.
    pub(super) late: bool,
    /// Another was named while its node could be told nothing: nobody could stop it first (F4, F16).
    pub(super) unheard: bool,
    pub(super) released: u8,
    pub(super) was_writable: bool,
    /// The Lease as it has seen it.
    pub(super) view: Id,
    pub(super) report: Report,
}

impl Member {
    /// Its processes run.
    pub(super) fn moves(&self) -> bool {
        self.host == Host::Runs
    }

    /// Its agent runs.
    pub(super) fn acts(&self) -> bool {
        self.moves() && self.agent
    }

    /// Its node answers the API.
    pub(super) fn answers(&self) -> bool {
        self.api && matches!(self.host, Host::Runs | Host::PodFrozen)
    }

    /// Somebody may stream from it.
    pub(super) fn serves(&self) -> bool {
        self.moves() && (self.server != Server::Stopped || self.orphans.is_some())
    }

    /// Clients can write to it.
    pub(super) fn writable(&self) -> bool {
        self.moves() && self.server == Server::Writable && self.open
    }

    /// The server ends, whatever it was.
    pub(super) fn stop(&mut self) {
        self.server = Server::Stopped;
        (self.source, self.settled, self.promoting, self.open, self.renewed) = (None, false, None, false, false);
        (self.names, self.older, self.proved) = (PLACEHOLDER, PLACEHOLDER, false);
        if self.orphans.is_none() {
            self.waiting = 0;
        }
    }
}

/// A fencing delete that was decided and not carried out yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Delete {
    pub(super) member: u8,
    pub(super) pod: u8,
    pub(super) stamp: u8,
}

/// A write of the Lease that was decided on an older one (only where rule `cas` is off).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pending {
    pub(super) lease: Id,
    pub(super) decided_on: Id,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) members: [Member; 3],
    pub(super) lease: Id,
    pub(super) memory: Id,
    /// Nobody has renewed the Lease for its whole duration.
    pub(super) lapsed: bool,
    /// Links that are cut, a bit a pair.
    pub(super) cut: u8,
    pub(super) delete: Option<Delete>,
    pub(super) pending: Option<Pending>,
    /// Writes made, writes acknowledged (a bit each).
    pub(super) writes: u8,
    pub(super) acked: u8,
    /// Who let clients in last.
    pub(super) primary: u8,
    pub(super) faults: u8,
}

impl State {
    pub(super) fn linked(&self, a: usize, b: usize) -> bool {
        self.cut & pair(a, b) == 0
    }

    /// What comes of a connection from `x` to the agent of `p`.
    pub(super) fn reach(&self, x: usize, p: usize) -> Reached {
        let other = &self.members[p];
        match other.host {
            Host::Off | Host::AllFrozen => Reached::Silent,
            _ if !self.linked(x, p) => Reached::Silent,
            // The kernel answers for a process that stands still.
            _ if other.agent => Reached::Answers,
            _ => Reached::Refuses,
        }
    }

    /// `x` has a stream from `p`.
    pub(super) fn streams(&self, x: usize, p: usize, bound_to_epoch: bool) -> bool {
        let (standby, source) = (&self.members[x], &self.members[p]);
        let told = standby
            .source
            .is_some_and(|(epoch, member)| usize::from(member) == p && (epoch == source.epoch || !bound_to_epoch));
        told && x != p
            && standby.moves()
            && standby.server == Server::Standby
            && source.serves()
            && self.linked(x, p)
            && standby.log.may_stream_from(source.log)
    }
}

/// The bit of a pair of members.
pub(super) fn pair(a: usize, b: usize) -> u8 {
    1 << (a + b - 1)
}

/// The process of `member` as the Lease names its holder.
pub(super) fn identity(member: usize, pod: u8, run: u8) -> HolderIdentity {
    HolderIdentity { member: name(member), pod_uid: format!("p{member}.{pod}"), nonce: format!("{run}") }
}

/// The status without what no decision depends on: moments, ids, what has ended.
pub(super) fn plain(mut memory: Memory, at: &str) -> Memory {
    memory.operations.previous = None;
    if let Some(active) = &mut memory.operations.active {
        (active.started_at, active.deadline, active.id) = (at.to_owned(), at.to_owned(), "x".to_owned());
        (active.attempt, active.message, active.outcome) = (active.attempt.min(2), None, None);
    }
    (memory.primary.since, memory.last_failover) = (None, None);
    memory
}

/// Every state of a member that a report can name.
pub(super) const STATES: [MemberState; 8] = [
    MemberState::Starting,
    MemberState::Stopped,
    MemberState::Standby,
    MemberState::Streaming,
    MemberState::Promoting,
    MemberState::Primary,
    MemberState::Failed,
    MemberState::Stopping,
];
