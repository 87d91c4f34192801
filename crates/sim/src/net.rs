//! Places, links between them, and what goes wrong on the way to the API.

use crate::cover::FaultName;

/// Where something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The API server and its own controllers.
    Api,
    /// A host with its node agent and its members.
    Host(usize),
    /// The host of an operator.
    Controller(usize),
    /// Whoever uses the database.
    Client,
}

/// Hosts at most.
const HOSTS: usize = 6;

impl Place {
    pub(crate) fn index(self) -> usize {
        match self {
            Place::Api => 0,
            Place::Host(host) => 1 + host,
            Place::Controller(number) => 1 + HOSTS + number,
            Place::Client => PLACES - 1,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Api => f.write_str("api"),
            Place::Host(host) => write!(f, "host-{}", host + 1),
            Place::Controller(number) => write!(f, "operator-{}", number + 1),
            Place::Client => f.write_str("client"),
        }
    }
}

/// Places altogether.
pub(crate) const PLACES: usize = 1 + HOSTS + 4;

/// How likely what is, in thousandths of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odds {
    /// It is refused before anything happens.
    pub(crate) error: u64,
    /// It lands, and the answer is an error.
    pub(crate) lost: u64,
    /// It lands, and no answer comes.
    pub(crate) silent: u64,
    /// It takes up to this many milliseconds longer, each way.
    pub(crate) latency: u64,
}

/// What happens to the next request of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    ErrorBefore,
    AnswerLost,
    AnswerSilent,
    Conflict,
    Slow(u64),
    CrashBefore,
    CrashAfter,
    /// It is given up by its caller, or its caller dies, and it is carried out so many milliseconds later.
    Late(u64),
}

impl Blow {
    pub(crate) fn name(self) -> FaultName {
        match self {
            Blow::ErrorBefore => "error-before",
            Blow::AnswerLost => "answer-lost",
            Blow::AnswerSilent => "answer-silent",
            Blow::Conflict => "conflict",
            Blow::Slow(_) => "slow-request",
            Blow::CrashBefore => "crash-before",
            Blow::CrashAfter => "crash-after",
            Blow::Late(_) => "lands-late",
        }
    }
}

/// Waits for a request of `place` whose label begins with `label`.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    pub(crate) place: Option<Place>,
    pub(crate) label: &'static str,
    pub(crate) blow: Blow,
}

/// The state of the network.
#[derive(Debug, Default)]
pub(crate) struct Net {
    cut: [[u8; PLACES]; PLACES],
    /// Outages of the API that refuse.
    pub(crate) api_down: u32,
    pub(crate) odds: [Odds; PLACES],
    pub(crate) armed: Vec<Armed>,
    /// Milliseconds that watches of a place are behind.
    pub(crate) watch_lag: [u64; PLACES],
    /// Grows when the watches of a place are cut.
    pub(crate) watch_cuts: [u32; PLACES],
}

impl Net {
    /// A packet gets from one place to the other.
    pub(crate) fn passes(&self, from: Place, to: Place) -> bool {
        from == to || self.cut.get(from.index()).and_then(|row| row.get(to.index())).is_none_or(|cuts| *cuts == 0)
    }

    /// A connection stands between them.
    pub(crate) fn connects(&self, a: Place, b: Place) -> bool {
        self.passes(a, b) && self.passes(b, a)
    }

    fn change(&mut self, from: Place, to: Place, change: impl FnOnce(&mut u8)) {
        if let Some(cuts) = self.cut.get_mut(from.index()).and_then(|row| row.get_mut(to.index())) {
            change(cuts);
        }
    }

    pub(crate) fn cut(&mut self, from: Place, to: Place) {
        self.change(from, to, |cuts| *cuts = cuts.saturating_add(1));
    }

    pub(crate) fn heal(&mut self, from: Place, to: Place) {
        self.change(from, to, |cuts| *cuts = cuts.saturating_sub(1));
    }

    pub(crate) fn odds(&self, place: Place) -> Odds {
        self.odds.get(place.index()).copied().unwrap_or_default()
    }

    /// The blow that waits for this request, if one does.
    pub(crate) fn take_armed(&mut self, place: Place, label: &str) -> Option<Blow> {
        let fits = |armed: &Armed| armed.place.is_none_or(|of| of == place) && label.starts_with(armed.label);
        let at = self.armed.iter().position(fits)?;
        Some(self.armed.swap_remove(at).blow)
    }

    /// Links are mended, and requests meet nothing any more.
    pub(crate) fn calm(&mut self) {
        self.cut = Default::default();
        self.odds = Default::default();
        self.watch_lag = Default::default();
        self.armed.clear();
    }
}
