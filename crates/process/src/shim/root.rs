//! Builds the container's root file system (traps.md «Mount points»), the same way for root and for ordinary users.
//!
//! Two changes of root: first into a scratch tmpfs with the host below `/old` and the new root at `/new`, so that
//! nothing that is mounted hides a source; then into the new root, and the scratch with the host is let go.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::place::{self, Kind, Place, bind, bind_read_only, create};
use crate::spec::{Mount, User};
use crate::wire::{ContainerOrder, Failure, FailureKind};

/// Any folder that exists on every system; the scratch tmpfs covers it only in our mount namespace.
const SCRATCH: &str = "/tmp";
/// Read-only folders of the host.
const SHARED: [&str; 3] = ["usr", "opt", "sys"];
/// On a system with merged /usr these are links into it; otherwise folders.
const USR_LINKS: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32"];
/// Device nodes that every program may expect.
const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];
/// Entries of /etc that a container has for itself.
const OWN_ETC: [&str; 9] =
    ["passwd", "passwd-", "group", "group-", "hostname", "hosts", "resolv.conf", "shadow", "gshadow"];
/// Files that follow the host's unless a mount replaces them.
const HOST_FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// Replaces the root of the calling process, which must be the first of its PID namespace and alone in its mount
/// namespace.
pub(super) fn build(order: &ContainerOrder) -> Result<(), Failure> {
    let failed = |what: &'static str| Failure::because::<io::Error>(FailureKind::Root, what);
    let mounts = resolve_sources(&order.mounts)?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut place = enter_scratch().map_err(failed("scratch tmpfs"))?;
    share_host(&place).map_err(failed("folders of the host"))?;
    make_proc(&place).map_err(failed("/proc"))?;
    make_dev(&place).map_err(failed("/dev"))?;
    make_private(&place).map_err(failed("private folders"))?;
    make_etc(&mut place, order).map_err(failed("/etc"))?;
    make_home(&mut place, &order.process.user, order.user_namespace).map_err(failed("home folder"))?;
    for mount in &mounts {
        let what = format!("mount {} at {}", mount.source.display(), mount.target.display());
        add_mount(&mut place, mount).map_err(Failure::because(FailureKind::Root, what))?;
    }
    // A missing working folder is made, as container runtimes do; if it cannot be, entering it will say why.
    let _ = place.make(&order.process.working_dir, Kind::Folder);
    enter(&place).map_err(failed("change of root"))
}

/// Follows the links of every source while the host is still at `/`, and sorts mounts so that outer ones come first.
fn resolve_sources(wanted: &[Mount]) -> Result<Vec<Mount>, Failure> {
    let replaced = |file: &&str| !wanted.iter().any(|mount| mount.target == Path::new(file));
    let mut mounts = Vec::new();
    for file in HOST_FILES.iter().copied().filter(|file| replaced(file)) {
        if let Ok(source) = std::fs::canonicalize(file) {
            mounts.push(Mount { source, target: PathBuf::from(file), read_only: true });
        }
    }
    for mount in wanted {
        if !mount.target.is_absolute() {
            let message = format!("mount target {} is not an absolute path", mount.target.display());
            return Err(Failure::new(FailureKind::Root, message));
        }
        let what = format!("mount source {} (for {})", mount.source.display(), mount.target.display());
        let source = std::fs::canonicalize(&mount.source).map_err(Failure::because(FailureKind::Root, what))?;
        mounts.push(Mount { source, ..mount.clone() });
    }
    mounts.sort_by_key(|mount| mount.target.components().count());
    Ok(mounts)
}

fn enter_scratch() -> io::Result<Place> {
    // Nothing we mount may appear on the host.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let scratch = Path::new(SCRATCH);
    place::mount_tmpfs(scratch, c"mode=755")?;
    for folder in ["old", "new", "stash"] {
        create(&scratch.join(folder), Kind::Folder)?;
    }
    rustix::process::pivot_root(scratch, scratch.join("old"))?;
    std::env::set_current_dir("/")?;
    place::mount_tmpfs(Path::new("/new"), c"mode=755")?;
    Ok(Place::new(PathBuf::from("/new"), PathBuf::from("/stash")))
}

