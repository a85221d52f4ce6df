//! One datagram for many: IPv4 multicast (RFC 1112) within one network.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::net::{Moved, NetError, socket_option};

/// Room for bursts; the kernel caps it at `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Receives the datagrams of a group, close-on-exec; never blocks. Any number of receivers may join a group.
#[derive(Debug)]
pub struct MulticastReceiver {
    inner: UdpSocket,
    group: SocketAddrV4,
}

impl MulticastReceiver {
    /// Joins `group` on the interface that has the address `local`; `0.0.0.0` lets the kernel choose one by
    /// its routes.
    /// Errors: [`NetError`]: no multicast address, no interface with that address, the port is in use
    /// without sharing, too many groups (`net.ipv4.igmp_max_memberships`).
    pub fn join(group: SocketAddrV4, local: Ipv4Addr) -> Result<Self, NetError> {
        let fail = |e| NetError::new("join", format_args!("the multicast group {group} at {local}"), e);
        let socket = udp().map_err(fail)?;
        socket.set_reuse_address(true).map_err(fail)?;
        // As much as the kernel allows is enough.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
        // Bound to the group, not to all addresses, so that nothing else arrives that is sent to the port.
        socket.bind(&SockAddr::from(group)).map_err(fail)?;
        socket.join_multicast_v4(group.ip(), &local).map_err(fail)?;
        Ok(Self { inner: socket.into(), group })
    }

    /// Takes the next datagram: how many bytes of `buffer` it fills (what has no room is lost). `None`: none
    /// waits.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, NetError> {
        loop {
            match self.inner.recv(buffer) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => {}
                Err(e) => return Err(NetError::new("receive from", self.group, e)),
            }
        }
    }

    /// How many datagrams the kernel has dropped here because they were not taken in time: the counter of
    /// `SO_RXQ_OVFL`, socket(7).
    /// Errors: [`NetError`]: kernels before 4.12 do not report it.
    pub fn dropped(&self) -> Result<u32, NetError> {
        socket_option::drops(self.as_fd()).map_err(|e| NetError::new("read the drops of", self.group, e))
    }
}

impl AsFd for MulticastReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// Sends datagrams to a group, close-on-exec; never blocks.
#[derive(Debug)]
pub struct MulticastSender {
    inner: UdpSocket,
    group: SocketAddrV4,
}

impl MulticastSender {
    /// A sender to `group` on the interface with the address `local`. Its datagrams are also received on this
    /// host, and do not pass the first router (a time to live of 1).
    /// Errors: [`NetError`]: no multicast address, no interface with that address.
    pub fn new(group: SocketAddrV4, local: Ipv4Addr) -> Result<Self, NetError> {
        let fail = |e| NetError::new("send to", format_args!("the multicast group {group} from {local}"), e);
        if !group.ip().is_multicast() {
            return Err(fail(ErrorKind::InvalidInput.into()));
        }
        let socket = udp().map_err(fail)?;
        socket.set_multicast_if_v4(&local).map_err(fail)?;
        socket.set_multicast_ttl_v4(1).map_err(fail)?;
        socket.set_multicast_loop_v4(true).map_err(fail)?;
        socket.bind(&SockAddr::from(SocketAddrV4::new(local, 0))).map_err(fail)?;
        Ok(Self { inner: socket.into(), group })
    }

    /// The address that its datagrams come from.
    pub fn local_addr(&self) -> Result<std::net::SocketAddr, NetError> {
        self.inner.local_addr().map_err(|e| NetError::new("read the address of", "a multicast sender", e))
    }

    /// Sends a datagram. [`Moved::WouldBlock`]: there was no room, and it was not sent.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> Result<Moved, NetError> {
        loop {
            match self.inner.send_to(bytes, self.group) {
                Ok(bytes) => return Ok(Moved::Bytes(bytes)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Moved::WouldBlock),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => {}
                Err(e) => return Err(NetError::new("send to", self.group, e)),
            }
        }
    }
}

impl AsFd for MulticastSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

fn udp() -> std::io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::{Epoll, Events, Interest};

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    fn group() -> SocketAddrV4 {
        let free = UdpSocket::bind((HERE, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        let [high, low] = port.to_be_bytes();
        SocketAddrV4::new(Ipv4Addr::new(239, 255, high, low), port)
    }

    fn heard(receiver: &MulticastReceiver) -> Vec<u8> {
        let epoll = Epoll::new().unwrap();
        epoll.add(receiver, 1, Interest::READ).unwrap();
        epoll.wait(&mut Events::with_capacity(1), Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 64];
        let bytes = receiver.receive(&mut buffer).unwrap().expect("nothing came");
        buffer[..bytes].to_vec()
    }

    #[test]
    fn multicast_reaches_the_group_only() {
        let group = group();
        let receivers = [(); 3].map(|()| MulticastReceiver::join(group, HERE).unwrap());
        let other = SocketAddrV4::new(Ipv4Addr::new(239, 254, 7, 7), group.port());
        let stranger = MulticastReceiver::join(other, HERE).unwrap();
        let sender = MulticastSender::new(group, HERE).unwrap();
        assert_eq!(sender.send(b"now").unwrap(), Moved::Bytes(3));
        for receiver in &receivers {
            assert_eq!(heard(receiver), b"now");
            assert_eq!(receiver.receive(&mut [0; 4]).unwrap(), None);
            assert_eq!(receiver.dropped().unwrap(), 0);
        }
        // What is sent to the port, and not to the group, is not for it either.
        UdpSocket::bind((HERE, 0)).unwrap().send_to(b"you", (HERE, group.port())).ok();
        assert_eq!(sender.send(b"again").unwrap(), Moved::Bytes(5));
        assert_eq!(heard(&receivers[0]), b"again");
        assert_eq!(stranger.receive(&mut [0; 4]).unwrap(), None);
    }

    #[test]
    fn dropped_multicast_datagrams_are_counted() {
        let group = group();
        let receiver = MulticastReceiver::join(group, HERE).unwrap();
        let sender = MulticastSender::new(group, HERE).unwrap();
        let mut sent = 0_u64;
        while receiver.dropped().unwrap() == 0 && sent < 1_000_000 {
            sender.send(&[7; 1024]).unwrap();
            sent += 1;
        }
        let mut taken = 0_u64;
        while receiver.receive(&mut [0; 4]).unwrap().is_some() {
            taken += 1;
        }
        assert_eq!(taken + u64::from(receiver.dropped().unwrap()), sent);
        assert!(receiver.dropped().unwrap() > 0);
    }

    #[test]
    fn invalid_multicast_address_is_refused() {
        let group = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 7500);
        assert!(MulticastReceiver::join(group, HERE).is_err());
        assert!(MulticastSender::new(group, HERE).is_err_and(|error| error.to_string().contains("10.1.2.3")));
        let nowhere = Ipv4Addr::new(192, 0, 2, 1);
        assert!(MulticastReceiver::join(self::group(), nowhere).is_err());
        assert!(MulticastSender::new(self::group(), nowhere).is_err());
    }
}
