//! The data folder of an embedded control plane: one process at a time, one format.

use crate::failure::{Failure, Outcome};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Format of everything in the folder but the store, which has its own.
const FORMAT: u32 = 1;

/// An open data folder; the lock ends with this process, however it ends.
pub struct DataFolder {
    path: PathBuf,
    lock: File,
}

impl DataFolder {
    /// Opens the folder, making it where it is not there, and locks it.
    ///
    /// # Errors
    /// When another `up` uses it, when it is of a newer version, or when it cannot be written.
    pub fn open(path: &Path) -> Outcome<DataFolder> {
        let refuse = |why: std::io::Error| {
            Failure::refused(
                format!("cannot use the data folder {}", path.display()),
                why,
                "make room or correct its owner and permissions, or name another with --data-dir",
            )
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refuse)?;
        let path = std::fs::canonicalize(path).map_err(refuse)?;
        let lock = lock_file(&path).map_err(refuse)?;
        let mut folder = DataFolder { path, lock };
        folder.take().map_err(|error| match error {
            Taking::InUse(pid) => in_use(&folder.path, pid),
            Taking::Io(error) => refuse(error),
        })?;
        folder.check_format(refuse)?;
        Ok(folder)
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn take(&mut self) -> Result<(), Taking> {
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // Who it is helps, but the lock alone decides.
            let _ = self.lock.read_to_string(&mut pid);
            return Err(Taking::InUse(pid.trim().to_owned()));
        }
        self.lock.set_len(0).map_err(Taking::Io)?;
        self.lock.rewind().map_err(Taking::Io)?;
        writeln!(self.lock, "{}", std::process::id()).map_err(Taking::Io)
    }

    fn check_format(&self, refuse: impl Fn(std::io::Error) -> Failure) -> Outcome {
        let file = self.path.join("format");
        match std::fs::read_to_string(&file) {
            Ok(text) => match text.trim().parse::<u32>() {
                Ok(found) if found <= FORMAT => Ok(()),
                Ok(found) => Err(Failure::refused(
                    format!("cannot use the data folder {}", self.path.display()),
                    format!("it has format {found}, this program knows {FORMAT}: a newer version wrote it"),
                    "use that newer version; nothing was changed",
                )),
                Err(_) => Err(Failure::refused(
                    format!("cannot use the data folder {}", self.path.display()),
                    format!("{} holds no number", file.display()),
                    format!("write {FORMAT} into it if this program's version made the folder; nothing was changed"),
                )),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::write(&file, format!("{FORMAT}\n")).map_err(refuse)
            }
            Err(error) => Err(refuse(error)),
        }
    }
}

enum Taking {
    InUse(String),
    Io(std::io::Error),
}

fn in_use(path: &Path, pid: String) -> Failure {
    let who = if pid.is_empty() { "another process".to_owned() } else { format!("process {pid}") };
    Failure::refused(
        format!("cannot use the data folder {}", path.display()),
        format!("{who} is using it"),
        "talk to that one (`coregent status`), stop it with `coregent down`, or name another folder with --data-dir",
    )
}

fn lock_file(path: &Path) -> Result<File, std::io::Error> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"))
}

/// The process that uses the folder now, if one does.
pub fn user_of(path: &Path) -> Option<u32> {
    let mut lock = OpenOptions::new().read(true).open(path.join("lock")).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut pid = String::new();
    lock.read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_use_is_refused_and_names_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataFolder::open(dir.path()).unwrap();
        let refused = DataFolder::open(dir.path()).err().unwrap();
        assert!(refused.why.contains(&std::process::id().to_string()), "{refused:?}");
        assert_eq!(user_of(dir.path()), Some(std::process::id()));
        drop(first);
        assert_eq!(user_of(dir.path()), None);
        DataFolder::open(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_whose_format_is_no_number_is_refused_with_what_to_do_about_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("format"), "one\n").unwrap();
        let refused = DataFolder::open(dir.path()).err().unwrap();
        assert!(refused.why.ends_with("format holds no number"), "{refused:?}");
        assert!(refused.remedy.starts_with(&format!("write {FORMAT} into it")), "{refused:?}");
    }

    #[test]
    fn a_folder_of_a_newer_version_is_refused_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("format"), "2\n").unwrap();
        let refused = DataFolder::open(dir.path()).err().unwrap();
        assert!(refused.why.contains("newer version"), "{refused:?}");
        assert_eq!(std::fs::read_to_string(dir.path().join("format")).unwrap(), "2\n");
    }
}
