//! What the database controller sees of one cluster when it decides: plain values, the time included.

use crate::fence::{Fence, InvalidFence, Release};
use crate::names::{Epoch, HolderIdentity, MemberName, Monotonic};
use crate::operation::Operations;
use crate::report::{MemberReport, MemberState};
use crate::wallclock::Timestamp;
use std::collections::BTreeMap;

use super::memory::Memory;

/// One cluster at one moment.
#[derive(Debug, Clone)]
pub struct World {
    /// The controller's own CLOCK_BOOTTIME. Every waiting is measured by it (F2).
    pub now: Monotonic,
    /// The wall clock: for records and for deadlines that outlive the controller.
    pub wall: Timestamp,
    /// What the spec asks for.
    pub cluster: Cluster,
    /// The part of the status that decisions depend on.
    pub memory: Memory,
    /// Since when this controller has seen the active step of the operation.
    pub step_seen: Monotonic,
    /// The primary Lease.
    pub lease: LeaseView,
    /// The member that the create-only bootstrap grant names (F14).
    pub grant: Option<MemberName>,
    /// Every member of which anything is known.
    pub members: BTreeMap<MemberName, Member>,
    /// `spec.instances` of the cluster's RSM; `None` while there is no RSM.
    pub instances: Option<Vec<u32>>,
    /// Pods whose database container was reported terminated, the removed ones included, by `metadata.uid`.
    pub terminated: BTreeMap<String, Termination>,
    /// Since when facts that an earlier decision named in [`Decision::holding`](super::Decision::holding) have held.
    pub held: BTreeMap<String, Monotonic>,
}

/// What the spec asks for.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Name of the DatabaseCluster.
    pub name: String,
    /// Members wanted.
    pub replicas: u32,
    /// Mode of replication.
    pub mode: Mode,
    /// Acknowledgements wanted, never more than there are others; 0 in async mode.
    pub k: u32,
    /// No failover without a person.
    pub failover_disabled: bool,
    /// Wait before a failover that may lose writes (F10), milliseconds.
    pub delay: u64,
    /// Bytes that a promoted member may be behind the last seen primary; unlimited when absent.
    pub max_lag: Option<u64>,
    /// `spec.paused`.
    pub paused: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// What a person named and is absent, one line each, for example a Secret. Nothing is deployed before it is there.
    pub waits_for: Vec<String>,
    /// The base configuration, Secrets and account that members need are there.
    pub base_config: bool,
    /// A planned hand-over that a person asks for.
    pub switchover: Option<SwitchoverRequest>,
    /// Duration of the primary Lease (F2), milliseconds.
    pub lease_duration: u64,
}

impl Cluster {
    /// Whether members can be made.
    pub fn deployable(&self) -> bool {
        self.waits_for.is_empty() && self.base_config
    }
}

/// Mode of replication (F7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A write is acknowledged once k others have it.
    Quorum,
    /// The primary alone.
    Async,
}

/// Annotation `coregent.io/switchover`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchoverRequest {
    /// Names the request, so that it is handled once.
    pub id: String,
    /// Who is to be primary; the best member when absent.
    pub to: Option<MemberName>,
}

/// The primary Lease as it was read.
#[derive(Debug, Clone)]
pub enum LeaseView {
    /// There is none.
    Absent,
    /// Its record cannot be acted on: nobody is promoted under it (F1).
    Invalid {
        /// Why.
        why: String,
    },
    /// It is there.
    Present(Box<Lease>),
}

impl LeaseView {
    /// The view of a Lease whose record was not readable.
    pub fn invalid(error: &InvalidFence) -> LeaseView {
        LeaseView::Invalid { why: error.to_string() }
    }
}

/// A readable primary Lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// `metadata.resourceVersion`: every write is conditional on it.
    pub version: String,
    /// `spec.leaseTransitions`.
    pub epoch: Epoch,
    /// Who holds it.
    pub holder: Holder,
    /// The record beside it.
    pub fence: Fence,
    /// When this controller received its last change; counted only while reads succeed (F2).
    pub unchanged_since: Monotonic,
    /// When this controller first saw this epoch.
    pub epoch_since: Monotonic,
    /// The greatest resourceVersion that the raise to this epoch can have: the one at which it was first seen.
    pub raised_at: u64,
}

/// Who holds the primary Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// This run of this agent.
    Member(HolderIdentity),
    /// A text that is no identity of ours: only its running out frees the Lease.
    Stranger(String),
}

impl Holder {
    /// The holding member.
    pub fn member(&self) -> Option<&MemberName> {
        match self {
            Holder::Member(identity) => Some(&identity.member),
            _ => None,
        }
    }
}

/// How long a member's probe must contradict its report before it counts as silent: a container that has just started is
/// probed a moment later, and a single probe may be late on a busy machine. Milliseconds.
pub(super) const SILENT_FOR: u64 = 2_000;

/// A Lease unchanged for so long is no sign of a living agent any more: two renewals were missed. Milliseconds.
pub(super) const RENEWED_WITHIN: u64 = 3_200;

/// A report that changed so long ago is none either. A position that moves is published every 10 s.
const SPOKE_WITHIN: u64 = 15_000;

/// Name of the fact that a member seems silent, for [`World::held`].
pub(super) fn silence_of(member: &MemberName) -> String {
    format!("silent {member}")
}

/// What is known of one member.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// What it last published.
    pub report: Option<MemberReport>,
    /// When this controller received that.
    pub report_seen: Monotonic,
    /// When this controller last saw it change, on its own clock. One that it has found and not seen change since may be of
    /// any age: `None`.
    pub report_moved: Option<Monotonic>,
    /// Its pod.
    pub pod: Option<Pod>,
    /// It has a claim, thus perhaps a volume with data.
    pub claim: bool,
}

