//! The databases that agents drive in these tests: volumes that outlive pods, servers, links between them. Writes are
//! numbered rows. What a real server was seen to do (postgres-recipes.md) is done here too: backends that outlive their
//! first process, a broken link that is noticed two seconds later, commits that wait.

use coregent_apiserver::faults::Dice;
use coregent_core::lsn::{Lsn, Timeline};
use coregent_core::member::{Names, Source};
use coregent_core::names::{Epoch, MemberName, Monotonic};
use coregent_core::position::{Position, Promotion};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// `wal_receiver_timeout`: a silent end is noticed so late.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a client waits for its commit.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a server does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// No process of it runs.
    #[default]
    Off,
    /// Every process was killed and its agent has not looked yet.
    Dead,
    /// It recovers and answers nobody.
    Starting,
    /// In recovery.
    Standby,
    /// Out of recovery.
    Primary,
}

/// One data folder.
#[derive(Clone, Debug, Default)]
pub struct Data {
    pub system_id: String,
    pub lsn: u64,
    /// The promotions that this data has passed.
    pub chain: Vec<Promotion>,
    /// The writes that it holds, by number.
    pub rows: BTreeSet<u64>,
}

impl Data {
    pub fn timeline(&self) -> Timeline {
        self.chain.last().map_or(Timeline(1), |last| last.timeline)
    }

    pub fn position(&self) -> Position {
        Position { timeline: self.timeline(), lsn: Lsn(self.lsn), chain: self.chain.clone() }
    }
}

/// One member: its volume, and what runs on it.
#[derive(Clone, Debug, Default)]
pub struct Member {
    pub data: Option<Data>,
    /// What the agent keeps beside it.
    pub epoch: Epoch,
    pub attempt: Option<Promotion>,
    pub attempt_recorded: bool,
    pub chain: Vec<Promotion>,
    pub unusable: Option<String>,
    pub inconsistent: bool,
    /// It was not shut down cleanly: starting takes longer.
    pub dirty: bool,
    /// How often initdb, a base copy and a rewind ran.
    pub inits: u32,
    pub copies: u32,
    pub rewinds: u32,

    pub engine: Engine,
    /// Grows with every start.
    pub run: u64,
    /// The first process is dead and the others go on.
    pub orphaned: bool,
    pub source: Option<Source>,
    pub names: Option<Names>,
    pub proved: bool,
    pub open: bool,
    pub settled: bool,
    pub set_up: bool,
    pub since: Option<Monotonic>,
    pub slots: BTreeMap<MemberName, Epoch>,
    pub seen: BTreeMap<MemberName, Monotonic>,
    /// The timeline in the control file.
    pub checkpoint: Timeline,
    pub checkpointing: bool,
    pub prepared: Option<String>,
    /// Every process is killed at this instant, whatever the agent waits for.
    pub deadline: Option<Instant>,

    /// Its agent runs.
    pub agent: bool,
    /// Nothing on it moves, since then.
    pub frozen: Option<Instant>,
    /// It cannot be reached by other members, since then.
    pub unlinked: Option<Instant>,
    /// Promotion never ends.
    pub stuck: bool,
}

impl Member {
    /// Every process is gone at once.
    fn off(&mut self) {
        self.engine = Engine::Off;
        self.orphaned = false;
        self.source = None;
        self.open = false;
        self.since = None;
        self.deadline = None;
        self.checkpointing = false;
        self.prepared = None;
        self.slots.clear();
        self.seen.clear();
    }
}

/// What clients were told, and by whom.
#[derive(Debug, Default)]
pub struct Told {
    /// Acknowledged rows and the timeline that they were written on.
    pub rows: BTreeMap<u64, Timeline>,
    newest: Timeline,
    /// Each timeline that a promotion made, and who made it.
    timelines: BTreeMap<Timeline, (MemberName, Epoch)>,
}

struct State {
    members: BTreeMap<MemberName, Member>,
    exits: BTreeMap<MemberName, oneshot::Sender<String>>,
    told: Told,
    violations: Vec<String>,
    dice: Dice,
    lossless: bool,
    /// Changes at one instant.
    at_once: (Option<Instant>, u32),
}

