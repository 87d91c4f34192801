//! The one thread that writes the file under the store.
//!
//! Writes that arrive while a commit is on its way share the next one (group commit). `synchronous=FULL` makes each
//! commit one fdatasync of the WAL; checkpoints wait until the writer is idle.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::oneshot;

use super::error::{OpenError, WriteError};
use super::log::Log;
use super::object::{Durability, Event, EventKind, Write};
use super::state::{Overlay, State};

/// Writes that share a commit at most.
const BATCH: usize = 256;
/// Relaxed rows kept back at most, while there is room.
const PENDING: usize = 512;
/// How long the writer is idle before it checkpoints.
const IDLE: Duration = Duration::from_secs(2);

enum Job {
    Write(Box<Write>, oneshot::Sender<Result<Arc<Event>, WriteError>>),
    Settle(oneshot::Sender<Result<(), WriteError>>),
    Close(oneshot::Sender<()>),
}

/// The handle of the writer thread.
pub(super) struct Writer {
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl Writer {
    pub fn start(path: &Path, log: Log, state: Arc<RwLock<State>>) -> Result<Writer, OpenError> {
        let (jobs, inbox) = mpsc::channel();
        let thread = Thread { log, state };
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || thread.run(&inbox))
            .map_err(|source| OpenError::Io { path: path.into(), what: "start the writer of", source })?;
        Ok(Writer { jobs: Mutex::new(jobs) })
    }

    fn send(&self, job: Job) -> Result<(), WriteError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.send(job).map_err(|_| WriteError::Closed("it is closed".into()))
    }

    pub async fn write(&self, write: Write) -> Result<Arc<Event>, WriteError> {
        let (answer, result) = oneshot::channel();
        self.send(Job::Write(Box::new(write), answer))?;
        result.await.unwrap_or_else(|_| Err(WriteError::Closed("it is closed".into())))
    }

    /// Forgets that the file was found behind its record.
    pub async fn settle(&self) -> Result<(), WriteError> {
        let (answer, done) = oneshot::channel();
        self.send(Job::Settle(answer))?;
        done.await.unwrap_or_else(|_| Err(WriteError::Closed("it is closed".into())))
    }

    pub async fn close(&self) {
        let (answer, done) = oneshot::channel();
        if self.send(Job::Close(answer)).is_ok() {
            let _ = done.await;
        }
    }
}

type Answer = oneshot::Sender<Result<Arc<Event>, WriteError>>;

struct Thread {
    log: Log,
    state: Arc<RwLock<State>>,
}

impl Thread {
    fn run(mut self, inbox: &mpsc::Receiver<Job>) {
        loop {
            let first = inbox.recv_timeout(self.log.patience(IDLE));
            self.log.try_again();
            let first = match first {
                Ok(job) => job,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.log.checkpoint();
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.log.finish(),
            };
            let (mut relaxed, mut durable) = (Vec::new(), Vec::new());
            let mut closing = None;
            for job in std::iter::once(first).chain(std::iter::from_fn(|| inbox.try_recv().ok()).take(BATCH)) {
                match job {
                    Job::Write(write, answer) if write.durability == Durability::Relaxed => {
                        relaxed.push((*write, answer));
                    }
                    Job::Write(write, answer) => durable.push((*write, answer)),
                    Job::Settle(answer) => {
                        let _ = answer.send(self.log.settle());
                    }
                    Job::Close(answer) => closing = Some(answer),
                }
            }
            // Renewals need no room, so they do not fail with what does.
            self.carry_out(relaxed, Durability::Relaxed);
            self.carry_out(durable, Durability::Durable);
            self.log.tidy();
            if let Some(answer) = closing {
                self.log.finish();
                // Whoever waited may open the file again at once.
                drop(self);
                let _ = answer.send(());
                return;
            }
        }
    }

    /// Decides a batch, makes it durable, makes it visible, and only then answers.
    fn carry_out(&mut self, batch: Vec<(Write, Answer)>, durability: Durability) {
        let mut overlay = Overlay::new();
        let mut staged: Vec<Arc<Event>> = Vec::new();
        let mut answers = Vec::new();
        let mut revision;
        {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            revision = state.revision;
            for (write, answer) in batch {
                match state.stage(&overlay, revision + 1, write) {
                    Err(error) => answers.push((answer, Err(error))),
                    Ok(event) => {
                        revision += 1;
                        let event = Arc::new(event);
                        let after = (event.kind != EventKind::Deleted).then(|| event.object.clone());
                        overlay.insert(event.key.clone(), after);
                        staged.push(event.clone());
                        answers.push((answer, Ok(event)));
                    }
                }
            }
        }
        let outcome = self.write(&staged, durability == Durability::Durable || revision > self.log.ceiling());
        if outcome.is_ok() {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            staged.into_iter().for_each(|event| state.apply(event));
        }
        for (answer, result) in answers {
            let result = result.and_then(|event| outcome.clone().map(|()| event));
            let _ = answer.send(result);
        }
    }

    fn write(&mut self, staged: &[Arc<Event>], durable: bool) -> Result<(), WriteError> {
        if staged.is_empty() {
            return Ok(());
        }
        if durable {
            return self.log.append(staged);
        }
        if self.log.waiting() + staged.len() > PENDING && self.log.append(staged).is_ok() {
            return Ok(());
        }
        self.log.keep_back(staged)
    }
}
