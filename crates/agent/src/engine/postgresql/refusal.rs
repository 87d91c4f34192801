//! A server that takes connections and refuses the agent's, or does not answer it: it runs, and nothing can be said of it or
//! done with it.

use coregent_core::names::Monotonic;

/// A server that refuses for less says so while it starts, stops or is crowded.
const TOLD_AFTER_MILLIS: u64 = 10_000;
/// From then on each try waits: every one is a line in the server's log.
const PATIENT_AFTER_MILLIS: u64 = 1_000;
const PAUSE_MILLIS: u64 = 1_000;

/// Tries in a row that were refused.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    tries: Option<Tries>,
}

#[derive(Debug)]
struct Tries {
    first: Monotonic,
    last: Monotonic,
    words: String,
}

impl Refusal {
    /// A try was refused with these words.
    pub(super) fn refused(&mut self, words: String, now: Monotonic) {
        let first = self.tries.as_ref().map_or(now, |tries| tries.first);
        self.tries = Some(Tries { first, last: now, words });
    }

    /// A try was taken, or the server is another one.
    pub(super) fn over(&mut self) {
        self.tries = None;
    }

    /// The words of the last try, when the next one is not due yet.
    pub(super) fn not_again_yet(&self, now: Monotonic) -> Option<&str> {
        let tries = self.tries.as_ref()?;
        let waits = now.since(tries.first) >= PATIENT_AFTER_MILLIS && now.since(tries.last) < PAUSE_MILLIS;
        waits.then_some(tries.words.as_str())
    }

    /// The words of the last try, once it has been so for long.
    pub(super) fn lasting(&self, now: Monotonic) -> Option<&str> {
        let tries = self.tries.as_ref().filter(|tries| now.since(tries.first) >= TOLD_AFTER_MILLIS)?;
        Some(&tries.words)
    }

    /// What a person should be told. It does not change from one try to the next.
    pub(super) fn warning(&self, now: Monotonic) -> Option<String> {
        let words = self.lasting(now)?;
        Some(format!(
            "AgentNotServed: its server runs and does not serve its own agent ({words}), so that the member can do nothing"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_refuses_for_long_is_told_of_once_and_asked_once_a_second() {
        let mut refusal = Refusal::default();
        assert_eq!((refusal.not_again_yet(Monotonic(0)), refusal.warning(Monotonic(0))), (None, None));
        refusal.refused("too many".into(), Monotonic(1_000));
        assert_eq!(refusal.not_again_yet(Monotonic(1_001)), None);
        refusal.refused("no folder".into(), Monotonic(2_000));
        assert_eq!(refusal.not_again_yet(Monotonic(2_999)), Some("no folder"));
        assert_eq!(refusal.not_again_yet(Monotonic(3_000)), None);
        assert_eq!(refusal.warning(Monotonic(10_999)), None);
        let told = refusal.warning(Monotonic(11_000));
        assert!(told.as_ref().is_some_and(|told| told.starts_with("AgentNotServed: ") && told.contains("(no folder)")));
        refusal.refused("no folder".into(), Monotonic(12_000));
        assert_eq!(refusal.warning(Monotonic(20_000)), told);
        refusal.over();
        assert_eq!((refusal.not_again_yet(Monotonic(20_000)), refusal.warning(Monotonic(20_000))), (None, None));
    }
}
