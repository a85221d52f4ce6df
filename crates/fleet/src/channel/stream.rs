//! The connection under a channel.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::SockRef;
use sys::clock::Deadline;

use crate::endpoint::Endpoint;

/// A host that acknowledges nothing for this time is gone.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Shortest time to connect within, which must not be 0.
const CONNECT_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Tries all addresses of a host name in turn.
    pub fn connect(endpoint: &Endpoint, within: Duration) -> io::Result<Self> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => return Self::of_unix(UnixStream::connect(path)?),
            Endpoint::Tls { host, port } | Endpoint::Tcp { host, port } => (host.as_str(), *port),
        };
        let deadline = Deadline::after(within);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, deadline.left().max(CONNECT_MIN)) {
                Ok(socket) => return Self::of_tcp(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn of_tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        SockRef::from(&socket).set_tcp_user_timeout(Some(SILENCE_MAX))?;
        Ok(Self::Tcp(socket))
    }

    pub fn of_unix(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::Unix(socket))
    }

    pub fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => {
                socket.peer_addr().map_or_else(|_| "a host".to_owned(), |address| address.to_string())
            }
            Self::Unix(_) => "this machine".to_owned(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(bytes),
            Self::Unix(socket) => socket.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
