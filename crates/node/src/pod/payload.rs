//! Folders whose files come from objects, replaced as one.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Component, Path},
    sync::atomic::{AtomicU64, Ordering},
};

/// Files by their relative path.
pub(crate) type Payload = BTreeMap<String, PayloadFile>;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PayloadFile {
    pub content: Vec<u8>,
    pub mode: u32,
}

/// Who may read the files beside their owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Makes `folder` show exactly `payload`, in the layout that Kubernetes gives such volumes: visible names are
/// links into `..data`, a link that is replaced by rename, so that a reader sees all of the old or all
/// of the new. Returns whether anything changed.
pub(crate) fn write(folder: &Path, payload: &Payload, ownership: Ownership) -> io::Result<bool> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    for path in payload.keys() {
        let plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
        if !plain || path.starts_with("..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} leads out of the volume")));
        }
    }
    fs::create_dir_all(folder)?;
    let data = folder.join("..data");
    let old = fs::read_link(&data).ok();
    if let Some(old) = &old
        && read(&folder.join(old)).is_ok_and(|have| have == *payload)
    {
        return Ok(false);
    }
    let name = format!("..{}_{}", jiff::Timestamp::now().as_nanosecond(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let new = folder.join(&name);
    fs::create_dir(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    for (path, file) in payload {
        write_file(&new, path, file, ownership)?;
    }
    let next = folder.join("..data_next");
    let _ = fs::remove_file(&next);
    symlink(&name, &next)?;
    fs::rename(&next, &data)?;
    link_names(folder, payload)?;
    if let Some(old) = old {
        fs::remove_dir_all(folder.join(old))?;
    }
    Ok(true)
}

fn write_file(root: &Path, path: &str, file: &PayloadFile, ownership: Ownership) -> io::Result<()> {
    let target = root.join(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&target, &file.content)?;
    fs::set_permissions(&target, fs::Permissions::from_mode(file.mode))?;
    if ownership != Ownership::default() && rustix::process::geteuid().is_root() {
        chown(&target, ownership.uid, ownership.gid)?;
    }
    Ok(())
}

/// The visible names: links to the first component of every path; names that are gone are removed.
fn link_names(folder: &Path, payload: &Payload) -> io::Result<()> {
    let names: std::collections::BTreeSet<&str> = payload.keys().filter_map(|p| p.split('/').next()).collect();
    for name in &names {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), &link)?;
        }
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !names.contains(name.as_ref()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn read(folder: &Path) -> io::Result<Payload> {
    fn walk(root: &Path, at: &Path, into: &mut Payload) -> io::Result<()> {
        for entry in fs::read_dir(at)? {
            let path = entry?.path();
            let metadata = fs::metadata(&path)?;
            if metadata.is_dir() {
                walk(root, &path, into)?;
            } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
                let mode = metadata.permissions().mode() & 0o7777;
                into.insert(name.to_owned(), PayloadFile { content: fs::read(&path)?, mode });
            }
        }
        Ok(())
    }
    let mut payload = Payload::new();
    walk(folder, folder, &mut payload)?;
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), PayloadFile { content: text.as_bytes().to_vec(), mode: 0o644 }))
            .collect()
    }

    #[test]
    fn a_change_replaces_every_file_and_an_unchanged_payload_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let write = |files: &[(&str, &str)]| write(dir.path(), &payload(files), Ownership::default()).unwrap();
        assert!(write(&[("a", "1"), ("sub/b", "2")]));
        assert!(!write(&[("a", "1"), ("sub/b", "2")]));
        assert!(write(&[("a", "new"), ("c", "3")]));
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "new");
        assert_eq!(fs::read_to_string(dir.path().join("c")).unwrap(), "3");
        assert!(fs::symlink_metadata(dir.path().join("sub")).is_err());
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 4, "two names, ..data and what it points to: nothing old is left");
    }

    #[test]
    fn an_interrupted_write_is_finished_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..123_0")).unwrap();
        symlink("..123_0", dir.path().join("..data_next")).unwrap();
        assert!(write(dir.path(), &payload(&[("a", "1")]), Ownership::default()).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
    }

    #[test]
    fn a_path_that_leads_out_of_the_volume_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../a", "/a", "a/../../b", "..data"] {
            assert!(write(dir.path(), &payload(&[(path, "x")]), Ownership::default()).is_err(), "{path}");
        }
    }
}
