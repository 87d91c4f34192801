//! A member's agent in its simplest form: the rules of failover.md F1, F3, F5, F6, F8–F12 and no engine.

use crate::net::{Data, Engine, Net, Volume};
use coregent_core::fence::{self, Attempt, Fence, Release, SyncSet};
use coregent_core::lsn::Lsn;
use coregent_core::names::{Epoch, HolderIdentity, MemberName};
use coregent_core::position::Promotion;
use coregent_core::report::{self, MemberReport, MemberState, Standby};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks.
const TICK: Duration = Duration::from_millis(10);
const RENEW: Duration = Duration::from_millis(1_500);
const MARGIN: Duration = Duration::from_millis(4_500);

pub struct Agent {
    pub client: Client,
    pub net: Net,
    pub cluster: String,
    pub member: MemberName,
    pub pod_uid: String,
    pub address: String,
    pub asynchronous: bool,
    nonce: String,
    renewed: Option<Instant>,
    /// The epoch in which it held or promoted last.
    mine: Option<Epoch>,
    released: bool,
    published: Option<MemberReport>,
}

impl Agent {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        client: Client,
        net: Net,
        cluster: &str,
        member: &str,
        pod_uid: String,
        address: String,
        nonce: String,
        asynchronous: bool,
    ) -> Agent {
        Agent {
            client,
            net,
            cluster: cluster.to_owned(),
            member: member.into(),
            pod_uid,
            address,
            asynchronous,
            nonce,
            renewed: None,
            mine: None,
            released: false,
            published: None,
        }
    }

    pub async fn run(mut self) {
        // A new process finds nothing running: the namespace of the old one is empty.
        self.net.with(self.member.as_str(), |volume| {
            volume.engine = Engine::Off;
            volume.source = None;
        });
        loop {
            let volume = self.net.get(self.member.as_str());
            if !volume.frozen {
                if volume.engine == Engine::Primary && self.renewed.is_some_and(|at| at.elapsed() >= MARGIN) {
                    self.stop();
                }
                if !volume.cut {
                    self.step().await;
                }
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::default_namespaced(self.client.clone())
    }

    fn identity(&self) -> HolderIdentity {
        HolderIdentity { member: self.member.clone(), pod_uid: self.pod_uid.clone(), nonce: self.nonce.clone() }
    }

    fn stop(&self) {
        self.net.with(self.member.as_str(), |volume| {
            volume.engine = Engine::Off;
            volume.source = None;
        });
    }

    async fn step(&mut self) {
        let found = self.leases().get_opt(&format!("{}-primary", self.cluster)).await;
        let Ok(Some(lease)) = found else { return self.report(None, MemberState::WaitingForSource).await };
        let Some(fence) = lease.annotations().get(fence::ANNOTATION).and_then(|text| Fence::parse(text).ok()) else {
            return;
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let epoch = Epoch(u64::try_from(spec.lease_transitions.unwrap_or(0)).unwrap());
        let holder = spec.holder_identity.unwrap_or_default();
        let held = holder == self.identity().to_string();
        let target = fence.target.clone();
        let is_target = target.as_ref().is_some_and(|target| target.member == self.member);
        let member = self.member.as_str().to_owned();
        let dead = self.net.with(&member, |volume| std::mem::take(&mut volume.killed));
        if dead {
            self.stop();
        }
        let volume = self.net.get(&member);
        if volume.epoch < epoch {
            self.net.with(&member, |volume| volume.epoch = epoch);
        }
        // The predecessor of this member is dead: the volume's lock says so (F5).
        let predecessor = holder.starts_with(&format!("{member}/"));
        if (held && dead) || (predecessor && !is_target) {
            self.stop();
            return self.release(lease, fence).await;
        }
        match target {
            None => self.leave(epoch).await,
            Some(_) if is_target && held => self.hold(lease, fence, epoch).await,
            Some(target) if is_target => {
                let retake = predecessor || (holder.is_empty() && self.mine != Some(epoch));
                let proven = !matches!(target.proof, fence::Proof::Bootstrap) || holder.is_empty();
                if !(self.released && self.mine == Some(epoch)) && (retake || proven) {
                    self.take(lease, fence, epoch, &target.initial_sync).await;
                }
            }
            Some(target) => self.follow(&target.member, &holder, epoch, &fence).await,
        }
    }

    async fn put(&self, mut lease: Lease, fence: &Fence, holder: Option<String>) -> bool {
        lease.annotations_mut().insert(fence::ANNOTATION.to_owned(), fence.to_annotation());
        let spec = lease.spec.get_or_insert_default();
        if holder.is_some() {
            spec.renew_time = Some(MicroTime(jiff::Timestamp::now()));
        }
        spec.holder_identity = holder;
        self.leases().replace(&lease.name_any(), &PostParams::default(), &lease).await.is_ok()
    }

    async fn release(&mut self, lease: Lease, mut fence: Fence) {
        let volume = self.net.get(self.member.as_str());
        if let Some(data) = &volume.data {
            let position = data.position();
            let of = fence.last_win().map_or(Epoch(1), |win| win.epoch);
            let won = fence.last_win().is_none_or(|win| win.member == self.member);
            if won {
                let (member, timeline) = (self.member.clone(), position.timeline);
                fence.release = Some(Release { member, epoch: of, timeline, end_lsn: position.lsn });
            }
        }
        if self.put(lease, &fence, None).await {
            self.released = true;
            self.renewed = None;
        }
    }

    async fn leave(&mut self, epoch: Epoch) {
        self.net.with(self.member.as_str(), |volume| {
            volume.source = None;
            if volume.engine == Engine::Primary {
                volume.engine = Engine::Off;
            }
        });
        let has_data = self.net.get(self.member.as_str()).data.is_some();
        let state = if has_data { MemberState::Stopped } else { MemberState::WaitingForSource };
        self.report(has_data.then_some(epoch), state).await;
    }

    async fn take(&mut self, lease: Lease, mut fence: Fence, epoch: Epoch, initial: &BTreeSet<MemberName>) {
        let volume = self.net.get(self.member.as_str());
        let same_epoch = fence.history.iter().any(|attempt| attempt.promotion.epoch == epoch)
            || fence.sync_sets.iter().any(|set| set.epoch == epoch);
        if !same_epoch {
            if let Some(data) = &volume.data {
                let timeline = fence.next_timeline();
                let promotion = Promotion { epoch, member: self.member.clone(), timeline, fork_lsn: None };
                fence.history.push(Attempt { promotion: promotion.clone(), won: false });
                fence.chain = data.chain.clone();
                fence.chain.push(promotion);
            }
            if !self.asynchronous {
                fence.sync_sets.push(SyncSet {
                    epoch,
                    k: 1,
                    members: initial.clone(),
                    primary: Some(self.member.clone()),
                    complete: false,
                    degraded: false,
                });
            }
        }
        if fence.release.as_ref().is_some_and(|release| release.epoch == epoch) {
            fence.release = None;
        }
        let asked = Instant::now();
        if self.put(lease, &fence, Some(self.identity().to_string())).await {
            self.renewed = Some(asked);
            self.mine = Some(epoch);
            self.released = false;
        }
    }

    async fn hold(&mut self, lease: Lease, mut fence: Fence, epoch: Epoch) {
        let member = self.member.as_str().to_owned();
        let volume = self.net.get(&member);
        if volume.engine != Engine::Primary {
            if volume.stuck {
                return self.report(None, MemberState::Promoting).await;
            }
            self.promote(&mut fence, epoch, &volume);
            let asked = Instant::now();
            if self.put(lease, &fence, Some(self.identity().to_string())).await {
                self.renewed = Some(asked);
                self.net.with(&member, |volume| volume.engine = Engine::Primary);
                self.report(None, MemberState::Primary).await;
            }
            return;
        }
        let standbys = self.net.stream(&self.member);
        let changed = !self.asynchronous && self.widen(&mut fence, epoch, &standbys);
        let due = self.renewed.is_none_or(|at| at.elapsed() >= RENEW);
        if changed || due {
            let asked = Instant::now();
            if self.put(lease, &fence, Some(self.identity().to_string())).await {
                self.renewed = Some(asked);
                let names = fence.sync_sets.iter().find(|set| set.epoch == epoch).map(|set| set.members.clone());
                self.net.with(&member, |volume| volume.sync = if self.asynchronous { None } else { names });
            }
        }
        self.report(None, MemberState::Primary).await;
    }

    /// Makes the data of a primary, or turns a standby into one on the allotted timeline.
    fn promote(&self, fence: &mut Fence, epoch: Epoch, volume: &Volume) {
        let names = fence.sync_sets.iter().find(|set| set.epoch == epoch).map(|set| set.members.clone());
        let attempt = fence.history.iter_mut().find(|attempt| attempt.promotion.epoch == epoch);
        self.net.with(self.member.as_str(), |mine| {
            mine.source = None;
            mine.sync = if self.asynchronous { None } else { names };
            match (&mut mine.data, attempt) {
                (Some(data), Some(attempt)) if !attempt.won => {
                    attempt.promotion.fork_lsn = Some(Lsn(data.lsn));
                    attempt.won = true;
                    data.chain.push(attempt.promotion.clone());
                    data.lsn += 1;
                    fence.release = None;
                }
                (Some(_), _) => {}
                (data, _) => {
                    assert_eq!(volume.inits, 0, "a second initdb");
                    *data = Some(Data { system_id: "7000".into(), lsn: 1_000, ..Data::default() });
                    mine.inits += 1;
                    fence.system_id = Some("7000".into());
                }
            }
        });
    }

    /// Adds whoever streams, takes out whoever has not for a while (here: at once, others being there), and records
    /// the epoch as complete once its own set has a standby.
    fn widen(&self, fence: &mut Fence, epoch: Epoch, standbys: &BTreeSet<MemberName>) -> bool {
        let before = fence.sync_sets.clone();
        if let Some(set) = fence.sync_sets.iter_mut().find(|set| set.epoch == epoch) {
            set.members.extend(standbys.iter().cloned());
            if set.members.iter().any(|member| standbys.contains(member)) {
                set.complete = true;
            }
        }
        if fence.sync_sets.iter().any(|set| set.epoch == epoch && set.complete) {
            fence.sync_sets.retain(|set| set.epoch >= epoch);
        }
        fence.sync_sets != before
    }

    async fn follow(&mut self, target: &MemberName, holder: &str, epoch: Epoch, fence: &Fence) {
        let member = self.member.as_str().to_owned();
        let granted = holder.starts_with(&format!("{target}/"));
        let source = self.net.get(target.as_str());
        let open = granted && source.engine == Engine::Primary && !source.unlinked && !source.frozen;
        let mut volume = self.net.get(&member);
        if volume.engine == Engine::Primary {
            self.stop();
            volume.engine = Engine::Off;
        }
        if !open || volume.unlinked || !fence.members.contains(&self.member) {
            self.net.with(&member, |volume| {
                volume.engine = if volume.data.is_some() { Engine::Standby } else { Engine::Off }
            });
            let state = if volume.data.is_some() { MemberState::Standby } else { MemberState::WaitingForSource };
            let left = volume.data.is_some().then_some(epoch).filter(|_| volume.source.is_none());
            return self.report(left, state).await;
        }
        let theirs = source.data.expect("an open primary has data");
        self.net.with(&member, |volume| {
            let prefix = volume.data.as_ref().is_some_and(|mine| theirs.rows.is_superset(&mine.rows));
            if !prefix {
                volume.copies += 1;
                volume.data = Some(theirs.clone());
            }
            volume.engine = Engine::Standby;
            volume.source = Some(target.clone());
            if let Some(data) = &mut volume.data {
                *data = theirs;
            }
        });
        self.report(None, MemberState::Streaming).await;
    }

    async fn report(&mut self, left: Option<Epoch>, state: MemberState) {
        let volume = self.net.get(self.member.as_str());
        let standbys = if state == MemberState::Primary { self.net.stream(&self.member) } else { BTreeSet::new() };
        let report = MemberReport {
            agent: String::new(),
            version: report::VERSION,
            member: self.member.clone(),
            pod_uid: self.pod_uid.clone(),
            nonce: self.nonce.clone(),
            address: self.address.clone(),
            epoch: volume.epoch,
            left,
            state,
            position: volume.data.as_ref().map(Data::position),
            unrecorded_attempt: None,
            system_id: volume.data.as_ref().map(|data| data.system_id.clone()),
            standbys: standbys
                .into_iter()
                .map(|member| Standby { member, streaming: true, sync: true, lag_bytes: Some(0) })
                .collect(),
            flushed_lsn: None,
            ready: matches!(state, MemberState::Primary | MemberState::Streaming),
            warnings: BTreeSet::new(),
            last_error: None,
            handled_request: None,
        };
        // The position alone is published rarely.
        let same = self.published.as_ref().is_some_and(|published| {
            MemberReport { position: report.position.clone(), ..published.clone() } == report
                && (left.is_none() || published.position == report.position)
        });
        if !same && self.publish(&report).await {
            self.published = Some(report);
        }
    }

    async fn publish(&self, report: &MemberReport) -> bool {
        let name = format!("{}-member", self.member);
        let annotations = BTreeMap::from([(report::ANNOTATION.to_owned(), report.to_annotation())]);
        match self.leases().get_opt(&name).await {
            Ok(Some(mut lease)) => {
                lease.metadata.annotations = Some(annotations);
                self.leases().replace(&name, &PostParams::default(), &lease).await.is_ok()
            }
            Ok(None) => {
                let labels = BTreeMap::from([
                    ("coregent.io/cluster".to_owned(), self.cluster.clone()),
                    ("coregent.io/instance".to_owned(), self.member.to_string()),
                ]);
                let metadata = ObjectMeta {
                    name: Some(name),
                    labels: Some(labels),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                };
                let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
                self.leases().create(&PostParams::default(), &lease).await.is_ok()
            }
            Err(_) => false,
        }
    }
}