/// A pod of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// Host that it runs on.
    pub host: Option<String>,
    /// Its node reports Ready: it answers.
    pub node_ready: bool,
    /// Its node takes no new pods: it is being drained or about to be.
    pub node_leaving: bool,
    /// Its database container runs.
    pub running: bool,
    /// Its database container is ready.
    pub ready: bool,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Label `coregent.io/role`.
    pub role: Option<String>,
    /// Annotation `coregent.io/epoch`: the epoch for which it was stamped (F4).
    pub stamp: Option<Epoch>,
    /// What keeps it from running, in one line.
    pub trouble: Option<String>,
}

/// A database container that its node reported terminated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    /// Its containerID.
    pub container_id: String,
    /// How it ended, for people: `signal 9`, `exit code 1`; empty where its node does not say.
    pub how: String,
    /// The resourceVersion of the first pod status that said so.
    pub version: u64,
}

impl Member {
    /// Whether it has data as far as is known.
    pub fn has_data(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.position.is_some() || report.system_id.is_some())
    }
}

impl World {
    /// The readable Lease, if there is one.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.lease {
            LeaseView::Present(lease) => Some(lease),
            _ => None,
        }
    }

    /// Members that there are to be: as many as are asked for, and never fewer than there are, since nobody is removed.
    pub fn wanted(&self) -> usize {
        let existing = self.instances.as_ref().map_or(0, Vec::len);
        existing.max(self.cluster.replicas as usize)
    }

    /// The operation in the status.
    pub fn operations(&self) -> &Operations {
        &self.memory.operations
    }

    /// How long the active step has been going on. The wall clock counts across restarts of the controller, the
    /// monotonic one when the wall clock was set back.
    pub fn step_elapsed(&self) -> u64 {
        let by_wall = self
            .operations()
            .active
            .as_ref()
            .and_then(|active| active.started_at.parse::<Timestamp>().ok())
            .map_or(0, |started| self.wall.since(started));
        by_wall.max(self.now.since(self.step_seen))
    }

    /// Its agent runs as far as anybody can tell, and what it published is its own.
    ///
    /// A node that is called NotReady has not told of itself for a while; what its agent says meanwhile is nearer to the
    /// truth. After the API server was away kube-controller-manager calls every node NotReady for a minute.
    pub fn is_live(&self, member: &Member) -> bool {
        match (&member.pod, &member.report) {
            (Some(pod), Some(report)) => {
                let runs = pod.running && !pod.deleting && report.pod_uid == pod.uid;
                runs && (pod.node_ready || self.speaks(member, report))
            }
            _ => false,
        }
    }

    /// It gave a sign of life a moment ago, on this controller's clock: it renewed the Lease that it holds, or its report
    /// changed and is of the Lease's epoch.
    fn speaks(&self, member: &Member, report: &MemberReport) -> bool {
        let Some(lease) = self.lease() else { return false };
        let holds = matches!(&lease.holder, Holder::Member(holder)
            if holder.pod_uid == report.pod_uid && holder.nonce == report.nonce);
        let renews = holds && self.now.since(lease.unchanged_since) < RENEWED_WITHIN;
        let moved = member.report_moved.is_some_and(|moved| self.now.since(moved) < SPOKE_WITHIN);
        renews || (moved && report.epoch == lease.epoch)
    }

    /// What its agent says it does, if that agent still runs.
    pub fn live_state(&self, member: &Member) -> Option<MemberState> {
        member.report.as_ref().filter(|_| self.is_live(member)).map(|report| report.state)
    }

    /// See [`World::live_state`].
    pub fn live_state_of(&self, member: &MemberName) -> Option<MemberState> {
        self.members.get(member).and_then(|known| self.live_state(known))
    }

    /// Its members' report, if it belongs to the pod that runs now.
    pub fn live_report(&self, member: &MemberName) -> Option<&MemberReport> {
        self.members.get(member).filter(|known| self.is_live(known)).and_then(|known| known.report.as_ref())
    }

    /// Its report says that it is ready, and the probe of its pod says that it is not: one who is frozen reports nothing.
    pub(super) fn seems_silent(&self, member: &MemberName) -> bool {
        let unanswered = self.members.get(member).and_then(|known| known.pod.as_ref()).is_some_and(|pod| !pod.ready);
        unanswered && self.live_report(member).is_some_and(|report| report.ready)
    }

    /// It has seemed so for a while.
    pub(super) fn is_silent(&self, member: &MemberName) -> bool {
        self.seems_silent(member) && self.held_for(&silence_of(member)).is_some_and(|held| held >= SILENT_FOR)
    }

    /// For how long the fact `name` has held, if it was named in the decision before.
    pub fn held_for(&self, name: &str) -> Option<u64> {
        self.held.get(name).map(|since| self.now.since(*since))
    }
}

impl Lease {
    /// The release of the newest recorded winner, if it left one and nobody has won since (F10). A fence without any
    /// win is that of the first epoch, whose primary is no attempt.
    pub fn standing_release(&self) -> Option<&Release> {
        let newest = self.fence.last_win().map(|win| win.epoch);
        self.fence.release.as_ref().filter(|release| newest.is_none_or(|newest| release.epoch >= newest))
    }

    /// Whether the Lease was watched without a change for its whole duration (F2).
    pub fn is_expired(&self, world: &World) -> bool {
        world.now.since(self.unchanged_since) >= world.cluster.lease_duration
    }
}
