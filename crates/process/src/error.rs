//! Why a container or a program in it did not start.

use std::io;

use crate::support::{self, Unsupported};
use crate::wire::{Failure, FailureKind};

/// Why a program does not run. Nothing of it is left when this is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// This system does not allow what a container needs.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The kernel refused a namespace, although such namespaces are allowed here in general.
    #[error("namespaces: {0}")]
    Namespaces(String),
    /// The root file system could not be built; the message names the mount.
    #[error("{0}")]
    Root(String),
    /// The working folder cannot be entered.
    #[error("{0}")]
    WorkingDir(String),
    /// The program was not found or may not be executed; the message names it.
    #[error("{0}")]
    Program(String),
    /// Another step before the program failed.
    #[error("{0}")]
    Setup(String),
    /// The helper process between us and the container could not be started or ended without a word.
    #[error("container launcher {what}: {source}")]
    Launcher {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl StartError {
    pub(crate) fn launcher(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| StartError::Launcher { what, source }
    }

    /// The shim ended without an answer.
    pub(crate) fn silent() -> Self {
        StartError::Launcher { what: "answer", source: io::ErrorKind::UnexpectedEof.into() }
    }
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        let Failure { kind, message } = failure;
        match kind {
            // Often a switch of the system: then say which.
            FailureKind::Namespaces => match support::check_support() {
                Err(unsupported) => StartError::Unsupported(unsupported),
                Ok(()) => StartError::Namespaces(message),
            },
            FailureKind::Root => StartError::Root(message),
            FailureKind::WorkingDir => StartError::WorkingDir(message),
            FailureKind::Program => StartError::Program(message),
            FailureKind::Setup => StartError::Setup(message),
        }
    }
}
