//! What the core is asked about: the world as a member's agent sees it, and as the controller does. A rule that the core
//! itself enforces is switched off by what is shown here.

use super::log::{Log, index, name};
use super::rules::{Off, Rule};
use super::state::{Ended, Host, Lease, Names, Reached, STATES, Server, State, identity};
use super::steps::Bounds;
use coregent_core::failover::{self, Cluster, Holder, LeaseView, Memory, Pod, Termination};
use coregent_core::fence::Fence;
use coregent_core::lsn::Timeline;
use coregent_core::member::{
    Data, Engine, Held, Mode, PrimaryLease, Settings, Source, Standby, StandbySeen, Timing, Volume, WhenTooFew, World,
    Writable,
};
use coregent_core::names::{Epoch, MemberName, Monotonic};
use coregent_core::position::Promotion;
use coregent_core::report::{self, MemberReport, MemberState, Reach, SourceReached};
use coregent_core::wallclock::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Now, for every clock.
pub(super) const NOW: u64 = 1_000_000;
/// Now on the wall.
pub(super) const WALL: Timestamp = Timestamp(1_796_000_000_000);

/// How long everything that is waited for has lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Clock {
    /// It has just begun.
    Early,
    /// Longer than any bound.
    Late,
}

impl Clock {
    pub(super) const BOTH: [Clock; 2] = [Clock::Early, Clock::Late];

    fn ago(self) -> Monotonic {
        Monotonic(if self == Clock::Late { NOW - 500_000 } else { NOW })
    }
}

pub(super) fn address(member: usize) -> String {
    format!("127.64.0.{member}:5432")
}

/// The core's names for a setting.
pub(super) fn core_names(names: Names) -> coregent_core::member::Names {
    use super::state::{NOBODY, PLACEHOLDER};
    match names {
        NOBODY => coregent_core::member::Names::Nobody,
        PLACEHOLDER => coregent_core::member::Names::Placeholder,
        _ => coregent_core::member::Names::Any { k: 1, members: members_of(names) },
    }
}

/// The setting for the core's names.
pub(super) fn setting(names: &coregent_core::member::Names) -> Names {
    use super::state::{NOBODY, PLACEHOLDER};
    match names {
        coregent_core::member::Names::Nobody => NOBODY,
        coregent_core::member::Names::Placeholder => PLACEHOLDER,
        coregent_core::member::Names::Any { members, .. } => {
            members.iter().map(|member| 1 << index(member)).fold(0, |all, bit: u8| all | bit)
        }
    }
}

fn members_of(names: Names) -> BTreeSet<MemberName> {
    (0..3).filter(|member| names & 1 << member != 0).map(name).collect()
}

fn attempt_of(member: usize, attempt: (u8, u8)) -> Promotion {
    Promotion {
        epoch: Epoch(u64::from(attempt.0)),
        member: name(member),
        timeline: Timeline(u32::from(attempt.1)),
        fork_lsn: None,
    }
}

/// The world of member `i`, which has seen the Lease as `lease`.
pub(super) fn member_world(s: &State, i: usize, lease: &Lease, bounds: &Bounds, clock: Clock) -> World {
    let off = bounds.off;
    let m = &s.members[i];
    let late = m.late && off.on(Rule::Deadline);
    let due = s.lapsed && m.view == s.lease;
    let sent = Monotonic(if late { NOW - 5_000 } else { NOW - 100 });
    let tried = Monotonic(if due { NOW - 2_000 } else { sent.0 });
    let deposed = m.held.is_some_and(|held| held < lease.epoch);
    let engine = if deposed && !off.on(Rule::StopNewEpoch) {
        Engine::Stopped { position: Some(m.log.position()) }
    } else {
        engine(s, i, lease, off, clock)
    };
    let mut fence = lease.fence.clone();
    if !off.on(Rule::Ancestry) && fence.chain.iter().any(|beneath| beneath.timeline.0 == u32::from(m.log.timeline())) {
        fence.chain = m.log.chain();
    }
    World {
        now: Monotonic(NOW),
        me: me(s, i, off),
        address: address(i),
        settings: Settings {
            mode: if bounds.quorum { Mode::Quorum } else { Mode::Async },
            when_too_few: if bounds.degrades { WhenTooFew::Degrade } else { WhenTooFew::Block },
            timing: Timing::default(),
        },
        lease: Some(PrimaryLease {
            epoch: lease.core_epoch(),
            holder: lease.holder.as_ref().map(ToString::to_string),
            fence: Ok(fence),
            since: Monotonic(if s.lapsed || !off.on(Rule::Candidate) { NOW - 7_000 } else { NOW }),
            epoch_since: Monotonic(NOW - 60_000),
        }),
        bootstrap_grant: false,
        held: m.held.map(|epoch| Held { epoch: Epoch(u64::from(epoch)), sent, tried, failed: false }),
        released: (m.released > 0).then(|| Epoch(u64::from(m.released))),
        volume: Volume {
            epoch: Epoch(u64::from(m.epoch)),
            epoch_at_start: Epoch(u64::from(if off.on(Rule::SameEpoch) { m.at_start } else { lease.epoch })),
            attempt: m.attempt.filter(|_| off.on(Rule::Attempt)).map(|attempt| attempt_of(i, attempt)),
            attempt_recorded: m.recorded,
            data: if m.unusable {
                Data::Unusable("a promotion nobody asked for".to_owned())
            } else {
                Data::Present { system_id: "7".to_owned() }
            },
            inconsistent: false,
        },
        engine,
        was_writable: m.was_writable,
        job: m.promoting.map(|_| coregent_core::member::JobKind::Promote),
        towards: None,
        retry: None,
        failing: false,
        writing: false,
        leaving: false,
    }
}

