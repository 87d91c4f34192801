//! PostgreSQL: everything that the agent does to its server (postgres-recipes.md).

mod aside;
mod base;
mod control;
mod dummies;
mod fetch;
mod files;
mod last_words;
mod names;
mod passwords;
mod promote;
mod receiver;
mod records;
mod refusal;
mod rewind;
mod server;
mod sql;
mod status;
mod stream;
mod wal;
mod weakened;

use super::{Durable, Engine, ServerEnd, Status};
use crate::clock;
use crate::config::Config;
use crate::processes::Processes;
use crate::volume::{State, Volume, VolumeError};
use crate::watchdog::Watchdog;
use coregent_core::lsn::Lsn;
use coregent_core::member::{Data, Job, Names, Source};
use coregent_core::names::{Epoch, MemberName, Monotonic};
use coregent_core::position::{Position, Promotion};
use coregent_core::report::Reach;
use files::Files;
use receiver::Receiver;
use rustix::process::Pid;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

/// Why a job ended without its effect. One line, no secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{program} failed: {reason}")]
    Program { program: &'static str, reason: String },
    #[error("{what}: {reason}")]
    Sql { what: &'static str, reason: String },
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("{0}")]
    Refused(String),
}

impl EngineError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
        let what = what.into();
        move |source| EngineError::Io { what, source }
    }
}

/// What the agent has put in force and seen.
#[derive(Debug)]
struct InForce {
    source: Option<Source>,
    names: Names,
    proved: bool,
    open: bool,
    /// It left: no receiver, everything local replayed.
    settled: bool,
    /// What the receiver said when it was stopped within a record. It says so until it has received more, and until then
    /// that is no position.
    cut_at: Option<Lsn>,
    set_up: bool,
    writable_since: Option<Monotonic>,
    /// When each standby was last seen streaming.
    seen: BTreeMap<MemberName, Monotonic>,
}

/// What the server said of the data folder when it gave up on it, and when.
type Blamed = Rc<RefCell<Option<(String, Monotonic)>>>;

/// For so long a folder that a server gave up on counts as unusable; then, if there was nobody to copy from, a start is
/// tried again: a person may have mended it.
const BLAMED_MILLIS: u64 = 30_000;

/// Name and password of a role, from the mounted Secret.
struct Credentials {
    user: String,
    password: String,
}

/// The driver of one server.
pub(crate) struct Postgres {
    config: Config,
    processes: Processes,
    volume: RefCell<Volume>,
    files: Files,
    server: Cell<Option<Pid>>,
    client: RefCell<Option<Rc<tokio_postgres::Client>>>,
    /// Its server refuses the agent.
    refusal: RefCell<refusal::Refusal>,
    in_force: RefCell<InForce>,
    /// The process that receives the stream.
    receiver: Receiver,
    /// The end of WAL while every process is gone.
    end: RefCell<Option<Position>>,
    /// It has been looked for in the folder that is there now.
    end_read: Cell<bool>,
    /// The epoch and the members that slots were made for.
    admitted: RefCell<(Epoch, BTreeSet<MemberName>)>,
    /// The deadline of the Lease, as the agent's loop sets it.
    deadline: Cell<Option<Monotonic>>,
    watchdog: Watchdog,
    /// It was to follow and its log was found to end within a record.
    is_cut: Cell<bool>,
    /// A checkpoint has been asked for and is not done.
    checkpointing: Rc<Cell<bool>>,
    /// The operation for whose hand-over one has ended.
    prepared: Rc<RefCell<Option<String>>>,
    blamed: Blamed,
    weakened: Rc<RefCell<weakened::Weakened>>,
    passwords: Rc<RefCell<passwords::Passwords>>,
    major: Option<u32>,
}

impl Postgres {
    pub(crate) fn new(config: Config, processes: Processes, volume: Volume, watchdog: Watchdog) -> Postgres {
        let in_force = RefCell::new(InForce {
            source: None,
            names: Names::Placeholder,
            proved: false,
            open: false,
            settled: false,
            cut_at: None,
            set_up: false,
            writable_since: None,
            seen: BTreeMap::new(),
        });
        let major = server::program_major(&config.bin_dir);
        let files = Files::new(&volume.path(""), major);
        Postgres {
            config,
            processes,
            volume: RefCell::new(volume),
            files,
            server: Cell::new(None),
            client: RefCell::new(None),
            refusal: RefCell::default(),
            in_force,
            receiver: Receiver::default(),
            end: RefCell::new(None),
            end_read: Cell::new(false),
            admitted: RefCell::new((Epoch(0), BTreeSet::new())),
            deadline: Cell::new(None),
            watchdog,
            is_cut: Cell::new(false),
            checkpointing: Rc::default(),
            prepared: Rc::default(),
            blamed: Rc::default(),
            weakened: Rc::default(),
            passwords: Rc::default(),
            major,
        }
    }

    /// The folder where a copy or an initdb grows before it is renamed: the rename is the proof that it is complete.
    fn new_folder(&self) -> PathBuf {
        self.config.pgdata.with_extension("new")
    }

