//! The bad day: a schedule drawn from the seed before it begins, so that any part of it can be left out.

use crate::exec::Micros;
use crate::net::{Blow, Odds, Place};
use crate::rng::Rng;
use crate::world::{MS, Setup};
use std::fmt;

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Whoever accepts writes, else the first.
    Primary,
    Member(usize),
}

/// One fault.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    KillPostmaster(Who),
    KillAgent(Who),
    KillContainer(Who),
    FreezePod(Who, u64),
    FreezeHost(Who, u64),
    PowerLoss(Who, u64),
    RestartNode(Who),
    /// Between a place and the API: from it, to it, or both.
    CutApi(Place, Way, u64),
    CutHosts(Who, Who, Way, u64),
    CutClients(Who, u64),
    ApiDown(u64),
    Weather(Place, Odds, u64),
    WatchLag(Place, u64, u64),
    WatchCut(Place),
    CrashOperator(usize),
    FreezeOperator(usize, u64),
    NodeNotReady(Who, u64),
    ClockJump(Place, i64),
    Arm(Option<Place>, &'static str, Blow),
    DiskFull(Who, u64),
    DiskStuck(Who, u64),
    VolumeLost(Who),
    DeletePod(Who, u64),
    ForceDelete(Who),
    /// Its cable is pulled, and somebody takes it for dead (F4).
    ForceDeleteUnseen(Who, u64),
    Copy,
    PutBack(u64),
    /// The last of a day that has been healed: every host loses power, and the API comes back as it was copied, with no
    /// mark of it.
    Disaster,
    Switchover(Option<Who>),
    SwitchoverAndKill(Who),
    PauseReplay(Who),
}

/// Which way a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
    Both,
}

/// A fault and when it comes.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Micros,
    pub(crate) fault: Fault,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5}.{:03} {:?}", self.at / 1_000_000, self.at / 1_000 % 1_000, self.fault)
    }
}

/// Steps that a blow may wait for.
pub(crate) const STEPS: [&str; 26] = [
    "failover.raise",
    "failover.name",
    "failover.write-operation",
    "failover.advance-operation",
    "failover.complete",
    "failover.stamp",
    "failover.fencing-delete",
    "failover.label",
    "failover.strip-label",
    "failover.prepare",
    "failover.enrol",
    "failover.write-facts",
    "failover.set-instances",
    "failover.answer-request",
    "status.picture",
    "operator.seat",
    "operator.watch",
    "lease.take",
    "lease.renew",
    "lease.release",
    "lease.read",
    "agent.report",
    "agent.watch",
    "pod.status",
    "pod.remove",
    "node.watch",
];

/// Steps that may be carried out after their caller has given them up. What a node and an agent say of themselves is not
/// among them: a report is written on the version that was read, and a node says the next thing once it has said the last.
/// Nor is a label: it is only a hint to clients (F15).
pub(crate) const LATE: [&str; 9] = [
    "failover.fencing-delete",
    "failover.fencing-delete",
    "failover.raise",
    "failover.name",
    "failover.write-operation",
    "operator.seat",
    "lease.take",
    "lease.renew",
    "lease.release",
];

/// Draws the schedule of a seed.
pub(crate) fn draw(setup: &Setup) -> Vec<Planned> {
    let mut rng = Rng::new(setup.seed, 0xFA17);
    let count = rng.between(76, 104);
    let gap = rng.between(400, 1_700);
    let restores = rng.chance(120);
    // Of both together a person has to judge: an empty volume never says what it held (F14).
    let loses = rng.chance(150) && !restores;
    let mut at = 0;
    let mut faults = Vec::new();
    let profile = profile(setup);
    for _ in 0..count {
        at += rng.between(20, gap) * MS;
        let kind = match &profile {
            None => rng.below(100),
            Some(kinds) => *rng.pick(kinds).unwrap_or(&0),
        };
        let fault = one(&mut rng, setup, kind);
        faults.push(Planned { at, fault });
    }
    let end = at;
    if restores {
        let copied = rng.below(end);
        faults.push(Planned { at: copied, fault: Fault::Copy });
        faults
            .push(Planned { at: copied + rng.below(end - copied + 1), fault: Fault::PutBack(rng.between(200, 4_000)) });
    }
    if !restores && !loses && rng.chance(150) {
        // Late in the day: the fewer agents were started anew since, the more depends on what they made durable.
        faults.push(Planned { at: rng.between(end / 2, end), fault: Fault::Copy });
        faults.push(Planned { at: end, fault: Fault::Disaster });
    }
    if loses {
        faults.push(Planned { at: rng.below(end), fault: Fault::VolumeLost(who(&mut rng, setup)) });
    }
    faults.sort_by_key(|planned| planned.at);
    faults
}

fn who(rng: &mut Rng, setup: &Setup) -> Who {
    if rng.chance(500) {
        Who::Primary
    } else {
        Who::Member(usize::try_from(rng.below(setup.members as u64)).unwrap_or(0))
    }
}

