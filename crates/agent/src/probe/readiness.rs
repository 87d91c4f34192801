//! What the readiness probe is answered: whether the handler gives a role, and, where Events are the kubelet's to make,
//! each report once as the output of a probe that fails (rsm.md 3.8).

use coregent_core::rsm::probe::Message;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// Where the probe listens for the question.
pub(super) fn socket(shared: &Path) -> PathBuf {
    shared.join("probe.sock")
}

/// What is to be answered.
#[derive(Debug)]
pub(super) struct Readiness(RefCell<State>);

#[derive(Debug)]
struct State {
    /// Why the member is not ready.
    bad: Option<String>,
    /// Reports that the next failures say.
    reports: VecDeque<String>,
    /// Said once that all is well. Before that a failure may be taken for one of a container that has only begun, of which
    /// nobody makes an Event.
    was_ready: bool,
}

impl Default for Readiness {
    fn default() -> Readiness {
        let bad = Some("the handler has not answered yet".to_owned());
        Readiness(RefCell::new(State { bad, reports: VecDeque::new(), was_ready: false }))
    }
}

impl Readiness {
    /// Whether the handler gives a role, or why not.
    pub(super) fn show(&self, bad: Option<String>) {
        self.0.borrow_mut().bad = bad;
    }

    /// Reports to be said; what was not asked for yet is overtaken by them.
    pub(super) fn say(&self, messages: Vec<Message>) {
        let texts = messages.iter().filter_map(|message| serde_json::to_string(message).ok());
        self.0.borrow_mut().reports = texts.collect();
    }

    /// The answer to one question: empty when all is well.
    fn answer(&self) -> String {
        let mut state = self.0.borrow_mut();
        if !state.was_ready && state.bad.is_none() {
            state.was_ready = true;
            return String::new();
        }
        let report = if state.was_ready { state.reports.pop_front() } else { None };
        match report {
            Some(report) => report,
            None => state.bad.clone().unwrap_or_default(),
        }
    }
}

/// Answers for ever.
pub(super) async fn serve(listener: UnixListener, readiness: Rc<Readiness>) {
    loop {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let answer = readiness.answer();
                let text = if answer.is_empty() { "ok".to_owned() } else { answer };
                // Whoever asked may have gone.
                let _ = stream.write_all(text.as_bytes()).await;
            }
            Err(error) => tracing::warn!(%error, "nobody could be let in"),
        }
    }
}

/// What the probe says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Ready.
    Ready,
    /// Not ready, or a report: the output of the readiness probe.
    Says(String),
}

/// `coregent agent probe --ask`: asks the probe beside this process.
///
/// # Errors
/// When it does not run.
pub fn ask(shared: &Path) -> std::io::Result<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stream = UnixStream::connect(socket(shared)).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(if text == "ok" { Verdict::Ready } else { Verdict::Says(text) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str) -> Message {
        Message { event: "Success", message: String::new(), original_role: String::new(), role: role.into() }
    }

    #[test]
    fn a_report_is_said_by_one_failure_and_the_newest_overtakes_what_was_not_asked_for() {
        let readiness = Readiness::default();
        assert!(readiness.answer().contains("not answered yet"));
        readiness.show(None);
        readiness.say(vec![message("follower")]);
        readiness.say(vec![message("leader")]);
        assert_eq!(readiness.answer(), "", "the first good answer is one");
        assert!(readiness.answer().contains(r#""role":"leader""#));
        assert_eq!(readiness.answer(), "");
        readiness.show(Some("refused".into()));
        assert_eq!(readiness.answer(), "refused");
    }
}
