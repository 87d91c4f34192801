//! Following the holder: by reload, by a plain start, after a rewind or with a fresh copy (F9, F12).

use crate::fence::Fence;
use crate::lsn::Lsn;
use crate::member::action::{Job, Source};
use crate::member::decide::{Outline, idle, idle_names};
use crate::member::sync_set;
use crate::member::world::{Data, Engine, JobKind, PrimaryLease, Standby, World};
use crate::position::{Position, Promotion};

/// How this member's history stands to the holder's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It can stream as it is.
    Follows,
    /// Its log goes on beyond the fork of the next promotion: it has to be rewound.
    BeyondFork(Lsn),
    /// It ends on a parent, and where the child forks is not recorded yet.
    ForkUnknown,
    /// Its chain is not a prefix of the holder's: only a fresh copy helps.
    Foreign,
}

/// Compares a position with the holder's chain (F9: by the chain, never by the timeline's number alone).
pub fn relation(position: &Position, chain: &[Promotion]) -> Relation {
    let common = position.chain.iter().zip(chain).take_while(|(a, b)| a.is_same(b)).count();
    if common < position.chain.len() {
        return Relation::Foreign;
    }
    match chain.get(common).map(|next| next.fork_lsn) {
        None => Relation::Follows,
        Some(None) => Relation::ForkUnknown,
        Some(Some(fork)) if position.lsn <= fork => Relation::Follows,
        Some(Some(fork)) => Relation::BeyondFork(fork),
    }
}

/// The steps of a member that another one is the target of.
pub(super) fn rejoin(world: &World, lease: &PrimaryLease, fence: &Fence, out: &mut Outline) {
    let (Some(target), Some(_)) = (&fence.target, world.granted()) else {
        out.wait("the target to take the Lease");
        return;
    };
    let attempt = fence.history.last().filter(|last| last.promotion.epoch == lease.epoch);
    // Without an attempt in this epoch the holder goes on with a timeline that is won, or has just bootstrapped.
    let won = attempt.is_none_or(|attempt| attempt.won) && fence.system_id.is_some();
    let source = Source { epoch: lease.epoch, member: target.member.clone(), address: target.address.clone() };
    match &world.engine {
        Engine::Standby(standby) => standing(world, fence, standby, source, out),
        Engine::Stopped { position } => stopped(world, fence, position.as_ref(), won, source, out),
        Engine::Starting => starting(world, &source, out),
        Engine::Writable(_) => {}
    }
}

/// A rewound server answers only once it has got what it lacks from its source: where that is reached elsewhere by now, its
/// pod having come back in an unchanged epoch, it is started anew towards it.
fn starting(world: &World, source: &Source, out: &mut Outline) {
    let elsewhere = world.towards.as_ref().is_some_and(|towards| towards != source);
    if world.volume.inconsistent && elsewhere && idle(world) {
        out.stop(world, false, false, "the primary that it was rewound to is reached elsewhere by now");
    }
}

fn standing(world: &World, fence: &Fence, standby: &Standby, source: Source, out: &mut Outline) {
    if world.unrecorded_attempt().is_some() {
        out.stop(world, false, false, "its own promotion was never recorded");
        return;
    }
    if standby.cut {
        out.stop(world, false, false, "its log ends within a record whose rest never comes");
        return;
    }
    match relation(&standby.position, &fence.chain) {
        Relation::Foreign => out.stop(world, false, false, "its history is not the primary's"),
        Relation::BeyondFork(_) => out.stop(world, false, false, "its log goes on beyond the fork"),
        // Losers follow before the target has promoted and pass the switch by themselves (F6).
        Relation::Follows | Relation::ForkUnknown if standby.source.as_ref() != Some(&source) => {
            // One that waits for another source, or for this one where it was before, may wait for ever.
            let elsewhere = world.job == Some(JobKind::Follow) && world.towards.as_ref() != Some(&source);
            if idle(world) || elsewhere {
                out.begin(world, Job::Follow { source, chain: fence.chain.clone() });
            }
        }
        Relation::Follows | Relation::ForkUnknown => {
            let admitted = sync_set::admitted(world, fence);
            if !standby.streaming || !idle(world) {
            } else if !standby.open {
                out.begin(world, Job::Open);
            } else if standby.next_slots != admitted {
                // Made while nothing is urgent: each costs several syncs, and a promotion would wait for them.
                out.begin(world, Job::Slots { epoch: source.epoch.next(), members: admitted });
            }
        }
    }
}

fn stopped(world: &World, fence: &Fence, position: Option<&Position>, won: bool, source: Source, out: &mut Outline) {
    if !won {
        out.wait("the primary's promotion to be recorded");
        return;
    }
    if !idle(world) {
        return;
    }
    let chain = fence.chain.clone();
    let fresh_copy = match world.volume.data {
        Data::Absent | Data::Unusable(_) => true,
        Data::Present { .. } => world.unrecorded_attempt().is_some(),
        Data::Broken(_) => return,
    };
    if fresh_copy {
        out.begin(world, Job::Clone { source, chain });
        return;
    }
    let Some(position) = position else {
        out.wait("the local log to be read to its end");
        return;
    };
    out.begin(
        world,
        match relation(position, &chain) {
            Relation::Follows => {
                Job::Start { writable: false, follow: Some((source, chain)), names: idle_names(world) }
            }
            Relation::BeyondFork(_) => Job::Rewind { source, chain },
            Relation::Foreign => Job::Clone { source, chain },
            Relation::ForkUnknown => {
                out.wait("the fork of the primary's timeline to be recorded");
                return;
            }
        },
    );
}
