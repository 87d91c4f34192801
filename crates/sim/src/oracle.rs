//! What must hold, judged from the world itself and never from what the system says of it.

mod copies;

pub(crate) use copies::{replaced, replaces};

use crate::data::Branch;
use crate::exec::Micros;
use crate::server::Container;
use crate::store::LeaseObject;
use crate::world::{MS, Setup, World};
use coregent_core::failover::{Decision, Lossless};
use coregent_core::lsn::Lsn;
use coregent_core::member::Names;
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Promotion;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A whole host that thaws may acknowledge what it was about to, before its agent looks at the clock (F16).
const THAW: Micros = 30 * MS;
/// How long an operator may go by what it knew of a node.
const HEARSAY: Micros = 10_000 * MS;

/// A write that a client was told is there.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) write: u32,
    pub(crate) container: u32,
    pub(crate) member: usize,
    pub(crate) branch: Branch,
    pub(crate) end: u64,
    pub(crate) by_quorum: bool,
    pub(crate) names: Names,
    pub(crate) at: Micros,
}

#[derive(Clone, Debug)]
struct Ack {
    write: u32,
    end: u64,
    at: Micros,
    member: usize,
    by_quorum: bool,
    /// It is known to be gone, and that was rightly said or has an excuse.
    over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    order: u32,
    epoch: Epoch,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Oracle {
    quorum: bool,
    pub(crate) violations: Vec<String>,
    acks: Vec<Ack>,
    branches: BTreeMap<Branch, Made>,
    timelines: BTreeMap<u32, Branch>,
    orders: u32,
    /// The newest branch that acknowledged anything, with the container that did.
    newest: Option<(u32, u32)>,
    inits: u32,
    /// When the Lease was last written by whom, and when a container's server left recovery (F11).
    renewed: BTreeMap<String, Micros>,
    recovered: BTreeMap<u32, Micros>,
    epoch: Epoch,
    targets: BTreeMap<Epoch, MemberName>,
    holder: String,
    seen: Option<Rc<LeaseObject>>,
    thawed: BTreeMap<usize, Micros>,
    /// When a host's node could not be told of anything, as its pods see it.
    unheard: BTreeMap<usize, Micros>,
    /// Who has ever caught up with the server of a container (F8).
    caught_up: BTreeSet<(u32, MemberName)>,
    open: Option<usize>,
    /// Completed changes of the primary.
    pub(crate) changes: u32,
    pub(crate) last_ack: Micros,
    pub(crate) false_since: Option<Micros>,
    pub(crate) two_labels_since: Option<Micros>,
    /// The store was put back: what it forgot is not held against anybody.
    pub(crate) put_back: bool,
    /// Volumes were lost.
    pub(crate) volumes_lost: u32,
}

impl Oracle {
    pub(crate) fn new(setup: &Setup) -> Oracle {
        Oracle {
            quorum: setup.quorum && setup.members > 1,
            violations: Vec::new(),
            acks: Vec::new(),
            branches: BTreeMap::new(),
            timelines: BTreeMap::new(),
            orders: 0,
            newest: None,
            inits: 0,
            renewed: BTreeMap::new(),
            recovered: BTreeMap::new(),
            epoch: Epoch(0),
            targets: BTreeMap::new(),
            holder: String::new(),
            seen: None,
            thawed: BTreeMap::new(),
            unheard: BTreeMap::new(),
            caught_up: BTreeSet::new(),
            open: None,
            changes: 0,
            last_ack: 0,
            false_since: None,
            two_labels_since: None,
            put_back: false,
            volumes_lost: 0,
        }
    }

    fn made(&mut self, branch: Branch, epoch: Epoch) {
        self.orders += 1;
        self.branches.insert(branch, Made { order: self.orders, epoch });
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acks.len()
    }

    pub(crate) fn thawed(&mut self, host: usize, at: Micros) {
        self.thawed.insert(host, at);
    }

    pub(crate) fn unheard(&mut self, host: usize, at: Micros) {
        self.unheard.insert(host, at);
    }

    /// Since then, or a moment before, there was a time in which nobody could have had a pod of this host stopped.
    pub(crate) fn was_unheard(&self, host: usize, since: Micros) -> bool {
        self.unheard.get(&host).is_some_and(|at| *at + HEARSAY >= since)
    }

    pub(crate) fn caught_up(&mut self, container: u32, member: &MemberName) {
        self.caught_up.insert((container, member.clone()));
    }
}

impl World {
    pub(crate) fn violation(&self, what: String) {
        self.note("ORACLE", || format!("VIOLATION {what}"));
        self.oracle.borrow_mut().violations.push(what);
    }

