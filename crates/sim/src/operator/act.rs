//! Each step of a decision as one conditional write.

use super::Run;
use super::reconcile::{View, tampered};
use crate::rules::Rule;
use crate::store::Refusal;
use crate::world::{CLUSTER, Failure, MS};
use coregent_core::failover::{Decision, Lossless, Role, Step};
use coregent_core::fence::Fence;
use coregent_core::names::{Epoch, MemberName};
use std::rc::Rc;

/// No answer for so long: looking again tells more than waiting.
pub(super) const ANSWER: u64 = 3_000 * MS;

impl Run {
    /// Carries the steps out in order and stops at the first that fails.
    pub(super) async fn act(self: &Rc<Self>, view: &View, decision: &Decision) -> Result<(), Failure> {
        let mut steps: Vec<&Step> = decision.steps.iter().collect();
        if self.world.is_off(Rule::EffectAfterIntent) {
            // The effects first, what the status remembers of them afterwards.
            steps.sort_by_key(|step| matches!(step, Step::Remember { .. }));
        }
        for step in steps {
            let step = tampered(self.world.off, step);
            let leads = |pod: &str| {
                let mut pods = view.world.members.values().filter_map(|member| member.pod.as_ref());
                pods.any(|known| known.name == *pod && known.role.as_deref() == Some(Role::Primary.as_str()))
            };
            // The leader's label stays where it is.
            if self.world.is_off(Rule::F15Label) && matches!(&step, Step::Label { pod, .. } if leads(pod)) {
                continue;
            }
            self.world.note(&self.identity, || format!("{step}"));
            let written = self.world.within(ANSWER, self.write(view, decision, &step)).await;
            written.unwrap_or(Err(Failure::Unavailable))?;
        }
        Ok(())
    }

    async fn write(self: &Rc<Self>, view: &View, decision: &Decision, step: &Step) -> Result<(), Failure> {
        let id = step.id();
        match step {
            Step::Remember { .. } => self.write_status(view, decision, id).await,
            Step::DeployBaseConfig => {
                let written =
                    self.world.call(self.place, id, |store| store.put_cluster(None, |c| c.base_config = true));
                let written = written.await?;
                self.cache.borrow_mut().wrote_cluster(written);
                Ok(())
            }
            Step::CreateGrant { member } => {
                let named = member.clone();
                let made = self.world.call(self.place, id, move |store| store.create_grant(&named)).await;
                self.created(made.map(|member| self.cache.borrow_mut().grant = Some(member))).await
            }
            Step::CreateLease { epoch, fence } => {
                let (epoch, fence) = (*epoch, fence.clone());
                let made = self.world.call(self.place, id, move |store| store.create_lease(epoch, fence)).await;
                let now = self.world.clock(self.place);
                self.created(made.map(|lease| self.cache.borrow_mut().wrote_lease(lease, now))).await
            }
            Step::Raise { version, epoch, fence }
            | Step::Name { version, epoch, fence }
            | Step::Prepare { version, epoch, fence }
            | Step::Enrol { version, epoch, fence } => self.put_lease(view, version, *epoch, fence, id).await,
            Step::Stamp { pod, uid, epoch } => {
                let epoch = *epoch;
                self.patch_pod(pod, uid, id, move |pod| pod.stamp = Some(epoch)).await
            }
            Step::Label { pod, uid, role } => {
                let role = *role;
                self.patch_pod(pod, uid, id, move |pod| pod.role = role).await
            }
            Step::FencingDelete { pod, uid, version, epoch } => self.fence(pod, uid, version, *epoch, id).await,
            Step::SetInstances { instances } => {
                let instances = instances.clone();
                let put = move |store: &mut crate::store::Store| {
                    store.put_rest(|rest| rest.instances = Some(instances));
                    Ok(Rc::clone(&store.state.rest))
                };
                let rest = self.world.call(self.place, id, put).await?;
                self.cache.borrow_mut().rest = Some(rest);
                Ok(())
            }
        }
    }

    /// What is there already stands: the answer of an earlier create may have been lost.
    async fn created(self: &Rc<Self>, made: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(Failure::Refused(Refusal::Conflict)) = made {
            self.read_lease(None).await;
            let read = self.world.call(self.place, "operator.read", |store| Ok(store.state.grant.clone())).await;
            if let Ok(grant) = read {
                self.cache.borrow_mut().grant = grant;
            }
            return Ok(());
        }
        made
    }

