//! Worlds as the controller of a cluster could see them, and as it could not.

use super::Tape;
use super::values::{epoch, fence, identity, moment, name, near, number, report, short, uid_of};
use coregent_core::failover::{
    Cluster, DataLoss, Holder, LastFailover, Lease, LeaseView, Lossless, Member, Memory, Mode, Pod, PrimaryCopy,
    SwitchoverRequest, Termination, World, loss,
};
use coregent_core::names::{Epoch, HolderIdentity, MemberName};
use coregent_core::operation::{BlockingOperation, OperationId, Operations, Outcome, StepId};
use coregent_core::report::MemberState;
use coregent_core::wallclock::Timestamp;
use std::collections::BTreeMap;

/// Around the thirtieth of November 2026, or anywhere.
pub(super) fn wall(t: &mut Tape) -> Timestamp {
    match t.byte() {
        0..=223 => Timestamp(1_796_000_000_000 + 200 * i64::from(t.byte())),
        224..=231 => Timestamp(i64::MAX),
        232..=239 => Timestamp(i64::MIN),
        _ => Timestamp(t.long().cast_signed()),
    }
}

fn cluster(t: &mut Tape) -> Cluster {
    let mode = if t.chance(96) { Mode::Async } else { Mode::Quorum };
    let k = if t.chance(24) { short(t) } else { u32::from(mode == Mode::Quorum) };
    Cluster {
        name: if t.chance(8) { t.pick(&["", "orders-1", "ö"]).to_owned() } else { "orders".into() },
        replicas: if t.chance(32) { short(t) } else { 3 },
        mode,
        k,
        failover_disabled: t.chance(24),
        delay: if t.chance(24) { number(t) } else { 30_000 },
        max_lag: t.maybe(32, number),
        paused: t.chance(6),
        deleting: t.chance(6),
        waits_for: t.some(1, |_| String::new()).into_iter().filter(|_| t.chance(32)).collect(),
        base_config: !t.chance(32),
        switchover: t
            .maybe(48, |t| SwitchoverRequest { id: t.pick(&["x", "y", ""]).to_owned(), to: t.maybe(180, name) }),
        lease_duration: if t.chance(16) { number(t) } else { 6_000 },
    }
}

fn pod(t: &mut Tape, member: &MemberName, about: u64) -> Pod {
    Pod {
        name: if t.chance(6) { "orders-1-0".into() } else { format!("{member}-0") },
        uid: uid_of(t, member),
        version: t.pick(&["50", "51", "", "x", "18446744073709551616"]).to_owned(),
        host: t.maybe(200, |_| "n1".to_owned()),
        node_ready: !t.chance(48),
        node_leaving: t.chance(24),
        running: !t.chance(48),
        ready: !t.chance(64),
        deleting: t.chance(24),
        role: t.maybe(160, |t| t.pick(&["replica", "primary", "", "Primary"]).to_owned()),
        stamp: t.maybe(64, |t| epoch(t, about)),
        trouble: t.maybe(16, |_| "it cannot be pulled".to_owned()),
    }
}

fn member(t: &mut Tape, of: &MemberName, about: u64) -> Member {
    Member {
        report: t.maybe(240, |t| report(t, of, about)),
        report_seen: moment(t),
        report_moved: t.maybe(64, moment),
        pod: t.maybe(240, |t| pod(t, of, about)),
        claim: !t.chance(32),
    }
}

fn operation(t: &mut Tape, about: u64) -> BlockingOperation {
    use StepId::{
        BaseConfigDeploying, PrimaryDbDeploying, PrimaryDbFailingOver, PrimaryDbSwitchingOver,
        PrimaryDbWaitingBeforeFailingOver, ReplicaDbDeploying, ReplicaDbUndeploying, Transition,
    };
    let reasons = [
        loss::RELEASED,
        loss::SHORT_OF_ACKNOWLEDGEMENTS,
        "StoreOlderThanMembers",
        "LeaseLost",
        "SwitchoverUndone",
        "SwitchoverRequested",
        "PrimaryNodeNotReady",
        loss::NOT_TAKEN,
        "",
    ];
    BlockingOperation {
        operation_id: t.pick(&[
            OperationId::PrimaryDbCountSpecEnforcement,
            OperationId::ReplicaDbCountSpecEnforcement,
            OperationId::BaseConfigCountSpecEnforcement,
            OperationId::StatefulSetSpecEnforcing,
        ]),
        step_id: t.pick(&[
            PrimaryDbWaitingBeforeFailingOver,
            PrimaryDbFailingOver,
            PrimaryDbSwitchingOver,
            PrimaryDbWaitingBeforeFailingOver,
            PrimaryDbFailingOver,
            PrimaryDbSwitchingOver,
            PrimaryDbDeploying,
            ReplicaDbDeploying,
            BaseConfigDeploying,
            ReplicaDbUndeploying,
            Transition,
        ]),
        id: t.pick(&["x", "y", ""]).to_owned(),
        started_at: if t.chance(24) {
            t.pick(&["", "soon", "9999-12-31T23:59:60Z"]).to_owned()
        } else {
            wall(t).to_string()
        },
        deadline: wall(t).to_string(),
        attempt: if t.chance(24) { short(t) } else { 1 + u32::from(t.byte() % 2) },
        subject: t.maybe(220, |t| name(t).to_string()),
        epoch: near(t, about),
        reason: t.maybe(230, |t| t.pick(&reasons).to_owned()),
        message: None,
        outcome: t.maybe(24, |_| Outcome::TimedOut),
    }
}

