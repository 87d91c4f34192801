//! What the API refuses to one cluster's reconciliation: each such step waits longer before it is tried again, whatever
//! else happens meanwhile, and goes on by itself once it is let through. Other steps are held up by none of it.

use crate::error::Error;
use crate::observe::Refusal;
use coregent_api::refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// First and longest wait before a step is tried again that is refused until somebody does something about it.
const LASTING: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The same where it passes by itself: a failover may be waiting.
const PASSING: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Failures in a row after which people are told of what passes by itself.
const TOLD_AFTER: u32 = 3;

struct Refused {
    refusal: Refusal,
    times: u32,
    until: Instant,
}

/// Of one cluster.
#[derive(Default)]
pub(crate) struct Refusals {
    steps: BTreeMap<&'static str, Refused>,
    said: BTreeSet<Refusal>,
}

impl Refusals {
    /// Takes note of a failed step; one that nobody refuses is none of these.
    pub(crate) fn failed(&mut self, error: &Error, now: Instant) {
        let (Some(step), Some(refusal)) = (error.step(), error.refusal()) else { return };
        let times = self.steps.get(step).map_or(1, |before| before.times.saturating_add(1));
        let (first, longest) = if refusal::is_passing(refusal.reason) { PASSING } else { LASTING };
        let wait = first.saturating_mul(1 << (times - 1).min(16)).min(longest);
        self.steps.insert(step, Refused { refusal, times, until: now + wait });
    }

    /// It was let through.
    pub(crate) fn carried_out(&mut self, step: &str) {
        self.steps.remove(step);
    }

    /// What no decision wants any more is not refused any more.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.steps.retain(|step, _| wanted(step));
    }

    /// It was refused a moment ago.
    pub(crate) fn bars(&self, step: &str, now: Instant) -> bool {
        self.steps.get(step).is_some_and(|refused| refused.until > now)
    }

    /// When the next of them may be tried again.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let waits = self.steps.values().filter_map(|refused| refused.until.checked_duration_since(now));
        waits.filter(|wait| !wait.is_zero()).min()
    }

    /// What people are to know.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Refusal> {
        let lasts = |one: &&Refused| one.times >= TOLD_AFTER || !refusal::is_passing(one.refusal.reason);
        self.steps.values().filter(lasts).map(|refused| refused.refusal.clone())
    }

    /// Those of `all` that were not said yet.
    pub(crate) fn news(&mut self, all: &[Refusal]) -> Vec<Refusal> {
        let all: BTreeSet<Refusal> = all.iter().cloned().collect();
        let news = all.difference(&self.said).cloned().collect();
        self.said = all;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, message: &str) -> Error {
        let status = kube::core::Status { code, message: message.into(), ..Default::default() };
        Error::Api { step: "s", doing: "patch pods \"a\"".into(), source: Box::new(kube::Error::Api(Box::new(status))) }
    }

    #[test]
    fn a_refused_step_waits_longer_each_time_and_is_free_once_it_was_let_through() {
        let mut refusals = Refusals::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            refusals.failed(&answer(403, "pods \"a\" is forbidden: User \"u\" cannot patch resource"), now);
            let wait = refusals.wait(now).unwrap();
            assert!(refusals.bars("s", now) && !refusals.bars("other", now));
            waits.push(wait.as_millis());
            now += wait;
            assert!(!refusals.bars("s", now));
            assert_eq!(refusals.wait(now), None, "what may be tried now is waited for by nobody");
        }
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        refusals.carried_out("s");
        assert_eq!(refusals.wait(now), None);
    }

    #[test]
    fn what_passes_by_itself_is_told_once_it_has_lasted_and_tried_again_within_a_second() {
        for code in [429, 500, 503] {
            let mut refusals = Refusals::default();
            let now = Instant::now();
            let told: Vec<bool> = (0..4)
                .map(|_| {
                    refusals.failed(&answer(code, "busy"), now);
                    refusals.shown().count() == 1
                })
                .collect();
            assert_eq!(told, [false, false, true, true], "{code}");
            (0..9).for_each(|_| refusals.failed(&answer(code, "busy"), now));
            assert_eq!(refusals.wait(now), Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn what_reading_again_puts_right_is_no_refusal_and_each_is_news_once() {
        let mut refusals = Refusals::default();
        for code in [404, 409, 410] {
            refusals.failed(&answer(code, "gone or changed"), Instant::now());
        }
        assert_eq!(refusals.shown().count(), 0);
        refusals.failed(&answer(403, "pods \"a\" is forbidden: exceeded quota: q"), Instant::now());
        let all: Vec<Refusal> = refusals.shown().collect();
        assert_eq!(
            all[0].line(),
            "the operator cannot patch pods \"a\": pods \"a\" is forbidden: exceeded quota: q; raise the \
                                   ResourceQuota, or ask for less in spec.resources or spec.storage"
        );
        assert_eq!((refusals.news(&all).len(), refusals.news(&all).len()), (1, 0));
    }
}
