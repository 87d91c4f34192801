//! Names, numbers and records as nobody should ever write them.

use super::Tape;
use coregent_core::fence::{
    Attempt, Fence, Handover, Preparation, Proof, Release, RestOfLog, SyncSet, Target, VERSION,
};
use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::names::{Epoch, HolderIdentity, MemberName, Monotonic};
use coregent_core::position::{Position, Promotion};
use coregent_core::report::{self, MemberReport, MemberState, Reach, SourceReached, Standby};
use std::collections::BTreeSet;

/// Names that are none, or that look like another's.
const ODD: [&str; 10] = [
    "",
    "orders-",
    "orders-4294967295",
    "orders-01",
    "ordérs-1☃",
    "a/b",
    "orders-1/u1/n",
    ",",
    "orders-2,orders-3",
    "\u{0}",
];

/// Ends of ranges.
const EXTREME: [u64; 8] = [
    u64::MAX,
    u64::MAX - 1,
    i64::MAX as u64,
    u32::MAX as u64,
    u32::MAX as u64 - 1,
    i32::MAX as u64,
    i32::MAX as u64 - 1,
    i32::MAX as u64 + 1,
];

/// A small number nearly always, else the end of a range or anything.
pub(super) fn number(t: &mut Tape) -> u64 {
    match t.byte() {
        0..=223 => u64::from(t.byte() % 5),
        224..=239 => t.pick(&EXTREME),
        240..=247 => u64::from(t.byte()),
        _ => t.long(),
    }
}

/// Mostly `about` itself or a neighbour.
pub(super) fn near(t: &mut Tape, about: u64) -> u64 {
    match t.byte() {
        0..=159 => about,
        160..=191 => about.saturating_sub(1),
        192..=215 => about.saturating_add(1),
        _ => number(t),
    }
}

pub(super) fn epoch(t: &mut Tape, about: u64) -> Epoch {
    Epoch(near(t, about))
}

pub(super) fn short(t: &mut Tape) -> u32 {
    u32::try_from(number(t)).unwrap_or(u32::MAX)
}

/// A moment before, at or after 100,000.
pub(super) fn moment(t: &mut Tape) -> Monotonic {
    Monotonic(match t.byte() {
        0..=99 => 100_000,
        100..=199 => 100_000 - 50 * u64::from(t.byte()),
        200..=229 => 100_000 - 400 * u64::from(t.byte()).min(249),
        230..=239 => 100_000 + u64::from(t.byte()),
        _ => number(t),
    })
}

pub(super) fn lsn(t: &mut Tape) -> Lsn {
    Lsn(match t.byte() {
        0..=99 => 1_000,
        100..=223 => 900 + u64::from(t.byte()),
        _ => number(t),
    })
}

pub(super) fn timeline(t: &mut Tape) -> Timeline {
    Timeline(short(t))
}

pub(super) fn name(t: &mut Tape) -> MemberName {
    match t.byte() {
        byte @ 0..=247 => MemberName::of("orders", u32::from(byte % 4) + 1),
        _ => MemberName::from(t.pick(&ODD)),
    }
}

pub(super) fn names(t: &mut Tape, most: usize) -> BTreeSet<MemberName> {
    t.some(most, name).into_iter().collect()
}

/// The uid that the pod of `member` mostly has.
pub(super) fn uid_of(t: &mut Tape, member: &MemberName) -> String {
    if t.chance(16) { t.pick(&["u", "", "uorders-1"]).to_owned() } else { format!("u{member}") }
}

pub(super) fn identity(t: &mut Tape) -> HolderIdentity {
    let member = name(t);
    let pod_uid = uid_of(t, &member);
    HolderIdentity { member, pod_uid, nonce: if t.chance(24) { "other".into() } else { "n".into() } }
}

pub(super) fn promotion(t: &mut Tape) -> Promotion {
    Promotion { epoch: Epoch(number(t)), member: name(t), timeline: timeline(t), fork_lsn: t.maybe(200, lsn) }
}

/// A chain, now and then one of the few that many members share.
pub(super) fn chain(t: &mut Tape) -> Vec<Promotion> {
    let shared = |epoch: u64, member: u32, fork: u64| Promotion {
        epoch: Epoch(epoch),
        member: MemberName::of("orders", member),
        timeline: Timeline(u32::try_from(epoch).unwrap_or(2)),
        fork_lsn: Some(Lsn(fork)),
    };
    match t.below(4) {
        0 => Vec::new(),
        1 => vec![shared(2, 2, 950)],
        2 => vec![shared(2, 2, 950), shared(3, 3, 1_000)],
        _ => t.some(3, promotion),
    }
}

pub(super) fn position(t: &mut Tape) -> Position {
    let chain = chain(t);
    let fitting = chain.last().map_or(Timeline(1), |last| last.timeline);
    let timeline = if t.chance(24) { timeline(t) } else { fitting };
    Position { timeline, lsn: lsn(t), chain }
}

