//! Our side of a pseudo-terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::exec::TerminalSize;
use crate::sys;

/// The side of a pseudo-terminal that a person (or a test) sits at.
#[derive(Debug)]
pub(crate) struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// A new terminal and the program's side of it.
    pub(crate) fn open(size: TerminalSize) -> io::Result<(Arc<Self>, OwnedFd)> {
        let (ours, program) = sys::open_pty()?;
        sys::resize_pty(ours.as_fd(), size.columns, size.rows)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok((Arc::new(Terminal(sys::register(ours, Interest::READABLE | Interest::WRITABLE)?)), program))
    }

    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        sys::resize_pty(self.0.get_ref().as_fd(), size.columns, size.rows)
    }
}

/// Reads what the program writes.
pub(crate) struct Reader(pub(crate) Arc<Terminal>);

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.0.poll_read_ready(context))?;
            match ready.try_io(|terminal| Ok(rustix::io::read(terminal, buffer.initialize_unfilled())?)) {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // The last holder of the program's side closed it: the end, not an error.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Poll::Ready(Ok(())),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

/// Writes what the person types.
pub(crate) struct Writer(pub(crate) Arc<Terminal>);

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.0.poll_write_ready(context))?;
            match ready.try_io(|terminal| Ok(rustix::io::write(terminal, bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
