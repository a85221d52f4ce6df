//! Datagrams over UDP or a UNIX path, each with the time at which it came.
//!
//! The kernel stamps a datagram when it enters this host's stack (`SO_TIMESTAMPNS`, `socket(7)`), which is
//! while the sender's call runs if the sender is on this machine. When this program is scheduled does not
//! matter then. The stamp is of the realtime clock; `timestamps.rs` turns it into monotonic time soundly.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike, SockaddrStorage, UnixAddr, recvmsg, setsockopt,
    sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

use super::timestamps::Timestamps;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatagramAddress {
    /// Over the network (RFC 768).
    Udp(SocketAddr),
    /// A socket file, across the network namespaces of one kernel (`unix(7)`).
    Unix(PathBuf),
}

impl fmt::Display for DatagramAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp/{address}"),
            Self::Unix(path) => write!(f, "unixgram/{}", path.display()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// How many bytes of the buffer it fills; what did not fit is lost.
    pub len: usize,
    /// Who sent it; `None` for a UNIX socket without a file, which cannot be answered.
    pub from: Option<DatagramAddress>,
    /// Arrival time, monotonic ns: never before the true arrival, never after `receive` returned.
    pub at_monotonic_ns: u64,
    /// Whether the kernel stamped it. If not, the time is that of the hand-over.
    pub stamped: bool,
}

/// A non-blocking datagram socket. A UNIX socket's file is removed when it is dropped.
#[derive(Debug)]
pub struct DatagramSocket {
    kind: Kind,
    stamps: Option<Timestamps>,
    control: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Udp(UdpSocket),
    Unix(UnixDatagram, PathBuf),
}

impl DatagramSocket {
    /// Binds `address`; UDP port 0 takes a free one.
    /// Errors: Those of `bind(2)`: the address is in use, or not of this host; the file exists or its path is
    /// over 107 bytes. A socket file without a listener, as left by a killed program, is replaced.
    pub fn bind(address: &DatagramAddress) -> io::Result<Self> {
        let kind = match address {
            DatagramAddress::Udp(address) => {
                let socket = UdpSocket::bind(address)?;
                socket.set_nonblocking(true)?;
                Kind::Udp(socket)
            }
            DatagramAddress::Unix(path) => {
                let socket = bind_file(path)?;
                socket.set_nonblocking(true)?;
                Kind::Unix(socket, path.clone())
            }
        };
        Ok(Self { kind, stamps: None, control: cmsg_space!(TimeSpec) })
    }

    /// Lets the kernel stamp what comes from now on.
    ///
    /// While any UDP socket of a host asks for it, the kernel reads the clock for every packet of that host:
    /// some 30 ns each. UNIX sockets cost others nothing.
    pub fn enable_stamps(&mut self) -> io::Result<()> {
        setsockopt(&self.as_fd(), ReceiveTimestampns, &true)?;
        self.stamps = Some(Timestamps::start());
        Ok(())
    }

    pub fn local_address(&self) -> io::Result<DatagramAddress> {
        match &self.kind {
            Kind::Udp(socket) => Ok(DatagramAddress::Udp(socket.local_addr()?)),
            Kind::Unix(_, path) => Ok(DatagramAddress::Unix(path.clone())),
        }
    }

    /// Sends one datagram, at once or not at all.
    /// Errors: Those of `sendto(2)`; [`io::ErrorKind::WouldBlock`] when a queue is full,
    /// [`io::ErrorKind::InvalidInput`] for an address of the other kind.
    pub fn send_to(&self, bytes: &[u8], to: &DatagramAddress) -> io::Result<()> {
        match (&self.kind, to) {
            (Kind::Udp(socket), DatagramAddress::Udp(to)) => socket.send_to(bytes, to).map(drop),
            (Kind::Unix(socket, _), DatagramAddress::Unix(to)) => socket.send_to(bytes, to).map(drop),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Takes the next datagram; `None` if none waits.
    /// Errors: Those of `recvmsg(2)`. An error of an earlier send (the port is closed) is passed
    /// over: it says nothing about what waits.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let fd = self.as_fd().as_raw_fd();
        let taken = match &self.kind {
            Kind::Udp(_) => take(fd, buffer, &mut self.control, address_of_udp)?,
            Kind::Unix(..) => take(fd, buffer, &mut self.control, address_of_unix)?,
        };
        let Some((len, from, stamp)) = taken else { return Ok(None) };
        let stamped = match (&mut self.stamps, stamp) {
            (Some(stamps), Some(time)) => stamps.monotonic_ns(time),
            _ => None,
        };
        let at_monotonic_ns = stamped.unwrap_or_else(crate::clock::monotonic_ns);
        Ok(Some(Datagram { len, from, at_monotonic_ns, stamped: stamped.is_some() }))
    }
}

fn bind_file(path: &Path) -> io::Result<UnixDatagram> {
    match UnixDatagram::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path)? => {
            std::fs::remove_file(path)?;
            UnixDatagram::bind(path)
        }
        bound => bound,
    }
}

/// Whether a path is a socket whose program is gone. A file of another kind refuses connections too:
/// `unix(7)`.
fn is_left_behind(path: &Path) -> io::Result<bool> {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
    Ok(is_socket && UnixDatagram::unbound()?.connect(path).is_err_and(refused))
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Udp(socket) => socket.as_fd(),
            Kind::Unix(socket, _) => socket.as_fd(),
        }
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.kind {
            // The file may already be gone.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A datagram's length, sender and stamp.
type Taken<A> = (usize, Option<A>, Option<TimeSpec>);

/// recvmsg(2), with addresses of the family `S`.
pub(super) fn take<S: SockaddrLike, A>(
    fd: RawFd,
    buffer: &mut [u8],
    control: &mut [u8],
    address: impl Fn(&S) -> Option<A>,
) -> io::Result<Option<Taken<A>>> {
    let mut slices = [IoSliceMut::new(buffer)];
    let message = loop {
        match recvmsg::<S>(fd, &mut slices, Some(&mut *control), MsgFlags::empty()) {
            Ok(message) => break message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let stamp = message.cmsgs().ok().and_then(|mut all| {
        all.find_map(|one| match one {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        })
    });
    Ok(Some((message.bytes, message.address.as_ref().and_then(address), stamp)))
}

pub(super) fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    let v6 = || address.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into());
    v4.or_else(v6)
}

fn address_of_udp(address: &SockaddrStorage) -> Option<DatagramAddress> {
    socket_address(address).map(DatagramAddress::Udp)
}

fn address_of_unix(address: &UnixAddr) -> Option<DatagramAddress> {
    // The kernel gives a sender without a file no address, not even a family; `path` would panic at that.
    let has_name = address.len() as usize > size_of::<libc::sa_family_t>();
    has_name.then(|| address.path()).flatten().map(|path| DatagramAddress::Unix(path.to_path_buf()))
}

#[cfg(test)]
#[path = "datagram_tests.rs"]
mod tests;
