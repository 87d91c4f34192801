//! The SQLite file under the store: an append log in WAL mode, and the one thread that writes it.
//!
//! Writes that arrive while a commit is on its way share the next one (group commit). `synchronous=FULL` makes each
//! commit one fdatasync of the WAL; checkpoints wait until the writer is idle.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::Identity;
use super::error::{OpenError, WriteError};
use super::object::{Durability, Event, EventKind, Key, Stored, Write};
use super::state::{Overlay, State};

/// The format that this program writes. A file of a higher one is refused.
const FORMAT: i64 = 1;
/// Marks the file as ours (`file(1)` and SQLite's header show it): "CORG".
const APPLICATION_ID: i64 = 0x434f_5247;
/// Revisions that may be handed out without fsync past the last durable one. The ceiling is stored, and a store that
/// was not closed cleanly starts above it, so that no revision is ever given to two different changes.
const RELAXED_SPAN: u64 = 4096;
/// Writes that share a commit at most.
const BATCH: usize = 256;
/// Relaxed rows kept back at most.
const PENDING: usize = 512;
/// Commits after which a checkpoint no longer waits for a quiet moment.
const CHECKPOINT_AT_LATEST: usize = 4096;
/// How long the writer is idle before it checkpoints.
const IDLE: Duration = Duration::from_secs(2);

const SCHEMA: &str = "
    CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE log (
        revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        kind INTEGER NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL);
    CREATE INDEX log_by_key ON log (resource, namespace, name, revision);";

/// Opens or makes the file and reads it back.
pub(super) fn open(path: &Path, history: usize) -> Result<(Connection, Identity, State), OpenError> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() == 0 => return Err(damaged(path, "it is empty")),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path)?,
        Err(source) => return Err(OpenError::Io { path: path.into(), what: "look at", source }),
    }
    let file = connect(path)?;
    verify(&file, path)?;
    let identity = Identity {
        incarnation: String::from_utf8_lossy(&meta(&file, path, "incarnation")?).into_owned(),
        signing_key: meta(&file, path, "signing-key")?,
    };
    let state = recover(&file, path, history)?;
    Ok((file, identity, state))
}

fn damaged(path: &Path, what: impl Into<String>) -> OpenError {
    OpenError::Damaged { path: path.into(), what: what.into() }
}

/// Sorts SQLite's complaints into those that a person can act on.
fn explain(path: &Path, what: &'static str) -> impl FnOnce(rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    move |source| match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => OpenError::InUse { path },
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
            OpenError::Damaged { path, what: source.to_string() }
        }
        _ => OpenError::Sqlite { path, what, source },
    }
}

/// Makes a complete new file under another name and renames it, so that an empty or half-made file is never ours.
fn create(path: &Path) -> Result<(), OpenError> {
    let draft = path.with_extension("db.new");
    let io = |what| move |source| OpenError::Io { path: path.into(), what, source };
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io("replace the draft of")(error)),
        _ => {}
    }
    let identity = Identity::random()?;
    let file = Connection::open(&draft).map_err(explain(path, "create"))?;
    let fill = || -> rusqlite::Result<()> {
        file.execute_batch("PRAGMA synchronous=FULL; BEGIN;")?;
        file.execute_batch(SCHEMA)?;
        file.pragma_update(None, "application_id", APPLICATION_ID)?;
        file.pragma_update(None, "user_version", FORMAT)?;
        let mut insert = file.prepare("INSERT INTO meta VALUES (?1, ?2)")?;
        insert.execute(params!["incarnation", identity.incarnation.as_bytes()])?;
        insert.execute(params!["signing-key", identity.signing_key])?;
        insert.execute(params!["ceiling", b"0"])?;
        file.execute_batch("COMMIT;")
    };
    fill().map_err(explain(path, "create"))?;
    drop(file);
    restrict(&draft).map_err(io("protect"))?;
    std::fs::rename(&draft, path).map_err(io("create"))?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io("sync the folder of"))
}

/// The file holds Secrets: its owner alone may read it.
fn restrict(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

fn connect(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = Connection::open_with_flags(path, flags).map_err(explain(path, "open"))?;
    // A damaged or newer file is to be left exactly as it is: nothing that writes comes before the checks, and to
    // close it must not move the WAL into it either.
    let guard = || -> rusqlite::Result<()> {
        file.busy_timeout(Duration::from_millis(200))?;
        file.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        file.pragma_update(None, "locking_mode", "EXCLUSIVE")
    };
    guard().map_err(explain(path, "open"))?;
    let application: i64 =
        file.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(explain(path, "read"))?;
    if application != APPLICATION_ID {
        return Err(damaged(path, "it is a database, but not a Coregent store"));
    }
    let found: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(explain(path, "read"))?;
    if found > FORMAT {
        return Err(OpenError::Newer { path: path.into(), found, known: FORMAT });
    }
    let set_up = || -> rusqlite::Result<()> {
        file.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        file.pragma_update(None, "synchronous", "FULL")?;
        file.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))
    };
    set_up().map_err(explain(path, "open"))?;
    Ok(file)
}

