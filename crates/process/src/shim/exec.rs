//! `__exec`: enters a running container and starts one more program in it.

use std::os::fd::{AsFd, OwnedFd};

use super::identity::{self, Stdio};
use super::{Forked, fork_program};
use crate::sys;
use crate::wire::{self, ExecOrder, Failure, FailureKind};

pub(super) fn start(control: &OwnedFd) -> Result<Option<Forked>, Failure> {
    let received = wire::receive_order::<ExecOrder>(control.as_fd())
        .map_err(Failure::because(FailureKind::Setup, "cannot read the order"))?;
    let Some((order, descriptors)) = received else { return Ok(None) };
    let [stdin, stdout, stderr, container] = <[OwnedFd; 4]>::try_from(descriptors)
        .map_err(|_| Failure::new(FailureKind::Setup, "an order needs four descriptors"))?;

    let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if order.user_namespace {
        flags |= libc::CLONE_NEWUSER; // joining the one we are in already is an error, so only if it has its own
    }
    // One call by pidfd: all namespaces of one process, or none (setns(2), Linux 5.8).
    sys::join_namespaces(container.as_fd(), flags)
        .map_err(Failure::because(FailureKind::Namespaces, "cannot enter the container (has it ended?)"))?;
    drop(container);

    let stdio = Stdio { stdin, stdout, stderr };
    let forked =
        fork_program(&mut |failure| identity::become_program(&order.process, &stdio, order.user_namespace, failure))?;
    Ok(Some(forked))
}
