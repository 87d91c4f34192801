//! A member's log: writes and promotions, one byte each, the oldest lowest. Its positions are the core's: an entry is ten
//! bytes of log, a promotion forks where its entry begins.

use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::{Position, Promotion};

/// At most eight entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Log(u64);

/// Entries that fit.
pub(super) const ROOM: usize = 8;

/// One entry, not 0.
pub(super) type Entry = u8;

/// The promotion of `member` in `epoch` to `timeline`.
pub(super) fn promotion(member: usize, epoch: u8, timeline: u8) -> Entry {
    0x80 | u8::try_from(member).unwrap_or(0) << 5 | (epoch & 7) << 2 | timeline.saturating_sub(2).min(3)
}

fn is_promotion(entry: Entry) -> bool {
    entry & 0x80 != 0
}

fn timeline_of(entry: Entry) -> u8 {
    (entry & 3) + 2
}

impl Log {
    pub(super) fn len(self) -> usize {
        8 - self.0.leading_zeros() as usize / 8
    }

    pub(super) fn entries(self) -> impl Iterator<Item = Entry> {
        self.0.to_le_bytes().into_iter().take(self.len())
    }

    pub(super) fn at(self, index: usize) -> Option<Entry> {
        self.entries().nth(index)
    }

    pub(super) fn push(self, entry: Entry) -> Log {
        Log(self.0 | u64::from(entry) << (8 * self.len()))
    }

    pub(super) fn has(self, entry: Entry) -> bool {
        self.entries().any(|there| there == entry)
    }

    pub(super) fn is_beginning_of(self, other: Log) -> bool {
        self.len() <= other.len() && self.entries().zip(other.entries()).all(|(a, b)| a == b)
    }

    /// With members 1 and 2 called by each other's names.
    pub(super) fn mirrored(self) -> Log {
        self.entries().fold(Log::default(), |log, entry| {
            let member = if is_promotion(entry) { entry >> 5 & 3 } else { 0 };
            log.push(if matches!(member, 1 | 2) { entry ^ 0x60 } else { entry })
        })
    }

    pub(super) fn end(self) -> Lsn {
        Lsn(10 * self.len() as u64)
    }

    pub(super) fn promotions(self) -> impl Iterator<Item = (usize, Entry)> {
        self.entries().enumerate().filter(|(_, entry)| is_promotion(*entry))
    }

    pub(super) fn timeline(self) -> u8 {
        self.promotions().last().map_or(1, |(_, entry)| timeline_of(entry))
    }

    pub(super) fn chain(self) -> Vec<Promotion> {
        self.promotions()
            .map(|(at, entry)| Promotion {
                epoch: Epoch(u64::from(entry >> 2 & 7)),
                member: name(usize::from(entry >> 5 & 3)),
                timeline: Timeline(u32::from(timeline_of(entry))),
                fork_lsn: Some(Lsn(10 * at as u64)),
            })
            .collect()
    }

    pub(super) fn position(self) -> Position {
        Position { timeline: Timeline(u32::from(self.timeline())), lsn: self.end(), chain: self.chain() }
    }

    /// What PostgreSQL asks before a server with this log streams from `source`: timeline numbers and forks, not contents.
    pub(super) fn may_stream_from(self, source: Log) -> bool {
        let mine = self.timeline();
        let (mut timeline, mut end, mut found) = (1, source.len(), mine == 1);
        for (at, entry) in source.promotions() {
            if timeline == mine {
                end = at;
                break;
            }
            timeline = timeline_of(entry);
            found |= timeline == mine;
        }
        found && self.len() <= end
    }
}

/// Name of member 0, 1 or 2.
pub(super) fn name(index: usize) -> MemberName {
    MemberName::of("orders", u32::try_from(index).unwrap_or(0) + 1)
}

/// The member of that name.
pub(super) fn index(name: &MemberName) -> usize {
    (0..3).find(|index| self::name(*index) == *name).unwrap_or(3)
}