    /// A client is told that its write is there.
    pub(crate) fn acknowledge(&self, ack: Acknowledged) {
        let thawed = self.oracle.borrow().thawed.get(&self.setup.host_of(ack.member)).copied();
        let thaws = !ack.by_quorum && thawed.is_some_and(|at| self.now().saturating_sub(at) <= THAW);
        let (made, newest) = {
            let oracle = self.oracle.borrow();
            (oracle.branches.get(&ack.branch).copied(), oracle.newest)
        };
        self.fold(u64::from(ack.write));
        let Some(made) = made else { return };
        let name = self.setup.name(ack.member);
        if newest.is_some_and(|(order, _)| made.order < order) && !thaws {
            self.violation(format!(
                "two primaries: {name} acknowledges write {} on an older history than one that has acknowledged already",
                ack.write
            ));
        }
        if let Some((order, other)) = newest
            && order == made.order
            && other != ack.container
        {
            let alive = self.containers.borrow().iter().any(|c| c.serial == other && c.has_processes());
            if alive {
                self.violation(format!("two servers of {name} acknowledge on one history"));
            }
        }
        self.check_names(&ack, made.epoch, &name);
        let open = self.containers.borrow().iter().any(|c| c.serial == ack.container && c.server.borrow().open);
        if !open {
            self.violation(format!("{name} acknowledges write {} before clients are let in", ack.write));
        }
        let mut oracle = self.oracle.borrow_mut();
        if newest.is_none_or(|(order, _)| order <= made.order) {
            oracle.newest = Some((made.order, ack.container));
        }
        oracle.last_ack = self.now();
        oracle.acks.push(Ack {
            write: ack.write,
            end: ack.end,
            at: ack.at,
            member: ack.member,
            by_quorum: ack.by_quorum,
            over: thaws,
        });
    }

    /// F8: what runs is never weaker than what is recorded.
    fn check_names(&self, ack: &Acknowledged, epoch: Epoch, name: &MemberName) {
        if ack.by_quorum || !self.oracle.borrow().quorum {
            return;
        }
        let store = self.store.borrow();
        let Some(lease) = store.state.lease.as_ref().filter(|lease| lease.epoch == epoch) else { return };
        let set = lease.fence.sync_sets.iter().find(|set| set.epoch == epoch);
        let weaker = set.is_some_and(|set| !set.degraded);
        drop(store);
        if weaker {
            self.violation(format!(
                "{name} acknowledges write {} without a quorum under {:?}, which epoch {epoch} does not record",
                ack.write, ack.names
            ));
        }
    }

    /// Looks at every state of the primary Lease (F1).
    pub(crate) fn check_lease(&self) {
        let Some(lease) = self.store.borrow().state.lease.clone() else { return };
        let renewal =
            self.oracle.borrow().seen.as_ref().is_some_and(|seen| {
                seen.fence == lease.fence && seen.holder == lease.holder && seen.epoch == lease.epoch
            });
        if !renewal {
            self.note_lease(&lease);
        }
        let again = self.oracle.borrow().seen.as_ref().is_none_or(|seen| seen.renewed != lease.renewed);
        let before = self.oracle.borrow().seen.clone();
        if let Some(before) = before.filter(|before| before.epoch == lease.epoch && before.holder == lease.holder) {
            self.check_named(&before, &lease);
        }
        if again {
            self.oracle.borrow_mut().renewed.insert(lease.holder.clone(), self.now());
        }
        self.oracle.borrow_mut().seen = Some(Rc::clone(&lease));
        let mut found = Vec::new();
        {
            let mut oracle = self.oracle.borrow_mut();
            if lease.epoch < oracle.epoch && !oracle.put_back {
                found.push(format!("the epoch goes back from {} to {}", oracle.epoch, lease.epoch));
            }
            if lease.epoch < oracle.epoch {
                let epoch = lease.epoch;
                oracle.targets.retain(|of, _| *of <= epoch);
            }
            oracle.epoch = lease.epoch;
            if let Some(target) = &lease.fence.target {
                let named = oracle.targets.entry(lease.epoch).or_insert_with(|| target.member.clone());
                if *named != target.member && !oracle.put_back {
                    found.push(format!(
                        "epoch {} names {} after {}",
                        lease.epoch, target.member, oracle.targets[&lease.epoch]
                    ));
                }
            }
            let holder = lease.holder.split('/').next().unwrap_or_default();
            let target = lease.fence.target.as_ref().map(|target| target.member.as_str());
            if lease.holder != oracle.holder && !holder.is_empty() && target != Some(holder) && !oracle.put_back {
                found
                    .push(format!("{} takes the Lease of epoch {}, which names {target:?}", lease.holder, lease.epoch));
            }
            oracle.holder.clone_from(&lease.holder);
        }
        found.into_iter().for_each(|what| self.violation(what));
    }

