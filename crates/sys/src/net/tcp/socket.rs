//! A non-blocking TCP socket: connecting, moving bytes, options.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::net::{NetError, SocketMemory, SocketOptions, TcpInfo, congestion_control, socket_option};

/// The result of a non-blocking transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Bytes transferred (> 0, unless 0 were requested).
    Bytes(usize),
    /// Nothing now; wait for readiness.
    WouldBlock,
    /// End of data: the peer closed its sending side, or the file ended.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectState {
    /// Not yet; wait until writable and ask again.
    InProgress,
    Connected,
}

/// A non-blocking TCP socket, close-on-exec.
#[derive(Debug)]
pub struct TcpSocket {
    inner: Socket,
}

impl TcpSocket {
    pub(crate) fn from_socket(inner: Socket) -> Self {
        Self { inner }
    }

    pub(crate) fn into_socket(self) -> Socket {
        self.inner
    }

    pub(crate) fn inner(&self) -> &Socket {
        &self.inner
    }

    /// Starts connecting to `peer` with `options` set first, from `local` if given. Never waits:
    /// ask [`TcpSocket::connect_result`] when the socket is writable.
    /// Errors: [`NetError`] naming the peer (no route, refused at once, no descriptors) or the refused
    /// option.
    pub fn connect_start(
        peer: SocketAddr,
        local: Option<SocketAddr>,
        options: &SocketOptions,
    ) -> Result<Self, NetError> {
        let fail = |source| NetError::new("connect to", peer, source);
        let kind = Type::STREAM.nonblocking().cloexec();
        let inner = Socket::new(Domain::for_address(peer), kind, Some(Protocol::TCP)).map_err(fail)?;
        if let Some(local) = local {
            inner.bind(&local.into()).map_err(|e| NetError::new("bind to", local, e))?;
        }
        let socket = Self { inner };
        socket.set_options(options)?;
        match socket.inner.connect(&peer.into()) {
            Ok(()) => Ok(socket),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(socket),
            Err(e) => Err(fail(e)),
        }
    }

    /// Sets every option that is `Some`; the error names the first that the kernel refuses.
    pub fn set_options(&self, options: &SocketOptions) -> Result<(), NetError> {
        if let Some(bytes) = options.receive_buffer_bytes {
            self.set_receive_buffer(bytes)?;
        }
        if let Some(bytes) = options.send_buffer_bytes {
            self.set_send_buffer(bytes)?;
        }
        if let Some(on) = options.nodelay {
            self.set_nodelay(on)?;
        }
        if let Some(bytes) = options.notsent_lowat_bytes {
            self.set_notsent_lowat(bytes)?;
        }
        if let Some(bytes) = options.receive_lowat_bytes {
            self.set_receive_lowat(bytes)?;
        }
        if let Some(name) = &options.congestion {
            self.set_congestion(name)?;
        }
        if let Some(bytes) = options.segment_bytes {
            self.set_segment(bytes)?;
        }
        if let Some(limit) = options.silence_limit {
            self.set_silence_limit(limit)?;
        }
        Ok(())
    }

    /// How the connect ended (`SO_ERROR`, then `getpeername`).
    /// Errors: [`NetError`] with the reason the connection failed (refused, timed out, unreachable).
    pub fn connect_result(&self) -> Result<ConnectState, NetError> {
        let pending = self.inner.take_error().map_err(|e| self.fail("read the connect result of", e))?;
        if let Some(e) = pending {
            return Err(self.fail("connect", e));
        }
        match self.inner.peer_addr() {
            Ok(_) => Ok(ConnectState::Connected),
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(ConnectState::InProgress),
            Err(e) => Err(self.fail("read the peer address of", e)),
        }
    }

    /// Receives into `buffer` (`recv(2)`).
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Moved, NetError> {
        // SAFETY: the pointer and length come from a live, exclusively borrowed slice.
        let n = unsafe {
            libc::recv(self.inner.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        };
        self.moved(n, "read from")
    }

    /// Receives and drops up to `bytes_max` bytes without copying them: with `MSG_TRUNC` TCP frees the queued
    /// data in the kernel and reads no buffer (`tcp(7)`).
    pub fn recv_discard(&self, bytes_max: usize) -> Result<Moved, NetError> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: for TCP, MSG_TRUNC makes the kernel drop the data and never touch the buffer, so null is
        // allowed (tcp(7), "MSG_TRUNC since Linux 2.4").
        let n = unsafe { libc::recv(self.inner.as_raw_fd(), ptr::null_mut(), bytes_max, flags) };
        self.moved(n, "discard from")
    }

