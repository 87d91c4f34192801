//! A modelled PostgreSQL behind the interface that the real driver implements: the agent above it is the real one.

use crate::net::{Data, Engine as Running, Member, Net};
use coregent_agent::clock::Clock;
use coregent_agent::engine::{Durable, Engine, ServerEnd, Status};
use coregent_core::fence::RestOfLog;
use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::member::{self, Job, Names, Source, Standby, StandbySeen, Writable};
use coregent_core::names::{Epoch, MemberName, Monotonic};
use coregent_core::position::{Position, Promotion};
use coregent_core::report::{self, Reach};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time that must be left to the deadline for a promotion (F11).
const ENOUGH: Duration = Duration::from_secs(1);

/// The server of one member, as one run of its agent sees it.
pub struct Modelled {
    net: Net,
    me: MemberName,
    clock: Clock,
    epoch_at_start: Epoch,
    /// The end of the log while every process is gone.
    end: RefCell<Option<Position>>,
}

type Done = Result<(), String>;

impl Modelled {
    pub fn new(net: &Net, me: &MemberName, clock: Clock) -> Modelled {
        let epoch_at_start = net.get(me.as_str()).epoch;
        Modelled { net: net.clone(), me: me.clone(), clock, epoch_at_start, end: RefCell::new(None) }
    }