fn share_host(place: &Place) -> io::Result<()> {
    for name in SHARED {
        let source = Path::new("/old").join(name);
        if source.is_dir() {
            let target = place.root.join(name);
            create(&target, Kind::Folder)?;
            bind_read_only(&source, &target)?;
        }
    }
    for name in USR_LINKS {
        let (source, target) = (Path::new("/old").join(name), place.root.join(name));
        match std::fs::symlink_metadata(&source) {
            Ok(metadata) if metadata.is_symlink() => symlink(std::fs::read_link(&source)?, &target)?,
            Ok(_) => {
                create(&target, Kind::Folder)?;
                bind_read_only(&source, &target)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// The process file system of the new PID namespace.
fn make_proc(place: &Place) -> io::Result<()> {
    let target = place.root.join("proc");
    create(&target, Kind::Folder)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount("proc", &target, "proc", flags, None) {
        // Where the host's own /proc is partly covered (inside another container) the kernel refuses a fresh one.
        Err(rustix::io::Errno::PERM) => bind(Path::new("/old/proc"), &target),
        other => Ok(other?),
    }
}

/// Only the harmless devices: not the host's disks, and nothing we make lands in the host's /dev.
fn make_dev(place: &Place) -> io::Result<()> {
    let dev = place.root.join("dev");
    create(&dev, Kind::Folder)?;
    for name in DEVICES {
        let source = Path::new("/old/dev").join(name);
        if source.exists() {
            create(&dev.join(name), Kind::File)?;
            bind(&source, &dev.join(name))?;
        }
    }
    if Path::new("/old/dev/pts").is_dir() {
        create(&dev.join("pts"), Kind::Folder)?;
        bind(Path::new("/old/dev/pts"), &dev.join("pts"))?;
    }
    for (name, link) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(link), dev.join(name))?;
    }
    create_open(&dev.join("shm"))
}

/// Folders every container has for itself. They lie on the root tmpfs and vanish with it. `/run` is open to all,
/// because no image build prepares a folder in it for a user that is not root.
fn make_private(place: &Place) -> io::Result<()> {
    for name in ["tmp", "run"] {
        create_open(&place.root.join(name))?;
    }
    for name in ["var", "var/lib", "var/log", "var/cache", "root", "home", "mnt", "srv"] {
        create(&place.root.join(name), Kind::Folder)?;
    }
    create_open(&place.root.join("var/tmp"))?;
    symlink("/run", place.root.join("var/run"))?;
    symlink("/run/lock", place.root.join("var/lock"))?;
    create_open(&place.root.join("run/lock"))
}

/// A folder that everyone may write to and nobody may delete another's files in.
fn create_open(path: &Path) -> io::Result<()> {
    create(path, Kind::Folder)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o1777))
}

/// The host's /etc entry by entry, so that single ones can be replaced by mounts.
fn make_etc(place: &mut Place, order: &ContainerOrder) -> io::Result<()> {
    let etc = place.root.join("etc");
    create(&etc, Kind::Folder)?;
    let host = place.stash(Path::new("/old/etc"))?;
    place::read_only(&host)?; // binds made from it are read-only too
    let own: Vec<OsString> = OWN_ETC.iter().map(OsString::from).collect();
    place::show_entries(&host, &etc, &|name| !own.contains(name))?;
    let user = &order.process.user;
    write(&etc.join("passwd"), &passwd(user))?;
    write(&etc.join("group"), &group(user))?;
    write(&etc.join("hostname"), &format!("{}\n", order.hostname))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// `initdb` and others refuse a uid that has no name.
fn passwd(user: &User) -> String {
    let mut text = String::new();
    if user.uid != 0 {
        text.push_str("root:x:0:0:root:/root:/bin/sh\n");
    }
    let User { uid, gid, name, home, .. } = user;
    text.push_str(&format!("{name}:x:{uid}:{gid}:{name}:{}:/bin/sh\n", home.display()));
    if *uid != 65534 {
        text.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    }
    text
}

fn group(user: &User) -> String {
    let mut text = String::from("root:x:0:\n");
    if user.gid != 0 {
        text.push_str(&format!("{}:x:{}:\n", user.name, user.gid));
    }
    for gid in user.groups.iter().filter(|gid| **gid != 0 && **gid != user.gid) {
        text.push_str(&format!("group{gid}:x:{gid}:{}\n", user.name));
    }
    if user.gid != 65534 {
        text.push_str("nogroup:x:65534:\n");
    }
    text
}

/// The user's home, if it lies on our own tmpfs: the host's folders keep their owner.
fn make_home(place: &mut Place, user: &User, user_namespace: bool) -> io::Result<()> {
    if !user.home.is_absolute() || user.home == Path::new("/") || user.home.starts_with("/usr") {
        return Ok(());
    }
    let home = place.make(&user.home, Kind::Folder)?;
    let ours = std::fs::metadata(&home)?.dev() == std::fs::metadata(&place.root)?.dev();
    if ours && !user_namespace {
        std::os::unix::fs::chown(&home, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

fn add_mount(place: &mut Place, mount: &Mount) -> io::Result<()> {
    let inside = mount.source.strip_prefix("/").unwrap_or(&mount.source);
    let source = Path::new("/old").join(inside);
    let target = place.make(&mount.target, Kind::of(&source)?)?;
    if mount.read_only { bind_read_only(&source, &target) } else { bind(&source, &target) }
}

/// Makes the new root the root and lets go of the scratch and of the host (pivot_root(2), «pivot_root(".", ".")»).
fn enter(place: &Place) -> io::Result<()> {
    std::env::set_current_dir(&place.root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}
