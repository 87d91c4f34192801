//! What was written, by whom, how often.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Asked;

/// Writes that are kept one by one.
const KEPT: usize = 400;

/// One write that reached the API.
#[derive(Clone, Debug)]
pub struct Write {
    /// Since the journal was begun.
    pub at: Duration,
    /// The client.
    pub by: Arc<str>,
    /// What it asked for.
    pub asked: Asked,
    /// How it was answered, whether or not the client heard.
    pub answered: u16,
}

impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>9.3} {} {} -> {}", self.at.as_secs_f64(), self.by, self.asked, self.answered)
    }
}

struct Entries {
    begun: Instant,
    counts: BTreeMap<(Arc<str>, String), u64>,
    newest: VecDeque<Write>,
    writes: u64,
    last: Option<Instant>,
}

/// The writes of every client that was given this journal. Events are not among them: they are for people, and nothing
/// waits for them.
#[derive(Clone)]
pub struct Journal(Arc<Mutex<Entries>>);

impl Default for Journal {
    /// Begins now, on the runtime's clock.
    fn default() -> Journal {
        let entries =
            Entries { begun: Instant::now(), counts: BTreeMap::new(), newest: VecDeque::new(), writes: 0, last: None };
        Journal(Arc::new(Mutex::new(entries)))
    }
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wrote(&self, by: &Arc<str>, asked: &Asked, answered: u16) {
        if asked.is_event() {
            return;
        }
        let mut entries = self.lock();
        let now = Instant::now();
        entries.writes += 1;
        entries.last = Some(now);
        *entries.counts.entry((by.clone(), asked.to_string())).or_default() += 1;
        let at = now - entries.begun;
        entries.newest.push_back(Write { at, by: by.clone(), asked: asked.clone(), answered });
        if entries.newest.len() > KEPT {
            entries.newest.pop_front();
        }
    }

    /// Writes so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Whether there was a write, and none for `time`.
    #[must_use]
    pub fn quiet_for(&self, time: Duration) -> bool {
        self.lock().last.is_some_and(|last| last.elapsed() >= time)
    }

    /// How often each client has made each write since the counts were taken last.
    #[must_use]
    pub fn take_counts(&self) -> BTreeMap<(Arc<str>, String), u64> {
        std::mem::take(&mut self.lock().counts)
    }

    /// The newest writes, oldest first.
    #[must_use]
    pub fn newest(&self, number: usize) -> Vec<Write> {
        let entries = self.lock();
        entries.newest.iter().skip(entries.newest.len().saturating_sub(number)).cloned().collect()
    }
}
