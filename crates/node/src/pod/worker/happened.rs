//! What containers do by themselves: they end, and their probes get answers.

use std::{sync::Arc, time::Duration};

use coregent_process::ExitStatus;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::Instant;

use super::Worker;
use crate::{
    logs,
    pod::{
        plan,
        probe::{self, Answer, Question},
        state::{Kind, Run, Terminated, containers},
    },
};

impl Worker {
    pub(super) fn exited(&mut self, index: usize, id: &str, status: ExitStatus) {
        if !self.is_current(index, id) {
            return;
        }
        self.live.remove(&index);
        let container = &mut self.state.containers[index];
        let since = match container.run {
            Run::Running { since } => Some(since),
            _ => None,
        };
        let now = Timestamp::now();
        let ran =
            since.map_or(Duration::ZERO, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
        let well = status.success();
        let delay =
            if well && container.kind == Kind::Init { Duration::ZERO } else { container.backoff.after_exit(ran) };
        container.retry_at = (!delay.is_zero()).then(|| Instant::now() + delay);
        container.started = false;
        container.ready = false;
        let name = container.name.clone();
        container.run = Run::Terminated(Terminated {
            exit_code: status.code(),
            signal: status.signal(),
            reason: if well { "Completed".into() } else { "Error".into() },
            message: None,
            started_at: since,
            finished_at: now,
            id: Some(id.to_owned()),
        });
        let message = self.last_words(index, well);
        if let Run::Terminated(ended) = &mut self.state.containers[index].run {
            ended.message = message;
        }
        self.node.remove_running(&self.key(&name), id);
        if !delay.is_zero() && plan::restarts(&self.state, &self.state.containers[index]) {
            let note =
                format!("Back-off restarting failed container {name}: {status}, next try in {} s", delay.as_secs());
            self.warn(Some(&name), "BackOff", note);
        }
        tracing::debug!(pod = self.state.pod.name_any(), container = name, %status, "container ended");
    }

    /// The end of the log as the termination message, for a container that asks for it.
    pub(super) fn last_words(&self, index: usize, well: bool) -> Option<String> {
        let pod = &self.state.pod;
        let (_, container) = containers(pod).nth(index)?;
        if well || container.termination_message_policy.as_deref() != Some("FallbackToLogsOnError") {
            return None;
        }
        let path = logs::file(&logs::folder(&self.node.data_dir, pod), &container.name, false)?;
        let selection = logs::Selection { tail_lines: Some(80), ..logs::Selection::default() };
        let (_, text) = logs::Reader::open(&path, selection).ok()?;
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2048)..]).into_owned();
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn answered(&mut self, index: usize, id: &str, answer: Answer) {
        if !self.is_current(index, id) {
            return;
        }
        let name = self.state.containers[index].name.clone();
        if let Some(failure) = answer.failure {
            self.warn(Some(&name), "Unhealthy", format!("{} probe failed: {failure}", answer.question.name()));
        }
        match (answer.question, answer.verdict) {
            (Question::Readiness, Some(good)) => self.state.containers[index].ready = good,
            (Question::Startup, Some(true)) => {
                let pod = Arc::clone(&self.state.pod);
                let Some((_, spec)) = containers(&pod).nth(index) else { return };
                self.state.containers[index].started = true;
                self.state.containers[index].ready = spec.readiness_probe.is_none();
                if let Some(mut live) = self.live.remove(&index) {
                    self.ask(index, Question::Liveness, spec, &mut live);
                    self.ask(index, Question::Readiness, spec, &mut live);
                    self.live.insert(index, live);
                }
            }
            (Question::Startup | Question::Liveness, Some(false)) if !self.live[&index].stopping => {
                let question = answer.question.name().to_lowercase();
                self.normal(&name, "Killing", format!("Container {name} failed {question} probe, will be restarted"));
                let grace = self.probe_grace(index, answer.question).unwrap_or(self.grace());
                self.stop_container(index, grace, true);
            }
            _ => {}
        }
    }

    pub(super) fn probe_grace(&self, index: usize, question: Question) -> Option<Duration> {
        let (_, spec) = containers(&self.state.pod).nth(index)?;
        let seconds = probe::of(spec, question)?.termination_grace_period_seconds?;
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }
}