pub(super) fn proof(t: &mut Tape) -> Proof {
    match t.below(6) {
        0 => Proof::Released,
        1 => Proof::Expired,
        2 => Proof::QuorumFence,
        3 => Proof::Terminated { container_id: "c".into() },
        4 => Proof::PoweredOff,
        _ => Proof::Bootstrap,
    }
}

fn rest_of_log(t: &mut Tape) -> RestOfLog {
    RestOfLog { member: name(t), agent: "127.0.0.2:1".into(), timeline: timeline(t), end_lsn: lsn(t) }
}

pub(super) fn target(t: &mut Tape) -> Target {
    Target {
        member: name(t),
        address: if t.chance(16) { String::new() } else { "127.64.0.1:5432".into() },
        proof: proof(t),
        initial_sync: names(t, 3),
        must_reach_lsn: t.maybe(48, lsn),
        rest_of_log: t.maybe(48, rest_of_log),
    }
}

fn sync_set(t: &mut Tape, about: u64) -> SyncSet {
    SyncSet {
        epoch: epoch(t, about),
        k: if t.chance(32) { short(t) } else { 1 },
        members: names(t, 3),
        primary: t.maybe(200, name),
        complete: t.coin(),
        degraded: t.chance(48),
    }
}

pub(super) fn release(t: &mut Tape, about: u64) -> Release {
    Release { member: name(t), epoch: epoch(t, about), timeline: timeline(t), end_lsn: lsn(t) }
}

/// A record beside epoch `about`.
pub(super) fn fence(t: &mut Tape, about: u64) -> Fence {
    let attempt = |t: &mut Tape| {
        let promotion = Promotion { epoch: epoch(t, about), ..promotion(t) };
        Attempt { promotion, won: t.coin() }
    };
    Fence {
        version: if t.chance(4) { short(t) } else { VERSION },
        target: t.maybe(140, target),
        handover: t.maybe(32, |t| Handover { from: name(t), to: name(t) }),
        preparing: t.maybe(32, |t| Preparation { id: "x".into(), from: name(t), to: name(t) }),
        sync_sets: t.some(3, |t| sync_set(t, about)),
        history: t.some(3, attempt),
        release: t.maybe(64, |t| release(t, about)),
        system_id: t.maybe(200, |t| t.pick(&["7", "7", "7", "8", ""]).to_owned()),
        members: if t.chance(200) {
            (1..4).map(|index| MemberName::of("orders", index)).collect()
        } else {
            names(t, 4)
        },
        restored: t.chance(12),
        chain: chain(t),
    }
}

pub(super) fn state(t: &mut Tape) -> MemberState {
    use MemberState::{
        Copying, Failed, Fetching, Initialising, Primary, Promoting, Recovering, Rewinding, Starting, Stopped,
        Stopping, WaitingForSource,
    };
    t.pick(&[
        MemberState::Streaming,
        MemberState::Standby,
        Primary,
        Stopped,
        MemberState::Streaming,
        MemberState::Standby,
        Primary,
        Starting,
        WaitingForSource,
        Initialising,
        Copying,
        Recovering,
        Rewinding,
        Fetching,
        Promoting,
        Stopping,
        Failed,
    ])
}

/// A report of `member`, which may say that it is another's.
pub(super) fn report(t: &mut Tape, member: &MemberName, about: u64) -> MemberReport {
    MemberReport {
        version: report::VERSION,
        member: if t.chance(8) { name(t) } else { member.clone() },
        pod_uid: uid_of(t, member),
        nonce: if t.chance(24) { "other".into() } else { "n".into() },
        address: if t.chance(16) { String::new() } else { "127.64.0.1:5432".into() },
        agent: if t.coin() { String::new() } else { "127.64.0.1:1".into() },
        epoch: epoch(t, about),
        left: t.maybe(140, |t| epoch(t, about)),
        state: state(t),
        position: t.maybe(232, position),
        unrecorded_attempt: t.maybe(24, promotion),
        inconsistent: t.chance(24),
        system_id: t.maybe(220, |t| t.pick(&["7", "7", "7", "7", "8", ""]).to_owned()),
        standbys: t.some(3, |t| Standby {
            member: name(t),
            streaming: t.coin(),
            sync: t.coin(),
            lag_bytes: t.maybe(200, number),
        }),
        flushed_lsn: t.maybe(64, lsn),
        ready: t.coin(),
        warnings: BTreeSet::new(),
        source: t.maybe(96, |t| SourceReached {
            member: name(t),
            reach: t.pick(&[Reach::Refuses, Reach::Refuses, Reach::Silent, Reach::Answers]).to_owned(),
        }),
        last_error: t.maybe(24, |_| "ä\n\u{0}".to_owned()),
        prepared: t.maybe(64, |_| "x".to_owned()),
        handled_request: None,
    }
}