    /// F8: a set gains a name only once that member has caught up with the primary whose set it is.
    fn check_named(&self, before: &LeaseObject, lease: &LeaseObject) {
        let set = |lease: &LeaseObject| lease.fence.sync_sets.iter().find(|set| set.epoch == lease.epoch).cloned();
        let (Some(old), Some(new)) = (set(before), set(lease)) else { return };
        let holder = lease.holder.clone();
        let of_holder = |container: &&Rc<Container>| identity_of(container) == holder;
        let Some(serial) = self.containers.borrow().iter().find(of_holder).map(|container| container.serial) else {
            return;
        };
        let early = {
            let oracle = self.oracle.borrow();
            let mut added = new.members.difference(&old.members);
            added.find(|name| !oracle.put_back && !oracle.caught_up.contains(&(serial, (*name).clone()))).cloned()
        };
        if let Some(name) = early {
            self.violation(format!("{name} is put into the set of epoch {} before it has caught up", lease.epoch));
        }
    }

    fn note_lease(&self, lease: &LeaseObject) {
        self.note("lease", || {
            let fence = &lease.fence;
            let target = fence.target.as_ref().map(|target| format!("{} by {:?}", target.member, target.proof));
            let sets: Vec<String> = fence
                .sync_sets
                .iter()
                .map(|set| {
                    let members: Vec<&str> = set.members.iter().map(MemberName::as_str).collect();
                    let complete = if set.complete { "!" } else { "" };
                    format!("{}:{{{}}}{complete}{}", set.epoch, members.join(","), if set.degraded { "~" } else { "" })
                })
                .collect();
            let history: Vec<String> = fence
                .history
                .iter()
                .map(|a| format!("{}{}{}", a.promotion.timeline, if a.won { "=" } else { "?" }, a.promotion.member))
                .collect();
            format!(
                "version {} epoch {} holder {:?} target {target:?} sets {sets:?} history {history:?} release {:?}{}",
                lease.version,
                lease.epoch,
                lease.holder,
                fence.release.as_ref().map(|release| (release.epoch.0, release.end_lsn.0)),
                if fence.restored { " RESTORED" } else { "" }
            )
        });
    }

    /// Looks at every state of the status.
    pub(crate) fn check_status(&self) {
        let cluster = Rc::clone(&self.store.borrow().state.cluster);
        self.note("status", || {
            let memory = &cluster.memory;
            let active = memory.operations.active.as_ref().map(|active| {
                format!("{:?} of epoch {} attempt {} {:?}", active.step_id, active.epoch, active.attempt, active.reason)
            });
            format!("primary {:?} target {:?} operation {active:?}", memory.primary.current, memory.primary.target)
        });
        if let Some(active) = &cluster.memory.operations.active
            && active.deadline <= active.started_at
        {
            self.violation(format!("operation {} has no deadline after its start", active.id));
        }
    }

