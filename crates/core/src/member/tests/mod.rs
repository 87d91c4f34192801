//! A table for each rule, and properties over any world.

mod holder;
mod properties;
mod rounds;
mod sync;

use super::*;
use crate::fence::{Attempt, Fence, Preparation, Proof, Release, RestOfLog, SyncSet, Target};
use crate::lsn::{Lsn, Timeline};
use crate::names::{Epoch, HolderIdentity, MemberName, Monotonic};
use crate::position::{Position, Promotion};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Monotonic = Monotonic(100_000);

fn names(indexes: &[u32]) -> BTreeSet<MemberName> {
    indexes.iter().map(|index| MemberName::of("orders", *index)).collect()
}

fn identity(index: u32) -> HolderIdentity {
    HolderIdentity { member: MemberName::of("orders", index), pod_uid: format!("u{index}"), nonce: "n".to_owned() }
}

fn promotion(epoch: u64, index: u32, timeline: u32, fork: Option<u64>) -> Promotion {
    Promotion {
        epoch: Epoch(epoch),
        member: MemberName::of("orders", index),
        timeline: Timeline(timeline),
        fork_lsn: fork.map(Lsn),
    }
}

fn at(lsn: u64, chain: &[Promotion]) -> Position {
    let timeline = chain.last().map_or(Timeline(1), |last| last.timeline);
    Position { timeline, lsn: Lsn(lsn), chain: chain.to_vec() }
}

fn target(index: u32, proof: Proof) -> Target {
    Target {
        member: MemberName::of("orders", index),
        address: format!("127.64.0.{index}:5432"),
        proof,
        initial_sync: BTreeSet::new(),
        must_reach_lsn: None,
        rest_of_log: None,
    }
}

/// Epoch 2: orders-1 bootstrapped, orders-2 is promoted from it at 100 if `won` says so.
fn fence(named: Option<Target>) -> Fence {
    Fence { target: named, members: names(&[1, 2, 3]), system_id: Some("7".to_owned()), ..Fence::default() }
}

fn lease(epoch: u64, holder: Option<u32>, fence: Fence) -> PrimaryLease {
    PrimaryLease {
        epoch: Epoch(epoch),
        holder: holder.map(|index| identity(index).to_string()),
        fence: Ok(fence),
        since: NOW,
        epoch_since: NOW,
    }
}

fn standby(lsn: u64, chain: &[Promotion]) -> Standby {
    Standby {
        source: None,
        receiver: false,
        streaming: false,
        settled: true,
        cut: false,
        replayed: Lsn(lsn),
        position: at(lsn, chain),
        open: true,
        next_slots: names(&[]),
    }
}

fn writable(lsn: u64, chain: &[Promotion]) -> Writable {
    Writable {
        since: Monotonic(99_000),
        position: at(lsn, chain),
        checkpoint_timeline: chain.last().map_or(Timeline(1), |last| last.timeline),
        checkpointing: false,
        prepared: None,
        set_up: true,
        open: true,
        names: Names::Placeholder,
        proved: false,
        slots: BTreeSet::new(),
        standbys: BTreeMap::new(),
    }
}

fn source(epoch: u64, index: u32) -> Source {
    Source { epoch: Epoch(epoch), member: MemberName::of("orders", index), address: format!("127.64.0.{index}:5432") }
}

/// Member `index` with a stopped engine, complete data and nothing to do.
fn world(index: u32, lease: PrimaryLease) -> World {
    World {
        now: NOW,
        me: identity(index),
        address: format!("127.64.0.{index}:5432"),
        settings: Settings { mode: Mode::Quorum, when_too_few: WhenTooFew::Block, timing: Timing::default() },
        volume: Volume {
            epoch: lease.epoch,
            epoch_at_start: lease.epoch,
            attempt: None,
            attempt_recorded: false,
            data: Data::Present { system_id: "7".to_owned() },
            inconsistent: false,
        },
        lease: Some(lease),
        bootstrap_grant: false,
        held: None,
        released: None,
        engine: Engine::Stopped { position: Some(at(100, &[])) },
        was_writable: false,
        job: None,
        towards: None,
        retry: None,
        failing: false,
        writing: false,
        leaving: false,
    }
}

/// The holder of `lease`, which renewed a moment ago.
fn holding(index: u32, lease: PrimaryLease) -> World {
    let epoch = lease.epoch;
    let mut world = world(index, lease);
    let sent = Monotonic(NOW.0 - 500);
    world.held = Some(Held { epoch, sent, tried: sent, failed: false });
    world
}

fn job(world: &World) -> Option<Job> {
    decide(world).actions.into_iter().find_map(|action| match action {
        Action::Engine(job) => Some(job),
        _ => None,
    })
}

fn write(world: &World) -> Option<LeaseWrite> {
    decide(world).actions.into_iter().find_map(|action| match action {
        Action::Lease(write) => Some(*write),
        _ => None,
    })
}

fn takes(world: &World) -> bool {
    write(world).is_some_and(|write| write.purpose == Purpose::Take)
}
