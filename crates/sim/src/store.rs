//! The modelled API store: revisions, conditional writes, a log per kind that watches follow, and yesterday's copy of it
//! put back (failover.md F14).

use crate::exec::Micros;
use coregent_core::failover::picture::Picture;
use coregent_core::failover::{Memory, Role, SwitchoverRequest};
use coregent_core::fence::Fence;
use coregent_core::names::{Epoch, MemberName};
use coregent_core::report::MemberReport;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Why the API refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 409.
    Conflict,
    /// 404.
    NotFound,
    /// 422: the uid is another one.
    Invalid,
}

/// The primary Lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseObject {
    pub(crate) version: u64,
    pub(crate) epoch: Epoch,
    pub(crate) holder: String,
    /// `spec.renewTime`, which is compared with nothing but itself.
    pub(crate) renewed: u64,
    pub(crate) fence: Rc<Fence>,
}

/// A member's own Lease.
#[derive(Clone, Debug)]
pub(crate) struct ReportObject {
    pub(crate) version: u64,
    pub(crate) report: Rc<MemberReport>,
}

/// The DatabaseCluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterObject {
    pub(crate) version: u64,
    pub(crate) memory: Memory,
    pub(crate) picture: Option<Rc<Picture>>,
    pub(crate) switchover: Option<SwitchoverRequest>,
    pub(crate) base_config: bool,
}

/// What the node says of a pod's container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing yet.
    #[default]
    Waiting,
    /// It runs.
    Running { container: String, ready: bool },
    /// It has ended.
    Terminated { container: String },
}

/// A pod.
#[derive(Clone, Debug)]
pub(crate) struct PodObject {
    pub(crate) version: u64,
    pub(crate) member: MemberName,
    pub(crate) uid: String,
    pub(crate) host: usize,
    /// Its grace period in milliseconds, once it is being deleted.
    pub(crate) deleting: Option<u64>,
    pub(crate) role: Option<Role>,
    pub(crate) stamp: Option<Epoch>,
    pub(crate) said: Said,
}

/// Everything else that the controller looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestObject {
    pub(crate) instances: Option<Vec<u32>>,
    pub(crate) claims: BTreeSet<MemberName>,
    pub(crate) nodes: Vec<bool>,
}

/// A watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cluster,
    /// All Leases of the cluster.
    Leases,
    /// The primary Lease alone.
    Primary,
    Pods,
    Rest,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Cluster, Kind::Leases, Kind::Primary, Kind::Pods, Kind::Rest];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    Cluster(Rc<ClusterObject>),
    Lease(Rc<LeaseObject>),
    Report(MemberName, Rc<ReportObject>),
    Grant(MemberName),
    Pod(Rc<PodObject>),
    PodGone(Rc<PodObject>),
    Rest(Rc<RestObject>),
}

/// The operators' own Lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat {
    pub(crate) version: u64,
    pub(crate) holder: String,
}

/// What is durable in the API.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(crate) cluster: Rc<ClusterObject>,
    pub(crate) lease: Option<Rc<LeaseObject>>,
    pub(crate) grant: Option<MemberName>,
    pub(crate) reports: BTreeMap<MemberName, Rc<ReportObject>>,
    pub(crate) pods: BTreeMap<MemberName, Rc<PodObject>>,
    pub(crate) rest: Rc<RestObject>,
    pub(crate) seat: Seat,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) state: State,
    /// Grows when an older copy is put back: every watch ends.
    pub(crate) incarnation: u64,
    logs: [Vec<(Micros, Object)>; 5],
    /// Kinds that have changed since they were last asked for.
    pub(crate) touched: [bool; 5],
    pub(crate) now: Micros,
    /// When each node was last heard of.
    pub(crate) heard: BTreeMap<usize, Micros>,
    serial: u64,
}

impl Store {
    fn bump(&mut self) -> u64 {
        self.state.revision += 1;
        self.state.revision
    }

    fn log(&mut self, kind: Kind, object: Object) {
        let (index, now) = (kind.index(), self.now);
        if let (Some(log), Some(touched)) = (self.logs.get_mut(index), self.touched.get_mut(index)) {
            log.push((now, object));
            *touched = true;
        }
    }

    pub(crate) fn entry(&self, kind: Kind, at: usize) -> Option<&(Micros, Object)> {
        self.logs.get(kind.index())?.get(at)
    }

    /// Everything of a kind, and where a watch goes on from it.
    pub(crate) fn list(&self, kind: Kind) -> (Vec<Object>, usize) {
        let state = &self.state;
        let lease = || state.lease.iter().map(|lease| Object::Lease(Rc::clone(lease)));
        let objects = match kind {
            Kind::Cluster => vec![Object::Cluster(Rc::clone(&state.cluster))],
            Kind::Primary => lease().collect(),
            Kind::Leases => {
                let reports =
                    state.reports.iter().map(|(name, report)| Object::Report(name.clone(), Rc::clone(report)));
                lease().chain(reports).chain(state.grant.iter().cloned().map(Object::Grant)).collect()
            }
            Kind::Pods => state.pods.values().map(|pod| Object::Pod(Rc::clone(pod))).collect(),
            Kind::Rest => vec![Object::Rest(Rc::clone(&state.rest))],
        };
        (objects, self.logs.get(kind.index()).map_or(0, Vec::len))
    }