    /// An operation that is active has a next action: a step, or a look again before its time is out.
    pub(crate) fn check_decision(&self, world: &coregent_core::failover::World, decision: &Decision) {
        let Some(active) = &world.operations().active else { return };
        let in_time = world.step_elapsed() < active.step_id.time_limit();
        if in_time && decision.steps.is_empty() && decision.requeue_after.is_none() {
            self.violation(format!("operation {:?} has neither a step nor a look again", active.step_id));
        }
    }
}

/// initdb has made a cluster.
pub(crate) fn initialised(world: &World, member: usize, branch: Branch, system_id: &str) {
    let again = {
        let mut oracle = world.oracle.borrow_mut();
        oracle.inits += 1;
        oracle.made(branch, Epoch(1));
        oracle.newest.is_some()
    };
    if again {
        world.violation(format!(
            "{} makes a new cluster {system_id} although one has acknowledged writes",
            world.setup.name(member)
        ));
    }
}

/// A server is started on a folder.
pub(crate) fn starts(world: &World, container: &Container, _writable: bool) {
    let two = {
        let all = world.containers.borrow();
        let mut others =
            all.iter().filter(|other| other.serial != container.serial && other.member == container.member);
        others.any(|other| other.has_processes())
    };
    if two {
        world.violation(format!("two servers run on the data folder of {}", container.name));
    }
}

/// A server has left crash recovery writable.
pub(crate) fn writable(world: &World, container: &Container) {
    world.oracle.borrow_mut().recovered.insert(container.serial, world.now());
    world.note(&container.name, || "is writable on its own timeline".into());
}

/// A server has left recovery on a new timeline (F9).
pub(crate) fn promoted(
    world: &World,
    container: &Container,
    attempt: &Promotion,
    timeline: u32,
    fork: Lsn,
    branch: Branch,
) {
    world.note(&container.name, || {
        format!("is promoted to timeline {timeline} at {} in epoch {}", fork.0, attempt.epoch)
    });
    let used = {
        let mut oracle = world.oracle.borrow_mut();
        oracle.made(branch, attempt.epoch);
        oracle.recovered.insert(container.serial, world.now());
        oracle.timelines.insert(timeline, branch).is_some()
    };
    if used {
        world.violation(format!("timeline {timeline} is made a second time, by {}", container.name));
    }
    let recorded = {
        let store = world.store.borrow();
        store.state.lease.as_ref().is_some_and(|lease| {
            lease.fence.history.iter().any(|known| {
                known.promotion.epoch == attempt.epoch
                    && known.promotion.member == attempt.member
                    && known.promotion.timeline == attempt.timeline
            })
        })
    };
    if !recorded && !world.oracle.borrow().put_back {
        world.violation(format!("{} is promoted although the Lease does not record the attempt", container.name));
    }
}

/// As an agent calls itself in the Lease.
fn identity_of(container: &Container) -> String {
    format!("{}/{}/n{}", container.name, container.pod_uid, container.serial)
}

/// F11: a renewal that was sent after recovery had ended has succeeded before clients are let in.
fn check_renewed(world: &World, container: &Container) {
    let holder = identity_of(container);
    let early = {
        let oracle = world.oracle.borrow();
        let renewed = oracle.renewed.get(&holder).copied();
        !oracle.put_back && renewed < oracle.recovered.get(&container.serial).copied()
    };
    if early && !world.is_off(crate::rules::Rule::F5Nonce) {
        world.violation(format!("{} lets clients in before a renewal since its recovery ended", container.name));
    }
}

/// A primary lets clients in: everything acknowledged must be there, or its loss be said.
pub(crate) fn opened(world: &World, container: &Container) {
    check_renewed(world, container);
    let Some(volume) = world.volumes.get(container.member).map(|volume| volume.borrow()) else { return };
    let Some(data) = &volume.data else { return };
    let order = world.oracle.borrow().branches.get(&data.branch()).map_or(0, |made| made.order);
    let epoch = world.oracle.borrow().branches.get(&data.branch()).map_or(Epoch(0), |made| made.epoch);
    let stale = world.oracle.borrow().newest.is_some_and(|(newest, _)| order < newest);
    let said = world.store.borrow().state.cluster.memory.last_failover.clone();
    let said = said.filter(|last| last.epoch == epoch).map(|last| last.data_loss);
    let mut found = Vec::new();
    {
        let mut oracle = world.oracle.borrow_mut();
        let excused = oracle.put_back && !oracle.quorum;
        for ack in oracle.acks.iter_mut().filter(|ack| !ack.over) {
            if data.holds(ack.end, ack.write) {
                continue;
            }
            ack.over = true;
            let name = world.setup.name(ack.member);
            let what = format!("write {} at {}, which {name} acknowledged at {} ms", ack.write, ack.end, ack.at / MS);
            if ack.by_quorum {
                found.push(format!("{} is opened without {what} to a quorum", container.name));
            } else if excused {
            } else {
                match &said {
                    None => found
                        .push(format!("{} is opened without {what}, and nothing is said about a loss", container.name)),
                    Some(loss) if loss.lossless == Lossless::Yes => {
                        found
                            .push(format!("{} is opened without {what}, and the status says lossless", container.name));
                    }
                    Some(loss) if loss.from_lsn.is_some_and(|from| ack.end <= from.0) => {
                        found.push(format!("{} is opened without {what}, which is below fromLSN", container.name));
                    }
                    Some(_) => {}
                }
            }
        }
        if !stale {
            if oracle.open != Some(container.member) {
                oracle.changes += 1;
            }
            oracle.open = Some(container.member);
        }
    }
    drop(volume);
    if let Some(first) = found.into_iter().next() {
        world.violation(first);
    }
    world.note(&container.name, || "lets clients in as the primary".into());
}
