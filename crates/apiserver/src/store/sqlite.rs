//! The SQLite file under the store: an append log in WAL mode, and the one thread that writes it.
//!
//! Writes that arrive while a commit is on its way share the next one (group commit). `synchronous=FULL` makes each
//! commit one fdatasync of the WAL; checkpoints wait until the writer is idle.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::error::{OpenError, WriteError};
use super::file::{RELAXED_SPAN, checksum, set_number, settle};
use super::object::{Durability, Event, EventKind, Write};
use super::reached::Keeper;
use super::state::{Overlay, State};

/// Writes that share a commit at most.
const BATCH: usize = 256;
/// Relaxed rows kept back at most.
const PENDING: usize = 512;
/// Commits after which a checkpoint no longer waits for a quiet moment.
const CHECKPOINT_AT_LATEST: usize = 4096;
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
    pub fn start(
        path: &Path,
        file: Connection,
        keeper: Keeper,
        state: Arc<RwLock<State>>,
    ) -> Result<Writer, OpenError> {
        let (jobs, inbox) = mpsc::channel();
        let history = state.read().unwrap_or_else(PoisonError::into_inner).history();
        let thread = Thread {
            path: path.into(),
            file,
            keeper,
            state,
            pending: VecDeque::new(),
            ceiling: 0,
            broken: None,
            full: false,
            uncheckpointed: 0,
            uncompacted: 0,
            history,
        };
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
    path: PathBuf,
    file: Connection,
    keeper: Keeper,
    state: Arc<RwLock<State>>,
    /// Relaxed events that are visible and not yet in the file.
    pending: VecDeque<Arc<Event>>,
    /// The highest revision that may be handed out before the next commit.
    ceiling: u64,
    /// Set by a failure after which the file's content is not known.
    broken: Option<String>,
    /// The last commit found no room.
    full: bool,
    uncheckpointed: usize,
    uncompacted: usize,
    history: usize,
}

impl Thread {
    fn run(mut self, inbox: &mpsc::Receiver<Job>) {
        loop {
            let first = match inbox.recv_timeout(IDLE) {
                Ok(job) => job,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.checkpoint();
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.finish(),
            };
            let mut batch = Vec::new();
            let mut closing = None;
            for job in std::iter::once(first).chain(std::iter::from_fn(|| inbox.try_recv().ok()).take(BATCH)) {
                match job {
                    Job::Write(write, answer) => batch.push((*write, answer)),
                    Job::Settle(answer) => {
                        let settled = settle(&self.file).map_err(|error| self.failed(&error));
                        let _ = answer.send(settled);
                    }
                    Job::Close(answer) => closing = Some(answer),
                }
            }
            if self.full {
                // Renewals need no room, so they do not fail with what does.
                let (relaxed, durable) =
                    batch.into_iter().partition(|(write, _)| write.durability == Durability::Relaxed);
                self.carry_out(durable);
                self.carry_out(relaxed);
            } else {
                self.carry_out(batch);
            }
            if let Some(answer) = closing {
                self.finish();
                // Whoever waited may open the file again at once.
                drop(self);
                let _ = answer.send(());
                return;
            }
        }
    }

    /// Decides a batch, makes it durable, makes it visible, and only then answers.
    fn carry_out(&mut self, batch: Vec<(Write, Answer)>) {
        let mut overlay = Overlay::new();
        let mut staged: Vec<Arc<Event>> = Vec::new();
        let mut answers = Vec::new();
        let mut durable = false;
        let many;
        {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            let mut revision = state.revision;
            for (write, answer) in batch {
                let relaxed = write.durability == Durability::Relaxed;
                match state.stage(&overlay, revision + 1, write) {
                    Err(error) => answers.push((answer, Err(error))),
                    Ok(event) => {
                        revision += 1;
                        durable |= !relaxed;
                        let event = Arc::new(event);
                        let after = (event.kind != EventKind::Deleted).then(|| event.object.clone());
                        overlay.insert(event.key.clone(), after);
                        staged.push(event.clone());
                        answers.push((answer, Ok(event)));
                    }
                }
            }
            durable |= revision > self.ceiling;
            many = self.pending.len() + staged.len() > PENDING;
        }
        let outcome = match &self.broken {
            Some(why) => Err(WriteError::Closed(why.clone())),
            None if staged.is_empty() => Ok(()),
            None if durable => self.commit(&staged),
            None if many => match self.commit(&staged) {
                Err(WriteError::Disk(_)) => self.keep_back(&staged),
                outcome => outcome,
            },
            None => self.keep_back(&staged),
        };
        if outcome.is_ok() {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            staged.into_iter().for_each(|event| state.apply(event));
        }
        for (answer, result) in answers {
            let result = result.and_then(|event| outcome.clone().map(|()| event));
            let _ = answer.send(result);
        }
    }

    /// Renewals alone wait for a durable write, or for room.
    fn keep_back(&mut self, staged: &[Arc<Event>]) -> Result<(), WriteError> {
        self.pending.extend(staged.iter().cloned());
        Ok(())
    }

    /// One transaction: what was pending, then the batch, then the new ceiling.
    fn commit(&mut self, staged: &[Arc<Event>]) -> Result<(), WriteError> {
        let newest = staged.last().map(|event| event.revision()).or(self.pending.back().map(|event| event.revision()));
        let Some(newest) = newest else { return Ok(()) };
        let ceiling = newest + RELAXED_SPAN;
        let compact_to = (self.uncompacted >= self.history).then(|| newest.saturating_sub(self.history as u64));
        let write = || -> rusqlite::Result<()> {
            self.file.execute_batch("BEGIN")?;
            for event in self.pending.iter().chain(staged) {
                append(&self.file, event)?;
            }
            set_number(&self.file, "ceiling", ceiling)?;
            if let Some(mark) = compact_to {
                compact(&self.file, mark)?;
            }
            self.file.execute_batch("COMMIT")
        };
        if let Err(error) = write() {
            return Err(self.failed(&error));
        }
        self.full = false;
        self.keeper.advance(newest);
        self.uncheckpointed += 1;
        self.uncompacted = if compact_to.is_some() { 0 } else { self.uncompacted + staged.len() + self.pending.len() };
        self.pending.clear();
        self.ceiling = ceiling;
        if self.uncheckpointed >= CHECKPOINT_AT_LATEST {
            self.checkpoint();
        }
        Ok(())
    }

