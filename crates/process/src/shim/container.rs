//! `__container`: makes the namespaces and starts the first process.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::{getegid, geteuid};

use super::identity::{self, Stdio};
use super::{Forked, fork_program, root};
use crate::sys;
use crate::wire::{self, ContainerOrder, Failure, FailureKind};

pub(super) fn start(control: &OwnedFd) -> Result<Option<Forked>, Failure> {
    let received = wire::receive_order::<ContainerOrder>(control.as_fd())
        .map_err(Failure::because(FailureKind::Setup, "cannot read the order"))?;
    let Some((order, descriptors)) = received else { return Ok(None) };
    let [stdin, stdout, stderr] = <[OwnedFd; 3]>::try_from(descriptors)
        .map_err(|_| Failure::new(FailureKind::Setup, "an order needs three descriptors"))?;
    let stdio = Stdio { stdin, stdout, stderr };

    if order.user_namespace {
        enter_user_namespace(&order)?;
    }
    let refused = |what| Failure::because(FailureKind::Namespaces, what);
    sys::unshare(libc::CLONE_NEWPID).map_err(refused("PID namespace"))?;
    let forked = fork_program(&mut |failure| match prepare(&order) {
        Ok(()) => identity::become_program(&order.process, &stdio, order.user_namespace, failure),
        Err(failure) => failure,
    })?;
    Ok(Some(forked))
}

/// In the first process of the PID namespace (so that `/proc` is its own). The shim outside keeps the host's mounts:
/// the container's vanish with its last process.
fn prepare(order: &ContainerOrder) -> Result<(), Failure> {
    let refused = |what| Failure::because(FailureKind::Namespaces, what);
    sys::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS)
        .map_err(refused("mount, IPC and UTS namespaces"))?;
    sys::set_hostname(&order.hostname)
        .map_err(Failure::because(FailureKind::Setup, format!("host name {:?}", order.hostname)))?;
    root::build(order)
}

/// Maps the one uid and gid an ordinary user may map: the requested ones to the caller's (traps.md «User ids»).
fn enter_user_namespace(order: &ContainerOrder) -> Result<(), Failure> {
    let refused = |what| Failure::because(FailureKind::Namespaces, what);
    let user = &order.process.user;
    let uid_map = format!("{} {} 1", user.uid, geteuid().as_raw());
    let gid_map = format!("{} {} 1", user.gid, getegid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER).map_err(refused("user namespace"))?;
    // The kernel takes a gid map from an ordinary user only after setgroups is denied (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny").map_err(refused("/proc/self/setgroups"))?;
    std::fs::write("/proc/self/uid_map", uid_map).map_err(refused("/proc/self/uid_map"))?;
    std::fs::write("/proc/self/gid_map", gid_map).map_err(refused("/proc/self/gid_map"))
}

impl Stdio {
    /// The three descriptor numbers in order.
    pub(super) fn raw(&self) -> [i32; 3] {
        [self.stdin.as_raw_fd(), self.stdout.as_raw_fd(), self.stderr.as_raw_fd()]
    }
}
