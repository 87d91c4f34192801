//! Who has left for the epoch, and which recorded sync sets they satisfy (F6, F7).

use super::standing::Standing;
use super::world::{Lease, World};
use crate::fence::{Fence, SyncSet};
use crate::names::{Epoch, MemberName};
use crate::report::{MemberReport, MemberState};
use std::collections::{BTreeMap, BTreeSet};

/// The members that have left for the Lease's epoch, each with how far its data counts.
#[derive(Debug, Clone)]
pub struct Electorate {
    /// Members whose report is stamped with the epoch.
    pub left: BTreeMap<MemberName, Standing>,
    /// Those of them that can be named: their agent runs.
    pub candidates: BTreeMap<MemberName, Standing>,
    /// The last winner's own word about where its log ends. It fences that member and says what it held, but it
    /// cannot be named by it.
    pub released: Option<(MemberName, Epoch, Standing)>,
}

impl Electorate {
    /// Reads the reports. One that is stamped with another epoch, knows no position or belongs to another system is
    /// no report (F6, F14).
    pub fn of(world: &World, lease: &Lease) -> Electorate {
        let mut left = BTreeMap::new();
        let mut candidates = BTreeMap::new();
        for (name, member) in &world.members {
            let Some(report) = member.report.as_ref().filter(|report| counts(report, lease)) else { continue };
            let Some(position) = &report.position else { continue };
            let standing = Standing::of(position, &lease.fence);
            left.insert(name.clone(), standing);
            if world.is_live(member) && !report.address.is_empty() && report.state != MemberState::Failed {
                candidates.insert(name.clone(), standing);
            }
        }
        let win = lease.fence.last_win().map(|win| win.epoch);
        let released = lease
            .standing_release()
            .map(|release| (release.member.clone(), release.epoch, Standing { win, lsn: Some(release.end_lsn) }));
        Electorate { left, candidates, released }
    }

    /// Members that left and hold nothing newer than `standing` (F7: the sets are judged only over them), the last
    /// winner among them if its release says so.
    fn not_newer(&self, standing: Standing) -> BTreeSet<&MemberName> {
        let released = self.released.iter().map(|(member, _, released)| (member, released));
        self.left
            .iter()
            .chain(released)
            .filter(|(_, theirs)| standing.covers(**theirs))
            .map(|(member, _)| member)
            .collect()
    }

    /// Whether everything acknowledged is held by a member that stands at `standing`, or can still be acknowledged by
    /// nobody: every set that counts has lost its quorum to members not newer than it (F7).
    pub fn satisfies(&self, fence: &Fence, epoch: Epoch, standing: Standing) -> bool {
        let group = self.not_newer(standing);
        counting_sets(fence, epoch).all(|set| set.degraded || is_met(set, fence, &group))
    }

    /// The same over everybody who has left: nothing can be acknowledged any more under any set that counts.
    pub fn fences(&self, fence: &Fence, epoch: Epoch) -> bool {
        let released = self.released.iter().map(|(member, ..)| member);
        let group: BTreeSet<&MemberName> = self.left.keys().chain(released).collect();
        counting_sets(fence, epoch).all(|set| !set.degraded && is_met(set, fence, &group))
    }
}

fn counts(report: &MemberReport, lease: &Lease) -> bool {
    let same_system = match (&report.system_id, &lease.fence.system_id) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => true,
    };
    report.left == Some(lease.epoch) && same_system
}

/// The sets that the choice of `epoch` must satisfy: those of the newest complete epoch and of every later one, since
/// a win alone proves nothing about where acknowledged writes are (F7, model X5).
pub fn counting_sets(fence: &Fence, epoch: Epoch) -> impl Iterator<Item = &SyncSet> {
    let complete = fence.sync_sets.iter().filter(|set| set.complete && set.epoch < epoch).map(|set| set.epoch).max();
    fence.sync_sets.iter().filter(move |set| set.epoch < epoch && complete.is_none_or(|complete| set.epoch >= complete))
}

/// `|S| − k + 1` of its members, or its own primary, stopped. A set smaller than k can acknowledge nothing (F7).
fn is_met(set: &SyncSet, fence: &Fence, group: &BTreeSet<&MemberName>) -> bool {
    let primary = set.primary.as_ref().or_else(|| {
        let attempt = fence.history.iter().find(|attempt| attempt.promotion.epoch == set.epoch);
        attempt.map(|attempt| &attempt.promotion.member)
    });
    let needed = (set.members.len() + 1).saturating_sub(set.k as usize);
    let left = set.members.iter().filter(|member| group.contains(member)).count();
    primary.is_some_and(|primary| group.contains(primary)) || left >= needed
}
