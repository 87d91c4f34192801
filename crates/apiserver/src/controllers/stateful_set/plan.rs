//! Which pods to make, remove and replace, and in which order.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::claims::{self, Readiness};
use super::pod;
use super::revision::History;
use super::status::{availability, is_running_and_ready};
use crate::controllers::selector::PodFacts;
use crate::controllers::world::{Now, World};
use crate::controllers::write::Write;

/// The pods by what is to become of them.
pub struct Slots {
    /// One for each ordinal that should exist, lowest first.
    members: Vec<(i32, Option<Arc<Pod>>)>,
    /// Pods of other ordinals, highest first.
    condemned: Vec<(i32, Arc<Pod>)>,
}

impl Slots {
    /// Sorts the pods of a set into its slots.
    pub fn sort(set: &StatefulSet, pods: &[Arc<Pod>]) -> Self {
        let spec = set.spec.as_ref();
        let start = start(set);
        let end = start.saturating_add(spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0));
        let mut members: Vec<(i32, Option<Arc<Pod>>)> = (start..end).map(|ordinal| (ordinal, None)).collect();
        let mut condemned = Vec::new();
        for pod in pods {
            let Some(ordinal) = pod::ordinal_of(set, pod) else { continue };
            match members.iter_mut().find(|(member, _)| *member == ordinal) {
                Some((_, slot)) => *slot = Some(pod.clone()),
                None => condemned.push((ordinal, pod.clone())),
            }
        }
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        Self { members, condemned }
    }
}

fn start(set: &StatefulSet) -> i32 {
    let ordinals = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
    ordinals.and_then(|ordinals| ordinals.start).unwrap_or_default().max(0)
}

/// Whether later slots may be looked at.
#[derive(PartialEq)]
enum Go {
    On,
    Stop,
}

/// The plan under construction.
pub struct Plan<'a> {
    world: &'a World,
    set: &'a StatefulSet,
    revisions: &'a History,
    now: Now,
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// What to tell, once the writes are done.
    pub events: Vec<Write>,
    /// When a pod that is waited for becomes available.
    pub look_again: Option<Duration>,
}

impl<'a> Plan<'a> {
    /// An empty plan.
    pub fn new(world: &'a World, set: &'a StatefulSet, revisions: &'a History, now: Now) -> Self {
        Self { world, set, revisions, now, writes: Vec::new(), events: Vec::new(), look_again: None }
    }

    /// Members first, then what is too many, then replacement of outdated members.
    pub fn run(mut self, slots: &Slots) -> Self {
        for (ordinal, pod) in &slots.members {
            if self.member(*ordinal, pod.as_ref()) == Go::Stop {
                return self;
            }
        }
        let unhealthy = first_unhealthy(self.set, slots, self.now);
        for (ordinal, pod) in &slots.condemned {
            if self.condemned(*ordinal, pod, unhealthy) == Go::Stop {
                return self;
            }
        }
        self.roll(slots);
        self
    }

