//! Putting this very binary where the database container finds it: the init container's job.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where every container of the node finds this binary already, if the node says so.
const SHARED_BINARY: &str = "COREGENT_SHARED_BINARY";

/// It could not be put there.
#[derive(Debug, thiserror::Error)]
#[error("cannot put the coregent binary at {target}: {source}; is the emptyDir mounted there?")]
pub struct InstallError {
    target: PathBuf,
    source: io::Error,
}

/// Puts the running binary at `<folder>/coregent`, by a temporary name so that a restarted init container never leaves
/// half of it: a copy, or a link to where the node shows it to every container (`COREGENT_SHARED_BINARY`).
///
/// # Errors
/// When the binary cannot be read or the folder cannot be written.
pub fn install(folder: &Path) -> Result<PathBuf, InstallError> {
    let shared = std::env::var_os(SHARED_BINARY).map(PathBuf::from);
    install_from(folder, shared.as_deref())
}

fn install_from(folder: &Path, shared: Option<&Path>) -> Result<PathBuf, InstallError> {
    let target = folder.join("coregent");
    let put = || -> io::Result<()> {
        let temporary = folder.join(".coregent.new");
        std::fs::create_dir_all(folder)?;
        match shared {
            Some(shared) => {
                if temporary.symlink_metadata().is_ok() {
                    std::fs::remove_file(&temporary)?;
                }
                std::os::unix::fs::symlink(shared, &temporary)?;
            }
            None => {
                if let Err(error) = std::fs::copy(std::env::current_exe()?, &temporary) {
                    // On a full disk this makes the room that the log needs to say so.
                    let _ = std::fs::remove_file(&temporary);
                    return Err(error);
                }
                std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))?;
            }
        }
        std::fs::rename(&temporary, &target)
    };
    put().map_err(|source| InstallError { target: target.clone(), source })?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_copied_or_linked_and_may_be_put_there_again() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let copied = install_from(folder.path(), None).unwrap();
            assert!(copied.symlink_metadata().unwrap().is_file());
            assert_eq!(std::fs::metadata(&copied).unwrap().permissions().mode() & 0o777, 0o755);
        }
        for _ in 0..2 {
            let linked = install_from(folder.path(), Some(Path::new("/coregent/bin/coregent"))).unwrap();
            assert_eq!(std::fs::read_link(linked).unwrap(), Path::new("/coregent/bin/coregent"));
        }
    }
}
