//! One table a rule; the schedules under the rules of failover.md are its rows. A test builds a world in a few lines,
//! decides, and compares the printed steps.

mod bootstrap;
mod choice;
mod fencing;
mod growth;
mod losses;
mod notready;
mod planned;
mod properties;
mod repaired;
mod shown;

use super::*;
use crate::fence::{Attempt, Fence, Proof, Release, SyncSet, Target};
use crate::lsn::{Lsn, Timeline};
use crate::names::{Epoch, HolderIdentity, MemberName, Monotonic};
use crate::operation::{BlockingOperation, OperationId, StepId};
use crate::position::{Position, Promotion};
use crate::report::{self, MemberReport, MemberState, Standby};
use crate::wallclock::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Long after everything in these worlds began.
pub(super) const NOW: u64 = 100_000;

pub(super) fn name(member: &str) -> MemberName {
    MemberName(format!("orders-{member}"))
}

pub(super) fn holder(member: &str) -> HolderIdentity {
    HolderIdentity { member: name(member), pod_uid: format!("u{member}"), nonce: "n".into() }
}

pub(super) fn names(members: &[&str]) -> BTreeSet<MemberName> {
    members.iter().map(|member| name(member)).collect()
}

pub(super) fn set(epoch: u64, primary: &str, members: &[&str], complete: bool) -> SyncSet {
    SyncSet {
        epoch: Epoch(epoch),
        k: 1,
        members: names(members),
        primary: Some(name(primary)),
        complete,
        degraded: false,
    }
}

pub(super) fn promotion(epoch: u64, member: &str, timeline: u32, fork: Option<u64>) -> Promotion {
    Promotion { epoch: Epoch(epoch), member: name(member), timeline: Timeline(timeline), fork_lsn: fork.map(Lsn) }
}

pub(super) fn win(epoch: u64, member: &str, timeline: u32, fork: u64) -> Attempt {
    Attempt { promotion: promotion(epoch, member, timeline, Some(fork)), won: true }
}

pub(super) fn report(member: &str, epoch: u64, state: MemberState, lsn: u64) -> MemberReport {
    MemberReport {
        version: report::VERSION,
        member: name(member),
        pod_uid: format!("u{member}"),
        nonce: "n".into(),
        agent: String::new(),
        address: format!("127.64.0.{member}:5432"),
        epoch: Epoch(epoch),
        left: None,
        state,
        position: Some(Position { timeline: Timeline(1), lsn: Lsn(lsn), chain: Vec::new() }),
        unrecorded_attempt: None,
        inconsistent: false,
        system_id: Some("7".into()),
        standbys: Vec::new(),
        flushed_lsn: None,
        ready: matches!(state, MemberState::Primary | MemberState::Streaming),
        warnings: BTreeSet::new(),
        source: None,
        last_error: None,
        prepared: None,
        handled_request: None,
    }
}

pub(super) fn pod(member: &str) -> Pod {
    Pod {
        name: format!("orders-{member}-0"),
        uid: format!("u{member}"),
        version: "50".into(),
        host: Some("n1".into()),
        node_ready: true,
        node_leaving: false,
        running: true,
        ready: true,
        deleting: false,
        role: Some("replica".into()),
        stamp: None,
        trouble: None,
    }
}

/// Three members; orders-1 holds epoch 1 with `ANY 1 (2, 3)`, everybody streams, all is well.
pub(super) fn healthy() -> World {
    let mut members = BTreeMap::new();
    for member in ["1", "2", "3"] {
        let state = if member == "1" { MemberState::Primary } else { MemberState::Streaming };
        let mut known = Member {
            report: Some(report(member, 1, state, 1_000)),
            report_seen: Monotonic(NOW - 500),
            report_moved: None,
            pod: Some(pod(member)),
            claim: true,
        };
        if member == "1" {
            known.pod.as_mut().unwrap().role = Some("primary".into());
            known.report.as_mut().unwrap().standbys = ["2", "3"]
                .map(|member| Standby { member: name(member), streaming: true, sync: true, lag_bytes: Some(0) })
                .to_vec();
        }
        members.insert(name(member), known);
    }
    World {
        now: Monotonic(NOW),
        wall: Timestamp(1_796_000_000_000),
        cluster: Cluster {
            name: "orders".into(),
            replicas: 3,
            mode: Mode::Quorum,
            k: 1,
            failover_disabled: false,
            delay: 30_000,
            max_lag: None,
            paused: false,
            deleting: false,
            waits_for: Vec::new(),
            base_config: true,
            switchover: None,
            lease_duration: 6_000,
        },
        memory: Memory {
            primary: PrimaryCopy {
                target: Some(name("1")),
                current: Some(name("1")),
                epoch: Epoch(1),
                since: Some(Timestamp(1_795_000_000_000)),
            },
            last_created_index: 3,
            system_id: Some("7".into()),
            ..Memory::default()
        },
        step_seen: Monotonic(NOW),
        lease: LeaseView::Present(Box::new(Lease {
            version: "90".into(),
            epoch: Epoch(1),
            holder: Holder::Member(holder("1")),
            fence: Fence {
                target: Some(target("1", Proof::Bootstrap)),
                sync_sets: vec![set(1, "1", &["2", "3"], true)],
                system_id: Some("7".into()),
                members: names(&["1", "2", "3"]),
                ..Fence::default()
            },
            unchanged_since: Monotonic(NOW - 1_000),
            epoch_since: Monotonic(1),
            raised_at: 10,
        })),
        grant: Some(name("1")),
        members,
        instances: Some(vec![1, 2, 3]),
        terminated: BTreeMap::new(),
        held: BTreeMap::new(),
    }
}

