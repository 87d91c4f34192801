//! Faults between one client and the API: for tests of whatever talks to it.
//!
//! [`Faults::client`] puts a [`tower::Layer`] around [`ApiServer::service_as`](crate::ApiServer::service_as). What goes
//! wrong is drawn from a seed, said by a script, or switched on and off by the test: latency, an error before a write, an
//! error after a write that **landed**, conflicts, watches that are cut, lists that are answered from earlier, outages.
//! Every write that reaches the API is counted in a [`Journal`], which several clients may share.
//!
//! All time here is tokio's, so that a test on a paused clock goes through days of it.

mod body;
mod dice;
mod journal;
mod layer;
mod request;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::{ApiServer, UserInfo};

pub use dice::Dice;
pub use journal::{Journal, Write};
pub use layer::{FaultLayer, FaultService};
pub use request::Asked;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is refused.
    Refused,
    /// Answered with this code; nothing is carried out.
    Status(u16),
    /// Answered with 403 and these words; nothing is carried out.
    Forbidden(&'static str),
    /// Answered with this code and `Retry-After` in seconds; nothing is carried out.
    Busy {
        /// The code.
        code: u16,
        /// The seconds.
        after: u64,
    },
    /// Answered as if somebody else had written in between; nothing is carried out.
    Conflict,
    /// Carried out; the connection breaks before the answer.
    AnswerLost,
    /// Never reaches the API, and no answer ever comes.
    Swallowed,
    /// Carried out, and no answer ever comes.
    Unanswered,
    /// A list is answered as it was some time ago. As little as that is allowed by Kubernetes to a list without
    /// `resourceVersion=0`, a controller must survive it: it happens after a store was restored.
    Stale,
}

/// How often what happens, in thousandths of the requests that it can happen to.
#[derive(Clone, Debug, Default)]
pub struct Odds {
    /// The longest way to the API and back, each; none when zero.
    pub latency: Duration,
    /// Requests that are refused or answered with 429, 500 or 503.
    pub failed: u64,
    /// Writes that land and whose answer is lost.
    pub lost: u64,
    /// Updates, patches and deletes that are told of a conflict.
    pub conflict: u64,
    /// Lists that are answered as they were earlier.
    pub stale: u64,
    /// Watches that break by themselves, within [`Odds::watch_life`].
    pub cut: u64,
    /// The longest life of such a watch.
    pub watch_life: Duration,
}

impl Odds {
    /// A bad day: everything happens, nothing so often that nothing else does.
    #[must_use]
    pub fn bad() -> Odds {
        Odds {
            latency: Duration::from_millis(40),
            failed: 60,
            lost: 40,
            conflict: 40,
            stale: 150,
            cut: 400,
            watch_life: Duration::from_secs(20),
        }
    }
}

/// How the API is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections are refused and open ones break.
    Refused,
    /// Nothing is answered, open watches are silent; when it ends, everything that waited breaks.
    Silent,
}

/// What every request and watch of the client looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Switch {
    outage: Option<Outage>,
    /// Grows with every outage and every order to cut the open watches.
    cuts: u64,
}

type Script = Box<dyn FnMut(&Asked) -> Option<Fault> + Send>;

struct State {
    odds: Odds,
    dice: Dice,
    script: Option<Script>,
    earlier: layer::Earlier,
    /// The watches that were begun; one that has ended is dropped.
    open: Vec<Weak<()>>,
}

/// The handle of a test on what happens to one client.
#[derive(Clone)]
pub struct Faults {
    name: Arc<str>,
    journal: Journal,
    state: Arc<Mutex<State>>,
    switch: Arc<watch::Sender<Switch>>,
}