/// All of them.
#[derive(Clone)]
pub struct Net {
    state: Arc<Mutex<State>>,
    changes: Arc<watch::Sender<u64>>,
    frozen: Arc<watch::Sender<BTreeSet<MemberName>>>,
}

impl Net {
    pub fn new(seed: u64) -> Net {
        let state = State {
            members: BTreeMap::new(),
            exits: BTreeMap::new(),
            told: Told::default(),
            violations: Vec::new(),
            dice: Dice::new(seed),
            lossless: true,
            at_once: (None, 0),
        };
        Net {
            state: Arc::new(Mutex::new(state)),
            changes: Arc::new(watch::Sender::new(0)),
            frozen: Arc::new(watch::Sender::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        // A frozen member's watchdog is frozen with it, and acts before anything else when it thaws.
        let State { members, exits, .. } = &mut *state;
        for (name, member) in members.iter_mut() {
            if member.frozen.is_none() && member.deadline.is_some_and(|deadline| deadline <= now) {
                member.off();
                if let Some(exit) = exits.remove(name) {
                    member.engine = Engine::Dead;
                    let _ = exit.send("signal 9".to_owned());
                }
            }
        }
        state
    }

    /// Rows may be lost from now on: asynchronous replication.
    pub fn may_lose(&self) {
        self.lock().lossless = false;
    }

    pub fn all(&self) -> BTreeMap<MemberName, Member> {
        self.lock().members.clone()
    }

    pub fn get(&self, member: &str) -> Member {
        self.lock().members.get(&member.into()).cloned().unwrap_or_default()
    }

    pub fn with<T>(&self, member: &str, change: impl FnOnce(&mut Member) -> T) -> T {
        let mut state = self.lock();
        let now = Some(Instant::now());
        state.at_once = if state.at_once.0 == now { (now, state.at_once.1 + 1) } else { (now, 1) };
        assert!(state.at_once.1 < 20_000, "somebody does the same again and again and no time passes");
        let done = change(state.members.entry(member.into()).or_default());
        drop(state);
        self.changes.send_modify(|count| *count += 1);
        done
    }

    /// Wakes with every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A time drawn between two, in milliseconds.
    pub fn takes(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least) + self.lock().dice.up_to(Duration::from_millis(most - least))
    }

    pub fn violation(&self, what: String) {
        self.lock().violations.push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    pub fn acknowledged(&self) -> BTreeSet<u64> {
        self.lock().told.rows.keys().copied().collect()
    }

    /// The first process of a server runs; what is sent here tells its agent of its end.
    pub fn started(&self, member: &str, exit: oneshot::Sender<String>) {
        self.lock().exits.insert(member.into(), exit);
    }

    /// Ends every process of a server.
    pub fn stop(&self, member: &str) {
        self.with(member, Member::off);
        if let Some(exit) = self.lock().exits.remove(&member.into()) {
            let _ = exit.send("signal 9".to_owned());
        }
    }

    /// Kills the first process of a server; its backends go on until somebody sweeps them (F3).
    pub fn kill_engine(&self, member: &str) {
        self.with(member, |member| member.orphaned = member.engine != Engine::Off);
        if let Some(exit) = self.lock().exits.remove(&member.into()) {
            let _ = exit.send("signal 9".to_owned());
        }
    }

    pub fn freeze(&self, member: &str) {
        self.with(member, |member| member.frozen = member.frozen.or(Some(Instant::now())));
        self.frozen.send_if_modified(|frozen| frozen.insert(member.into()));
    }

    pub fn thaw(&self, member: &str) {
        self.with(member, |member| member.frozen = None);
        self.frozen.send_if_modified(|frozen| frozen.remove(&member.into()));
    }

    /// Who is frozen.
    pub fn frozen(&self) -> watch::Receiver<BTreeSet<MemberName>> {
        self.frozen.subscribe()
    }

    pub fn unlink(&self, member: &str) {
        self.with(member, |member| member.unlinked = member.unlinked.or(Some(Instant::now())));
    }

    pub fn link(&self, member: &str) {
        self.with(member, |member| member.unlinked = None);
    }

    /// The members that accept writes at this instant.
    pub fn primaries(&self) -> Vec<MemberName> {
        let state = self.lock();
        let writes = |member: &&MemberName| {
            state.members.get(*member).is_some_and(|m| m.engine == Engine::Primary && m.open && m.frozen.is_none())
        };
        state.members.keys().filter(writes).cloned().collect()
    }

    /// Whether `from` can be reached from `by`.
    pub fn reaches(&self, by: &str, from: &str) -> bool {
        let state = self.lock();
        let apart =
            |name: &str| state.members.get(&name.into()).is_none_or(|m| m.frozen.is_some() || m.unlinked.is_some());
        !apart(by) && !apart(from)
    }

    /// The standbys of `primary` as it sees them, which thereby have all that it has if the link is sound.
    pub fn standbys(&self, primary: &MemberName) -> BTreeSet<MemberName> {
        let mut state = self.lock();
        let names: Vec<MemberName> = state.members.keys().cloned().collect();
        names.into_iter().filter(|name| state.stream(primary, name)).collect()
    }

    /// Whether `standby` streams as it sees it.
    pub fn streams(&self, standby: &MemberName) -> bool {
        let mut state = self.lock();
        let source = state.members.get(standby).and_then(|member| member.source.clone());
        source.is_some_and(|source| state.stream(&source.member, standby))
    }

    /// Reads the rows of `member`.
    pub fn rows(&self, member: &str) -> BTreeSet<u64> {
        self.get(member).data.map(|data| data.rows).unwrap_or_default()
    }

    /// A client writes row `number` on `member`; whether it is told that the row is safe.
    pub async fn write(&self, member: &str, number: u64) -> bool {
        let name: MemberName = member.into();
        let Some((run, lsn)) = self.insert(&name, number) else { return false };
        self.acknowledge(&name, run, lsn, Some(number), PATIENCE).await
    }

    /// A commit of the agent's own under the names in force.
    pub async fn mark(&self, member: &MemberName) -> bool {
        let begun = {
            let mut state = self.lock();
            state.members.get_mut(member).filter(|m| m.engine == Engine::Primary && !m.orphaned).and_then(|m| {
                let data = m.data.as_mut()?;
                data.lsn += 1;
                Some((m.run, data.lsn))
            })
        };
        let Some((run, lsn)) = begun else { return false };
        self.acknowledge(member, run, lsn, None, PATIENCE).await
    }

    fn insert(&self, name: &MemberName, number: u64) -> Option<(u64, u64)> {
        let mut state = self.lock();
        let member = state.members.get_mut(name)?;
        if member.engine != Engine::Primary || !member.open || member.frozen.is_some() {
            return None;
        }
        let data = member.data.as_mut()?;
        data.lsn += 10;
        data.rows.insert(number);
        Some((member.run, data.lsn))
    }

    /// Waits until the names in force let a commit at `lsn` through, with every standby at its own pace.
    async fn acknowledge(&self, name: &MemberName, run: u64, lsn: u64, row: Option<u64>, within: Duration) -> bool {
        let begun = Instant::now();
        let mut changes = self.changes();
        while begun.elapsed() < within {
            let pause = self.takes(1, 25);
            tokio::time::sleep(pause).await;
            match self.judge(name, run, lsn, row) {
                Some(Judged::Told) => return true,
                Some(Judged::Waits) => {}
                Some(Judged::Frozen) => {
                    // Nothing happens there until something changes; the client waits on.
                    let _ = tokio::time::timeout(within.saturating_sub(begun.elapsed()), changes.changed()).await;
                }
                None => return false,
            }
        }
        false
    }

    fn judge(&self, name: &MemberName, run: u64, lsn: u64, row: Option<u64>) -> Option<Judged> {
        let mut state = self.lock();
        let State { members, dice, .. } = &mut *state;
        let primary = members.get(name).filter(|m| m.run == run && m.engine == Engine::Primary)?.clone();
        if primary.frozen.is_some() {
            return Some(Judged::Frozen);
        }
        let standbys: Vec<MemberName> = members.keys().cloned().collect();
        // Each standby answers in its own time: one draw of two.
        let answering: Vec<MemberName> = standbys.into_iter().filter(|_| dice.chance(500)).collect();
        for standby in answering {
            state.stream(name, &standby);
        }
        let has = |member: &MemberName| {
            state.flows(name, member)
                && state.members.get(member).and_then(|m| m.data.as_ref()).is_some_and(|data| data.lsn >= lsn)
        };
        let enough = match &primary.names {
            None | Some(Names::Placeholder) => false,
            Some(Names::Nobody) => true,
            Some(Names::Any { k, members }) => members.iter().filter(|member| has(member)).count() >= *k as usize,
        };
        if !enough {
            return Some(Judged::Waits);
        }
        if let Some(row) = row {
            state.tell(name, row);
        }
        Some(Judged::Told)
    }

    /// Notes a promotion.
    pub fn promoted(&self, member: &MemberName, attempt: &Promotion) {
        let mut state = self.lock();
        if let Some(before) = state.told.timelines.insert(attempt.timeline, (member.clone(), attempt.epoch)) {
            state.violations.push(format!(
                "timeline {} is made twice: by {member} in epoch {}, and before by {before:?}",
                attempt.timeline, attempt.epoch
            ));
        }
    }
}

enum Judged {
    Told,
    Waits,
    Frozen,
}

impl State {
    /// They are told to stream, whatever the link does.
    fn configured(&self, primary: &MemberName, standby: &MemberName) -> bool {
        let (Some(from), Some(to)) = (self.members.get(primary), self.members.get(standby)) else { return false };
        let Some(source) = to.source.as_ref().filter(|source| source.member == *primary) else { return false };
        to.engine == Engine::Standby && from.engine == Engine::Primary && from.slots.get(standby) == Some(&source.epoch)
    }

    /// Log flows from one to the other.
    fn flows(&self, primary: &MemberName, standby: &MemberName) -> bool {
        let sound = |name| self.members.get(name).is_some_and(|m| m.frozen.is_none() && m.unlinked.is_none());
        self.configured(primary, standby) && sound(primary) && sound(standby)
    }

    /// Lets log flow if it can; whether both ends believe that it does.
    fn stream(&mut self, primary: &MemberName, standby: &MemberName) -> bool {
        if !self.flows(primary, standby) {
            let broken = [primary, standby]
                .into_iter()
                .filter_map(|name| self.members.get(name))
                .flat_map(|member| [member.frozen, member.unlinked])
                .flatten()
                .min();
            return self.configured(primary, standby) && broken.is_some_and(|at| at.elapsed() < SILENCE);
        }
        let theirs = self.members.get(primary).and_then(|member| member.data.clone());
        let mine = self.members.get_mut(standby).and_then(|member| member.data.as_mut());
        if let (Some(theirs), Some(mine)) = (theirs, mine) {
            if !theirs.rows.is_superset(&mine.rows) {
                self.violations.push(format!("{standby} streams from {primary} with rows of its own"));
            }
            *mine = theirs;
        }
        true
    }

    /// A client is told that `row` is safe.
    fn tell(&mut self, name: &MemberName, row: u64) {
        let Some(data) = self.members.get(name).and_then(|member| member.data.as_ref()) else { return };
        let timeline = data.timeline();
        if timeline < self.told.newest {
            let newest = self.told.newest;
            self.violations.push(format!(
                "{name} acknowledges row {row} on timeline {timeline}, after timeline {newest} has acknowledged"
            ));
        }
        if self.lossless
            && let Some(lost) = self.told.rows.keys().find(|row| !data.rows.contains(row))
        {
            self.violations.push(format!("{name} acknowledges row {row} and lacks the acknowledged row {lost}"));
        }
        self.told.newest = self.told.newest.max(timeline);
        self.told.rows.insert(row, timeline);
    }
}
