//! Opening the SQLite file under the store: made whole or not at all, checked before anything is written to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::Identity;
use super::error::OpenError;
use super::object::{Event, EventKind, Key, Stored};
use super::reached::{self, Keeper, Record, Restored};
use super::state::State;

/// The format that this program writes. A file of a higher one is refused.
const FORMAT: i64 = 1;
/// Marks the file as ours (`file(1)` and SQLite's header show it): "CORG".
const APPLICATION_ID: i64 = 0x434f_5247;
/// Revisions that may be handed out without fsync past the last durable one. The ceiling is stored, and a store that
/// was not closed cleanly starts above it, so that no revision is ever given to two different changes.
pub(super) const RELAXED_SPAN: u64 = 4096;
/// Entry of `meta` that says that the file was found behind its record, until whoever must know has been told.
const RESTORED: &str = "restored";

const SCHEMA: &str = "
    CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE log (
        revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        kind INTEGER NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL);
    CREATE INDEX log_by_key ON log (resource, namespace, name, revision);";

/// An open store.
pub(super) struct Opened {
    /// The file.
    pub file: Connection,
    /// What it keeps beside the objects.
    pub identity: Identity,
    /// What it holds.
    pub state: State,
    /// The record beside it.
    pub keeper: Keeper,
    /// It is an older copy.
    pub restored: Option<Restored>,
}

/// Opens or makes the file and reads it back.
pub(super) fn open(path: &Path, history: usize) -> Result<Opened, OpenError> {
    let record = reached::read(path)?;
    match std::fs::metadata(path) {
        Ok(found) if found.len() == 0 => return Err(damaged(path, "it is empty")),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            is_new(path, &record)?;
            create(path)?;
        }
        Err(source) => return Err(OpenError::Io { path: path.into(), what: "look at", source }),
    }
    let file = connect(path)?;
    verify(&file, path)?;
    let identity = Identity {
        incarnation: String::from_utf8_lossy(&meta(&file, path, "incarnation")?).into_owned(),
        signing_key: meta(&file, path, "signing-key")?,
    };
    let mut state = recover(&file, path, history, None)?;
    let found = newest(&file, path)?;
    let restored = behind(&file, path, &record, &identity, found)?;
    let reached = restored.and_then(|restored| restored.reached).unwrap_or(found).max(found);
    if restored.is_some() && state.revision < reached + RELAXED_SPAN {
        // What was handed out after this copy was made is never handed out again, and who knows it lists anew.
        state.skip_to(reached + RELAXED_SPAN);
    }
    let keeper = Keeper::start(path, &identity.incarnation, reached)?;
    Ok(Opened { file, identity, state, keeper, restored })
}

/// A store is made only where there has never been one: a lost one is not replaced by an empty one.
fn is_new(path: &Path, record: &Record) -> Result<(), OpenError> {
    let wal = with_suffix(path, "-wal");
    if *record != Record::None || std::fs::metadata(&wal).is_ok_and(|found| found.len() > 0) {
        return Err(OpenError::Missing { path: path.into() });
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The newest revision in the log.
pub(super) fn newest(file: &Connection, path: &Path) -> Result<u64, OpenError> {
    file.query_row("SELECT coalesce(max(revision), 0) FROM log", [], |row| row.get::<_, i64>(0))
        .map(i64::unsigned_abs)
        .map_err(explain(path, "read"))
}

/// Whether the file is an older copy of what ran here last. It stays one until [`settle`].
fn behind(
    file: &Connection,
    path: &Path,
    record: &Record,
    identity: &Identity,
    found: u64,
) -> Result<Option<Restored>, OpenError> {
    let restored = match record {
        Record::At { incarnation, .. } if *incarnation != identity.incarnation => {
            return Err(OpenError::Foreign { path: path.into() });
        }
        Record::At { revision, .. } if *revision > found => Some(Restored { found, reached: Some(*revision) }),
        // Nothing is known about how far it had come: what follows from that is done once too often at worst.
        Record::Unreadable => Some(Restored { found, reached: None }),
        Record::At { .. } | Record::None => None,
    };
    if let Some(Restored { reached, .. }) = restored {
        set_number(file, RESTORED, reached.unwrap_or(0)).map_err(explain(path, "write to"))?;
        return Ok(restored);
    }
    let pending = file
        .query_row("SELECT value FROM meta WHERE name = ?1", [RESTORED], |row| row.get::<_, Vec<u8>>(0))
        .optional()
        .map_err(explain(path, "read"))?;
    let reached = pending.map(|text| String::from_utf8_lossy(&text).parse().ok().filter(|reached| *reached > 0));
    Ok(reached.map(|reached| Restored { found, reached }))
}

/// Everybody who must know that the file is an older copy has been told.
pub(super) fn settle(file: &Connection) -> rusqlite::Result<()> {
    file.execute("DELETE FROM meta WHERE name = ?1", [RESTORED]).map(drop)
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
    let draft = with_suffix(path, ".new");
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
    // The whole check and not the quick one: it compares the index with the table, and with that the columns that no
    // checksum covers.
    let verdict: String =
        file.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(explain(path, "check"))?;
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

/// What the file holds up to a revision, checked as at a start.
pub(super) fn read_back(file: &Connection, path: &Path, newest: u64) -> Result<State, OpenError> {
    verify(file, path)?;
    recover(file, path, 1, Some(newest))
}

/// Replays the log, or so much of it, into a fresh state.
fn recover(file: &Connection, path: &Path, history: usize, newest: Option<u64>) -> Result<State, OpenError> {
    let mut state = State::new(history);
    let mut statement = file
        .prepare(
            "SELECT revision, resource, namespace, name, kind, value, checksum FROM log
             WHERE revision <= ?1 ORDER BY revision",
        )
        .map_err(explain(path, "read"))?;
    let newest = newest.map_or(i64::MAX, u64::cast_signed);
    let mut rows = statement.query([newest]).map_err(explain(path, "read"))?;
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

pub(super) fn checksum(value: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha256::digest(value)[..8]);
    sum
}

/// Writes one entry of `meta`.
pub(super) fn set_number(file: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    file.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
        .execute(params![name, value.to_string().as_bytes()])?;
    Ok(())
}