pub(super) fn target(member: &str, proof: Proof) -> Target {
    Target {
        member: name(member),
        address: format!("127.64.0.{member}:5432"),
        proof,
        initial_sync: BTreeSet::new(),
        must_reach_lsn: None,
        rest_of_log: None,
    }
}

pub(super) fn operation(step: StepId, epoch: u64, reason: &str, subject: &str) -> BlockingOperation {
    BlockingOperation {
        operation_id: OperationId::PrimaryDbCountSpecEnforcement,
        step_id: step,
        id: "x".into(),
        started_at: Timestamp(1_796_000_000_000).to_string(),
        deadline: Timestamp(1_796_000_010_000).to_string(),
        attempt: 1,
        subject: Some(name(subject).to_string()),
        epoch,
        reason: Some(reason.into()),
        message: None,
        outcome: None,
    }
}

/// The healthy world after a raise to epoch 2: orders-1 released at 1000, nobody has left yet.
pub(super) fn raised() -> World {
    let mut world = healthy();
    world.lease_mut().epoch = Epoch(2);
    world.lease_mut().holder = Holder::Nobody;
    world.lease_mut().epoch_since = Monotonic(NOW - 20);
    world.lease_mut().raised_at = 90;
    world.lease_mut().fence.target = None;
    world.lease_mut().fence.release =
        Some(Release { member: name("1"), epoch: Epoch(1), timeline: Timeline(1), end_lsn: Lsn(1_000) });
    world.memory.operations.active =
        Some(operation(StepId::PrimaryDbWaitingBeforeFailingOver, 1, super::loss::RELEASED, "1"));
    world.memory.primary.current = None;
    world.memory.primary.target = None;
    for member in ["1", "2", "3"] {
        world.pod_mut(member).role = Some("replica".into());
        world.pod_mut(member).stamp = Some(Epoch(2));
        world.report_mut(member).state = MemberState::Standby;
    }
    world
}

impl World {
    pub(super) fn lease_mut(&mut self) -> &mut Lease {
        match &mut self.lease {
            LeaseView::Present(lease) => lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    pub(super) fn member_mut(&mut self, member: &str) -> &mut Member {
        self.members.get_mut(&name(member)).unwrap()
    }

    pub(super) fn pod_mut(&mut self, member: &str) -> &mut Pod {
        self.member_mut(member).pod.as_mut().unwrap()
    }

    pub(super) fn report_mut(&mut self, member: &str) -> &mut MemberReport {
        self.member_mut(member).report.as_mut().unwrap()
    }

    /// `member` leaves for `epoch` with its data ending at `lsn` on the history of `chain`.
    pub(super) fn leaves(&mut self, member: &str, epoch: u64, lsn: u64, chain: &[Promotion]) {
        let report = self.report_mut(member);
        // The old primary of these worlds has stopped.
        report.state = if member == "1" { MemberState::Stopped } else { MemberState::Standby };
        report.epoch = Epoch(epoch);
        report.left = Some(Epoch(epoch));
        let timeline = chain.last().map_or(Timeline(1), |last| last.timeline);
        report.position = Some(Position { timeline, lsn: Lsn(lsn), chain: chain.to_vec() });
    }

    /// Its machine is gone: no word from it, its node does not answer.
    pub(super) fn lost(&mut self, member: &str) {
        self.pod_mut(member).node_ready = false;
    }
}

pub(super) fn steps(world: &World) -> Vec<String> {
    decide(world).steps.iter().map(ToString::to_string).collect()
}

/// The member that a decision names, with its proof.
pub(super) fn named(world: &World) -> Option<(String, Proof, BTreeSet<MemberName>)> {
    decide(world).steps.into_iter().find_map(|step| match step {
        Step::Name { fence, .. } => {
            fence.target.map(|target| (target.member.to_string(), target.proof, target.initial_sync))
        }
        _ => None,
    })
}
