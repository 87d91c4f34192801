//! What the agent's loop needs of a database server, and the drivers that give it.

pub(crate) mod postgresql;

use coregent_core::member::{self, Data, Job, Source};
use coregent_core::names::{Epoch, Monotonic};
use coregent_core::position::Promotion;
use coregent_core::report::{self, Reach};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::pin::Pin;

/// The engine with what only the report needs.
#[derive(Debug, Clone)]
pub struct Status {
    /// What decisions are made from.
    pub engine: member::Engine,
    /// A primary's standbys.
    pub standbys: Vec<report::Standby>,
    /// What weakens a primary's promises (F16), one line each.
    pub warnings: BTreeSet<String>,
}

/// What is durable in the volume outside the data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable {
    /// The newest epoch that this member acted in (F6).
    pub epoch: Epoch,
    /// That epoch when this agent began (F5).
    pub epoch_at_start: Epoch,
    /// The newest promotion that was asked of this folder (F9).
    pub attempt: Option<Promotion>,
    /// That promotion was seen recorded as won (F14).
    pub attempt_recorded: bool,
    /// The folder was rewound and has not been consistent since (F12).
    pub inconsistent: bool,
}

/// Resolves when the server's first process has ended, with how.
pub type ServerEnd = Pin<Box<dyn Future<Output = String>>>;

/// One server and the volume under it. Everything here runs on the agent's one thread; a job that is given up is
/// dropped wherever it waits.
pub trait Engine: 'static {
    /// Why a job ended without its effect: one line, no secrets.
    type Error: Display;

    /// Carries out a job. One that starts a server says how to learn of its end.
    fn run(&self, job: Job) -> impl Future<Output = Result<Option<ServerEnd>, Self::Error>>;

    /// The server now.
    fn status(&self) -> impl Future<Output = Status>;

    /// Resolves when the stream that the last status saw has ended; never while there is none.
    fn stream_ended(&self) -> impl Future<Output = ()>;

    /// What comes of a connection to the agent of the source.
    fn reach(&self, source: &Source) -> impl Future<Output = Reach>;

    /// The server's first process has ended; its children may live until a [`Job::Stop`] has swept them.
    fn server_exited(&self);

    /// The data folder as it lies there; only jobs change it.
    fn data(&self) -> Data;

    /// What is durable beside it.
    fn durable(&self) -> Durable;

    /// Makes an epoch durable.
    ///
    /// # Errors
    /// When it is not durable.
    fn persist_epoch(&self, epoch: Epoch) -> Result<(), Self::Error>;

    /// Makes durable that the newest promotion of this folder is recorded as won, if it is `won` (F14).
    ///
    /// # Errors
    /// When it is not durable.
    fn persist_win(&self, won: &Promotion) -> Result<(), Self::Error>;

    /// Notes that the folder is consistent again after a rewind.
    ///
    /// # Errors
    /// When that is not durable.
    fn mark_consistent(&self) -> Result<(), Self::Error>;

    /// Sets or clears the instant at which every process of the server is killed, whatever the loop waits for (F2).
    fn arm(&self, deadline: Option<Monotonic>);

    /// This member streams: what an earlier copy set aside is no longer needed (F12).
    fn remove_old_set_aside(&self);

    /// Takes back what a person has set although only the agent may.
    fn take_back_own_settings(&self);
}
