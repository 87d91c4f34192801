//! The sync set: what is recorded is never stronger than what runs (F7, F8).

use crate::fence::{Fence, SyncSet};
use crate::member::action::{Job, Names};
use crate::member::decide::{Outline, idle};
use crate::member::world::{Mode, WhenTooFew, World, Writable};
use crate::names::MemberName;
use std::collections::BTreeSet;

/// A name in the set that has not streamed for this long is taken out, if enough others stream.
const GONE_MILLIS: u64 = 5_000;

/// Nobody in the set has streamed for this long: with `whenTooFew: Degrade` commits no longer wait.
const DEGRADE_MILLIS: u64 = 10_000;

/// The names that the record of this epoch stands for.
pub(super) fn recorded_names(world: &World, fence: &Fence) -> Names {
    if world.settings.mode == Mode::Async {
        return Names::Nobody;
    }
    match fence.sync_sets.iter().find(|set| Some(set.epoch) == world.epoch()) {
        Some(set) => names_of(set),
        None => Names::Placeholder,
    }
}

fn names_of(set: &SyncSet) -> Names {
    if set.degraded {
        return Names::Nobody;
    }
    if set.members.is_empty() || set.k == 0 {
        // F7: an empty set is the placeholder, never an empty setting; nor does a commit ever wait for none of them.
        return Names::Placeholder;
    }
    Names::Any { k: set.k, members: set.members.clone() }
}

/// The members that get a slot of this epoch: all but this one (F6).
pub(super) fn admitted(world: &World, fence: &Fence) -> BTreeSet<MemberName> {
    fence.members.iter().filter(|member| **member != world.me.member).cloned().collect()
}

/// Keeps record and names together while the holder serves.
pub(super) fn keep(world: &World, next: &mut Fence, writable: &Writable, out: &mut Outline) {
    let recorded_now = world.fence().map(|fence| recorded_names(world, fence));
    if world.settings.mode == Mode::Async {
        put_in_force(world, Names::Nobody, writable, out);
        return;
    }
    let Some(epoch) = world.epoch() else { return };
    let members = next.members.clone();
    let Some(set) = next.sync_sets.iter_mut().find(|set| set.epoch == epoch) else {
        // The take records it; a Lease made by an older program may lack it.
        next.sync_sets.push(SyncSet {
            epoch,
            k: 1,
            members: BTreeSet::new(),
            primary: Some(world.me.member.clone()),
            complete: false,
            degraded: false,
        });
        return;
    };
    let Some(recorded_now) = recorded_now else { return };
    let caught_up: BTreeSet<MemberName> =
        writable.standbys.iter().filter(|(_, seen)| seen.caught_up).map(|(name, _)| name.clone()).collect();
    // Fewer names run than are recorded: either one is being added (recorded first, it streams) or one is being taken
    // out (it is gone; what is proved to run is recorded afterwards, and unproved it is proved first).
    if let Names::Any { members: in_force, .. } = &writable.names
        && *in_force != set.members
        && !in_force.is_empty()
        && in_force.is_subset(&set.members)
        && set.members.difference(in_force).all(|name| !caught_up.contains(name))
        && !set.degraded
    {
        if writable.proved {
            set.members.clone_from(in_force);
        } else if idle(world) {
            out.begin(world, Job::Strengthen(writable.names.clone()));
        }
        return;
    }
    let undegraded = Names::Any { k: set.k, members: set.members.clone() };
    let acknowledging = set.members.iter().filter(|name| writable.standbys.get(*name).is_some_and(|seen| seen.sync));
    let enough_back = is_enough(acknowledging.count(), set.k);
    if set.degraded && enough_back && writable.proved && writable.names == undegraded {
        set.degraded = false; // it runs and is proved, so it may be recorded
        return;
    }
    if recorded_now != writable.names {
        put_in_force(world, recorded_now, writable, out);
        return;
    }
    if weaken(set, &caught_up.intersection(&members).cloned().collect()) {
        return;
    }
    if degrade(world, set, writable, &caught_up, out) || strengthen(world, set, writable, &caught_up, out) {
        return;
    }
    let acknowledged = set.members.iter().any(|name| writable.standbys.get(name).is_some_and(|seen| seen.sync));
    if set.complete || !acknowledged || set.degraded {
        return;
    }
    if writable.proved {
        set.complete = true;
        next.sync_sets.retain(|other| other.epoch >= epoch);
    } else if idle(world) {
        out.begin(world, Job::Marker);
    }
}

/// Adds members that stream and have caught up: recorded first, in force afterwards (F8).
fn weaken(set: &mut SyncSet, ready: &BTreeSet<MemberName>) -> bool {
    if set.degraded || ready.is_subset(&set.members) {
        return false;
    }
    set.members.extend(ready.iter().cloned());
    true
}

fn degrade(
    world: &World,
    set: &mut SyncSet,
    writable: &Writable,
    caught_up: &BTreeSet<MemberName>,
    out: &mut Outline,
) -> bool {
    if world.settings.when_too_few == WhenTooFew::Block || set.degraded || set.members.is_empty() {
        return false;
    }
    let enough = set.members.intersection(caught_up).count() >= set.k as usize;
    if enough || !writable.open {
        return false;
    }
    let last_seen = set.members.iter().filter_map(|name| writable.standbys.get(name)).map(|seen| seen.seen).max();
    let since = last_seen.unwrap_or(writable.since).max(writable.since);
    let at = since.plus(DEGRADE_MILLIS);
    if world.now < at {
        out.wake_at(at);
        return false;
    }
    set.degraded = true;
    true
}

/// Takes names out that are gone, and ends a degraded state: in force and proved first, recorded afterwards (F8).
fn strengthen(
    world: &World,
    set: &mut SyncSet,
    writable: &Writable,
    caught_up: &BTreeSet<MemberName>,
    out: &mut Outline,
) -> bool {
    if set.degraded {
        let back: BTreeSet<MemberName> = set.members.intersection(caught_up).cloned().collect();
        if is_enough(back.len(), set.k) && idle(world) {
            out.begin(world, Job::Strengthen(Names::Any { k: set.k, members: set.members.clone() }));
        }
        return false;
    }
    let gone = |name: &MemberName| {
        let seen = writable.standbys.get(name).map_or(writable.since, |seen| seen.seen.max(writable.since));
        let streams = caught_up.contains(name);
        (!streams).then(|| seen.plus(GONE_MILLIS))
    };
    let mut remaining = BTreeSet::new();
    for name in &set.members {
        match gone(name) {
            Some(at) if world.now >= at => {}
            Some(at) => {
                out.wake_at(at);
                remaining.insert(name.clone());
            }
            None => {
                remaining.insert(name.clone());
            }
        }
    }
    let streaming = remaining.intersection(caught_up).count();
    if remaining == set.members || !is_enough(streaming, set.k) {
        return false;
    }
    if idle(world) {
        out.begin(world, Job::Strengthen(Names::Any { k: set.k, members: remaining }));
    }
    true
}

/// So many streaming members can acknowledge what waits for `k`.
fn is_enough(streaming: usize, k: u32) -> bool {
    k > 0 && streaming >= k as usize
}

fn put_in_force(world: &World, names: Names, writable: &Writable, out: &mut Outline) {
    if names != writable.names && idle(world) {
        out.begin(world, Job::SetNames(names));
    }
}
