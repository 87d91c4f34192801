//! The agent's own files in the volume, beside the data folder and never inside it: a rewind or a copy would remove
//! or overwrite them there (failover.md F12).

use crate::durable;
use coregent_core::names::Epoch;
use coregent_core::position::Promotion;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Format of the file `state.json`.
const FORMAT: u32 = 1;

/// What must survive the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    pub(crate) format: u32,
    /// The newest epoch that this member acted in (F6).
    #[serde(default)]
    pub(crate) epoch: Epoch,
    /// The newest promotion that was asked of this folder (F9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<Promotion>,
    /// That promotion was seen recorded as won in the Lease: a record that lacks it is older than this folder (F14).
    #[serde(default)]
    pub(crate) attempt_recorded: bool,
    /// The promotions beneath the data, as copied from the holder before a receiver passed a fork (F9). It may name
    /// forks that the data has not reached yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) chain: Vec<Promotion>,
    /// Why the data folder must not be started: a rewind that began and has not ended (F12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unusable: Option<String>,
    /// The folder was rewound and has not been consistent since: it is no candidate.
    #[serde(default)]
    pub(crate) inconsistent: bool,
}

impl Default for State {
    fn default() -> Self {
        State {
            format: FORMAT,
            epoch: Epoch(0),
            attempt: None,
            attempt_recorded: false,
            chain: Vec::new(),
            unusable: None,
            inconsistent: false,
        }
    }
}

/// Trouble with the volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path} is not readable as the agent's state: {reason}; it is not replaced by a guess, restore it or give the member an empty volume"
    )]
    Unreadable { path: PathBuf, reason: String },
    #[error(
        "{path} has format {found}, this program knows {FORMAT}: it was written by a newer version, upgrade coregent"
    )]
    Newer { path: PathBuf, found: u32 },
}

/// The folder `coregent/` of the volume.
#[derive(Debug)]
pub(crate) struct Volume {
    folder: PathBuf,
    state: State,
    epoch_at_start: Epoch,
}

impl Volume {
    /// Makes the folder if need be and reads the state.
    pub(crate) fn open(folder: PathBuf) -> Result<Volume, VolumeError> {
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |source| VolumeError::Io { what, path, source }
        };
        fs::create_dir_all(&folder).map_err(fail("create", &folder))?;
        let path = folder.join("state.json");
        let state = match fs::read(&path) {
            Ok(text) => parse(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::default(),
            Err(source) => return Err(fail("read", &path)(source)),
        };
        let epoch_at_start = state.epoch;
        Ok(Volume { folder, state, epoch_at_start })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn epoch_at_start(&self) -> Epoch {
        self.epoch_at_start
    }

    /// Changes the state; it is durable when this returns.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut State)) -> Result<(), VolumeError> {
        let mut next = self.state.clone();
        change(&mut next);
        if next == self.state {
            return Ok(());
        }
        let path = self.path("state.json");
        let text = serde_json::to_vec(&next)
            .map_err(|error| VolumeError::Unreadable { path: path.clone(), reason: error.to_string() })?;
        durable::replace(&path, &text).map_err(|source| VolumeError::Io { what: "write", path, source })?;
        self.state = next;
        Ok(())
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<State, VolumeError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let unreadable =
        |error: serde_json::Error| VolumeError::Unreadable { path: path.to_owned(), reason: error.to_string() };
    let Format { format } = serde_json::from_slice(text).map_err(unreadable)?;
    if format != FORMAT {
        return Err(VolumeError::Newer { path: path.to_owned(), found: format });
    }
    serde_json::from_slice(text).map_err(unreadable)
}

/// The lock of the volume. The descriptor is inherited by every process of the engine, so that holding it proves
/// them dead and no other agent alive (F5, postgres-recipes.md 1).
#[derive(Debug)]
pub(crate) struct Lock {
    _descriptor: OwnedFd,
}

impl Lock {
    /// Takes the lock, or says that it is held.
    pub(crate) fn try_take(folder: &Path) -> Result<Option<Lock>, VolumeError> {
        let path = folder.join("lock");
        let fail = |what| {
            let path = path.clone();
            move |error: rustix::io::Errno| VolumeError::Io { what, path, source: error.into() }
        };
        // No O_CLOEXEC: to be inherited is its purpose.
        let descriptor = open(&path, OFlags::CREATE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).map_err(fail("open"))?;
        match flock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _descriptor: descriptor })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(fail("lock")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_survives_and_a_newer_or_broken_one_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("coregent");
        Volume::open(path.clone())?.change(|state| state.epoch = Epoch(7))?;
        let again = Volume::open(path.clone())?;
        assert_eq!((again.state().epoch, again.epoch_at_start()), (Epoch(7), Epoch(7)));
        fs::write(path.join("state.json"), r#"{"format":2}"#)?;
        assert!(matches!(Volume::open(path.clone()), Err(VolumeError::Newer { found: 2, .. })));
        fs::write(path.join("state.json"), "")?;
        assert!(matches!(Volume::open(path), Err(VolumeError::Unreadable { .. })));
        Ok(())
    }

    #[test]
    fn the_lock_is_held_by_one_only() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let first = Lock::try_take(folder.path())?;
        assert!(first.is_some());
        assert!(Lock::try_take(folder.path())?.is_none());
        drop(first);
        assert!(Lock::try_take(folder.path())?.is_some());
        Ok(())
    }
}