    fn put_lease(&mut self, mut lease: LeaseObject) -> Rc<LeaseObject> {
        lease.version = self.bump();
        let lease = Rc::new(lease);
        self.state.lease = Some(Rc::clone(&lease));
        self.log(Kind::Leases, Object::Lease(Rc::clone(&lease)));
        self.log(Kind::Primary, Object::Lease(Rc::clone(&lease)));
        lease
    }

    pub(crate) fn create_lease(&mut self, epoch: Epoch, fence: Fence) -> Result<Rc<LeaseObject>, Refusal> {
        if self.state.lease.is_some() {
            return Err(Refusal::Conflict);
        }
        Ok(self.put_lease(LeaseObject { version: 0, epoch, holder: String::new(), renewed: 0, fence: Rc::new(fence) }))
    }

    /// Replaces the primary Lease if it is still the one of `version`; `None` does not ask.
    pub(crate) fn replace_lease(
        &mut self,
        version: Option<u64>,
        change: impl FnOnce(&mut LeaseObject),
    ) -> Result<Rc<LeaseObject>, Refusal> {
        let Some(found) = self.state.lease.clone() else { return Err(Refusal::NotFound) };
        if version.is_some_and(|version| version != found.version) {
            return Err(Refusal::Conflict);
        }
        let mut next = LeaseObject::clone(&found);
        change(&mut next);
        Ok(self.put_lease(next))
    }

    /// Drawn for each write of a renewTime.
    pub(crate) fn stamp(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn create_grant(&mut self, member: &MemberName) -> Result<MemberName, Refusal> {
        if self.state.grant.is_some() {
            return Err(Refusal::Conflict);
        }
        self.bump();
        self.state.grant = Some(member.clone());
        self.log(Kind::Leases, Object::Grant(member.clone()));
        Ok(member.clone())
    }

    pub(crate) fn put_report(&mut self, report: Rc<MemberReport>) {
        let version = self.bump();
        let name = report.member.clone();
        let object = Rc::new(ReportObject { version, report });
        self.state.reports.insert(name.clone(), Rc::clone(&object));
        self.log(Kind::Leases, Object::Report(name, object));
    }

    pub(crate) fn put_cluster(
        &mut self,
        version: Option<u64>,
        change: impl FnOnce(&mut ClusterObject),
    ) -> Result<Rc<ClusterObject>, Refusal> {
        if version.is_some_and(|version| version != self.state.cluster.version) {
            return Err(Refusal::Conflict);
        }
        let mut next = ClusterObject::clone(&self.state.cluster);
        change(&mut next);
        next.version = self.bump();
        let next = Rc::new(next);
        self.state.cluster = Rc::clone(&next);
        self.log(Kind::Cluster, Object::Cluster(Rc::clone(&next)));
        Ok(next)
    }

    pub(crate) fn put_rest(&mut self, change: impl FnOnce(&mut RestObject)) {
        self.bump();
        let mut next = RestObject::clone(&self.state.rest);
        change(&mut next);
        let next = Rc::new(next);
        self.state.rest = Rc::clone(&next);
        self.log(Kind::Rest, Object::Rest(next));
    }

    /// Changes a pod of this uid.
    pub(crate) fn patch_pod(
        &mut self,
        member: &MemberName,
        uid: &str,
        change: impl FnOnce(&mut PodObject),
    ) -> Result<Rc<PodObject>, Refusal> {
        let Some(found) = self.state.pods.get(member) else { return Err(Refusal::NotFound) };
        if found.uid != uid {
            return Err(Refusal::Invalid);
        }
        let mut next = PodObject::clone(found);
        change(&mut next);
        Ok(self.put_pod(next))
    }

    pub(crate) fn put_pod(&mut self, mut pod: PodObject) -> Rc<PodObject> {
        pod.version = self.bump();
        let pod = Rc::new(pod);
        self.state.pods.insert(pod.member.clone(), Rc::clone(&pod));
        self.log(Kind::Pods, Object::Pod(Rc::clone(&pod)));
        pod
    }

    /// Asks for a pod's end: its node carries that out and removes it.
    pub(crate) fn delete_pod(
        &mut self,
        member: &MemberName,
        uid: &str,
        version: Option<u64>,
        grace: u64,
    ) -> Result<(), Refusal> {
        let Some(found) = self.state.pods.get(member) else { return Err(Refusal::NotFound) };
        if found.uid != uid || version.is_some_and(|version| version != found.version) {
            return Err(Refusal::Conflict);
        }
        let known = found.deleting;
        self.patch_pod(member, uid, |pod| pod.deleting = Some(known.map_or(grace, |known| known.min(grace)))).map(drop)
    }

    /// The object goes, whatever runs.
    pub(crate) fn remove_pod(&mut self, member: &MemberName, uid: &str) -> Result<(), Refusal> {
        match self.state.pods.get(member) {
            Some(found) if found.uid == uid => {}
            _ => return Err(Refusal::NotFound),
        }
        self.bump();
        if let Some(gone) = self.state.pods.remove(member) {
            self.log(Kind::Pods, Object::PodGone(gone));
        }
        Ok(())
    }

    /// Puts an older copy back, as a restore of the store's file does; whoever opens it marks the Lease.
    pub(crate) fn put_back(&mut self, older: State, marks: bool) {
        // Revisions that the lost part handed out are not handed out again.
        let reached = self.state.revision;
        self.state = older;
        self.state.revision = reached;
        self.incarnation += 1;
        self.touched = [true; 5];
        if marks && self.state.lease.is_some() {
            let _ = self.replace_lease(None, |lease| {
                lease.fence = Rc::new(Fence { restored: true, ..Fence::clone(&lease.fence) });
            });
        }
    }
}
