//! A TCP socket whose events another runtime can take over.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// A connected TCP socket below TLS.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    pub fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// Lets `runtime` wait for events. The task that reads then runs where its events arrive: otherwise each
    /// message wakes one thread more.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn move_to(&mut self, runtime: &Handle) -> io::Result<()> {
        let _in_runtime = runtime.enter();
        let socket = std::net::TcpStream::from(self.0.as_fd().try_clone_to_owned()?);
        self.0 = TcpStream::from_std(socket)?;
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
