//! Finds and makes the place in the new root where something is mounted.

use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use crate::sys;

/// Symbolic links followed in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// What a mount point is made as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
}

impl Kind {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(if std::fs::metadata(path)?.is_dir() { Kind::Folder } else { Kind::File })
    }
}

/// The new root while it is built.
pub(super) struct Place {
    /// Where it is mounted now.
    pub root: PathBuf,
    /// A folder beside it for originals that are shown elsewhere; gone when the root is finished.
    pub stash: PathBuf,
    stashed: usize,
}

/// How far a path exists.
struct Located {
    existing: PathBuf,
    missing: Vec<OsString>,
}

impl Place {
    pub(super) fn new(root: PathBuf, stash: PathBuf) -> Self {
        Place { root, stash, stashed: 0 }
    }

    /// The path of `target` (absolute, in the container) in the new root, made if it is missing.
    ///
    /// A folder that we cannot write to (the host's, shown read-only) is replaced by one with the same entries first.
    pub(super) fn make(&mut self, target: &Path, kind: Kind) -> io::Result<PathBuf> {
        let Located { mut existing, missing } = self.locate(target)?;
        let last = missing.len().saturating_sub(1);
        for (index, name) in missing.iter().enumerate() {
            let kind = if index == last { kind } else { Kind::Folder };
            let path = existing.join(name);
            if let Err(error) = create(&path, kind) {
                if !matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) {
                    return Err(error);
                }
                self.shadow(&existing)?;
                create(&path, kind)?;
            }
            existing = path;
        }
        Ok(existing)
    }

    /// Walks `target` with the new root as `/`, so that neither links nor `..` lead out of it.
    fn locate(&self, target: &Path) -> io::Result<Located> {
        let mut pending: VecDeque<OsString> = names(target);
        let mut existing = self.root.clone();
        let mut links = 0;
        while let Some(name) = pending.pop_front() {
            if name == ".." {
                if existing != self.root {
                    existing.pop();
                }
                continue;
            }
            let next = existing.join(&name);
            match std::fs::symlink_metadata(&next) {
                Ok(metadata) if metadata.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::other("too many symbolic links"));
                    }
                    let link = std::fs::read_link(&next)?;
                    if link.is_absolute() {
                        existing = self.root.clone();
                    }
                    let mut front = names(&link);
                    front.append(&mut pending);
                    pending = front;
                }
                Ok(_) => existing = next,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let missing: Vec<OsString> = std::iter::once(name).chain(pending).collect();
                    if missing.iter().any(|name| name == "..") {
                        return Err(io::Error::new(io::ErrorKind::InvalidInput, "«..» below a missing folder"));
                    }
                    return Ok(Located { existing, missing });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Located { existing, missing: Vec::new() })
    }

    /// Shows `source` (and what is mounted below it) at a place in the stash, read-only.
    pub(super) fn stash(&mut self, source: &Path) -> io::Result<PathBuf> {
        let place = self.stash.join(self.stashed.to_string());
        self.stashed += 1;
        create(&place, Kind::of(source)?)?;
        bind(source, &place)?;
        Ok(place)
    }

    /// Replaces a folder by a new one on a tmpfs with the same entries, so that more can be put beside them.
    fn shadow(&mut self, folder: &Path) -> io::Result<()> {
        let original = self.stash(folder)?;
        mount_tmpfs(folder, c"mode=755")?;
        show_entries(&original, folder, &|_| true)
    }
}

/// Shows every wanted entry of `from` in `to`: folders and files bound, links copied.
pub(super) fn show_entries(from: &Path, to: &Path, wanted: &dyn Fn(&OsString) -> bool) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if !wanted(&name) {
            continue;
        }
        let (source, place) = (entry.path(), to.join(&name));
        if entry.file_type()?.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&source)?, &place)?;
        } else {
            create(&place, if entry.file_type()?.is_dir() { Kind::Folder } else { Kind::File })?;
            bind(&source, &place)?;
        }
    }
    Ok(())
}

/// Makes one folder (0755) or empty file (0644); one that exists is fine.
pub(super) fn create(path: &Path, kind: Kind) -> io::Result<()> {
    let made = match kind {
        Kind::Folder => std::fs::DirBuilder::new().mode(0o755).create(path),
        Kind::File => std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map(drop),
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Bind mount with everything below: without that, a user namespace refuses what would uncover the host's.
pub(super) fn bind(source: &Path, place: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(source, place)?)
}

/// Bind mount that cannot be written to.
pub(super) fn bind_read_only(source: &Path, place: &Path) -> io::Result<()> {
    bind(source, place)?;
    read_only(place)
}

/// Makes a mount and all below it read-only.
pub(super) fn read_only(place: &Path) -> io::Result<()> {
    sys::make_read_only(&CString::new(place.as_os_str().as_bytes())?)
}

/// A tmpfs with these options.
pub(super) fn mount_tmpfs(place: &Path, options: &std::ffi::CStr) -> io::Result<()> {
    use rustix::mount::MountFlags;
    Ok(rustix::mount::mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)?)
}

/// The names in a path, without `.` and the leading `/`.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().filter_map(name).collect()
}
