//! Which keys want a look, when. Pure: time comes in as an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// First pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause after repeated failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A queue of keys. A key is never worked on twice at once; what happens meanwhile is one more look afterwards.
#[derive(Debug)]
pub struct Queue<K> {
    ready: VecDeque<K>,
    waiting: BTreeSet<K>,
    in_flight: BTreeSet<K>,
    later: BTreeMap<K, Duration>,
    /// The same by time: there may be thousands (one for each event that grows old).
    due: BTreeSet<(Duration, K)>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            later: BTreeMap::new(),
            due: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Asks for a look as soon as possible.
    pub fn add(&mut self, key: K) {
        if self.waiting.insert(key.clone()) && !self.in_flight.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Asks for a look at `due` at the latest. A later wish replaces an earlier one only when it is sooner.
    pub fn add_at(&mut self, key: K, due: Duration) {
        if self.later.get(&key).is_some_and(|planned| *planned <= due) {
            return;
        }
        self.forget(&key);
        self.due.insert((due, key.clone()));
        self.later.insert(key, due);
    }

    /// The next key to look at. It is in flight until [`Queue::finished`] or [`Queue::failed`].
    pub fn next(&mut self, now: Duration) -> Option<K> {
        while let Some((_, key)) = self.due.first().filter(|(due, _)| *due <= now).cloned() {
            self.forget(&key);
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.in_flight.insert(key.clone());
        // This look replaces whatever look was planned: it decides anew when to look again.
        self.forget(&key);
        Some(key)
    }

    /// The work on a key succeeded.
    pub fn finished(&mut self, key: &K) {
        self.failures.remove(key);
        self.release(key);
    }

    /// The work on a key failed: look again after a pause that doubles with each failure.
    pub fn failed(&mut self, key: &K, now: Duration) {
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(16)).min(LONGEST_PAUSE);
        *failures = failures.saturating_add(1);
        self.release(key);
        self.add_at(key.clone(), now.saturating_add(pause));
    }

    /// When the next planned look is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    fn forget(&mut self, key: &K) {
        if let Some(due) = self.later.remove(key) {
            self.due.remove(&(due, key.clone()));
        }
    }

    fn release(&mut self, key: &K) {
        self.in_flight.remove(key);
        if self.waiting.contains(key) {
            self.ready.push_back(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_key_added_while_in_flight_is_looked_at_once_more_afterwards() {
        let mut queue = Queue::default();
        queue.add("a");
        assert_eq!(queue.next(NOW), Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.next(NOW), None, "never twice at once");
        queue.finished(&"a");
        assert_eq!(queue.next(NOW), Some("a"));
        queue.finished(&"a");
        assert_eq!(queue.next(NOW), None);
    }

    #[test]
    fn pauses_double_and_end_with_the_first_success() {
        let mut queue = Queue::default();
        let mut now = NOW;
        for expected in [5, 10, 20] {
            queue.add("a");
            queue.next(now);
            queue.failed(&"a", now);
            let due = queue.next_due().unwrap();
            assert_eq!(due - now, Duration::from_millis(expected));
            now = due;
        }
        assert_eq!(queue.next(now), Some("a"));
        queue.finished(&"a");
        queue.add("a");
        queue.next(now);
        queue.failed(&"a", now);
        assert_eq!(queue.next_due(), Some(now + FIRST_PAUSE));
    }

    #[test]
    fn the_sooner_of_two_planned_looks_holds() {
        let mut queue = Queue::default();
        queue.add_at("a", Duration::from_secs(5));
        queue.add_at("a", Duration::from_secs(2));
        queue.add_at("a", Duration::from_secs(9));
        assert_eq!(queue.next_due(), Some(Duration::from_secs(2)));
        assert_eq!(queue.next(Duration::from_secs(1)), None);
        assert_eq!(queue.next(Duration::from_secs(2)), Some("a"));
        assert_eq!(queue.next_due(), None);
    }
}
