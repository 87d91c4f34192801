//! How far a member's data counts in an election: its history cut above the newest recorded win (F9, F10).

use crate::fence::Fence;
use crate::lsn::Lsn;
use crate::names::Epoch;
use crate::position::{Comparison, Position, Promotion};

/// A position as an election counts it.
///
/// A recorded win covers the whole chain beneath it, unrecorded attempts included; what was written after an attempt
/// that is no recorded win, above the newest win, does not count: nobody can have been told that it is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The epoch of the newest recorded win beneath it; none on the history that initdb began.
    pub win: Option<Epoch>,
    /// Where it ends on that win's timeline; unknown when it was promoted further from a place that nobody knows.
    pub lsn: Option<Lsn>,
}

impl Standing {
    /// The standing of `position` under the wins that the fence records.
    pub fn of(position: &Position, fence: &Fence) -> Standing {
        let newest = position.chain.iter().rposition(|promotion| is_recorded_win(promotion, fence));
        let next = newest.map_or(0, |newest| newest + 1);
        let lsn = match position.chain.get(next) {
            None => Some(position.lsn),
            Some(unrecorded) => unrecorded.fork_lsn.map(|fork| fork.min(position.lsn)),
        };
        Standing { win: newest.and_then(|newest| position.chain.get(newest)).map(|win| win.epoch), lsn }
    }

    /// Compares two standings under the same fence.
    ///
    /// Each epoch has at most one win, and each winner held everything acknowledged before it, so a newer win beneath
    /// a position makes it the newer one wherever the other ends. With the same win the histories are the same and
    /// the LSN decides.
    pub fn compare(self, other: Standing) -> Comparison {
        match (self.win.cmp(&other.win), self.lsn, other.lsn) {
            (std::cmp::Ordering::Greater, ..) => Comparison::Newer,
            (std::cmp::Ordering::Less, ..) => Comparison::Older,
            (std::cmp::Ordering::Equal, Some(mine), Some(others)) => match mine.cmp(&others) {
                std::cmp::Ordering::Greater => Comparison::Newer,
                std::cmp::Ordering::Less => Comparison::Older,
                std::cmp::Ordering::Equal => Comparison::Equal,
            },
            (std::cmp::Ordering::Equal, ..) => Comparison::Unknown,
        }
    }

    /// Whether it is known to hold everything that counts of `other`.
    pub fn covers(self, other: Standing) -> bool {
        matches!(self.compare(other), Comparison::Newer | Comparison::Equal)
    }
}

fn is_recorded_win(promotion: &Promotion, fence: &Fence) -> bool {
    fence.history.iter().any(|attempt| attempt.won && attempt.promotion.is_same(promotion))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Attempt;
    use crate::lsn::Timeline;

    fn promotion(epoch: u64, member: &str, timeline: u32, fork: Option<u64>) -> Promotion {
        Promotion { epoch: Epoch(epoch), member: member.into(), timeline: Timeline(timeline), fork_lsn: fork.map(Lsn) }
    }

    fn fence(history: &[(Promotion, bool)]) -> Fence {
        let history =
            history.iter().map(|(promotion, won)| Attempt { promotion: promotion.clone(), won: *won }).collect();
        Fence { history, ..Fence::default() }
    }

    fn at(lsn: u64, chain: &[Promotion]) -> Position {
        let timeline = chain.last().map_or(Timeline(1), |last| last.timeline);
        Position { timeline, lsn: Lsn(lsn), chain: chain.to_vec() }
    }

    #[test]
    fn what_was_written_after_an_attempt_that_is_no_recorded_win_does_not_count() {
        let attempt = promotion(2, "b", 2, Some(100));
        let fence = fence(&[(attempt.clone(), false)]);
        let standing = Standing::of(&at(900, std::slice::from_ref(&attempt)), &fence);
        assert_eq!(standing, Standing { win: None, lsn: Some(Lsn(100)) });
        assert!(!standing.covers(Standing::of(&at(120, &[]), &fence)));
    }

    #[test]
    fn a_recorded_win_covers_the_unrecorded_attempt_beneath_it() {
        let attempt = promotion(2, "a", 2, Some(100));
        let win = promotion(3, "a", 3, Some(150));
        let fence = fence(&[(attempt.clone(), false), (win.clone(), true)]);
        let standing = Standing::of(&at(400, &[attempt, win]), &fence);
        assert_eq!(standing, Standing { win: Some(Epoch(3)), lsn: Some(Lsn(400)) });
        assert!(standing.covers(Standing::of(&at(9_000, &[]), &fence)));
    }

    #[test]
    fn a_fork_that_nobody_knows_makes_the_standing_unknown() {
        let attempt = promotion(2, "b", 2, None);
        let fence = fence(&[]);
        let standing = Standing::of(&at(900, &[attempt]), &fence);
        assert_eq!(standing.lsn, None);
        assert_eq!(standing.compare(Standing { win: None, lsn: Some(Lsn(1)) }), Comparison::Unknown);
        assert!(!standing.covers(standing));
    }

    #[test]
    fn the_same_timeline_number_of_two_members_is_two_histories() {
        let (b, c) = (promotion(2, "b", 2, Some(100)), promotion(3, "c", 2, Some(100)));
        let fence = fence(&[(b.clone(), false), (c.clone(), true)]);
        let of_b = Standing::of(&at(500, &[b]), &fence);
        let of_c = Standing::of(&at(200, &[c]), &fence);
        assert_eq!(of_c.compare(of_b), Comparison::Newer);
    }
}
