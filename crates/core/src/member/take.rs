//! Who may take the Lease, and what is written when it does (F1, F4, F5, F9).

use crate::fence::{Attempt, Fence, Proof, SyncSet};
use crate::lsn::Timeline;
use crate::member::action::{Action, LeaseWrite, Purpose};
use crate::member::world::{Data, Engine, Mode, World};
use crate::names::Monotonic;
use crate::position::{Position, Promotion};

/// Why the target does not take the Lease yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotYet {
    /// For good in this epoch, or until something else changes.
    Because(String),
    /// Until this instant.
    Until(Monotonic, String),
}

/// Whether the target may make itself holder, as far as the Lease says (F1, F4, F5). The proof is the controller's
/// judgement; what can be checked here is checked again.
pub(super) fn permitted(world: &World) -> Result<(), NotYet> {
    let because = |text: &str| Err(NotYet::Because(text.to_owned()));
    let (Some(lease), Some(fence)) = (&world.lease, world.fence()) else { return because("the Lease to be readable") };
    let Some(target) = fence.target.as_ref().filter(|target| target.member == world.me.member) else {
        return because("a grant");
    };
    if fence.restored {
        return because("the controller to hear every member: an older copy of the API's store was put back");
    }
    if world.released == Some(lease.epoch) {
        return because("a new epoch: this process has released the Lease in this one");
    }
    let Some(holder) = &lease.holder else { return Ok(()) };
    if *holder == world.me.to_string() {
        return Ok(()); // an earlier take whose answer was lost
    }
    // F5: the predecessor of this very volume, proved dead by the volume's lock, in an unchanged epoch.
    if lease.is_held_by(&world.me.member) && world.volume.epoch_at_start == lease.epoch {
        return Ok(());
    }
    match &target.proof {
        Proof::Terminated { .. } | Proof::QuorumFence | Proof::PoweredOff => Ok(()),
        Proof::Released | Proof::Bootstrap => because("the holder to be cleared, as the proof says"),
        Proof::Expired => {
            let at = lease.since.plus(world.settings.timing.duration);
            if world.now >= at {
                return Ok(());
            }
            Err(NotYet::Until(at, "the Lease to run out by this agent's own clock".to_owned()))
        }
    }
}

/// The take, if the target may and its data can follow from it.
pub(super) fn take(world: &World) -> Result<Action, NotYet> {
    permitted(world)?;
    let because = |text: &str| NotYet::Because(text.to_owned());
    let (Some(lease), Some(fence)) = (&world.lease, world.fence()) else { return Err(because("the Lease")) };
    let must_reach = fence.target.as_ref().and_then(|target| target.must_reach_lsn);
    let reached = |position: &Position| must_reach.is_none_or(|lsn| position.lsn >= lsn);
    let position = match (&world.volume.data, &world.engine) {
        (Data::Absent, Engine::Stopped { .. }) if may_initialise(world, fence) => None,
        (Data::Present { .. }, Engine::Stopped { position: Some(position) }) if reached(position) => Some(position),
        (Data::Present { .. }, Engine::Standby(standby))
            if standby.settled && standby.source.is_none() && reached(&standby.position) =>
        {
            Some(&standby.position)
        }
        (Data::Present { .. }, Engine::Stopped { position: None } | Engine::Starting) => {
            return Err(because("the local log to be read to its end"));
        }
        (Data::Present { .. }, _) => return Err(because("the receiver to be gone and the local log to be replayed")),
        (Data::Absent, _) => return Err(because("the bootstrap grant: there is no data here")),
        (Data::Unusable(why) | Data::Broken(why), _) => return Err(NotYet::Because(why.clone())),
    };
    if world.volume.inconsistent && matches!(world.engine, Engine::Stopped { .. }) {
        return Err(because("the source that it was rewound to: it is not consistent without"));
    }
    let mut fence = fence.clone();
    // Only the one that is named says where it is reached: a pod that comes back in an unchanged epoch has another address,
    // and its replicas would go on looking for it at the old one.
    if let Some(target) = &mut fence.target {
        target.address.clone_from(&world.address);
    }
    // A retake by the same member in the same epoch goes on with what is recorded; an epoch without history is
    // the bootstrap, whose primary has not been promoted.
    let written_before =
        world.is_holder() && fence.history.last().is_some_and(|last| !last.won && last.promotion.epoch == lease.epoch);
    if let Some(position) = position.filter(|_| !written_before && !goes_on(world, &fence)) {
        let Some(timeline) = allot(world, &fence, position) else {
            return Err(because("a timeline: the last that there can be has been used"));
        };
        let attempt = Promotion { epoch: lease.epoch, member: world.me.member.clone(), timeline, fork_lsn: None };
        fence.history.push(Attempt { promotion: attempt.clone(), won: false });
        fence.chain = position.chain.iter().cloned().chain([attempt]).collect();
    }
    if fence.release.as_ref().is_some_and(|release| release.epoch == lease.epoch) {
        fence.release = None; // it will write beyond that end: an old release must not call a later loss lossless
    }
    record_set(world, &mut fence);
    Ok(Action::Lease(Box::new(LeaseWrite { purpose: Purpose::Take, fence })))
}

/// F9: a timeline that nobody has used, neither by the record nor by this folder. PostgreSQL would not take a number at or
/// below one that the folder is on already, and a record that was put back knows less than the folder.
fn allot(world: &World, fence: &Fence, position: &Position) -> Option<Timeline> {
    let beneath = position.chain.iter().map(|promotion| promotion.timeline).chain([position.timeline]);
    let tried = world.volume.attempt.iter().map(|attempt| attempt.timeline);
    let own = beneath.chain(tried).max().unwrap_or_default().0.checked_add(1)?;
    fence.next_timeline().map(|next| next.max(Timeline(own)))
}

/// F14: initdb needs the grant, a Lease that knows no data, and a grant by bootstrap.
pub(super) fn may_initialise(world: &World, fence: &Fence) -> bool {
    let bootstrap = fence.target.as_ref().is_some_and(|target| target.proof == Proof::Bootstrap);
    bootstrap && world.bootstrap_grant && fence.system_id.is_none() && fence.history.is_empty()
}

/// The engine goes on writable on the timeline that it has: this epoch's promotion is recorded as won by this member,
/// or this is the epoch of the bootstrap (F5).
pub(super) fn goes_on(world: &World, fence: &Fence) -> bool {
    let won_here = fence.history.last().is_some_and(|last| {
        last.won && last.promotion.member == world.me.member && Some(last.promotion.epoch) == world.epoch()
    });
    won_here || is_bootstrap(fence)
}

/// Nobody has ever been promoted and the grant is the bootstrap's.
pub(super) fn is_bootstrap(fence: &Fence) -> bool {
    fence.history.is_empty() && fence.target.as_ref().is_some_and(|target| target.proof == Proof::Bootstrap)
}

/// Records the initial sync set of the epoch before it can be in force (F7).
fn record_set(world: &World, fence: &mut Fence) {
    let (Some(epoch), Some(target)) = (world.epoch(), &fence.target) else { return };
    let recorded = fence.sync_sets.iter().any(|set| set.epoch == epoch);
    if world.settings.mode == Mode::Async || recorded {
        return;
    }
    fence.sync_sets.push(SyncSet {
        epoch,
        k: 1,
        members: target.initial_sync.clone(),
        primary: Some(world.me.member.clone()),
        complete: false,
        degraded: false,
    });
}