fn memory(t: &mut Tape, about: u64) -> Memory {
    Memory {
        operations: Operations {
            active: t.maybe(170, |t| operation(t, about)),
            previous: t.maybe(32, |t| operation(t, about)),
        },
        primary: PrimaryCopy {
            target: t.maybe(200, name),
            current: t.maybe(160, name),
            epoch: if t.chance(16) { epoch(t, about) } else { Epoch(about.saturating_sub(u64::from(t.byte() % 2))) },
            since: t.maybe(200, wall),
        },
        last_created_index: if t.chance(24) { short(t) } else { 3 },
        system_id: t.maybe(200, |_| "7".to_owned()),
        handled_request: t.maybe(64, |t| t.pick(&["x", "x: why", "", "y"]).to_owned()),
        last_failover: t.maybe(64, |t| LastFailover {
            from: t.maybe(200, name),
            to: name(t),
            reason: String::new(),
            epoch: epoch(t, about),
            detected_at: wall(t),
            completed_at: t.maybe(64, wall),
            data_loss: DataLoss {
                from_lsn: None,
                last_seen_primary_lsn: None,
                unseen_for: None,
                lossless: Lossless::Unknown,
            },
        }),
    }
}

fn lease(t: &mut Tape, about: u64) -> LeaseView {
    if t.chance(16) {
        return if t.coin() { LeaseView::Absent } else { LeaseView::Invalid { why: String::new() } };
    }
    let fence = fence(t, about);
    LeaseView::Present(Box::new(Lease {
        version: t.pick(&["90", "90", "", "x"]).to_owned(),
        epoch: Epoch(about),
        holder: match t.below(4) {
            0 => Holder::Nobody,
            1 => Holder::Stranger(t.pick(&["x", "", "orders-1"]).to_owned()),
            // Mostly whoever is named.
            _ => match (&fence.target, t.coin()) {
                (Some(target), true) => Holder::Member(HolderIdentity {
                    member: target.member.clone(),
                    pod_uid: format!("u{}", target.member),
                    nonce: "n".into(),
                }),
                _ => Holder::Member(identity(t)),
            },
        },
        fence,
        unchanged_since: moment(t),
        epoch_since: moment(t),
        raised_at: if t.chance(24) { number(t) } else { 90 },
    }))
}

/// A named primary that is open, and others that stream: what chance alone hardly ever makes.
fn calm(t: &mut Tape, world: &mut World) {
    let LeaseView::Present(lease) = &mut world.lease else { return };
    let Some(primary) = world.members.keys().next().cloned() else { return };
    let holder = identity(t);
    if let Some(target) = &mut lease.fence.target {
        target.member = primary.clone();
    }
    let uid = format!("u{primary}");
    lease.holder =
        Holder::Member(HolderIdentity { member: primary.clone(), pod_uid: uid, nonce: holder.nonce.clone() });
    lease.unchanged_since = world.now;
    let settled = t.coin();
    if settled {
        let copy = &mut world.memory.primary;
        (copy.target, copy.current, copy.epoch) = (Some(primary.clone()), Some(primary.clone()), lease.epoch);
        world.memory.system_id = lease.fence.system_id.clone();
    }
    for (name, member) in &mut world.members {
        if let Some(pod) = member.pod.as_mut().filter(|_| settled) {
            pod.role = Some(if *name == primary { "primary" } else { "replica" }.to_owned());
        }
        let Some(report) = &mut member.report else { continue };
        report.state = if *name == primary { MemberState::Primary } else { MemberState::Streaming };
        report.ready = true;
        report.epoch = lease.epoch;
        (report.left, report.unrecorded_attempt) = (None, None);
        report.nonce.clone_from(&holder.nonce);
    }
    world.memory.operations.active = world.memory.operations.active.take().filter(|_| t.coin());
}

/// Nothing is there yet, or hardly anything.
fn begun(t: &mut Tape, world: &mut World) {
    world.lease = LeaseView::Absent;
    world.members.values_mut().for_each(|member| {
        member.report = None;
        member.claim = t.chance(24);
    });
    world.memory.primary = PrimaryCopy::default();
    (world.memory.system_id, world.memory.last_created_index) = (None, u32::from(t.chance(48)));
    world.terminated.clear();
}

/// A world.
pub(super) fn world(t: &mut Tape) -> World {
    let mut world = unfit(t);
    match t.byte() {
        0..=127 => {}
        128..=159 => begun(t, &mut world),
        _ => calm(t, &mut world),
    }
    world
}

fn unfit(t: &mut Tape) -> World {
    let about = if t.chance(230) { 1 + u64::from(t.byte() % 3) } else { number(t) };
    let members: BTreeMap<MemberName, Member> = t
        .some(4, name)
        .into_iter()
        .chain((0..3).map(|at| MemberName::of("orders", at + 1)))
        .filter_map(|of| t.chance(236).then(|| (of.clone(), member(t, &of, about))))
        .collect();
    let facts = [
        "named-and-not-taken",
        "lease-behind-members",
        "short-of-acknowledgements",
        "holder-not-promoted",
        "primary-node-not-ready",
        "silent orders-1",
        "",
    ];
    World {
        now: moment(t),
        wall: wall(t),
        cluster: cluster(t),
        memory: memory(t, about),
        step_seen: moment(t),
        lease: lease(t, about),
        grant: t.maybe(200, name),
        members,
        instances: t.maybe(232, |t| if t.chance(48) { t.some(4, short) } else { vec![1, 2, 3] }),
        terminated: t
            .some(2, |t| {
                let gone = name(t);
                let version = if t.coin() { 91 } else { number(t) };
                (uid_of(t, &gone), Termination { container_id: "c".into(), how: String::new(), version })
            })
            .into_iter()
            .collect(),
        held: facts.into_iter().filter_map(|fact| t.maybe(180, |t| (fact.to_owned(), moment(t)))).collect(),
    }
}
