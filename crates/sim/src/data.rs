//! A modelled data folder: its log, its timelines, its control file.

use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::{Position, Promotion};
use std::collections::{BTreeMap, BTreeSet};

/// Where initdb ends.
pub(crate) const START: u64 = 1_000;
/// Bytes of a commit's record.
pub(crate) const RECORD: u64 = 120;

/// Names one act of making a timeline: two members that make the same number make two of these.
pub(crate) type Branch = u32;

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) end: u64,
    /// The client's write; 0 for the engine's own.
    pub(crate) write: u32,
    pub(crate) branch: Branch,
}

/// A timeline on the way to the data's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    pub(crate) timeline: u32,
    pub(crate) at: u64,
    pub(crate) branch: Branch,
}

/// A data folder.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) system_id: String,
    pub(crate) log: Vec<Record>,
    /// What a power loss leaves.
    pub(crate) flushed: u64,
    pub(crate) replayed: u64,
    pub(crate) forks: Vec<Fork>,
    /// Timeline in the control file, which lags a promotion (F12).
    pub(crate) control: u32,
    /// It was shut down cleanly.
    pub(crate) clean: bool,
    /// Replication slots: who, of which epoch (F6).
    pub(crate) slots: BTreeSet<(MemberName, Epoch)>,
    /// A rewind has put pages into it that its log does not lead to yet: only its source makes it consistent (F12).
    pub(crate) unfinished: bool,
}

impl Data {
    pub(crate) fn new(system_id: String, branch: Branch) -> Data {
        Data {
            system_id,
            log: Vec::new(),
            flushed: START,
            replayed: START,
            forks: vec![Fork { timeline: 1, at: 0, branch }],
            control: 1,
            clean: true,
            slots: BTreeSet::new(),
            unfinished: false,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.log.last().map_or(START, |record| record.end)
    }

    pub(crate) fn timeline(&self) -> u32 {
        self.forks.last().map_or(1, |fork| fork.timeline)
    }

    pub(crate) fn branch(&self) -> Branch {
        self.forks.last().map_or(0, |fork| fork.branch)
    }

    /// Appends a record and gives its end.
    pub(crate) fn append(&mut self, write: u32) -> u64 {
        let end = self.end() + RECORD;
        let branch = self.branch();
        self.log.push(Record { end, write, branch });
        end
    }

    /// Forgets everything above `end`.
    pub(crate) fn truncate(&mut self, end: u64) {
        let keep = self.log.partition_point(|record| record.end <= end);
        self.log.truncate(keep);
        self.flushed = self.flushed.min(self.end());
        self.replayed = self.replayed.min(self.end());
    }

    /// Records above `from` up to `to`.
    pub(crate) fn between(&self, from: u64, to: u64) -> &[Record] {
        let first = self.log.partition_point(|record| record.end <= from);
        let last = self.log.partition_point(|record| record.end <= to);
        self.log.get(first..last).unwrap_or_default()
    }

    /// The record that ends the flushed log at or below `at`.
    pub(crate) fn holds(&self, end: u64, write: u32) -> bool {
        let at = self.log.partition_point(|record| record.end < end);
        self.log.get(at).is_some_and(|record| record.end == end && record.write == write)
    }

    /// The position as the agent reads it: those promotions of the volume's chain that the data has passed, with the fork
    /// that the history says.
    pub(crate) fn position(&self, lsn: u64, chain: &[Promotion]) -> Position {
        let passed: BTreeMap<u32, u64> = self.forks.iter().skip(1).map(|fork| (fork.timeline, fork.at)).collect();
        let chain = chain
            .iter()
            .filter_map(|promotion| {
                let fork = passed.get(&promotion.timeline.0)?;
                Some(Promotion { fork_lsn: Some(Lsn(*fork)), ..promotion.clone() })
            })
            .collect();
        Position { timeline: Timeline(self.timeline()), lsn: Lsn(lsn), chain }
    }

    /// Where `timeline` ends on the way to this data's own: `None` where it is not on that way.
    pub(crate) fn leaves(&self, timeline: u32) -> Option<u64> {
        let at = self.forks.iter().position(|fork| fork.timeline == timeline)?;
        Some(self.forks.get(at + 1).map_or(u64::MAX, |next| next.at))
    }

    /// Whether this log is a beginning of `other`'s, by what it holds and not by what it is called.
    pub(crate) fn is_prefix_of(&self, other: &Data) -> bool {
        other.log.get(..self.log.len()).is_some_and(|prefix| prefix == self.log.as_slice())
    }
}

/// What is durable in a volume outside the data folder, as `coregent-agent` keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) epoch: Epoch,
    pub(crate) attempt: Option<Promotion>,
    pub(crate) attempt_recorded: bool,
    pub(crate) chain: Vec<Promotion>,
    pub(crate) unusable: Option<String>,
    pub(crate) inconsistent: bool,
}

/// A volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volume {
    pub(crate) kept: Kept,
    pub(crate) data: Option<Data>,
    /// Data folders that were set aside, oldest first (F12).
    pub(crate) aside: Vec<Data>,
    /// The container whose agent and server processes hold the lock (F5).
    pub(crate) lock: Option<u32>,
    /// What the next agent finds of the epoch, where a rule lets writes be lost.
    pub(crate) epoch_on_disk: Option<Epoch>,
    /// No room is left.
    pub(crate) full: bool,
    /// Syncs hang until then.
    pub(crate) stuck_until: u64,
}
