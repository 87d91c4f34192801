//! The cache of an operator: what its watches and the answers to its own writes have brought, kept as
//! `coregent-operator` keeps it.

use crate::rules::Rule;
use crate::store::{ClusterObject, Kind, LeaseObject, Object, PodObject, ReportObject, RestObject, Said};
use crate::watch::Seen;
use crate::world::World;
use coregent_core::failover::Termination;
use coregent_core::names::{MemberName, Monotonic};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The primary Lease with what only its observer knows.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) lease: Rc<LeaseObject>,
    pub(super) renewed: Monotonic,
    pub(super) epoch_since: Monotonic,
    pub(super) epoch_version: u64,
}

/// A member's report.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) object: Rc<ReportObject>,
    pub(super) seen: Monotonic,
    /// When it changed; what was found may have been of any age.
    pub(super) moved: Option<Monotonic>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(super) cluster: Option<Rc<ClusterObject>>,
    pub(super) lease: Option<Tracked>,
    pub(super) reports: BTreeMap<MemberName, Heard>,
    pub(super) grant: Option<MemberName>,
    pub(super) pods: BTreeMap<MemberName, Rc<PodObject>>,
    pub(super) rest: Option<Rc<RestObject>>,
    pub(super) terminated: BTreeMap<String, Termination>,
    listed: [bool; 5],
    /// Kinds of which we wrote something while a list was under way.
    wrote: [bool; 5],
}

impl Cache {
    pub(super) fn is_complete(&self) -> bool {
        [Kind::Cluster, Kind::Leases, Kind::Pods, Kind::Rest].iter().all(|kind| self.listed[kind.index()])
    }

    pub(super) fn take(&mut self, world: &World, kind: Kind, seen: Seen, now: Monotonic) {
        match seen {
            Seen::Listing => self.wrote[kind.index()] = false,
            Seen::Listed(objects, _) => {
                self.listed[kind.index()] = true;
                self.list(world, kind, objects, now);
                if kind == Kind::Leases && !world.is_off(Rule::F2Gap) {
                    self.start_anew(now);
                }
            }
            Seen::Changed(object) => self.change(world, object, now),
            Seen::Gap if kind == Kind::Leases && !world.is_off(Rule::F2Gap) => self.start_anew(now),
            Seen::Gap => {}
        }
    }

    fn list(&mut self, world: &World, kind: Kind, objects: Vec<Object>, now: Monotonic) {
        let replaces = !self.wrote[kind.index()];
        if kind == Kind::Pods {
            let there: BTreeSet<&MemberName> = objects
                .iter()
                .filter_map(|object| match object {
                    Object::Pod(pod) => Some(&pod.member),
                    _ => None,
                })
                .collect();
            self.pods.retain(|name, _| there.contains(name));
        }
        if kind == Kind::Leases && replaces && !objects.iter().any(|object| matches!(object, Object::Lease(_))) {
            self.lease = None;
        }
        for object in objects {
            match object {
                Object::Cluster(cluster) if replaces => self.cluster = Some(cluster),
                Object::Lease(lease) => self.put_lease(lease, now, replaces),
                Object::Report(name, report) => {
                    let same = self.reports.get(&name).is_some_and(|known| known.object.version == report.version);
                    if !same {
                        self.hear(name, report, now);
                    }
                }
                Object::Pod(pod) => {
                    self.judge(world, &pod, false);
                    if replaces {
                        self.pods.insert(pod.member.clone(), pod);
                    } else {
                        self.put_pod(pod);
                    }
                }
                other => self.change(world, other, now),
            }
        }
    }

    fn change(&mut self, world: &World, object: Object, now: Monotonic) {
        match object {
            Object::Cluster(cluster) => self.put_cluster(cluster),
            Object::Lease(lease) => self.put_lease(lease, now, false),
            Object::Report(name, report) => {
                if self.reports.get(&name).is_none_or(|known| known.object.version < report.version) {
                    self.hear(name, report, now);
                }
            }
            Object::Grant(member) => self.grant = Some(member),
            Object::Pod(pod) => {
                self.judge(world, &pod, true);
                self.put_pod(pod);
            }
            Object::PodGone(pod) => {
                self.judge(world, &pod, true);
                if self.pods.get(&pod.member).is_some_and(|held| held.uid == pod.uid) {
                    self.pods.remove(&pod.member);
                }
            }
            Object::Rest(rest) => self.rest = Some(rest),
        }
    }