fn way(rng: &mut Rng) -> Way {
    *rng.pick(&[Way::Out, Way::In, Way::Both, Way::Both]).unwrap_or(&Way::Both)
}

/// Milliseconds that something lasts: usually short, sometimes longer than any Lease.
fn span(rng: &mut Rng) -> u64 {
    if rng.chance(250) { rng.between(5_000, 20_000) } else { rng.between(50, 5_000) }
}

/// The same, now and then longer than a node that is silent is called Ready.
fn outage(rng: &mut Rng) -> u64 {
    if rng.chance(60) { rng.between(20_000, 40_000) } else { span(rng) }
}

fn place(rng: &mut Rng, setup: &Setup) -> Place {
    let hosts = setup.hosts as u64;
    let at = rng.below(hosts + setup.operators as u64);
    if at < hosts {
        Place::Host(usize::try_from(at).unwrap_or(0))
    } else {
        Place::Controller(usize::try_from(at - hosts).unwrap_or(0))
    }
}

fn operator(rng: &mut Rng, setup: &Setup) -> usize {
    usize::try_from(rng.below(setup.operators as u64)).unwrap_or(0)
}

/// Half of the days have a few kinds of faults only, of random weights: some states are reached only where nothing else keeps
/// getting in between (swarm testing, Groce et al., ISSTA 2012).
fn profile(setup: &Setup) -> Option<Vec<u64>> {
    let mut rng = Rng::new(setup.seed, 0x5A42);
    if rng.chance(500) {
        return None;
    }
    let mut kinds = Vec::new();
    for _ in 0..rng.between(3, 9) {
        let kind = rng.below(104);
        let weight = rng.between(1, 8);
        kinds.extend((0..weight).map(|_| kind));
    }
    Some(kinds)
}

/// The fault of a kind: of a hundred kinds each has as many as it is likely.
fn one(rng: &mut Rng, setup: &Setup, kind: u64) -> Fault {
    let of = who(rng, setup);
    match kind {
        0..10 => Fault::KillPostmaster(of),
        10..15 => Fault::KillAgent(of),
        15..19 => Fault::KillContainer(of),
        19..24 => Fault::FreezePod(of, span(rng)),
        24..28 => Fault::FreezeHost(of, outage(rng)),
        28..32 => Fault::PowerLoss(of, outage(rng)),
        32..34 => Fault::RestartNode(of),
        34..41 => Fault::CutApi(place(rng, setup), way(rng), outage(rng)),
        41..46 => Fault::CutHosts(of, who(rng, setup), way(rng), span(rng)),
        46..47 => Fault::CutClients(of, span(rng)),
        47..50 => Fault::ApiDown(span(rng) / 2),
        50..54 => {
            let odds =
                Odds { error: rng.below(150), lost: rng.below(150), silent: rng.below(60), latency: rng.below(400) };
            Fault::Weather(place(rng, setup), odds, span(rng))
        }
        54..57 => Fault::WatchLag(place(rng, setup), rng.between(20, 4_000), span(rng)),
        57..60 => Fault::WatchCut(place(rng, setup)),
        60..63 => Fault::CrashOperator(operator(rng, setup)),
        63..65 => Fault::FreezeOperator(operator(rng, setup), span(rng)),
        65..67 => Fault::NodeNotReady(of, span(rng)),
        67..69 => {
            let jump = i64::try_from(rng.below(7_200_000)).unwrap_or(0) - 3_600_000;
            Fault::ClockJump(place(rng, setup), jump)
        }
        69..74 => {
            let millis = rng.between(1_500, 12_000);
            Fault::Arm(None, rng.pick(&LATE).unwrap_or(&"lease.renew"), Blow::Late(millis))
        }
        74..85 => {
            let step = *rng.pick(&STEPS).unwrap_or(&"lease.renew");
            let blow = *rng
                .pick(&[
                    Blow::ErrorBefore,
                    Blow::AnswerLost,
                    Blow::AnswerLost,
                    Blow::AnswerSilent,
                    Blow::Conflict,
                    Blow::Slow(1_500),
                    Blow::Slow(4_000),
                    Blow::CrashBefore,
                    Blow::CrashAfter,
                    Blow::CrashAfter,
                ])
                .unwrap_or(&Blow::AnswerLost);
            Fault::Arm(None, step, blow)
        }
        85..87 => Fault::DiskFull(of, span(rng)),
        87..89 => Fault::DiskStuck(of, span(rng)),
        89..91 => Fault::DeletePod(of, if rng.chance(500) { 1_000 } else { 30_000 }),
        91..93 => Fault::ForceDelete(of),
        93..96 => Fault::Switchover(rng.chance(600).then(|| who(rng, setup))),
        96..99 => Fault::SwitchoverAndKill(who(rng, setup)),
        99 => Fault::PauseReplay(of),
        _ => Fault::ForceDeleteUnseen(of, rng.between(2_000, 8_000)),
    }
}