    fn mine(&self) -> Member {
        self.net.get(self.me.as_str())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Member) -> T) -> T {
        self.net.with(self.me.as_str(), change)
    }

    async fn takes(&self, least: u64, most: u64) {
        tokio::time::sleep(self.net.takes(least, most)).await;
    }

    /// The holder, if a connection to it gets through and it is out of recovery.
    fn source(&self, source: &Source) -> Result<Member, String> {
        let theirs = self.net.get(source.member.as_str());
        let reached = self.net.reaches(self.me.as_str(), source.member.as_str());
        if !reached || theirs.orphaned || theirs.engine != Running::Primary {
            return Err(format!("{} does not answer", source.member));
        }
        Ok(theirs)
    }

    fn read_end(&self) {
        *self.end.borrow_mut() = self.mine().data.as_ref().map(Data::position);
    }

    async fn init_db(&self) -> Done {
        self.takes(200, 600).await;
        self.change(|mine| {
            mine.data = Some(Data { system_id: "7000".into(), lsn: 1_000, ..Data::default() });
            mine.inits += 1;
            mine.chain.clear();
            mine.attempt = None;
            mine.unusable = None;
        });
        self.read_end();
        Ok(())
    }

    async fn copy(&self, source: &Source, chain: Vec<Promotion>) -> Done {
        self.source(source)?;
        self.takes(200, 1_500).await;
        let theirs = self.source(source)?.data;
        self.change(|mine| {
            mine.data = theirs;
            mine.copies += 1;
            mine.chain = chain;
            mine.attempt = None;
            mine.unusable = None;
            mine.inconsistent = false;
            mine.dirty = true;
        });
        self.read_end();
        Ok(())
    }

    async fn rewind(&self, source: &Source, chain: Vec<Promotion>) -> Done {
        let newest = chain.last().map_or(Timeline(1), |last| last.timeline);
        let begun = Instant::now();
        while self.source(source)?.checkpoint < newest {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(format!("{} has not written a checkpoint in 10 s", source.member));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.change(|mine| {
            mine.unusable = Some("a rewind was interrupted or failed".into());
            mine.inconsistent = true;
        });
        self.takes(100, 400).await;
        let theirs = self.source(source)?.data;
        self.change(|mine| {
            mine.data = theirs;
            mine.rewinds += 1;
            mine.chain = chain;
            mine.attempt = None;
            mine.unusable = None;
        });
        self.read_end();
        Ok(())
    }

    fn start(&self, writable: bool, follow: Option<(Source, Vec<Promotion>)>, names: Names) -> ServerEnd {
        let (tell, told) = oneshot::channel();
        let dirty = self.mine().dirty;
        let run = self.change(|mine| {
            mine.run += 1;
            mine.engine = Running::Starting;
            mine.orphaned = false;
            mine.dirty = true;
            mine.source = None;
            if let Some((source, chain)) = follow {
                mine.chain = chain;
                mine.source = Some(source);
            }
            mine.names = Some(names);
            mine.proved = false;
            mine.open = false;
            mine.settled = false;
            mine.since = None;
            mine.slots.clear();
            mine.seen.clear();
            mine.checkpoint = mine.data.as_ref().map_or(Timeline(1), Data::timeline);
            mine.run
        });
        self.net.started(self.me.as_str(), tell);
        let recovery = if dirty { self.net.takes(80, 1_200) } else { self.net.takes(40, 150) };
        let (net, me) = (self.net.clone(), self.me.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(recovery).await;
            net.with(me.as_str(), |mine| {
                if mine.run == run && mine.engine == Running::Starting && !mine.orphaned {
                    mine.engine = if writable { Running::Primary } else { Running::Standby };
                }
            });
        });
        Box::pin(async move { told.await.unwrap_or_else(|_| "unknown".to_owned()) })
    }

    async fn leave(&self, epoch: Epoch) -> Done {
        self.change(|mine| {
            mine.epoch = mine.epoch.max(epoch);
            mine.source = None;
            mine.settled = false;
        });
        self.takes(2, 60).await;
        if self.mine().engine != Running::Standby {
            return Err("the server does not answer".into());
        }
        self.change(|mine| mine.settled = true);
        Ok(())
    }

    async fn fetch(&self, rest: &RestOfLog, within: Option<u64>) -> Done {
        let fetch = async {
            self.takes(50, 900).await;
            let theirs = self.net.get(rest.member.as_str());
            let reached = self.net.reaches(self.me.as_str(), rest.member.as_str()) && theirs.agent;
            let log = theirs.data.filter(|data| data.timeline() == rest.timeline && Lsn(data.lsn) >= rest.end_lsn);
            let Some(log) = log.filter(|_| reached && theirs.engine == Running::Off) else {
                return Err(format!("the agent of {} does not give its log", rest.member));
            };
            self.change(|mine| mine.data = Some(log));
            Ok(())
        };
        match within {
            None => fetch.await,
            Some(millis) => {
                let in_time = tokio::time::timeout(Duration::from_millis(millis), fetch).await;
                in_time.unwrap_or_else(|_| Err("the log was not here in time".into()))
            }
        }
    }

    async fn follow(&self, source: Source, chain: Vec<Promotion>) -> Done {
        let mut changes = self.net.changes();
        loop {
            let listens = self.net.reaches(self.me.as_str(), source.member.as_str())
                && matches!(self.net.get(source.member.as_str()).engine, Running::Standby | Running::Primary);
            if listens {
                break;
            }
            // A test that ends drops this with everything else.
            let _ = changes.changed().await;
        }
        self.change(|mine| {
            mine.chain = chain;
            mine.source = Some(source);
            mine.settled = false;
        });
        Ok(())
    }

    async fn promote(
        &self,
        attempt: Promotion,
        chain: Vec<Promotion>,
        names: Names,
        slots: BTreeSet<MemberName>,
    ) -> Done {
        self.change(|mine| {
            mine.names = Some(names);
            mine.proved = false;
            mine.open = false;
            mine.seen.clear();
            mine.attempt = Some(attempt.clone());
            mine.attempt_recorded = false;
            mine.chain = chain;
            mine.slots = slots.into_iter().map(|member| (member, attempt.epoch)).collect();
        });
        self.takes(5, 60).await;
        let mine = self.mine();
        let left = mine.deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        if left <= ENOUGH {
            return Err("too little time to the deadline".into());
        }
        if mine.stuck {
            std::future::pending::<()>().await;
        }
        self.takes(20, 200).await;
        if self.mine().engine != Running::Standby || self.mine().orphaned {
            return Err("the server does not answer".into());
        }
        self.net.promoted(&self.me, &attempt);
        self.change(|mine| {
            mine.engine = Running::Primary;
            mine.source = None;
            mine.settled = false;
            if let Some(data) = &mut mine.data {
                data.chain.push(Promotion { fork_lsn: Some(Lsn(data.lsn)), ..attempt });
                data.lsn += 1;
            }
        });
        Ok(())
    }

    fn checkpoint(&self, prepares: Option<String>) {
        let took = self.net.takes(20, 800);
        let run = self.change(|mine| {
            mine.checkpointing = true;
            mine.run
        });
        let (net, me) = (self.net.clone(), self.me.clone());
        let timeline = self.mine().data.map_or(Timeline(1), |data| data.timeline());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(took).await;
            net.with(me.as_str(), |mine| {
                if mine.run == run && mine.engine == Running::Primary {
                    mine.checkpoint = timeline;
                    mine.checkpointing = false;
                    if prepares.is_some() {
                        mine.prepared = prepares;
                    }
                }
            });
        });
    }

    async fn adopt(&self, names: Names) -> Done {
        self.change(|mine| {
            mine.names = Some(names);
            mine.proved = false;
        });
        self.takes(2, 40).await;
        if self.mine().engine != Running::Primary { Err("the server does not answer".into()) } else { Ok(()) }
    }

    async fn strengthen(&self, names: Names) -> Done {
        let before = self.mine().names.unwrap_or(Names::Placeholder);
        self.adopt(names).await?;
        if self.net.mark(&self.me).await {
            self.change(|mine| mine.proved = true);
            return Ok(());
        }
        self.adopt(before).await?;
        Err("no standby has acknowledged a marker commit".into())
    }

    async fn marker(&self) -> Done {
        let names = self.mine().names;
        if !self.net.mark(&self.me).await {
            return Err("no standby has acknowledged a marker commit".into());
        }
        self.change(|mine| mine.proved |= mine.names == names);
        Ok(())
    }

    async fn stop(&self, fast: bool, diverged: bool, reason: &str) -> Done {
        if diverged {
            self.change(|mine| mine.unusable = Some(reason.to_owned()));
        }
        let clean = fast && !self.mine().orphaned && self.mine().engine != Running::Off;
        if clean {
            self.takes(20, 120).await;
        }
        self.takes(2, 40).await;
        self.net.stop(self.me.as_str());
        if clean {
            self.change(|mine| mine.dirty = false);
        }
        self.read_end();
        Ok(())
    }

    fn standby(&self, mine: &Member, data: &Data) -> member::Engine {
        let streams = self.net.streams(&self.me);
        member::Engine::Standby(Standby {
            source: mine.source.clone(),
            receiver: streams,
            streaming: streams,
            settled: mine.settled,
            cut: false,
            replayed: Lsn(data.lsn),
            position: data.position(),
            open: mine.open,
            next_slots: slots_of(mine, mine.epoch.next()),
        })
    }

    fn writable(&self, data: &Data, now: Monotonic) -> Status {
        let standbys = self.net.standbys(&self.me);
        let mine = self.change(|mine| {
            mine.since.get_or_insert(now);
            mine.seen.extend(standbys.iter().map(|standby| (standby.clone(), now)));
            mine.clone()
        });
        let names = mine.names.clone().unwrap_or(Names::Placeholder);
        let is_sync = |member: &MemberName| matches!(&names, Names::Any { members, .. } if members.contains(member));
        let seen = mine.seen.iter().map(|(member, at)| {
            let streams = standbys.contains(member);
            let seen = StandbySeen { caught_up: streams, sync: streams && is_sync(member), seen: *at };
            (member.clone(), seen)
        });
        let engine = member::Engine::Writable(Writable {
            since: mine.since.unwrap_or(now),
            position: data.position(),
            checkpoint_timeline: if mine.checkpointing { data.timeline() } else { mine.checkpoint },
            checkpointing: mine.checkpointing,
            prepared: mine.prepared.clone(),
            set_up: mine.set_up,
            open: mine.open,
            names: names.clone(),
            proved: mine.proved,
            slots: slots_of(&mine, mine.epoch),
            standbys: seen.collect(),
        });
        let reported = |member: &MemberName| report::Standby {
            member: member.clone(),
            streaming: true,
            sync: is_sync(member),
            lag_bytes: Some(0),
        };
        Status { engine, standbys: standbys.iter().map(reported).collect(), warnings: BTreeSet::new() }
    }
}