    /// A full disk is rolled back and may pass; after any other failure the file's content is not certain.
    fn failed(&mut self, error: &rusqlite::Error) -> WriteError {
        let rolled_back = self.file.is_autocommit() || self.file.execute_batch("ROLLBACK").is_ok();
        let full = matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
        if full && rolled_back {
            self.full = true;
            return WriteError::Disk(format!("no space left for {}", self.path.display()));
        }
        let why =
            format!("an earlier write to {} failed ({error}); restart once the disk is well", self.path.display());
        tracing::error!(%error, file = %self.path.display(), "the store stops taking writes");
        self.broken = Some(why.clone());
        WriteError::Closed(why)
    }

    fn checkpoint(&mut self) {
        if self.uncheckpointed == 0 || self.broken.is_some() || self.full {
            return;
        }
        let done = self.file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        match done {
            Ok(()) => self.uncheckpointed = 0,
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => self.full = true,
            Err(error) => tracing::warn!(%error, "failed to checkpoint the store; it is tried again"),
        }
    }

    /// A clean end: nothing pending, and no revision was handed out that is not in the file.
    fn finish(&mut self) {
        if self.broken.is_some() {
            return;
        }
        if let Err(error) = self.commit(&[]) {
            tracing::warn!(%error, "failed to write the last renewals to the store");
            return;
        }
        let revision = self.state.read().unwrap_or_else(PoisonError::into_inner).revision;
        if let Err(error) = set_number(&self.file, "ceiling", revision) {
            tracing::warn!(%error, "failed to mark the store as closed");
        }
        if let Err(error) = self.file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "failed to fold the store's WAL into its file; it is read from there next time");
        }
        self.broken = Some("it is closed".into());
    }
}

fn append(file: &Connection, event: &Event) -> rusqlite::Result<()> {
    let kind = match event.kind {
        EventKind::Added => 0,
        EventKind::Modified => 1,
        EventKind::Deleted => 2,
    };
    let mut insert = file.prepare_cached("INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    let (key, json) = (&event.key, &event.object.json[..]);
    let revision = event.revision().cast_signed();
    insert.execute(params![revision, &*key.resource, key.namespace, key.name, kind, json, checksum(json)])?;
    Ok(())
}

/// Drops what no list or watch at or above `mark` needs: superseded rows, and deletions.
fn compact(file: &Connection, mark: u64) -> rusqlite::Result<()> {
    file.prepare_cached(
        "DELETE FROM log WHERE revision <= ?1 AND (kind = 2 OR EXISTS (SELECT 1 FROM log AS newer
         WHERE newer.resource = log.resource AND newer.namespace = log.namespace AND newer.name = log.name
         AND newer.revision > log.revision AND newer.revision <= ?1))",
    )?
    .execute([mark.cast_signed()])?;
    set_number(file, "compacted", mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::object::{Change, Expect, Key};
    use crate::store::{file, object};
    use serde_json::json;

    fn write(name: &str, revision: Option<u64>, text: String, durability: Durability) -> object::Write {
        let key = Key { resource: "/configmaps".into(), namespace: "default".into(), name: name.into() };
        let change = Change::Put(json!({"metadata": {"name": name}, "text": text}));
        Write { key, expect: revision.map_or(Expect::Absent, Expect::Revision), change, durability }
    }

    #[tokio::test]
    async fn on_a_full_disk_writes_are_refused_and_renewals_go_on_and_both_do_once_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let opened = file::open(&path, 1_000).unwrap();
        let pages: u32 = opened.file.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        // SQLite refuses with the same word as on a full disk.
        let limit = opened.file.pragma_update_and_check(None, "max_page_count", pages + 2, |_| Ok(()));
        limit.unwrap();
        let state = Arc::new(RwLock::new(opened.state));
        let writer = Writer::start(&path, opened.file, opened.keeper, state.clone()).unwrap();
        let lease = writer.write(write("lease", None, String::new(), Durability::Durable)).await.unwrap();
        let mut newest = lease.revision();
        let large = || write("large", None, "x".repeat(100_000), Durability::Durable);
        for _ in 0..3 {
            let (refused, renewed) = tokio::join!(
                writer.write(large()),
                writer.write(write("lease", Some(newest), "renewed".into(), Durability::Relaxed)),
            );
            assert!(matches!(refused, Err(WriteError::Disk(_))), "{refused:?}");
            // The first may have shared a commit with what was refused.
            newest = renewed.map_or(newest, |event| event.revision());
        }
        assert!(newest > lease.revision());
        // More of them than are kept back at most while there is room.
        for _ in 0..=PENDING {
            let renewal = write("lease", Some(newest), "again".into(), Durability::Relaxed);
            newest = writer.write(renewal).await.unwrap().revision();
        }
        writer.close().await;
        let opened = file::open(&path, 1_000).unwrap();
        let state = Arc::new(RwLock::new(opened.state));
        let writer = Writer::start(&path, opened.file, opened.keeper, state).unwrap();
        assert!(writer.write(large()).await.unwrap().revision() > newest);
        writer.close().await;
    }
}