    fn credentials(&self, role: &str) -> Result<Credentials, EngineError> {
        let what = |key: &str| format!("cannot read the credential {role}/{key}");
        let user = self.config.credential(role, "username").map_err(EngineError::io(what("username")))?;
        let password = self.config.credential(role, "password").map_err(EngineError::io(what("password")))?;
        Ok(Credentials { user, password })
    }
}

impl Engine for Postgres {
    type Error = EngineError;

    async fn run(&self, job: Job) -> Result<Option<ServerEnd>, EngineError> {
        let done = match job {
            Job::Start { writable, follow, names } => return self.start(writable, follow, names).map(Some),
            Job::InitDb => self.init_db().await,
            Job::Clone { source, chain } => self.copy(&source, chain).await,
            Job::Rewind { source, chain } => self.rewind(&source, chain).await,
            Job::SetUp => self.set_up().await,
            Job::Leave { epoch } => self.leave(epoch).await,
            Job::Fetch { rest, within } => self.fetch(&rest, within).await,
            Job::Follow { source, chain } => self.follow(source, chain).await,
            Job::Promote { attempt, chain, names, slots } => self.promote(attempt, chain, names, slots).await,
            Job::Open => self.open(),
            Job::Checkpoint { prepares } => self.checkpoint(prepares).await,
            Job::SetNames(names) => self.set_names(names).await,
            Job::Strengthen(names) => self.strengthen(names).await,
            Job::Marker => self.mark().await,
            Job::Slots { epoch, members } => self.keep_slots(epoch, &members).await,
            Job::Stop { fast, diverged, reason } => self.stop(fast, diverged, reason).await,
        };
        done.map(|()| None)
    }

    async fn status(&self) -> Status {
        self.look().await
    }

    async fn stream_ended(&self) {
        self.receiver.ended().await;
    }

    async fn reach(&self, source: &Source) -> Reach {
        receiver::reach(&source.address, self.config.agent_port).await
    }

    fn server_exited(&self) {
        self.client.borrow_mut().take();
    }

    fn data(&self) -> Data {
        let pgdata = &self.config.pgdata;
        match std::fs::read_dir(pgdata) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Data::Absent,
            Err(error) => return Data::Broken(format!("cannot read {}: {error}", pgdata.display())),
            Ok(mut entries) => {
                if entries.next().is_none() {
                    return Data::Absent;
                }
            }
        }
        if let Some(why) = &self.volume.borrow().state().unusable {
            return Data::Unusable(why.clone());
        }
        if let Some((why, at)) = &*self.blamed.borrow()
            && clock::now().since(*at) < BLAMED_MILLIS
        {
            return Data::Unusable(format!("the server could not be started from it ({why})"));
        }
        let damaged = |what: &str, why: &dyn std::fmt::Display| Data::Unusable(format!("{what} is damaged: {why}"));
        match std::fs::read_to_string(pgdata.join("PG_VERSION")) {
            Err(error) => return damaged("PG_VERSION", &error),
            Ok(version) => match (version.trim().parse::<u32>().ok(), self.major) {
                (None, _) => return damaged("PG_VERSION", &"it holds no version"),
                (Some(data), Some(program)) if data != program => {
                    return Data::Broken(format!(
                        "the data folder is of PostgreSQL {data}, the programs are of {program}: use an image of version {data}, or upgrade the data with pg_upgrade"
                    ));
                }
                _ => {}
            },
        }
        if !pgdata.join("pg_wal").is_dir() {
            return damaged("pg_wal", &"it is no folder");
        }
        if self.end_read.get() && self.end.borrow().is_none() {
            return damaged("pg_wal", &"it has no valid record");
        }
        match control::system_id(pgdata) {
            Ok(id) => Data::Present { system_id: id.to_string() },
            Err(error) => damaged("global/pg_control", &error),
        }
    }

    fn durable(&self) -> Durable {
        let volume = self.volume.borrow();
        let state = volume.state();
        Durable {
            epoch: state.epoch,
            epoch_at_start: volume.epoch_at_start(),
            attempt: state.attempt.clone(),
            attempt_recorded: state.attempt_recorded,
            inconsistent: state.inconsistent,
        }
    }

    fn persist_epoch(&self, epoch: Epoch) -> Result<(), EngineError> {
        Ok(self.volume.borrow_mut().change(|state| state.epoch = epoch)?)
    }

    fn persist_win(&self, won: &Promotion) -> Result<(), EngineError> {
        let record = |state: &mut State| state.attempt_recorded = state.attempt.as_ref() == Some(won);
        Ok(self.volume.borrow_mut().change(record)?)
    }

    fn mark_consistent(&self) -> Result<(), EngineError> {
        Ok(self.volume.borrow_mut().change(|state| state.inconsistent = false)?)
    }

    fn arm(&self, deadline: Option<Monotonic>) {
        self.deadline.set(deadline);
        self.watchdog.arm(deadline);
    }

    fn take_back_own_settings(&self) {
        Postgres::take_back_own_settings(self);
        self.keep_passwords();
    }

    fn remove_old_set_aside(&self) {
        self.drop_old_set_aside();
    }
}