/// Who has a slot of `epoch` there.
fn slots_of(member: &Member, epoch: Epoch) -> BTreeSet<MemberName> {
    member.slots.iter().filter(|(_, at)| **at == epoch).map(|(name, _)| name.clone()).collect()
}

impl Engine for Modelled {
    type Error = String;

    async fn run(&self, job: Job) -> Result<Option<ServerEnd>, String> {
        let done = match job {
            Job::Start { writable, follow, names } => return Ok(Some(self.start(writable, follow, names))),
            Job::InitDb => self.init_db().await,
            Job::Clone { source, chain } => self.copy(&source, chain).await,
            Job::Rewind { source, chain } => self.rewind(&source, chain).await,
            Job::SetUp => {
                self.takes(5, 30).await;
                self.change(|mine| mine.set_up = true);
                Ok(())
            }
            Job::Leave { epoch } => self.leave(epoch).await,
            Job::Fetch { rest, within } => self.fetch(&rest, within).await,
            Job::Follow { source, chain } => self.follow(source, chain).await,
            Job::Promote { attempt, chain, names, slots } => self.promote(attempt, chain, names, slots).await,
            Job::Open => {
                self.change(|mine| mine.open = true);
                Ok(())
            }
            Job::Checkpoint { prepares } => {
                self.checkpoint(prepares);
                Ok(())
            }
            Job::SetNames(names) => self.adopt(names).await,
            Job::Strengthen(names) => self.strengthen(names).await,
            Job::Marker => self.marker().await,
            Job::Slots { epoch, members } => {
                self.takes(1, 20).await;
                self.change(|mine| mine.slots = members.into_iter().map(|member| (member, epoch)).collect());
                Ok(())
            }
            Job::Stop { fast, diverged, reason } => self.stop(fast, diverged, reason).await,
        };
        done.map(|()| None)
    }