    pub(super) async fn write_status(
        self: &Rc<Self>,
        view: &View,
        decision: &Decision,
        id: &'static str,
    ) -> Result<(), Failure> {
        let mut memory = decision.memory.clone();
        if self.world.is_off(Rule::F17Lossless)
            && let Some(last) = &mut memory.last_failover
        {
            last.data_loss.lossless = Lossless::Yes;
        }
        let (picture, version) = (Rc::new(decision.picture.clone()), view.cluster_version);
        let version = (!self.world.is_off(Rule::F1Version)).then_some(version);
        let same =
            self.cache.borrow().cluster.as_ref().is_some_and(|cluster| {
                cluster.memory == memory && cluster.picture.as_deref() == Some(&decision.picture)
            });
        if same {
            return Ok(());
        }
        let put = move |store: &mut crate::store::Store| {
            store.put_cluster(version, |cluster| {
                cluster.memory = memory;
                cluster.picture = Some(picture);
            })
        };
        match self.world.call(self.place, id, put).await {
            Ok(written) => {
                self.cache.borrow_mut().wrote_cluster(written);
                Ok(())
            }
            Err(failure) => {
                if matches!(failure, Failure::Refused(_)) {
                    let read =
                        self.world.call(self.place, "operator.read", |store| Ok(Rc::clone(&store.state.cluster)));
                    if let Some(Ok(found)) = self.world.within(ANSWER, read).await {
                        self.cache.borrow_mut().read_cluster(found, view.cluster_version);
                    }
                }
                Err(failure)
            }
        }
    }

    async fn put_lease(
        self: &Rc<Self>,
        view: &View,
        version: &str,
        epoch: Epoch,
        fence: &Fence,
        id: &'static str,
    ) -> Result<(), Failure> {
        let base = version.parse().ok().filter(|_| !self.world.is_off(Rule::F1Version));
        let fence = Rc::new(fence.clone());
        let put = move |store: &mut crate::store::Store| {
            store.replace_lease(base, |lease| {
                lease.epoch = epoch;
                lease.fence = fence;
            })
        };
        match self.world.call(self.place, id, put).await {
            Ok(written) => {
                let now = self.world.clock(self.place);
                self.cache.borrow_mut().wrote_lease(written, now);
                Ok(())
            }
            Err(failure) => {
                self.read_lease(view.lease_version).await;
                Err(failure)
            }
        }
    }

    /// Reads the Lease again after a write that did not land or may have.
    async fn read_lease(self: &Rc<Self>, before: Option<u64>) {
        let read = self.world.call(self.place, "operator.read", |store| Ok(store.state.lease.clone()));
        if let Some(Ok(Some(found))) = self.world.within(ANSWER, read).await {
            let now = self.world.clock(self.place);
            self.cache.borrow_mut().read_lease(found, before, now);
        }
    }

    async fn patch_pod(
        self: &Rc<Self>,
        pod: &str,
        uid: &str,
        id: &'static str,
        change: impl FnOnce(&mut crate::store::PodObject) + 'static,
    ) -> Result<(), Failure> {
        let (member, uid) = (member_of(pod), uid.to_owned());
        let written = self.world.call(self.place, id, move |store| store.patch_pod(&member, &uid, change)).await?;
        self.cache.borrow_mut().wrote_pod(&written);
        Ok(())
    }

    async fn fence(
        self: &Rc<Self>,
        pod: &str,
        uid: &str,
        version: &str,
        epoch: Epoch,
        id: &'static str,
    ) -> Result<(), Failure> {
        let (member, uid) = (member_of(pod), uid.to_owned());
        let version = version.parse().ok().filter(|_| !self.world.is_off(Rule::F4DeleteVersion));
        let world = Rc::clone(&self.world);
        let done = self.world.call(self.place, id, move |store| {
            store.delete_pod(&member, &uid, version, 1_000)?;
            // Somebody was named again since this was decided, and takes or holds the Lease.
            let named = store.state.lease.as_ref().filter(|lease| lease.epoch >= epoch);
            let target = named.and_then(|lease| lease.fence.target.as_ref());
            if target.is_some_and(|target| target.member == member) {
                let what = format!("a delete that was decided at epoch {epoch} kills {member}, which was named since");
                world.violation(what);
            }
            Ok(())
        });
        done.await
    }
}

fn member_of(pod: &str) -> MemberName {
    let name = pod.strip_suffix("-0").unwrap_or(pod);
    debug_assert!(name.starts_with(CLUSTER));
    MemberName::from(name)
}
