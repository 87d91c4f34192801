//! Probes: when to look, and what a row of answers means.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    container::Running,
    hooks::{self, Action},
    worker::Message,
};

/// Which question a probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Has it started? Until then the others are not asked.
    Startup,
    /// May it get traffic?
    Readiness,
    /// Is it alive, or must it be restarted?
    Liveness,
}

impl Question {
    /// The word in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// The timing of a probe, with Kubernetes' defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

impl Timing {
    /// Reads `probe`; nonsensical values fall back to the defaults.
    pub fn of(probe: &Probe) -> Self {
        let at_least_one =
            |v: Option<i32>, default| v.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default);
        Self {
            initial_delay: Duration::from_secs(u64::try_from(probe.initial_delay_seconds.unwrap_or(0)).unwrap_or(0)),
            period: Duration::from_secs(at_least_one(probe.period_seconds, 10).into()),
            timeout: Duration::from_secs(at_least_one(probe.timeout_seconds, 1).into()),
            successes: at_least_one(probe.success_threshold, 1),
            failures: at_least_one(probe.failure_threshold, 3),
        }
    }
}

/// The first pause between the questions to a container that has just begun; it doubles up to the probe's period.
const EAGER: Duration = Duration::from_millis(100);

/// Counts answers in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    last: Option<bool>,
    row: u32,
}

impl Counter {
    /// Takes an answer in; `Some` when the row is long enough to mean something.
    pub fn take(&mut self, good: bool, timing: Timing) -> Option<bool> {
        if self.last == Some(good) {
            self.row = self.row.saturating_add(1);
        } else {
            *self = Self { last: Some(good), row: 1 };
        }
        let needed = if good { timing.successes } else { timing.failures };
        (self.row >= needed).then_some(good)
    }
}

/// An answer of a probe.
#[derive(Debug)]
pub(crate) struct Answer {
    pub question: Question,
    /// What the row of answers up to this one means, if it is long enough.
    pub verdict: Option<bool>,
    /// Why this one failed.
    pub failure: Option<String>,
}

/// The probe of `container` for `question`, if it has one.
pub(crate) fn of(container: &Container, question: Question) -> Option<&Probe> {
    match question {
        Question::Startup => container.startup_probe.as_ref(),
        Question::Readiness => container.readiness_probe.as_ref(),
        Question::Liveness => container.liveness_probe.as_ref(),
    }
}

/// Asks again and again, until the task is aborted with its container.
pub(crate) async fn ask(
    index: usize,
    question: Question,
    probe: Probe,
    container: Container,
    running: Arc<Running>,
    ip: Ipv4Addr,
    answers: UnboundedSender<Message>,
) {
    let timing = Timing::of(&probe);
    let action = Action::of_probe(&probe);
    let mut counter = Counter::default();
    // A container that has just begun is asked more often until its first good answer, so that nobody waits out a
    // whole period for something that was ready long before. Only answers on schedule count as failures.
    let mut eager = (question != Question::Liveness).then_some(EAGER);
    tokio::time::sleep(timing.initial_delay).await;
    let mut ticks = tokio::time::interval(timing.period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        let result = hooks::run(&action, &container, &running, ip, timing.timeout).await;
        if let (Err(_), Some(pause)) = (&result, eager.filter(|pause| *pause < timing.period)) {
            tokio::time::sleep(pause).await;
            eager = Some(pause * 2);
            ticks.reset();
            continue;
        }
        if result.is_ok() {
            eager = None;
        }
        let verdict = counter.take(result.is_ok(), timing);
        let done = question == Question::Startup && verdict == Some(true);
        let answer = Answer { question, verdict, failure: result.err() };
        if answers.send(Message::Probe { index, id: running.id.clone(), answer }).is_err() || done {
            return;
        }
        ticks.tick().await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_verdict_needs_its_threshold_in_a_row() {
        let probe: Probe = serde_json::from_value(json!({"successThreshold": 2, "failureThreshold": 3})).unwrap();
        let timing = Timing::of(&probe);
        let mut counter = Counter::default();
        let verdicts: String = "++--+---++"
            .chars()
            .map(|answer| match counter.take(answer == '+', timing) {
                None => '.',
                Some(true) => 'R',
                Some(false) => 'N',
            })
            .collect();
        assert_eq!(verdicts, ".R.....N.R");
    }

    #[test]
    fn timing_has_the_defaults_of_kubernetes() {
        let timing = Timing::of(&Probe::default());
        assert_eq!(
            timing,
            Timing {
                initial_delay: Duration::ZERO,
                period: Duration::from_secs(10),
                timeout: Duration::from_secs(1),
                successes: 1,
                failures: 3,
            }
        );
    }
}