    async fn status(&self) -> Status {
        let mine = self.mine();
        let only = |engine| Status { engine, standbys: Vec::new(), warnings: BTreeSet::new() };
        match (mine.engine, &mine.data) {
            (Running::Off, _) => only(member::Engine::Stopped { position: self.end.borrow().clone() }),
            (Running::Standby, Some(data)) if !mine.orphaned => only(self.standby(&mine, data)),
            (Running::Primary, Some(data)) if !mine.orphaned => self.writable(data, self.clock.now()),
            _ => only(member::Engine::Starting),
        }
    }

    /// The next look tells it: only how soon it is noticed differs.
    async fn stream_ended(&self) {
        std::future::pending().await
    }

    async fn reach(&self, source: &Source) -> Reach {
        let theirs = self.net.get(source.member.as_str());
        if theirs.unlinked.is_some() || self.mine().unlinked.is_some() {
            tokio::time::sleep(Duration::from_millis(400)).await;
            return Reach::Silent;
        }
        // A frozen process answers: its kernel does.
        if theirs.agent { Reach::Answers } else { Reach::Refuses }
    }

    fn server_exited(&self) {}

    fn data(&self) -> member::Data {
        let mine = self.mine();
        match (mine.data, mine.unusable) {
            (None, _) => member::Data::Absent,
            (Some(_), Some(why)) => member::Data::Unusable(why),
            (Some(data), None) => member::Data::Present { system_id: data.system_id },
        }
    }

    fn durable(&self) -> Durable {
        let Member { epoch, attempt, attempt_recorded, inconsistent, .. } = self.mine();
        Durable { epoch, epoch_at_start: self.epoch_at_start, attempt, attempt_recorded, inconsistent }
    }

    fn persist_epoch(&self, epoch: Epoch) -> Done {
        self.change(|mine| mine.epoch = epoch);
        Ok(())
    }

    fn persist_win(&self, won: &Promotion) -> Done {
        self.change(|mine| mine.attempt_recorded = mine.attempt.as_ref() == Some(won));
        Ok(())
    }

    fn mark_consistent(&self) -> Done {
        self.change(|mine| mine.inconsistent = false);
        Ok(())
    }

    fn arm(&self, deadline: Option<Monotonic>) {
        let at = deadline.map(|deadline| Instant::now() + self.clock.until(deadline));
        if self.mine().deadline != at {
            self.change(|mine| mine.deadline = at);
        }
    }

    fn remove_old_set_aside(&self) {}

    fn take_back_own_settings(&self) {}
}
