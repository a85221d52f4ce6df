//! Accepts channels.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::stream::Stream;
use super::{Channel, tls};
use crate::endpoint::Endpoint;
use crate::identity::Credentials;

/// Listens for hosts of the fleet, or on this machine, until it is dropped.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<Socket>,
    tls: Option<Arc<ServerConfig>>,
    members: Option<Arc<Vec<String>>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// The endpoint must have passed [`crate::endpoint::check_listen`].
    /// Errors: another program listens there, or the bundle's files cannot be used.
    pub fn bind(endpoint: &Endpoint, credentials: Option<&Credentials>, protocol: &[u8]) -> io::Result<Self> {
        let (tls, members) = match (endpoint, credentials) {
            (Endpoint::Tls { .. }, Some(credentials)) => {
                let members = credentials.members.iter().map(ToString::to_string).collect();
                (Some(Arc::new(tls::server(credentials, protocol)?)), Some(Arc::new(members)))
            }
            (Endpoint::Tls { .. }, None) => return Err(io::Error::other("tls/... needs credentials")),
            _ => (None, None),
        };
        let sockets = match endpoint {
            Endpoint::Unix(path) => vec![bind_unix(path.clone())?],
            Endpoint::Tls { host, port } | Endpoint::Tcp { host, port } => bind_all(host, *port)?,
        };
        Ok(Self { sockets, tls, members })
    }

    /// The next host that has connected. Its handshake follows while the channel is used.
    /// Errors: the kernel has no room for a connection.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        for socket in &self.sockets {
            let accepted = match socket {
                Socket::Tcp(socket) => socket.accept().and_then(|(stream, _)| Stream::of_tcp(stream)),
                Socket::Unix(socket, _) => socket.accept().and_then(|(stream, _)| Stream::of_unix(stream)),
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let tls = match &self.tls {
                Some(config) => {
                    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                    Some(Box::new(connection.into()))
                }
                None => None,
            };
            return Ok(Some(Channel::new(stream, tls, self.members.clone())));
        }
        Ok(None)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for socket in &self.sockets {
            if let Socket::Unix(_, path) = socket {
                // Another listener replaces a file that is left.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Listens on all addresses of a host name that this machine has.
fn bind_all(host: &str, port: u16) -> io::Result<Vec<Socket>> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    let mut sockets = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                sockets.push(Socket::Tcp(socket));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(error),
            Err(error) => last = error,
        }
    }
    if sockets.is_empty() { Err(last) } else { Ok(sockets) }
}

/// A file that a killed listener has left is replaced; one with a listener is not.
fn bind_unix(path: PathBuf) -> io::Result<Socket> {
    let is_left = UnixStream::connect(&path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_left {
        fs::remove_file(&path)?;
    }
    let socket = UnixListener::bind(&path)?;
    socket.set_nonblocking(true)?;
    Ok(Socket::Unix(socket, path))
}