    /// OrderedReady looks at one pod after the other, Parallel at all at once.
    fn waits(&self) -> Go {
        let policy = self.set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref());
        if policy == Some("Parallel") { Go::On } else { Go::Stop }
    }

    fn member(&mut self, ordinal: i32, pod: Option<&Arc<Pod>>) -> Go {
        let Some(pod) = pod else { return self.create(ordinal) };
        if pod.is_terminating() {
            // Never two pods of one ordinal: the next is made when this object is gone.
            return self.waits();
        }
        if pod.is_over() {
            self.delete(pod, "it has ended");
            return self.waits();
        }
        if pod.phase() != "Running"
            && let Readiness::Create(writes) = claims::prepare(self.world, self.set, ordinal)
        {
            // Somebody may have removed a claim before the pod came to use it.
            self.writes.extend(writes);
        }
        self.writes.extend(claims::owners(self.world, self.set, pod, ordinal, false));
        if let Some(labels) = pod::missing_labels(self.set, pod, ordinal) {
            self.writes.push(Write::patch(&**pod, labels));
        }
        let (is_available, after) = availability(self.set, pod, self.now);
        if is_available { Go::On } else { self.wait(after) }
    }

    fn wait(&mut self, after: Option<Duration>) -> Go {
        self.look_again = self.look_again.into_iter().chain(after).min();
        self.waits()
    }

    fn create(&mut self, ordinal: i32) -> Go {
        let namespace = self.set.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod::name(self.set, ordinal);
        if self.world.tables.pods.get(namespace, &name).is_some() {
            // A stranger bears the name. Its end brings us here again.
            return self.waits();
        }
        let Readiness::Create(claims) = claims::prepare(self.world, self.set, ordinal) else { return self.waits() };
        self.writes.extend(claims);
        let revision = self.revision_for(ordinal);
        let pod = pod::build(self.set, &revision.template, &revision.name, ordinal);
        self.writes.extend(Write::create(&pod));
        let note = format!("create Pod {name} in StatefulSet {} successful", self.set_name());
        self.events.push(Write::normal(self.set, "SuccessfulCreate", note));
        self.waits()
    }

    /// Members below the partition stay with the current revision.
    fn revision_for(&self, ordinal: i32) -> super::revision::Revision {
        match self.partition() {
            Some(partition) if ordinal < start(self.set).saturating_add(partition) => self.revisions.current.clone(),
            _ => self.revisions.update.clone(),
        }
    }

    fn condemned(&mut self, ordinal: i32, pod: &Arc<Pod>, unhealthy: Option<i32>) -> Go {
        if pod.is_terminating() {
            return self.waits();
        }
        // An unhealthy pod that is to go anyway may go; any other must be whole before the next is taken down.
        if self.waits() == Go::Stop && unhealthy != Some(ordinal) {
            let (is_available, after) = availability(self.set, pod, self.now);
            if !is_available {
                return self.wait(after);
            }
        }
        self.writes.extend(claims::owners(self.world, self.set, pod, ordinal, true));
        self.delete(pod, "the set is scaled down");
        self.waits()
    }

    /// Replaces outdated members from the highest ordinal down, each only when all above it are available.
    fn roll(&mut self, slots: &Slots) {
        let Some(partition) = self.partition() else { return };
        let first = start(self.set).saturating_add(partition);
        for (ordinal, pod) in slots.members.iter().rev() {
            let Some(pod) = pod.as_ref().filter(|_| *ordinal >= first) else { return };
            if pod.is_terminating() || pod.is_over() {
                return;
            }
            if pod::revision(pod) != self.revisions.update.name {
                self.delete(pod, "it has an old revision");
                return;
            }
            let (is_available, after) = availability(self.set, pod, self.now);
            if !is_available {
                self.wait(after);
                return;
            }
        }
    }

    /// The partition of a rolling update; nothing with strategy OnDelete.
    fn partition(&self) -> Option<i32> {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return None;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        Some(rolling.and_then(|rolling| rolling.partition).unwrap_or_default().max(0))
    }

    fn delete(&mut self, pod: &Arc<Pod>, why: &str) {
        self.writes.push(Write::delete(&**pod));
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let note = format!("delete Pod {name} in StatefulSet {} successful: {why}", self.set_name());
        self.events.push(Write::normal(self.set, "SuccessfulDelete", note));
    }

    fn set_name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }
}

fn first_unhealthy(set: &StatefulSet, slots: &Slots, now: Now) -> Option<i32> {
    let members = slots.members.iter().filter_map(|(ordinal, pod)| Some((*ordinal, pod.clone()?)));
    let mut all: Vec<(i32, Arc<Pod>)> = members.chain(slots.condemned.iter().cloned()).collect();
    all.sort_by_key(|(ordinal, _)| *ordinal);
    let is_unhealthy = |pod: &Pod| pod.is_terminating() || !is_running_and_ready(pod) || !availability(set, pod, now).0;
    all.into_iter().find(|(_, pod)| is_unhealthy(pod)).map(|(ordinal, _)| ordinal)
}
