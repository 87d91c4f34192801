//! What launcher and shim say to each other: JSON over a packet socket, descriptors beside it.
//!
//! The shim's standard input is one end of a `SOCK_SEQPACKET` pair. The order travels in a memfd (no limit of size, no
//! blocking), the answers are one small packet each. The launcher's end is held by its process alone, so the shim
//! reads an end of file exactly when that process is gone or lets go.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::spec::{ExitStatus, Mount, User};

/// Most descriptors that go with one packet: the memfd, three for stdio, one pidfd.
const MAX_DESCRIPTORS: usize = 8;
/// Largest answer; failures carry a message of a line or two.
const MAX_PACKET: usize = 16 * 1024;

/// Order to the container shim. Descriptors: (memfd), stdin, stdout, stderr.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContainerOrder {
    pub hostname: String,
    pub mounts: Vec<Mount>,
    pub process: ProcessOrder,
    /// Make a user namespace first, with `process.user` mapped to the caller.
    pub user_namespace: bool,
}

/// The program to run, for both shims.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessOrder {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub working_dir: PathBuf,
    pub user: User,
    /// Standard input, output and error are one terminal, which becomes the controlling one.
    pub tty: bool,
}

/// Order to the exec shim. Descriptors: (memfd), stdin, stdout, stderr, pidfd of the container's first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExecOrder {
    pub process: ProcessOrder,
    /// The container has a user namespace of its own.
    pub user_namespace: bool,
}

/// Answers of a shim.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The program runs; its pidfd comes beside.
    Started { pid: u32 },
    /// The program does not run.
    Failed(Failure),
    /// The program ended, and with it (for a container) every process of its namespace.
    Ended(ExitStatus),
}

/// Why a program does not run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

/// Which part of a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FailureKind {
    /// Namespaces cannot be made.
    Namespaces,
    /// A mount or another part of the root file system.
    Root,
    /// The working folder.
    WorkingDir,
    /// The program itself: not found, not permitted.
    Program,
    /// Anything else.
    Setup,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }

    /// For `map_err`: the message is «what: error».
    pub(crate) fn because<E: std::fmt::Display>(kind: FailureKind, what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |error| Failure::new(kind, format!("{what}: {error}"))
    }
}

/// A connected pair of packet sockets.
pub(crate) fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one small packet with descriptors.
pub(crate) fn send<T: Serialize>(socket: BorrowedFd<'_>, value: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_bytes(socket, &serde_json::to_vec(value)?, descriptors)
}

/// Sends an order of any size: the JSON in a memfd, which comes first among the descriptors.
pub(crate) fn send_order<T: Serialize>(socket: BorrowedFd<'_>, order: &T, rest: &[BorrowedFd<'_>]) -> io::Result<()> {
    let memory = rustix::fs::memfd_create("order", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&serde_json::to_vec(order)?)?;
    file.rewind()?;
    let mut descriptors = vec![file.as_fd()];
    descriptors.extend_from_slice(rest);
    send_bytes(socket, b"order", &descriptors)
}

/// Receives what [`send_order`] sent; `None` when the other side is gone.
pub(crate) fn receive_order<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let Some((_, mut descriptors)) = receive_bytes(socket)? else { return Ok(None) };
    if descriptors.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an order without its text"));
    }
    let mut text = Vec::new();
    File::from(descriptors.remove(0)).read_to_end(&mut text)?;
    Ok(Some((serde_json::from_slice(&text)?, descriptors)))
}

/// Receives one packet; `None` when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let Some((bytes, descriptors)) = receive_bytes(socket)? else { return Ok(None) };
    Ok(Some((serde_json::from_slice(&bytes)?, descriptors)))
}

fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

fn receive_bytes(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptors)))
}
