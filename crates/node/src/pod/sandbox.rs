//! The folder of one pod on the node: everything about it except claims and logs.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use coregent_process::Mount;

use crate::image_map::Image;

/// `<data_dir>/pods/<uid>`.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    root: PathBuf,
}

impl Sandbox {
    /// Makes the folder. What it holds is for the pod and root only: nobody else gets past this level.
    pub fn create(data_dir: &Path, uid: &str) -> io::Result<Self> {
        let pods = data_dir.join("pods");
        fs::create_dir_all(&pods)?;
        fs::set_permissions(&pods, fs::Permissions::from_mode(0o700))?;
        let root = pods.join(uid);
        fs::create_dir_all(root.join("volumes"))?;
        fs::create_dir_all(root.join("containers"))?;
        Ok(Self { root })
    }

    /// The folder of a volume that lives and dies with the pod.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.root.join("volumes").join(name)
    }

    /// The pod's `/etc/hosts`. It is written in place, never replaced: a container sees the file that was
    /// there when it was mounted (traps.md, "Mount points").
    pub fn hosts(&self) -> PathBuf {
        self.root.join("hosts")
    }

    /// Writes what the image brings for `container` and returns the mounts for it.
    pub fn image_mounts(&self, container: &str, image: &Image, owner: Option<(u32, u32)>) -> io::Result<Vec<Mount>> {
        let folder = self.root.join("containers").join(container);
        fs::create_dir_all(&folder)?;
        let mut mounts: Vec<Mount> = image
            .binds
            .iter()
            .map(|b| Mount { source: b.source.clone(), target: b.target.clone(), read_only: b.read_only })
            .collect();
        for (number, (target, content)) in image.files.iter().enumerate() {
            let source = folder.join(format!("file-{number}"));
            fs::write(&source, content)?;
            fs::set_permissions(&source, fs::Permissions::from_mode(0o755))?;
            mounts.push(Mount { source, target: target.clone(), read_only: true });
        }
        for (number, target) in image.scratch.iter().enumerate() {
            let source = folder.join(format!("scratch-{number}"));
            fs::create_dir_all(&source)?;
            give(&source, owner)?;
            mounts.push(Mount { source, target: target.clone(), read_only: false });
        }
        Ok(mounts)
    }

    /// Removes the folder. Nothing is mounted here on the host: containers have mount namespaces of their own.
    pub fn remove(data_dir: &Path, uid: &str) -> io::Result<()> {
        match fs::remove_dir_all(data_dir.join("pods").join(uid)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

/// Hands a path over, if this process may.
pub(crate) fn give(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    match owner {
        Some((uid, gid)) if rustix::process::geteuid().is_root() => chown(path, Some(uid), Some(gid)),
        _ => Ok(()),
    }
}
