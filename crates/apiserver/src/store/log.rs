//! The append log in the SQLite file: one transaction a batch, checkpoints, and what follows when the disk refuses.
//!
//! A commit that failed is rolled back **on the connection that it failed on**, and what comes next is written over
//! its frames in the WAL. To open the file anew would take those frames for good where the kernel still has them in
//! its cache, although a failed fsync may have left the disk without them: whatever is appended behind them would be
//! lost with them in a power failure (PostgreSQL wiki, «Fsync Errors»).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, ffi, params};

use super::error::{OpenError, WriteError};
use super::file::{self, RELAXED_SPAN, checksum, set_number, settle};
use super::object::{Event, EventKind};
use super::reached::Keeper;
use super::refusal::{Refusal, Told};
use super::state::State;

/// Commits after which a checkpoint no longer waits for a quiet moment.
const CHECKPOINT_AT_LATEST: usize = 4096;

/// Ends a transaction.
pub(super) type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// How the disk is used; tests put one in its place that fails.
pub(super) struct Disk {
    pub commit: Commit,
    /// Time between two attempts to write again: a full disk is not hammered, and Leases outlive it.
    pub pause: Duration,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { commit: Box::new(|file| file.execute_batch("COMMIT")), pause: Duration::from_millis(500) }
    }
}

/// A transaction that failed, and is rolled back.
struct Failed {
    error: rusqlite::Error,
    /// It may come out again when the file is read by another process: its frames may be in the WAL to the last.
    unknown: bool,
}

/// The file, and what is not in it yet.
pub(super) struct Log {
    path: PathBuf,
    file: Connection,
    disk: Disk,
    keeper: Keeper,
    /// What has been acknowledged: the file is made to hold that and nothing else.
    memory: Arc<RwLock<State>>,
    /// The newest revision in the file.
    durable: u64,
    /// Relaxed events that are visible and not yet in the file.
    pending: VecDeque<Arc<Event>>,
    /// The highest revision that may be handed out before the next commit.
    ceiling: u64,
    refusal: Option<Refusal>,
    told: Told,
    uncheckpointed: usize,
    uncompacted: usize,
    history: usize,
    /// The last checkpoint failed, and it has been said.
    checkpoint_failed: bool,
}

/// Why the store cannot be written again yet.
enum Obstacle {
    Disk(Failed),
    /// It cannot be read for the moment.
    Unread(OpenError),
    /// It does not hold what was acknowledged.
    Differs(OpenError),
}

impl Log {
    pub fn new(
        path: &Path,
        file: Connection,
        disk: Disk,
        keeper: Keeper,
        memory: Arc<RwLock<State>>,
        told: Told,
    ) -> Result<Log, OpenError> {
        let durable = file::newest(&file, path)?;
        let history = memory.read().unwrap_or_else(PoisonError::into_inner).history();
        let mut log = Log {
            path: path.into(),
            file,
            disk,
            keeper,
            memory,
            durable,
            pending: VecDeque::new(),
            ceiling: 0,
            refusal: None,
            told,
            uncheckpointed: 1,
            uncompacted: 0,
            history,
            checkpoint_failed: false,
        };
        // The last frames of a WAL that lies there may never have been synced: nothing is appended behind them.
        log.checkpoint();
        Ok(log)
    }

    fn memory(&self) -> RwLockReadGuard<'_, State> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The highest revision that may be handed out without a commit.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Relaxed events that wait for a commit.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// When to call [`Log::try_again`] at the latest.
    pub fn patience(&self, idle: Duration) -> Duration {
        let next = self.refusal.as_ref().and_then(|refusal| refusal.next);
        next.map_or(idle, |next| next.saturating_duration_since(Instant::now()).min(idle))
    }

    /// Renewals alone wait for a durable write, or for room.
    pub fn keep_back(&mut self, staged: &[Arc<Event>]) -> Result<(), WriteError> {
        match &self.refusal {
            Some(refusal) if refusal.unsettled => Err(refusal.answer()),
            _ => {
                self.pending.extend(staged.iter().cloned());
                Ok(())
            }
        }
    }

