//! The only unsafe code of the project: system calls that neither `std` nor `rustix` offers as safe functions.
//!
//! Everything that forks without an exec at once runs only in the single-threaded shims (see [`crate::shim`]), where a
//! fork copies the whole program and the child may do anything. The one exception is [`probe_namespaces`], whose child
//! calls nothing but system calls.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The two sides of a fork.
pub(crate) enum Fork {
    /// In the parent: the child's process id as the parent sees it.
    Parent(i32),
    /// In the child.
    Child,
}

/// Turns the C convention (-1 and errno) into a `Result`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks the calling process. Only for the single-threaded shims.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the shims have one thread, so no lock can be held by a thread that the child lacks.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Takes the pages of a mapping out of the process. They come back from the page cache when they are used again.
///
/// The caller promises that `range` is a private mapping of a file that was never writable, so that nothing is lost.
pub(crate) fn forget_pages(range: std::ops::Range<usize>) -> io::Result<()> {
    let start = range.start as *mut libc::c_void;
    // SAFETY: by the caller's promise the pages read after the call as they did before; a range that is not mapped is
    // refused by the kernel.
    check(unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) }).map(drop)
}

/// Gives freed memory of the heap back to the system.
pub(crate) fn trim_heap() {
    // SAFETY: glibc's malloc_trim has no preconditions and takes the allocator's own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Ends the process at once, without the exit handlers of the program it was forked from.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// `unshare`: gives the calling process new namespaces (`CLONE_NEW*` flags only).
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: no CLONE_FILES here, so no descriptor table is split between threads.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// `setns`: joins the namespaces named by `flags` of the process behind `pidfd`.
pub(crate) fn join_namespaces(pidfd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: plain system call on a valid descriptor.
    check(unsafe { libc::setns(pidfd.as_raw_fd(), flags) }).map(drop)
}

/// Closes every descriptor from `first` on. Only at the very start of a shim, before anything owns one.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    let first = libc::c_uint::try_from(first).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the caller has not opened anything yet, so no owner is left with a closed descriptor.
    // By number: musl has no function of this name.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0 as libc::c_uint) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts the three descriptors in place of standard input, output and error; they survive the exec.
pub(crate) fn replace_stdio(stdin: RawFd, stdout: RawFd, stderr: RawFd) -> io::Result<()> {
    for (from, to) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
        // SAFETY: both are descriptor numbers; dup2 closes what stood at `to`, which nothing in the child owns.
        check(unsafe { libc::dup2(from, to) })?;
    }
    Ok(())
}

/// Sets every signal back to its default, so that the program does not inherit what a caller ignored.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            // SAFETY: SIG_DFL installs no handler; numbers reserved by the C library are refused without effect.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Forbids the process and all it starts to gain rights by exec (setuid files), which would clear its death signal.
pub(crate) fn set_no_new_privileges() -> io::Result<()> {
    // SAFETY: plain prctl with integer arguments.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Sets the host name of the UTS namespace.
pub(crate) fn set_hostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length describe the bytes of `name`.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Makes the mount at `path` and all below it read-only (`mount_setattr`, Linux 5.12).
pub(crate) fn make_read_only(path: &CStr) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: `path` ends with NUL, the struct lives during the call and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends any signal number through a pidfd, so that a reused process id is never hit.
pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: plain system call on a valid descriptor; a null siginfo means «as kill(2)».
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0 as libc::c_uint,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// SIGKILL to every other process of the PID namespace in one step. Only the first process of a namespace may: from
/// any other this would reach the whole machine.
pub(crate) fn kill_all_others() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: plain system call.
    match check(unsafe { libc::kill(-1, libc::SIGKILL) }) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()), // there is no other
        result => result.map(drop),
    }
}

/// What [`poll`] waits for on each descriptor, and what it saw.
pub(crate) type PollEntry = libc::pollfd;

/// An entry that waits until `fd` is readable (or closed by its other side).
pub(crate) fn poll_entry(fd: BorrowedFd<'_>, events: libc::c_short) -> PollEntry {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}

/// `poll`, repeated when a signal interrupts it. A negative time-out waits for ever.
pub(crate) fn poll(entries: &mut [PollEntry], timeout_ms: i32) -> io::Result<()> {
    loop {
        // SAFETY: pointer and length describe the slice.
        let result = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
        match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// Registers a descriptor with the runtime.
pub(crate) fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd stays open, and the same, for as long as the AsyncFd owns it; nothing here swaps it.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

/// A new pseudo-terminal: (our side, the program's side), both closed on exec.
pub(crate) fn open_pty() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string literal; a fresh descriptor is owned by nobody else.
    let master = unsafe { OwnedFd::from_raw_fd(check(libc::open(c"/dev/ptmx".as_ptr(), flags))?) };
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) })?;
    // SAFETY: TIOCGPTPEER takes open flags and returns a fresh descriptor (works whatever /dev/pts is mounted here).
    let program = unsafe { OwnedFd::from_raw_fd(check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?) };
    Ok((master, program))
}

/// Sets the size of a pseudo-terminal in characters.
pub(crate) fn resize_pty(master: BorrowedFd<'_>, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }).map(drop)
}

/// Lets the program that `command` starts keep these descriptors, although they are close-on-exec everywhere else.
///
/// The caller keeps the descriptors open until the command was spawned.
pub(crate) fn inherit(command: &mut Command, descriptors: Vec<RawFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            // SAFETY: fcntl(F_SETFD) on an open descriptor.
            check(unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) })?;
        }
        Ok(())
    };
    // SAFETY: the closure makes only system calls and allocates nothing, as the time between fork and exec demands.
    unsafe { command.pre_exec(keep) };
}

/// Tries, in a child, what a container needs: `Ok(true)` if the kernel allows namespaces and mounts in them.
///
/// `user_namespace` says whether a user namespace comes first, as for everyone but root.
pub(crate) fn probe_namespaces(user_namespace: bool) -> io::Result<()> {
    // SAFETY: the child calls only async-signal-safe functions (unshare, mount, _exit) and returns to no Rust code.
    let child = check(unsafe { libc::fork() })?;
    if child == 0 {
        // SAFETY: system calls with constant arguments.
        unsafe {
            let first = if user_namespace { libc::CLONE_NEWUSER } else { 0 };
            let flags = first | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
            if libc::unshare(flags) != 0 {
                libc::_exit(*libc::__errno_location());
            }
            let private = libc::MS_REC | libc::MS_PRIVATE;
            let none = std::ptr::null();
            // A security module may grant the namespace and refuse what it is for (Ubuntu 24.04): try a mount.
            if libc::mount(none, c"/".as_ptr(), none, private, none.cast()) != 0
                || libc::mount(c"tmpfs".as_ptr(), c"/tmp".as_ptr(), c"tmpfs".as_ptr(), 0, none.cast()) != 0
            {
                libc::_exit(*libc::__errno_location());
            }
            libc::_exit(0);
        }
    }
    let mut status: libc::c_int = 0;
    loop {
        // SAFETY: `status` outlives the call.
        match check(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