pub(super) fn me(s: &State, i: usize, off: Off) -> coregent_core::names::HolderIdentity {
    let m = &s.members[i];
    identity(i, m.pod, if off.on(Rule::Nonce) { m.run } else { 0 })
}

fn engine(s: &State, i: usize, lease: &Lease, off: Off, clock: Clock) -> Engine {
    let m = &s.members[i];
    let position = m.log.position();
    let others: BTreeSet<MemberName> =
        lease.fence.members.iter().filter(|member| **member != name(i)).cloned().collect();
    let bound = off.on(Rule::ConnectionEpoch);
    match m.server {
        Server::Stopped => Engine::Stopped { position: Some(position) },
        Server::Standby => {
            // F6 switched off: it has left by its own word and streams on.
            let said = if m.settled { None } else { m.source };
            Engine::Standby(Standby {
                source: said.map(|(epoch, member)| Source {
                    epoch: Epoch(u64::from(epoch)),
                    member: name(usize::from(member)),
                    address: address(usize::from(member)),
                }),
                receiver: said.is_some(),
                streaming: said.is_some_and(|(_, member)| s.streams(i, usize::from(member), bound)),
                settled: m.settled,
                cut: false,
                replayed: m.log.end(),
                position,
                open: true,
                next_slots: others,
            })
        }
        Server::Writable => Engine::Writable(Writable {
            since: Monotonic(if m.renewed || !off.on(Rule::RenewedOpen) { NOW - 20_000 } else { NOW }),
            checkpoint_timeline: position.timeline,
            position,
            checkpointing: false,
            prepared: None,
            set_up: true,
            open: m.open,
            names: core_names(m.names),
            proved: m.proved,
            slots: others,
            standbys: standbys(s, i, bound, clock),
        }),
    }
}

/// Who streams from `p`, as that one sees it.
fn standbys(s: &State, p: usize, bound: bool, clock: Clock) -> BTreeMap<MemberName, StandbySeen> {
    let seen = |x: usize| {
        if s.streams(x, p, bound) {
            let caught_up = s.members[x].log == s.members[p].log;
            let sync = caught_up && s.members[p].names & 1 << x != 0;
            return StandbySeen { caught_up, sync, seen: Monotonic(NOW) };
        }
        StandbySeen { caught_up: false, sync: false, seen: clock.ago() }
    };
    (0..3).filter(|x| *x != p).map(|x| (name(x), seen(x))).collect()
}

/// The report of member `i` as the API has it.
fn core_report(s: &State, i: usize, lease: &Lease, off: Off) -> MemberReport {
    let r = &s.members[i].report;
    let left = if r.left > 0 && !off.on(Rule::Stamp) { lease.epoch } else { r.left };
    let mut position = r.log.map(Log::position);
    if !off.on(Rule::Newest) {
        let shortest = (0..3).filter_map(|x| s.members[x].report.log).min_by_key(|log| log.len());
        position = position.and(shortest).map(|_| shortest.unwrap_or_default().position());
    }
    MemberReport {
        version: report::VERSION,
        member: name(i),
        pod_uid: identity(i, r.pod, r.run).pod_uid,
        nonce: identity(i, r.pod, if off.on(Rule::Nonce) { r.run } else { 0 }).nonce,
        address: address(i),
        agent: String::new(),
        epoch: Epoch(1),
        left: (left > 0).then(|| Epoch(u64::from(left))),
        state: STATES[usize::from(r.state)],
        position,
        unrecorded_attempt: None,
        inconsistent: false,
        system_id: Some("7".to_owned()),
        source: r.reached.map(|(member, reached)| SourceReached {
            member: name(usize::from(member)),
            reach: match reached {
                Reached::Answers => Reach::Answers,
                Reached::Refuses => Reach::Refuses,
                Reached::Silent => Reach::Silent,
            },
        }),
        standbys: Vec::new(),
        flushed_lsn: None,
        ready: r.ready,
        warnings: BTreeSet::new(),
        last_error: None,
        prepared: None,
        handled_request: None,
    }
}