impl Faults {
    /// Nothing goes wrong yet for the client `name`; what will is drawn from `seed`.
    #[must_use]
    pub fn new(name: &str, seed: u64, journal: &Journal) -> Faults {
        let dice = Dice::new(seed);
        let state =
            State { odds: Odds::default(), dice, script: None, earlier: layer::Earlier::default(), open: Vec::new() };
        Faults {
            name: name.into(),
            journal: journal.clone(),
            state: Arc::new(Mutex::new(state)),
            switch: Arc::new(watch::Sender::new(Switch::default())),
        }
    }

    /// An administrator's client of `server` behind these faults.
    #[must_use]
    pub fn client(&self, server: &ApiServer) -> kube::Client {
        let service = tower::Layer::layer(&self.layer(), server.service_as(UserInfo::admin()));
        kube::Client::new(service, "default")
    }

    /// The layer, for any other service that answers as the API does.
    #[must_use]
    pub fn layer(&self) -> FaultLayer {
        FaultLayer { faults: self.clone() }
    }

    /// What goes wrong by chance from now on.
    pub fn set_odds(&self, odds: Odds) {
        self.lock().odds = odds;
    }

    /// Asked about every request before chance is; the last one given counts.
    pub fn script(&self, script: impl FnMut(&Asked) -> Option<Fault> + Send + 'static) {
        self.lock().script = Some(Box::new(script));
    }

    /// The API is away from now on.
    pub fn begin_outage(&self, outage: Outage) {
        self.switch.send_modify(|switch| *switch = Switch { outage: Some(outage), cuts: switch.cuts + 1 });
    }

    /// The API is back.
    pub fn end_outage(&self) {
        self.switch.send_modify(|switch| switch.outage = None);
    }

    /// Whether the API is away.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.switch.borrow().outage.is_some()
    }

    /// Breaks every watch that is open now.
    pub fn cut_watches(&self) {
        self.switch.send_modify(|switch| switch.cuts += 1);
    }

    /// Watches that are open now.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.lock().open.iter().filter(|watch| watch.strong_count() > 0).count()
    }

    /// Nothing goes wrong any more; what is broken stays broken until it is begun anew.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.odds = Odds::default();
        state.script = None;
        drop(state);
        self.end_outage();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves whole values behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a watch for as long as what is given back lives.
    fn begin_watch(&self) -> Arc<()> {
        let watch = Arc::new(());
        let mut state = self.lock();
        state.open.retain(|watch| watch.strong_count() > 0);
        state.open.push(Arc::downgrade(&watch));
        watch
    }

    /// The fault of one request, and its way there and back.
    fn draw(&self, asked: &Asked) -> Drawn {
        let mut state = self.lock();
        let State { odds, dice, script, .. } = &mut *state;
        let (there, back) = (dice.up_to(odds.latency), dice.up_to(odds.latency));
        let said = script.as_mut().and_then(|script| script(asked));
        let fault = said.or_else(|| by_chance(odds, dice, asked));
        let life = (asked.is_watch() && dice.chance(odds.cut)).then(|| dice.up_to(odds.watch_life));
        Drawn { fault, there, back, life, lag: odds.latency, seed: dice.draw() }
    }
}

fn by_chance(odds: &Odds, dice: &mut Dice, asked: &Asked) -> Option<Fault> {
    if dice.chance(odds.failed) {
        return Some(match dice.below(4) {
            0 => Fault::Status(429),
            1 => Fault::Status(500),
            2 => Fault::Status(503),
            _ => Fault::Refused,
        });
    }
    if asked.is_write() {
        if dice.chance(odds.lost) {
            return Some(Fault::AnswerLost);
        }
        return (asked.can_conflict() && dice.chance(odds.conflict)).then_some(Fault::Conflict);
    }
    (asked.is_list() && dice.chance(odds.stale)).then_some(Fault::Stale)
}

/// What one request meets.
struct Drawn {
    fault: Option<Fault>,
    there: Duration,
    back: Duration,
    /// A watch breaks after so long.
    life: Option<Duration>,
    /// The longest delay of one piece of a watch.
    lag: Duration,
    seed: u64,
}
