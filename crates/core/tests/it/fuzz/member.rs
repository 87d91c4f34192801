//! Worlds as the agent of a member could see them, and as it could not.

use super::Tape;
use super::values::{chain, epoch, fence, identity, lsn, moment, name, names, number, position, promotion, short};
use coregent_core::fence::Proof;
use coregent_core::member::{
    Data, Engine, Held, JobKind, Mode, Names, PrimaryLease, Settings, Source, Standby, StandbySeen, Timing, Volume,
    WhenTooFew, World, Writable,
};
use coregent_core::names::{Epoch, HolderIdentity, MemberName};

/// Every kind of job.
pub(super) const KINDS: [JobKind; 16] = [
    JobKind::InitDb,
    JobKind::Clone,
    JobKind::Rewind,
    JobKind::Start,
    JobKind::SetUp,
    JobKind::Leave,
    JobKind::Fetch,
    JobKind::Follow,
    JobKind::Promote,
    JobKind::Open,
    JobKind::Checkpoint,
    JobKind::SetNames,
    JobKind::Strengthen,
    JobKind::Marker,
    JobKind::Slots,
    JobKind::Stop,
];

fn in_force(t: &mut Tape) -> Names {
    match t.below(4) {
        0 => Names::Placeholder,
        1 => Names::Nobody,
        _ => Names::Any { k: if t.chance(24) { short(t) } else { 1 }, members: names(t, 3) },
    }
}

fn standby(t: &mut Tape, about: u64) -> Standby {
    let source =
        t.maybe(128, |t| Source { epoch: epoch(t, about), member: name(t), address: "127.64.0.1:5432".into() });
    let position = position(t);
    Standby {
        receiver: t.chance(if source.is_some() { 220 } else { 24 }),
        streaming: t.chance(if source.is_some() { 180 } else { 12 }),
        settled: t.chance(if source.is_some() { 24 } else { 220 }),
        cut: t.chance(12),
        replayed: if t.chance(48) { lsn(t) } else { position.lsn },
        position,
        open: t.coin(),
        next_slots: names(t, 3),
        source,
    }
}

fn writable(t: &mut Tape, about: u64) -> Writable {
    let position = position(t);
    Writable {
        since: moment(t),
        checkpoint_timeline: if t.chance(96) { coregent_core::lsn::Timeline(short(t)) } else { position.timeline },
        position,
        checkpointing: t.chance(48),
        prepared: t.maybe(48, |_| "x".to_owned()),
        set_up: !t.chance(24),
        open: t.coin(),
        names: in_force(t),
        proved: t.coin(),
        slots: if t.coin() { (1..4).map(|index| MemberName::of("orders", index)).collect() } else { names(t, 4) },
        standbys: t
            .some(3, |t| {
                let seen = StandbySeen { caught_up: t.coin(), sync: t.coin(), seen: moment(t) };
                (name(t), seen)
            })
            .into_iter()
            .filter(|_| about < u64::MAX)
            .collect(),
    }
}

fn engine(t: &mut Tape, about: u64) -> Engine {
    match t.below(8) {
        0..=1 => Engine::Stopped { position: t.maybe(220, position) },
        2 => Engine::Starting,
        3..=4 => Engine::Standby(standby(t, about)),
        _ => Engine::Writable(writable(t, about)),
    }
}

fn timing(t: &mut Tape) -> Timing {
    if t.chance(232) {
        return Timing::default();
    }
    Timing { duration: number(t), renew: number(t), request: number(t), stop_by: number(t) }
}

fn lease(t: &mut Tape, about: u64, me: &HolderIdentity) -> PrimaryLease {
    let mut fence = fence(t, about);
    // Mostly this member is named.
    if let Some(target) = fence.target.as_mut().filter(|_| t.chance(160)) {
        target.member = me.member.clone();
    }
    let mut fence = Ok(fence);
    if t.chance(8) {
        fence = Err("it is not readable".to_owned());
    }
    PrimaryLease {
        epoch: Epoch(about),
        holder: match t.below(6) {
            0..=2 => Some(me.to_string()),
            3 => None,
            4 => Some(identity(t).to_string()),
            _ => Some(t.pick(&["", "/", "x", "orders-1//", "orders-1/u/n/z"]).to_owned()),
        },
        fence,
        since: moment(t),
        epoch_since: moment(t),
    }
}

