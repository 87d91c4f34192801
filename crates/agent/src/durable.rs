//! Writing files so that a crash leaves the old or the new content, never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces `path` by `content`, 0600: temporary file, fsync, rename, fsync of the folder.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    write_new(&temporary, content)?.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// The same without the waits for the disk, for files that are written anew at each start.
pub(crate) fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    write_new(&temporary, content)?;
    fs::rename(&temporary, path)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    Ok(file)
}

/// Makes a rename, creation or removal in the folder of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
