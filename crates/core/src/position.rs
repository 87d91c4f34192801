//! How far a member's data goes, and on which history (failover.md F6, F9).

use crate::lsn::{Lsn, Timeline};
use crate::names::{Epoch, MemberName};
use serde::{Deserialize, Serialize};

/// One promotion on the history that a data folder carries: who turned which timeline on, and where it forked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promotion {
    /// The epoch in which it was attempted.
    pub epoch: Epoch,
    /// Who promoted.
    pub member: MemberName,
    /// The timeline that the Lease allotted.
    pub timeline: Timeline,
    /// Where the new timeline left its parent; known once it is won.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "forkLSN")]
    pub fork_lsn: Option<Lsn>,
}

impl Promotion {
    /// Whether both are one promotion, its fork known or not (F9: never by the number of the timeline alone).
    pub fn is_same(&self, other: &Promotion) -> bool {
        self.epoch == other.epoch && self.member == other.member && self.timeline == other.timeline
    }
}

/// A position in the log together with the chain of promotions that leads to it.
///
/// Ancestry is compared by the chain, never by the number of the timeline alone: two members that promote
/// unseen of each other choose the same number and the same fork (postgres-recipes.md 12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    /// The timeline that the end lies on.
    pub timeline: Timeline,
    /// The greater of what was received and what was replayed; on a stopped primary the end of valid local WAL.
    pub lsn: Lsn,
    /// The promotions beneath it, oldest first; empty on the first timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Promotion>,
}

/// How one position stands to another. There is no total order: engines may diverge, and a report may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// It holds everything the other holds, and more.
    Newer,
    /// The other holds everything it holds, and more.
    Older,
    /// Both hold the same.
    Equal,
    /// Each holds something that the other does not.
    Diverged,
    /// There is not enough to judge by.
    Unknown,
}

impl Position {
    /// Compares what two members hold.
    ///
    /// With the same chain the LSN decides. Where one chain continues the other's, the longer one is newer
    /// only if the shorter ends at or before the fork; beyond the fork they have diverged. A fork that is not
    /// known yet (an attempt that is no recorded win) makes the answer `Unknown`.
    pub fn compare(&self, other: &Position) -> Comparison {
        let common = self.chain.iter().zip(&other.chain).take_while(|(a, b)| a.is_same(b)).count();
        match (self.chain.get(common), other.chain.get(common)) {
            (None, None) => match self.lsn.cmp(&other.lsn) {
                std::cmp::Ordering::Greater => Comparison::Newer,
                std::cmp::Ordering::Less => Comparison::Older,
                std::cmp::Ordering::Equal => Comparison::Equal,
            },
            (Some(next), None) => beyond_fork(next.fork_lsn, other.lsn, Comparison::Newer),
            (None, Some(next)) => beyond_fork(next.fork_lsn, self.lsn, Comparison::Older),
            (Some(_), Some(_)) => Comparison::Diverged,
        }
    }
}

fn beyond_fork(fork: Option<Lsn>, shorter_end: Lsn, longer_is: Comparison) -> Comparison {
    match fork {
        None => Comparison::Unknown,
        Some(fork) if shorter_end <= fork => longer_is,
        Some(_) => Comparison::Diverged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promotion(epoch: u64, member: &str, timeline: u32, fork: Option<u64>) -> Promotion {
        Promotion { epoch: Epoch(epoch), member: member.into(), timeline: Timeline(timeline), fork_lsn: fork.map(Lsn) }
    }

    fn at(lsn: u64, chain: &[Promotion]) -> Position {
        let timeline = chain.last().map_or(Timeline(1), |last| last.timeline);
        Position { timeline, lsn: Lsn(lsn), chain: chain.to_vec() }
    }

    #[test]
    fn the_chain_decides_before_the_lsn() {
        let b = promotion(2, "orders-2", 2, Some(100));
        let c = promotion(2, "orders-3", 2, Some(100));
        let unknown = promotion(3, "orders-2", 3, None);
        let table = [
            (at(90, &[]), at(80, &[]), Comparison::Newer),
            (at(80, &[]), at(80, &[]), Comparison::Equal),
            (at(100, std::slice::from_ref(&b)), at(100, &[]), Comparison::Newer),
            (at(500, &[]), at(120, std::slice::from_ref(&b)), Comparison::Diverged),
            // Same number, same fork, other history: rows differ silently for ever if this reads Equal.
            (at(120, std::slice::from_ref(&b)), at(120, &[c]), Comparison::Diverged),
            (at(130, &[b.clone(), unknown]), at(120, &[b]), Comparison::Unknown),
        ];
        for (a, b, expected) in table {
            assert_eq!(a.compare(&b), expected, "{a:?} {b:?}");
            let mirrored = match expected {
                Comparison::Newer => Comparison::Older,
                Comparison::Older => Comparison::Newer,
                same => same,
            };
            assert_eq!(b.compare(&a), mirrored, "{b:?} {a:?}");
        }
    }
}