    /// Sends from `buffer`. `more`: further data follows at once, so let the kernel fill the segment
    /// (`MSG_MORE`, `send(2)`).
    pub fn send(&self, buffer: &[u8], more: bool) -> Result<Moved, NetError> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        // SAFETY: the pointer and length come from a live slice that the kernel only reads.
        let n = unsafe { libc::send(self.inner.as_raw_fd(), buffer.as_ptr().cast(), buffer.len(), flags) };
        self.moved(n, "write to")
    }

    /// Sends up to `bytes_max` bytes of `file` from `offset_bytes` without copying them through this process
    /// (`sendfile(2)`; at most 2,147,479,552 bytes a call). [`Moved::End`]: the file ends at the offset.
    /// Errors: [`NetError`]; also when the file cannot be read (EIO) or cannot be sent from (EINVAL).
    pub fn send_file(
        &self,
        file: BorrowedFd<'_>,
        offset_bytes: u64,
        bytes_max: usize,
    ) -> Result<Moved, NetError> {
        let Ok(mut offset) = libc::off64_t::try_from(offset_bytes) else {
            return Err(self.fail("send a file to", io::ErrorKind::InvalidInput.into()));
        };
        // SAFETY: both descriptors are borrowed and open; `offset` is a live local the kernel may update.
        let n =
            unsafe { libc::sendfile64(self.inner.as_raw_fd(), file.as_raw_fd(), &raw mut offset, bytes_max) };
        self.moved(n, "send a file to")
    }

    /// Bytes received and not yet read (`FIONREAD`, `tcp(7)`).
    pub fn queued_bytes(&self) -> Result<u64, NetError> {
        self.ioctl_bytes(libc::FIONREAD as libc::Ioctl, "count the received bytes of")
    }

    /// Bytes written and not yet acknowledged (`SIOCOUTQ`, `tcp(7)`).
    pub fn unacked_bytes(&self) -> Result<u64, NetError> {
        self.ioctl_bytes(libc::TIOCOUTQ as libc::Ioctl, "count the unacknowledged bytes of")
    }

    /// Kernel memory that the socket uses (`SO_MEMINFO`, since Linux 4.12).
    pub fn memory(&self) -> Result<SocketMemory, NetError> {
        socket_option::memory(self.as_fd()).map_err(|e| self.fail("read SO_MEMINFO of", e))
    }

    fn ioctl_bytes(&self, request: libc::Ioctl, action: &'static str) -> Result<u64, NetError> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: both requests write one int through the pointer, which points to a live int.
        let r = unsafe { libc::ioctl(self.inner.as_raw_fd(), request, &raw mut bytes) };
        if r == -1 {
            return Err(self.fail(action, io::Error::last_os_error()));
        }
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// Closes the sending side (FIN): the peer reads to the end; receiving goes on.
    pub fn shutdown_send(&self) -> Result<(), NetError> {
        self.inner.shutdown(Shutdown::Write).map_err(|e| self.fail("shut down", e))
    }

    /// Makes the next close send a reset and free the kernel's buffers at once (`SO_LINGER` 0).
    pub fn reset_on_close(&self) -> Result<(), NetError> {
        self.inner.set_linger(Some(Duration::ZERO)).map_err(|e| self.fail("set SO_LINGER on", e))
    }

    pub fn info(&self) -> Result<TcpInfo, NetError> {
        let mut bytes = [0_u8; TcpInfo::BYTES_MAX];
        let mut len = bytes.len() as libc::socklen_t;
        // SAFETY: pointer and length describe the live array; the kernel writes at most `len` bytes.
        let r = unsafe {
            libc::getsockopt(
                self.inner.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if r == -1 {
            return Err(self.fail("read TCP_INFO of", io::Error::last_os_error()));
        }
        Ok(TcpInfo::parse(&bytes[..(len as usize).min(TcpInfo::BYTES_MAX)]))
    }

    /// Sets `SO_RCVBUF` and returns the resulting size (twice the request, capped by
    /// `net.core.rmem_max`; `socket(7)`).
    pub fn set_receive_buffer(&self, bytes: u64) -> Result<u64, NetError> {
        let ask = usize::try_from(bytes).unwrap_or(usize::MAX).min(i32::MAX as usize);
        self.inner.set_recv_buffer_size(ask).map_err(|e| self.fail("set SO_RCVBUF of", e))?;
        self.receive_buffer()
    }

    /// `SO_RCVBUF` in bytes, including the kernel's bookkeeping.
    pub fn receive_buffer(&self) -> Result<u64, NetError> {
        self.inner.recv_buffer_size().map(|n| n as u64).map_err(|e| self.fail("read SO_RCVBUF of", e))
    }

    /// Sets `SO_SNDBUF` and returns the resulting size (twice the request, capped by
    /// `net.core.wmem_max`; `socket(7)`).
    pub fn set_send_buffer(&self, bytes: u64) -> Result<u64, NetError> {
        let ask = usize::try_from(bytes).unwrap_or(usize::MAX).min(i32::MAX as usize);
        self.inner.set_send_buffer_size(ask).map_err(|e| self.fail("set SO_SNDBUF of", e))?;
        self.send_buffer()
    }

    /// `SO_SNDBUF` in bytes, including the kernel's bookkeeping.
    pub fn send_buffer(&self) -> Result<u64, NetError> {
        self.inner.send_buffer_size().map(|n| n as u64).map_err(|e| self.fail("read SO_SNDBUF of", e))
    }

    pub fn set_nodelay(&self, on: bool) -> Result<(), NetError> {
        self.inner.set_tcp_nodelay(on).map_err(|e| self.fail("set TCP_NODELAY of", e))
    }

    /// Sets `TCP_CORK`: while set, a segment that is not full waits for more data (at most 200 ms); unsetting
    /// sends what waits (`tcp(7)`). Overrules `TCP_NODELAY` while set.
    pub fn set_cork(&self, on: bool) -> Result<(), NetError> {
        self.inner.set_tcp_cork(on).map_err(|e| self.fail("set TCP_CORK of", e))
    }

    /// Sets `TCP_NOTSENT_LOWAT` in bytes (`tcp(7)`).
    pub fn set_notsent_lowat(&self, bytes: u32) -> Result<(), NetError> {
        self.inner.set_tcp_notsent_lowat(bytes).map_err(|e| self.fail("set TCP_NOTSENT_LOWAT of", e))
    }

    /// Sets `SO_RCVLOWAT` in bytes (`socket(7)`); the kernel enlarges the receive buffer to fit.
    pub fn set_receive_lowat(&self, bytes: u32) -> Result<(), NetError> {
        let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        socket_option::set(self.as_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value)
            .map_err(|e| self.fail("set SO_RCVLOWAT of", e))
    }

    /// Sets the congestion control (`TCP_CONGESTION`).
    /// Errors: [`NetError`]: unknown to the kernel (ENOENT) or not allowed here (EPERM).
    pub fn set_congestion(&self, name: &str) -> Result<(), NetError> {
        self.inner.set_tcp_congestion(name.as_bytes()).map_err(|e| {
            NetError::new("set the congestion control to", congestion_control::asked(name, &e), e)
        })
    }

    pub fn congestion(&self) -> Result<String, NetError> {
        let raw = self.inner.tcp_congestion().map_err(|e| self.fail("read TCP_CONGESTION of", e))?;
        let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
        Ok(String::from_utf8_lossy(&raw[..end]).into_owned())
    }

    pub fn local_addr(&self) -> Result<SocketAddr, NetError> {
        let addr = self.inner.local_addr().map_err(|e| self.fail("read the local address of", e))?;
        addr.as_socket()
            .ok_or_else(|| self.fail("read the local address of", io::ErrorKind::Unsupported.into()))
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> Result<SocketAddr, NetError> {
        let addr = self.inner.peer_addr().map_err(|e| self.fail("read the peer address of", e))?;
        addr.as_socket()
            .ok_or_else(|| self.fail("read the peer address of", io::ErrorKind::Unsupported.into()))
    }

    /// The result of a call that returned `n`; -1 is this thread's last error.
    pub(crate) fn moved(&self, n: libc::ssize_t, action: &'static str) -> Result<Moved, NetError> {
        self.did(usize::try_from(n).map_err(|_| io::Error::last_os_error()), action)
    }

    pub(crate) fn did(&self, called: io::Result<usize>, action: &'static str) -> Result<Moved, NetError> {
        match called {
            Ok(0) => Ok(Moved::End),
            Ok(bytes) => Ok(Moved::Bytes(bytes)),
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(Moved::WouldBlock),
                _ => Err(self.fail(action, e)),
            },
        }
    }

    /// Builds the error with the peer's address, if it is still known.
    pub(crate) fn fail(&self, action: &'static str, source: io::Error) -> NetError {
        match self.inner.peer_addr().ok().and_then(|a| a.as_socket()) {
            Some(peer) => NetError::new(action, peer, source),
            None => NetError::new(action, format_args!("socket {}", self.inner.as_raw_fd()), source),
        }
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl From<TcpSocket> for OwnedFd {
    fn from(socket: TcpSocket) -> Self {
        socket.inner.into()
    }
}

impl TryFrom<std::net::TcpStream> for TcpSocket {
    type Error = NetError;

    /// Takes over a standard stream and makes it non-blocking.
    fn try_from(stream: std::net::TcpStream) -> Result<Self, NetError> {
        stream.set_nonblocking(true).map_err(|e| NetError::new("make non-blocking", "a TCP stream", e))?;
        Ok(Self { inner: stream.into() })
    }
}