    /// Makes what was kept back and then `staged` durable.
    pub fn append(&mut self, staged: &[Arc<Event>]) -> Result<(), WriteError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.answer());
        }
        if staged.is_empty() && self.pending.is_empty() {
            return Ok(());
        }
        self.write(staged).map_err(|failed| self.failed(failed))
    }

    /// One transaction: what was kept back, then the batch, then the new ceiling.
    fn write(&mut self, staged: &[Arc<Event>]) -> Result<(), Failed> {
        let handed_out = staged.last().map_or_else(|| self.memory().revision, |event| event.revision());
        // SQLite writes no page for a value that is there already, and a commit without pages says nothing of the disk.
        let ceiling = (handed_out + RELAXED_SPAN).max(self.ceiling + 1);
        let unsettled = self.refusal.as_ref().is_some_and(|refusal| refusal.unsettled);
        let (pending, file, durable) = (&self.pending, &self.file, self.durable);
        transaction(file, &mut self.disk.commit, || {
            if unsettled {
                file.execute("DELETE FROM log WHERE revision > ?1", [durable.cast_signed()])?;
            }
            for event in pending.iter().chain(staged) {
                append(file, event)?;
            }
            set_number(file, "ceiling", ceiling)
        })?;
        self.ceiling = ceiling;
        self.durable = staged.last().or(self.pending.back()).map_or(self.durable, |event| event.revision());
        self.keeper.advance(self.durable);
        self.uncheckpointed += 1;
        self.uncompacted += staged.len() + self.pending.len();
        self.pending.clear();
        Ok(())
    }

    /// Whatever need not be done before the answers are given.
    pub fn tidy(&mut self) {
        if self.refusal.is_some() {
            return;
        }
        if self.uncompacted >= self.history {
            self.compact();
        }
        if self.uncheckpointed >= CHECKPOINT_AT_LATEST {
            self.checkpoint();
        }
    }

    /// A transaction of its own: to take one back that has appended must never need rows that it has removed.
    fn compact(&mut self) {
        let (file, mark) = (&self.file, self.durable.saturating_sub(self.history as u64));
        // After a failure not before as much again has come: there is no hurry.
        self.uncompacted = 0;
        match transaction(file, &mut self.disk.commit, || compact(file, mark)) {
            Ok(()) => self.uncheckpointed += 1,
            Err(failed) => {
                tracing::warn!(error = %failed.error, "failed to compact the store; it is tried again later")
            }
        }
    }

    /// Moves what the WAL has into the file, so that the next commit begins the WAL anew.
    pub fn checkpoint(&mut self) {
        if self.uncheckpointed == 0 || self.refusal.is_some() {
            return;
        }
        match self.file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            Ok(()) => (self.uncheckpointed, self.checkpoint_failed) = (0, false),
            Err(error) => {
                self.uncheckpointed = 1;
                if !std::mem::replace(&mut self.checkpoint_failed, true) {
                    tracing::warn!(%error, "failed to checkpoint the store; it is tried again");
                }
            }
        }
    }

    /// After a failure: finds out whether the disk refuses everything, or only what was asked of it.
    fn failed(&mut self, failed: Failed) -> WriteError {
        let mut refusal = Refusal {
            why: self.words(&failed.error),
            unsettled: failed.unknown,
            since: Instant::now(),
            next: Some(Instant::now() + self.disk.pause),
        };
        if is_full(&failed.error) {
            // The WAL begins anew after it, and has room for as much as it has held.
            self.checkpoint();
        }
        self.refusal = Some(refusal.clone());
        match self.probe() {
            Ok(()) => {
                tracing::warn!(error = %failed.error, "the disk refused a write of the store, and took a smaller one");
                self.refusal = None;
                return WriteError::Disk(refusal.why);
            }
            Err(Obstacle::Disk(again)) => refusal.unsettled |= again.unknown,
            Err(Obstacle::Unread(error)) => tracing::debug!(%error, "the store cannot be read either"),
            Err(Obstacle::Differs(error)) => return self.give_up(refusal, &error),
        }
        tracing::error!(error = %failed.error, file = %self.path.display(),
            "the store takes no writes until its disk does; reads go on");
        self.told.set(Some(refusal.why.clone()));
        let answer = if failed.unknown {
            WriteError::Unknown(refusal.why.clone())
        } else {
            WriteError::Disk(refusal.why.clone())
        };
        self.refusal = Some(refusal);
        answer
    }

    /// Tries to write again, if it is time to: nothing but what was kept back, or nothing at all.
    pub fn try_again(&mut self) {
        let now = Instant::now();
        let Some(refusal) = self.refusal.as_ref().filter(|refusal| refusal.next.is_some_and(|next| next <= now)) else {
            return;
        };
        let mut refusal = refusal.clone();
        refusal.next = Some(now + self.disk.pause);
        match self.probe() {
            Ok(()) => {
                let seconds = refusal.since.elapsed().as_secs_f64();
                tracing::info!(seconds, file = %self.path.display(), "the store takes writes again");
                self.refusal = None;
                self.told.set(None);
                return;
            }
            Err(Obstacle::Disk(failed)) => {
                refusal.why = self.words(&failed.error);
                refusal.unsettled |= failed.unknown;
            }
            Err(Obstacle::Unread(error)) => refusal.why = format!("{error}; it is tried again"),
            Err(Obstacle::Differs(error)) => {
                self.give_up(refusal, &error);
                return;
            }
        }
        self.told.set(Some(refusal.why.clone()));
        self.refusal = Some(refusal);
    }

    /// Sees to it that the file holds what memory does and nothing else, and that it can be written.
    fn probe(&mut self) -> Result<(), Obstacle> {
        if self.refusal.as_ref().is_some_and(|refusal| refusal.unsettled) {
            let there = file::read_back(&self.file, &self.path, self.durable).map_err(|error| match error {
                OpenError::Damaged { .. } => Obstacle::Differs(error),
                error => Obstacle::Unread(error),
            })?;
            if !self.memory().holds_what(&there, &self.pending) {
                let what = "it does not hold what was acknowledged".into();
                return Err(Obstacle::Differs(OpenError::Damaged { path: self.path.clone(), what }));
            }
        }
        self.write(&[]).map_err(Obstacle::Disk)
    }

    /// Nothing is written any more: what is in memory is all that there is of something acknowledged.
    fn give_up(&mut self, mut refusal: Refusal, error: &OpenError) -> WriteError {
        tracing::error!(%error, "the store takes no writes any more");
        refusal.why = format!("{error}; what can be read is what was acknowledged: save it, then start again");
        refusal.next = None;
        self.told.set(Some(refusal.why.clone()));
        let answer = refusal.answer();
        self.refusal = Some(refusal);
        answer
    }

    /// What is wrong, and what to do.
    fn words(&self, error: &rusqlite::Error) -> String {
        let path = self.path.display();
        if is_full(error) {
            return format!("no space left for {path}: make room on its disk, and writes are taken again");
        }
        format!("{path} cannot be written ({error}): put its disk right, and writes are taken again")
    }

    /// Forgets that the file was found behind its record.
    pub fn settle(&mut self) -> Result<(), WriteError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.answer());
        }
        let file = &self.file;
        transaction(file, &mut self.disk.commit, || settle(file)).map_err(|failed| self.failed(failed))
    }

    /// A clean end: nothing kept back, and no revision was handed out that is not in the file.
    pub fn finish(&mut self) {
        if let Some(next) = self.refusal.as_mut().and_then(|refusal| refusal.next.as_mut()) {
            *next = Instant::now();
            self.try_again();
        }
        if let Err(error) = self.append(&[]) {
            tracing::warn!(%error, "failed to write the last renewals to the store");
            return;
        }
        let revision = self.memory().revision;
        if let Err(error) = set_number(&self.file, "ceiling", revision) {
            tracing::warn!(%error, "failed to mark the store as closed");
        }
        if let Err(error) = self.file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::warn!(%error, "failed to fold the store's WAL into its file; it is read from there next time");
        }
        self.told.set(Some("it is closed".into()));
    }
}

/// Carries out a transaction, or nothing of it.
fn transaction(
    file: &Connection,
    commit: &mut Commit,
    fill: impl FnOnce() -> rusqlite::Result<()>,
) -> Result<(), Failed> {
    let failed = match file.execute_batch("BEGIN").and_then(|()| fill()) {
        Err(error) => Failed { error, unknown: false },
        Ok(()) => match commit(file) {
            Ok(()) => return Ok(()),
            Err(error) => Failed { unknown: !never_whole(&error), error },
        },
    };
    if !file.is_autocommit()
        && let Err(error) = file.execute_batch("ROLLBACK")
    {
        tracing::debug!(%error, "the rollback failed: it is tried again before the next transaction");
        return Err(Failed { unknown: true, ..failed });
    }
    Err(failed)
}

/// Whether a commit that failed so has not written its last frame, which makes it one.
fn never_whole(error: &rusqlite::Error) -> bool {
    is_full(error) || error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_WRITE)
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
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
