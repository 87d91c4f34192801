//! Leaving for an election round (F6).

use crate::fence::Fence;
use crate::member::action::Job;
use crate::member::decide::{Outline, idle, source_epoch};
use crate::member::world::{Engine, JobKind, PrimaryLease, Standby, World};

/// How long the successor of a planned hand-over keeps its receiver to get all of the holder's log.
const HANDOVER_MILLIS: u64 = 2_000;

/// A standby that streams under an older epoch, or has not made this one durable: leaving does both.
pub(super) fn leaves(world: &World) -> bool {
    let Engine::Standby(standby) = &world.engine else { return false };
    let newer = world.epoch().is_some_and(|epoch| epoch > world.volume.epoch);
    let streams_older = source_epoch(world).is_some_and(|epoch| Some(epoch) < world.epoch());
    newer || streams_older || (standby.source.is_none() && !standby.settled)
}

/// Leaves where that is due. True while the round has not been left.
pub(super) fn leave(world: &World, lease: &PrimaryLease, fence: &Fence, out: &mut Outline) -> bool {
    let Engine::Standby(standby) = &world.engine else { return false };
    if !leaves(world) {
        return false;
    }
    if waits_for_the_rest(world, lease, fence, standby) {
        out.wait("the rest of the old primary's log");
        out.wake_at(lease.epoch_since.plus(HANDOVER_MILLIS));
        return true;
    }
    if idle(world) || world.job.is_some_and(JobKind::gives_way) {
        out.begin(world, Job::Leave { epoch: lease.epoch });
    }
    true
}

/// The successor in a planned hand-over keeps its receiver until it has all that the holder's release names.
fn waits_for_the_rest(world: &World, lease: &PrimaryLease, fence: &Fence, standby: &Standby) -> bool {
    let Some(handover) = fence.handover.as_ref().filter(|handover| handover.to == world.me.member) else {
        return false;
    };
    let in_time = world.now.since(lease.epoch_since) < HANDOVER_MILLIS;
    let has_all = fence.release.as_ref().is_some_and(|release| {
        release.member == handover.from && release.epoch < lease.epoch && standby.replayed >= release.end_lsn
    });
    in_time && standby.receiver && fence.target.is_none() && !has_all
}