fn verify(file: &Connection, path: &Path) -> Result<(), OpenError> {
    let verdict: String =
        file.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain(path, "check"))?;
    if verdict == "ok" { Ok(()) } else { Err(damaged(path, verdict)) }
}

fn meta(file: &Connection, path: &Path, name: &str) -> Result<Vec<u8>, OpenError> {
    file.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0))
        .optional()
        .map_err(explain(path, "read"))?
        .ok_or_else(|| damaged(path, format!("its entry `{name}` is missing")))
}

fn number(file: &Connection, path: &Path, name: &str) -> Result<u64, OpenError> {
    let text = meta(file, path, name)?;
    std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| damaged(path, format!("its entry `{name}` is not a number")))
}

/// Replays the log into a fresh state.
fn recover(file: &Connection, path: &Path, history: usize) -> Result<State, OpenError> {
    let mut state = State::new(history);
    let mut statement = file
        .prepare("SELECT revision, resource, namespace, name, kind, value, checksum FROM log ORDER BY revision")
        .map_err(explain(path, "read"))?;
    let mut rows = statement.query([]).map_err(explain(path, "read"))?;
    while let Some(row) = rows.next().map_err(explain(path, "read"))? {
        let event = read_row(row, &state, path)?;
        state.apply(Arc::new(event));
    }
    // The log below its own compaction has holes: watches from there would miss deletions.
    state.compacted = state.compacted.max(number(file, path, "compacted").or_else(|error| match error {
        OpenError::Damaged { .. } => Ok(0),
        error => Err(error),
    })?);
    // Relaxed revisions after the last durable one may have been seen and are lost: nobody may resume from them.
    let ceiling = number(file, path, "ceiling")?;
    if ceiling > state.revision {
        state.skip_to(ceiling);
    }
    Ok(state)
}

fn read_row(row: &rusqlite::Row<'_>, state: &State, path: &Path) -> Result<Event, OpenError> {
    type Fields = (i64, String, String, String, i64, Vec<u8>, Vec<u8>);
    let fields = || -> rusqlite::Result<Fields> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?))
    };
    let (revision, resource, namespace, name, kind, value, sum) = fields().map_err(explain(path, "read"))?;
    if checksum(&value) != sum[..] {
        return Err(damaged(path, format!("the checksum of revision {revision} ({resource} {name}) does not match")));
    }
    let value = serde_json::from_slice(&value)
        .map_err(|error| damaged(path, format!("revision {revision} is not an object: {error}")))?;
    let kind = match kind {
        0 => EventKind::Added,
        1 => EventKind::Modified,
        2 => EventKind::Deleted,
        other => return Err(damaged(path, format!("revision {revision} is of unknown kind {other}"))),
    };
    let object = Stored::at(revision.unsigned_abs(), value)
        .map_err(|error| damaged(path, format!("revision {revision} cannot be rendered: {error}")))?;
    let previous = state.get(&resource, &namespace, &name);
    Ok(Event { kind, key: Key { resource: resource.into(), namespace, name }, object: Arc::new(object), previous })
}

fn checksum(value: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha256::digest(value)[..8]);
    sum
}

enum Job {
    Write(Box<Write>, oneshot::Sender<Result<Arc<Event>, WriteError>>),
    Close(oneshot::Sender<()>),
}

/// The handle of the writer thread.
pub(super) struct Writer {
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl Writer {
    pub fn start(path: &Path, file: Connection, state: Arc<RwLock<State>>) -> Result<Writer, OpenError> {
        let (jobs, inbox) = mpsc::channel();
        let history = state.read().unwrap_or_else(PoisonError::into_inner).history();
        let thread = Thread {
            path: path.into(),
            file,
            state,
            pending: VecDeque::new(),
            ceiling: 0,
            broken: None,
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
    state: Arc<RwLock<State>>,
    /// Relaxed events that are visible and not yet in the file.
    pending: VecDeque<Arc<Event>>,
    /// The highest revision that may be handed out before the next commit.
    ceiling: u64,
    /// Set by a failure after which the file's content is not known.
    broken: Option<String>,
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
                    Job::Close(answer) => closing = Some(answer),
                }
            }
            self.carry_out(batch);
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
            durable |= revision > self.ceiling || self.pending.len() + staged.len() > PENDING;
        }
        let outcome = match (&self.broken, durable && !staged.is_empty()) {
            (Some(why), _) => Err(WriteError::Closed(why.clone())),
            (None, true) => self.commit(&staged),
            (None, false) => {
                self.pending.extend(staged.iter().cloned());
                Ok(())
            }
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
            return WriteError::Disk(format!("no space left for {}", self.path.display()));
        }
        let why =
            format!("an earlier write to {} failed ({error}); restart once the disk is well", self.path.display());
        tracing::error!(%error, file = %self.path.display(), "the store stops taking writes");
        self.broken = Some(why.clone());
        WriteError::Closed(why)
    }

    fn checkpoint(&mut self) {
        if self.uncheckpointed == 0 || self.broken.is_some() {
            return;
        }
        let done = self.file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        match done {
            Ok(()) => self.uncheckpointed = 0,
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

fn set_number(file: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    file.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
        .execute(params![name, value.to_string().as_bytes()])?;
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