fn pod(s: &State, i: usize, lease: &Lease, off: Off) -> Pod {
    let m = &s.members[i];
    let holds = lease.holder.as_ref().is_some_and(|holder| index(&holder.member) == i);
    Pod {
        name: format!("{}-0", name(i)),
        uid: identity(i, m.pod, 0).pod_uid,
        version: format!("{}", m.stamp),
        host: Some(format!("n{i}")),
        node_ready: m.answers() && (off.on(Rule::KillFirst) || !holds),
        running: m.agent,
        ready: m.report.ready,
        deleting: false,
        node_leaving: false,
        role: None,
        stamp: (m.stamp > 0).then(|| Epoch(u64::from(m.stamp))),
        trouble: None,
    }
}

fn terminated(s: &State, off: Off) -> BTreeMap<String, Termination> {
    let mut all = BTreeMap::new();
    for (i, m) in s.members.iter().enumerate() {
        for (back, ended) in m.ended.into_iter().enumerate() {
            let silent = back == 0 && !m.answers() && !off.on(Rule::Proof);
            let ended = if silent { Ended::AfterRaise } else { ended };
            let Some(pod) = m.pod.checked_sub(u8::try_from(back).unwrap_or(0)).filter(|_| ended != Ended::Unsaid)
            else {
                continue;
            };
            let version = if ended == Ended::AfterRaise { 1_000 } else { 1 };
            let gone = Termination { container_id: format!("c{i}.{pod}"), how: String::new(), version };
            all.insert(identity(i, pod, 0).pod_uid, gone);
        }
    }
    all
}

/// What the controller is shown of the record.
fn shown(fence: &Fence, off: Off) -> Fence {
    let mut fence = fence.clone();
    let won = |epoch: Epoch, fence: &Fence| {
        epoch == Epoch(1) || fence.history.iter().any(|attempt| attempt.won && attempt.promotion.epoch == epoch)
    };
    if !off.on(Rule::CountAttempted) {
        let all = fence.clone();
        fence.sync_sets.retain(|set| won(set.epoch, &all));
    }
    let all = fence.clone();
    for set in &mut fence.sync_sets {
        set.complete |= !off.on(Rule::Done) && won(set.epoch, &all);
        set.degraded &= off.on(Rule::DegradedEndsFence);
        set.k += u32::from(!off.on(Rule::FenceCount));
    }
    fence
}

/// The world of the controller.
pub(super) fn controller_world(
    s: &State,
    lease: &Lease,
    memory: &Memory,
    bounds: &Bounds,
    clock: Clock,
) -> failover::World {
    let off = bounds.off;
    let ago = clock.ago();
    // A holder that cannot renew is silent for a while before its Lease has run out.
    let renews = lease.holder.as_ref().is_some_and(|holder| {
        let m = &s.members[index(&holder.member)];
        m.acts() && m.api && m.held.is_some()
    });
    let unchanged = match (s.lapsed, clock) {
        (true, _) => NOW - 7_000,
        (false, _) if !off.on(Rule::Gap) => NOW - 7_000,
        (false, Clock::Late) if !renews => NOW - 4_000,
        (false, _) => NOW,
    };
    let facts =
        ["named-and-not-taken", "lease-behind-members", failover::loss::FACT_SHORT, failover::loss::FACT_UNPROMOTED];
    let member = |i: usize| failover::Member {
        report: Some(core_report(s, i, lease, off)),
        report_seen: Monotonic(NOW),
        report_moved: None,
        pod: Some(pod(s, i, lease, off)),
        claim: true,
    };
    failover::World {
        now: Monotonic(NOW),
        wall: WALL,
        cluster: Cluster {
            name: "orders".to_owned(),
            replicas: 3,
            mode: if bounds.quorum { failover::Mode::Quorum } else { failover::Mode::Async },
            k: u32::from(bounds.quorum),
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
        memory: memory.clone(),
        step_seen: ago,
        lease: LeaseView::Present(Box::new(failover::Lease {
            version: "90".to_owned(),
            epoch: lease.core_epoch(),
            holder: lease.holder.clone().map_or(Holder::Nobody, Holder::Member),
            fence: shown(&lease.fence, off),
            unchanged_since: Monotonic(unchanged),
            epoch_since: ago,
            raised_at: 100,
        })),
        grant: Some(name(0)),
        members: (0..3).map(|i| (name(i), member(i))).collect(),
        instances: Some(vec![1, 2, 3]),
        terminated: terminated(s, off),
        held: match clock {
            Clock::Early => BTreeMap::new(),
            Clock::Late => facts.into_iter().map(|fact| (fact.to_owned(), ago)).collect(),
        },
    }
}

/// The number of a state in [`STATES`].
pub(super) fn number_of(state: MemberState) -> u8 {
    let at = STATES.iter().position(|known| *known == state).unwrap_or(0);
    u8::try_from(at).unwrap_or(0)
}

/// A host's node says of itself that it is ready although the API may not hear it.
pub(super) fn is_up(host: Host) -> bool {
    matches!(host, Host::Runs | Host::PodFrozen)
}