    pub(super) fn put_cluster(&mut self, cluster: Rc<ClusterObject>) {
        if self.cluster.as_ref().is_none_or(|held| held.version <= cluster.version) {
            self.cluster = Some(cluster);
        }
    }

    fn hear(&mut self, name: MemberName, object: Rc<ReportObject>, now: Monotonic) {
        let moved = self.reports.contains_key(&name).then_some(now);
        self.reports.insert(name, Heard { object, seen: now, moved });
    }

    fn put_pod(&mut self, pod: Rc<PodObject>) {
        if self.pods.get(&pod.member).is_none_or(|held| held.version <= pod.version) {
            self.pods.insert(pod.member.clone(), pod);
        }
    }

    fn put_lease(&mut self, lease: Rc<LeaseObject>, now: Monotonic, replaces: bool) {
        let version = lease.version;
        let Some(held) = &mut self.lease else {
            self.lease = Some(Tracked { lease, renewed: now, epoch_since: now, epoch_version: version });
            return;
        };
        if held.lease.version == version || (held.lease.version > version && !replaces) {
            return;
        }
        // A raise of ours renews nothing.
        if held.lease.holder != lease.holder || held.lease.renewed != lease.renewed {
            held.renewed = now;
        }
        if held.lease.epoch != lease.epoch {
            held.epoch_since = now;
            held.epoch_version = version;
        }
        held.lease = lease;
    }

    /// After a gap nothing is known about what happened in it (F2).
    fn start_anew(&mut self, now: Monotonic) {
        if let Some(held) = &mut self.lease {
            held.renewed = now;
        }
    }

    /// The answer to a write of ours.
    pub(super) fn wrote_lease(&mut self, lease: Rc<LeaseObject>, now: Monotonic) {
        let version = lease.version;
        self.put_lease(lease, now, false);
        self.wrote[Kind::Leases.index()] |= self.lease.as_ref().is_some_and(|held| held.lease.version == version);
    }

    /// What was read after a write on `before` was refused.
    pub(super) fn read_lease(&mut self, lease: Rc<LeaseObject>, before: Option<u64>, now: Monotonic) {
        let held = self.lease.as_ref().map(|held| held.lease.version);
        self.put_lease(lease, now, held.is_some() && held == before);
    }

    pub(super) fn wrote_cluster(&mut self, cluster: Rc<ClusterObject>) {
        self.wrote[Kind::Cluster.index()] = true;
        self.put_cluster(cluster);
    }

    pub(super) fn read_cluster(&mut self, cluster: Rc<ClusterObject>, before: u64) {
        if self.cluster.as_ref().is_some_and(|held| held.version == before) {
            self.cluster = Some(cluster);
        } else {
            self.put_cluster(cluster);
        }
    }

    /// Labels and annotations of the answer, not its status (F4).
    pub(super) fn wrote_pod(&mut self, pod: &PodObject) {
        if let Some(held) = self.pods.get_mut(&pod.member)
            && held.uid == pod.uid
            && held.version < pod.version
        {
            self.wrote[Kind::Pods.index()] = true;
            *held = Rc::new(PodObject { said: held.said.clone(), ..pod.clone() });
        }
    }

    /// Notes the end of a container with the version of the status that first said so.
    fn judge(&mut self, world: &World, pod: &PodObject, in_order: bool) {
        match &pod.said {
            // The end of a container says nothing of another in the same pod.
            Said::Running { .. } if !world.is_off(Rule::F4AfterRaise) => {
                self.terminated.remove(&pod.uid);
            }
            Said::Running { .. } => {}
            Said::Waiting => {}
            Said::Terminated { container } => {
                let known = self.terminated.get(&pod.uid).is_some_and(|known| known.container_id == *container);
                if !known {
                    let version = if in_order { pod.version } else { 0 };
                    let (container_id, how) = (container.clone(), "signal 9".to_owned());
                    self.terminated.insert(pod.uid.clone(), Termination { container_id, how, version });
                }
            }
        }
    }
}