fn volume(t: &mut Tape, about: u64) -> Volume {
    let durable = epoch(t, about);
    Volume {
        epoch: durable,
        epoch_at_start: epoch(t, about),
        attempt: t.maybe(96, |t| if t.coin() { promotion(t) } else { chain(t).pop().unwrap_or_else(|| promotion(t)) }),
        attempt_recorded: t.coin(),
        data: match t.below(12) {
            0..=8 => Data::Present { system_id: t.pick(&["7", "7", "7", "8", ""]).to_owned() },
            9 => Data::Absent,
            10 => Data::Unusable(String::new()),
            _ => Data::Broken("x".into()),
        },
        inconsistent: t.chance(12),
    }
}

/// Makes it fit where chance alone hardly ever does: the names in force are the recorded ones and their members stream, or
/// there is no cluster yet.
fn fit(t: &mut Tape, world: &mut World) {
    let about = world.epoch();
    let Some(Ok(fence)) = world.lease.as_mut().map(|lease| lease.fence.as_mut()) else { return };
    if t.chance(24) {
        (fence.history, fence.chain, fence.sync_sets, fence.system_id) = (Vec::new(), Vec::new(), Vec::new(), None);
        if let Some(target) = &mut fence.target {
            target.proof = Proof::Bootstrap;
        }
        (world.volume.data, world.volume.attempt) = (Data::Absent, None);
        world.engine = Engine::Stopped { position: None };
    } else if t.chance(48) {
        let other = MemberName::of("orders", 4);
        let target = fence.target.get_or_insert_with(|| super::values::target(t));
        target.member = other.clone();
        fence.chain = chain(t);
        fence.system_id = Some("7".into());
        world.volume.attempt = None;
        let holder = HolderIdentity { member: other, pod_uid: "u".into(), nonce: "n".into() }.to_string();
        world.lease.iter_mut().for_each(|lease| lease.holder = Some(holder.clone()));
    } else if let (Some(set), Engine::Writable(writable)) =
        (fence.sync_sets.iter_mut().find(|set| Some(set.epoch) == about), &mut world.engine)
        && t.chance(96)
    {
        let epoch = set.epoch;
        world.held = Some(Held { epoch, sent: world.now, tried: world.now, failed: false });
        world.volume.epoch = epoch;
        writable.names = Names::Any { k: set.k, members: set.members.clone() };
        writable.standbys = set
            .members
            .iter()
            .map(|member| (member.clone(), StandbySeen { caught_up: t.coin(), sync: t.coin(), seen: moment(t) }))
            .collect();
    }
}

/// A world.
pub(super) fn world(t: &mut Tape) -> World {
    let mut world = unfit(t);
    if t.coin() {
        fit(t, &mut world);
    }
    world
}

fn unfit(t: &mut Tape) -> World {
    let about = if t.chance(230) { 1 + u64::from(t.byte() % 3) } else { number(t) };
    let me = HolderIdentity { member: name(t), pod_uid: "u".into(), nonce: "n".into() };
    let settings = Settings {
        mode: if t.chance(64) { Mode::Async } else { Mode::Quorum },
        when_too_few: if t.coin() { WhenTooFew::Block } else { WhenTooFew::Degrade },
        timing: timing(t),
    };
    World {
        now: moment(t),
        lease: t.maybe(248, |t| lease(t, about, &me)),
        me,
        address: "127.64.0.9:5432".into(),
        settings,
        bootstrap_grant: t.coin(),
        held: t.maybe(160, |t| Held {
            epoch: epoch(t, about),
            sent: moment(t),
            tried: moment(t),
            failed: t.chance(48),
        }),
        released: t.maybe(32, |t| epoch(t, about)),
        volume: volume(t, about),
        engine: engine(t, about),
        was_writable: t.coin(),
        job: t.maybe(48, |t| t.pick(&KINDS)),
        towards: t.maybe(96, |t| Source { epoch: epoch(t, about), member: name(t), address: "127.64.0.2:5432".into() }),
        retry: t.maybe(32, |t| (t.pick(&KINDS), moment(t))),
        failing: t.chance(16),
        writing: t.chance(24),
        leaving: t.chance(16),
    }
}
