//! An API that is older than its members: yesterday's copy of the store put back, or a Lease that is gone (F14).

use super::draft::Draft;
use super::raise;
use super::world::{Lease, World};
use crate::fence::{Attempt, Fence};
use crate::names::Epoch;
use crate::position::Promotion;

/// Members know a newer epoch than the Lease.
pub const OLDER_STORE: &str = "StoreOlderThanMembers";
/// There is data and no Lease.
pub const LEASE_LOST: &str = "LeaseLost";

/// A report can be seen a moment before the Lease that it was made for; only what lasts is a finding.
const LASTS: u64 = 1_000;
const FACT_BEHIND: &str = "lease-behind-members";

/// The newest epoch that anybody knows, the Lease apart.
pub(super) fn newest_known(world: &World) -> Epoch {
    let reported = world.members.values().filter_map(|member| member.report.as_ref()).flat_map(|report| {
        let chain = report.position.iter().flat_map(|position| position.chain.iter().map(|promotion| promotion.epoch));
        chain.chain([report.epoch]).chain(report.left)
    });
    reported.max().unwrap_or_default().max(world.memory.primary.epoch)
}

/// Starts the repair if the Lease is behind. True while nothing else may be decided.
pub(super) fn is_behind(draft: &mut Draft<'_>, lease: &Lease) -> bool {
    let known = newest_known(draft.world);
    if lease.fence.restored {
        draft.diagnose("an older copy of the API's store was put back: every member with a volume is heard first");
    } else if known <= lease.epoch && !is_given_twice(draft.world, lease) {
        return false;
    } else {
        let held = draft.hold(FACT_BEHIND);
        if held < LASTS {
            draft.again(LASTS - held);
            return true;
        }
        draft.diagnose(format!(
            "members know epoch {known}, the primary Lease only {}: the API was set back",
            lease.epoch
        ));
    }
    if is_running(draft.world) && raise::is_pending(draft.world, lease) {
        return false;
    }
    raise::decide(draft, lease, OLDER_STORE, None);
    true
}

/// Somebody's data was promoted in this very epoch, and the record has no such attempt, which is written before it is asked
/// for (F9): the epoch has been another round before. So it is where the copy that was put back misses one change of
/// primary: what its members last said is as old as it is, and one more than that is the epoch that they are in.
fn is_given_twice(world: &World, lease: &Lease) -> bool {
    let recorded =
        |promotion: &Promotion| lease.fence.history.iter().any(|attempt| attempt.promotion.is_same(promotion));
    let reports = world.members.values().filter_map(|member| member.report.as_ref());
    let mut promotions = reports.flat_map(|report| report.position.iter().flat_map(|position| &position.chain));
    promotions.any(|promotion| promotion.epoch == lease.epoch && !recorded(promotion))
}

/// Whether `reason` is one of a repair.
pub(super) fn is_reason(reason: &str) -> bool {
    matches!(reason, OLDER_STORE | LEASE_LOST)
}

/// Whether the active operation repairs.
pub(super) fn is_running(world: &World) -> bool {
    let reason = world.operations().active.as_ref().and_then(|active| active.reason.as_deref());
    reason.is_some_and(is_reason)
}

/// The Lease as a round of a repair judges it: with what the members have reported since it was raised. What is named
/// is recorded with it.
pub(super) fn informed(world: &World, lease: &Lease) -> Lease {
    let mut lease = lease.clone();
    learn(world, &mut lease.fence);
    lease
}

/// Puts back into the record what the members' folders still know: every promotion beneath anybody's data used up its
/// timeline, and was a win unless its own member says that it was never recorded (F9).
pub(super) fn learn(world: &World, fence: &mut Fence) {
    for report in world.members.values().filter_map(|member| member.report.as_ref()) {
        for promotion in report.position.iter().flat_map(|position| &position.chain) {
            let unrecorded = report.unrecorded_attempt.as_ref().is_some_and(|attempt| attempt.epoch == promotion.epoch);
            // By the timeline as well: a member that was started anew may have tried twice in one epoch.
            let known = fence.history.iter_mut().find(|attempt| attempt.promotion.is_same(promotion));
            match known {
                Some(attempt) => attempt.won |= !unrecorded,
                None => fence.history.push(Attempt { promotion: promotion.clone(), won: !unrecorded }),
            }
        }
    }
    fence.history.sort_by_key(|attempt| attempt.promotion.epoch);
    fence.members.extend(world.members.keys().cloned());
    if fence.system_id.is_none() {
        fence.system_id.clone_from(&world.memory.system_id);
    }
}
