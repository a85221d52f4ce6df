//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::net::{NetError, SocketOptions, TcpSocket};

#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// `SO_REUSEPORT`: several listeners of one user share the port (`socket(7)`).
    pub reuse_port: bool,
    /// Queue of connections not yet accepted; the kernel caps it at `net.core.somaxconn`.
    pub backlog: i32,
    pub socket: SocketOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { reuse_port: false, backlog: 4096, socket: SocketOptions::default() }
    }
}

/// A non-blocking listening TCP socket. `SO_REUSEADDR` is always set, so that a restart does not wait for
/// old connections in TIME_WAIT.
#[derive(Debug)]
pub struct Listener {
    inner: Socket,
    local: SocketAddr,
}

impl Listener {
    /// Binds and listens; port 0 takes a free port, see [`Listener::local_addr`].
    /// Errors: [`NetError`] naming the address (in use, not local, no permission for a low port).
    pub fn bind(addr: SocketAddr, options: &ListenOptions) -> Result<Self, NetError> {
        let fail = |source| NetError::new("listen on", addr, source);
        let kind = Type::STREAM.nonblocking().cloexec();
        let inner = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP)).map_err(fail)?;
        inner.set_reuse_address(true).map_err(fail)?;
        inner.set_reuse_port(options.reuse_port).map_err(fail)?;
        let socket = TcpSocket::from_socket(inner);
        socket.set_options(&options.socket)?;
        let inner = socket.into_socket();
        inner.bind(&addr.into()).map_err(fail)?;
        inner.listen(options.backlog).map_err(fail)?;
        let local = inner.local_addr().map_err(fail)?;
        let local = local.as_socket().ok_or_else(|| fail(io::ErrorKind::AddrNotAvailable.into()))?;
        Ok(Self { inner, local })
    }

    /// The bound address, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts one connection, non-blocking and close-on-exec (`accept4(2)`). `None`: none is waiting.
    ///
    /// A connection that was reset while it waited is skipped, as `accept(2)` advises.
    /// Errors: [`NetError`]; [`NetError::is_out_of_resources`] means a full descriptor table, after which the
    /// connection is still queued.
    pub fn accept(&self) -> Result<Option<(TcpSocket, SocketAddr)>, NetError> {
        loop {
            // SAFETY: `storage` and `len` are valid for writes and `len` holds the storage's size; the kernel
            // writes an address of at most that size and its length, as `try_init` requires.
            let accepted = unsafe {
                SockAddr::try_init(|storage, len| {
                    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                    match libc::accept4(self.inner.as_raw_fd(), storage.cast(), len, flags) {
                        -1 => Err(io::Error::last_os_error()),
                        fd => Ok(fd),
                    }
                })
            };
            match accepted {
                Ok((fd, peer)) => {
                    // SAFETY: accept4 just returned this descriptor; it has no other owner.
                    let socket = TcpSocket::from_socket(unsafe { Socket::from_raw_fd(fd) });
                    let Some(peer) = peer.as_socket() else { continue };
                    return Ok(Some((socket, peer)));
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR | libc::ECONNABORTED | libc::EPROTO) => {}
                    _ => return Err(NetError::new("accept a connection on", self.local, e)),
                },
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}
