//! Bad days, each drawn from a seed: everything that can go wrong does, in any order, and afterwards everything must
//! be well again. What must hold meanwhile is judged by the oracle and by the databases' clients.
//!
//! `COREGENT_SEED=7` runs one seed with its trace, `COREGENT_SEEDS=2000` that many. A seed that fails usually fails
//! again (see [`crate::plane`] for what is not drawn from it).

use crate::plane::{self, Plane};
use coregent_api::database::Lossless;
use coregent_apiserver::faults::{Dice, Faults, Odds, Outage};
use coregent_core::names::MemberName;
use serde_json::{Value, json};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 40;
/// Virtual time in which everything is well again once nothing goes wrong any more.
const RECOVERY: Duration = Duration::from_secs(180);
const MEMBERS: [&str; 3] = ["orders-1", "orders-2", "orders-3"];

#[test]
fn after_every_storm_the_cluster_is_whole_and_nothing_acknowledged_is_missing() {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match from_env("COREGENT_SEED") {
        Some(seed) => vec![seed],
        None => (0..from_env("COREGENT_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(seeds.len());
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap()) {
                    if catch_unwind(AssertUnwindSafe(|| plane::run(Storm::rage(*seed)))).is_err() {
                        eprintln!("seed {seed} failed; run it alone by\n{}", again(*seed));
                        failed.lock().unwrap().push(*seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let lines: Vec<String> = failed.iter().map(|seed| again(*seed)).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed:\n{}", failed.len(), seeds.len(), lines.join("\n"));
}

fn again(seed: u64) -> String {
    format!(
        "COREGENT_SEED={seed} cargo test --locked --workspace --features coregent-cli/failpoints --test it \
         after_every_storm -- --nocapture"
    )
}

struct Storm {
    plane: Plane,
    dice: Dice,
    candidates: bool,
    hosts: u32,
    requests: u32,
    /// What ends by itself.
    passing: Vec<JoinHandle<()>>,
}

impl Storm {
    async fn rage(seed: u64) {
        let mut dice = Dice::new(seed ^ 0x5EED);
        let hosts = 1 + u32::try_from(dice.below(3)).unwrap();
        let plane = Plane::bare(seed, hosts).await;
        let candidates = dice.chance(400);
        let mut storm = Storm { plane, dice, candidates, hosts, requests: 0, passing: Vec::new() };
        storm.start_operator();
        if candidates {
            storm.start_operator();
        }
        let spec = storm.spec();
        storm.plane.oracle.note(&format!("seed {seed}: {hosts} hosts, candidates {candidates}, {spec}"));
        let asynchronous = spec["replication"]["mode"] == "Async";
        let early = storm.dice.chance(250);
        if early {
            storm.worsen();
        }
        storm.plane.create_cluster(spec).await;
        storm.plane.wait_ready(3).await;
        let writer = Writer::start(&storm.plane, storm.dice.draw());
        storm.worsen();
        storm.strike().await;
        storm.heal().await;
        storm.recover().await;
        let rows = writer.end().await;
        storm.judge(rows, asynchronous).await;
    }

    fn spec(&mut self) -> Value {
        let mut spec = json!({});
        if self.dice.chance(300) {
            spec["replication"]["mode"] = json!("Async");
        } else if self.dice.chance(250) {
            spec["replication"]["whenTooFew"] = json!("Degrade");
        }
        spec
    }

    fn start_operator(&mut self) {
        if self.candidates {
            self.plane.start_candidate()
        } else {
            self.plane.start_operator()
        };
    }

    /// Lets things go wrong by chance.
    fn worsen(&mut self) {
        for faults in self.plane.all_faults() {
            let mut odds = Odds::bad();
            if self.dice.chance(500) {
                odds = Odds { latency: self.dice.up_to(Duration::from_millis(300)), cut: 100, ..Odds::default() };
            }
            faults.set_odds(odds);
        }
    }

    /// One blow after the other.
    async fn strike(&mut self) {
        let blows = 4 + self.dice.below(12);
        for _ in 0..blows {
            tokio::time::sleep(self.dice.up_to(Duration::from_secs(6))).await;
            self.plane.assert_sound();
            self.blow().await;
        }
        tokio::time::sleep(self.dice.up_to(Duration::from_secs(10))).await;
    }

    async fn blow(&mut self) {
        let member = self.victim();
        let longest = if self.dice.chance(200) { 60 } else { 8 };
        let length = self.dice.up_to(Duration::from_secs(longest));
        let outage = if self.dice.chance(500) { Outage::Refused } else { Outage::Silent };
        let choice = self.dice.below(14);
        let what = format!("BLOW {choice}: {member}, {outage:?}, {length:?}");
        self.plane.oracle.note(&what);
        match choice {
            0 | 1 => self.plane.net.kill_engine(&member),
            2 | 3 => self.plane.kill_member(&member),
            4 => {
                self.plane.net.freeze(&member);
                let net = self.plane.net.clone();
                self.passes(length, move || net.thaw(&member));
            }
            5 => {
                self.plane.net.unlink(&member);
                let net = self.plane.net.clone();
                self.passes(length, move || net.link(&member));
            }
            6 => {
                let faults = self.plane.ground.faults_of(&member);
                self.out(vec![faults], outage, length);
            }
            7 => {
                let all = self.plane.all_faults();
                self.out(all, outage, length);
            }
            8 => {
                let faults = self.plane.operators.iter().map(|operator| operator.faults.clone()).collect();
                self.out(faults, outage, length);
            }
            9 => {
                let host = format!("n{}", 1 + self.dice.below(u64::from(self.hosts)));
                self.out(vec![self.plane.host(&host)], outage, length);
            }
            10 => self.out(vec![self.plane.controllers.clone()], outage, length),
            11 => self.end_an_operator().await,
            12 => self.plane.all_faults().iter().for_each(Faults::cut_watches),
            _ => {
                self.requests += 1;
                let to = self.dice.chance(500).then_some(member.as_str());
                self.plane.switch_over(&format!("r{}", self.requests), to).await;
            }
        }
    }

    /// Whoever accepts writes is hit most.
    fn victim(&mut self) -> String {
        let primary = self.plane.net.primaries().into_iter().next();
        match primary {
            Some(primary) if self.dice.chance(600) => primary.to_string(),
            _ => (*self.dice.pick(&MEMBERS).unwrap()).to_owned(),
        }
    }

    fn out(&mut self, faults: Vec<Faults>, outage: Outage, length: Duration) {
        faults.iter().for_each(|faults| faults.begin_outage(outage));
        self.passes(length, move || faults.iter().for_each(Faults::end_outage));
    }

    fn passes(&mut self, length: Duration, over: impl FnOnce() + 'static) {
        self.passing.push(tokio::task::spawn_local(async move {
            tokio::time::sleep(length).await;
            over();
        }));
    }

    /// An operator dies, or is told to end, and another is started.
    async fn end_an_operator(&mut self) {
        let at = usize::try_from(self.dice.below(self.plane.operators.len() as u64)).unwrap();
        let operator = self.plane.operators.remove(at);
        if self.dice.chance(700) {
            operator.kill()
        } else {
            operator.stop_beside()
        }
        self.start_operator();
        self.plane.operators.last().unwrap().faults.set_odds(Odds::bad());
    }

    /// From here on nothing goes wrong.
    async fn heal(&mut self) {
        self.plane.oracle.note("HEALED");
        self.passing.drain(..).for_each(|passing| passing.abort());
        self.plane.all_faults().iter().for_each(Faults::heal);
        for member in MEMBERS {
            self.plane.net.thaw(member);
            self.plane.net.link(member);
        }
    }

    /// Everything is well again in time.
    async fn recover(&self) {
        self.plane.wait_within(RECOVERY, "everything to be well again", |plane| plane.is_whole(3)).await;
    }

    async fn judge(&self, rows: u64, asynchronous: bool) {
        let plane = &self.plane;
        plane.assert_sound();
        let operators = plane.operators.iter().filter(|operator| operator.is_finished()).count();
        assert_eq!(operators, 0, "operators that ended by themselves");
        let members = plane.net.all();
        assert_eq!(members.values().map(|member| member.inits).sum::<u32>(), 1, "initdb ran once");
        let primary = plane.settled_primary().await;
        let kept = plane.net.rows(&primary);
        let lost: Vec<u64> = plane.net.acknowledged().into_iter().filter(|row| !kept.contains(row)).collect();
        if !asynchronous {
            assert!(lost.is_empty(), "acknowledged rows are lost: {lost:?}\n{}", plane.picture().await);
        } else if !lost.is_empty() {
            // F17: a loss is never called none.
            let honest = plane.oracle.losses().iter().any(|said| *said != Lossless::True);
            assert!(honest, "rows {lost:?} are lost and every failover says that none is\n{}", plane.picture().await);
        }
        let told = plane.net.acknowledged().len();
        tracing::info!(rows, told, lost = lost.len(), epoch = plane.epoch().await, "the storm is over");
    }
}

/// A client that writes to whoever lets it.
struct Writer {
    ended: Rc<Cell<bool>>,
    task: JoinHandle<u64>,
}

impl Writer {
    fn start(plane: &Plane, seed: u64) -> Writer {
        let ended = Rc::new(Cell::new(false));
        let (net, stop) = (plane.net.clone(), ended.clone());
        let task = tokio::task::spawn_local(async move {
            let mut dice = Dice::new(seed);
            let mut row = 0;
            while !stop.get() {
                tokio::time::sleep(dice.up_to(Duration::from_millis(500))).await;
                let members: Vec<MemberName> = net.primaries();
                // Each of them: two that accept writes are the fault that is looked for.
                for member in members {
                    row += 1;
                    let (net, number) = (net.clone(), row);
                    tokio::task::spawn_local(async move { net.write(member.as_str(), number).await });
                }
            }
            row
        });
        Writer { ended, task }
    }

    async fn end(self) -> u64 {
        self.ended.set(true);
        let rows = self.task.await.unwrap();
        // What is under way is told or not.
        tokio::time::sleep(Duration::from_secs(5)).await;
        rows
    }
}
