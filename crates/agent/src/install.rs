//! Putting this very binary where the database container finds it: the init container's job.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The copy failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot copy the coregent binary to {target}: {source}; is the emptyDir mounted there?")]
pub struct InstallError {
    target: PathBuf,
    source: io::Error,
}

/// Copies the running binary to `<folder>/coregent`, by a temporary file so that a restarted init container never
/// leaves half of it.
///
/// # Errors
/// When the binary cannot be read or the folder cannot be written.
pub fn install(folder: &Path) -> Result<PathBuf, InstallError> {
    let target = folder.join("coregent");
    let copy = || -> io::Result<()> {
        let temporary = folder.join(".coregent.new");
        std::fs::create_dir_all(folder)?;
        std::fs::copy(std::env::current_exe()?, &temporary)?;
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755))?;
        std::fs::rename(&temporary, &target)
    };
    copy().map_err(|source| InstallError { target: target.clone(), source })?;
    Ok(target)
}
