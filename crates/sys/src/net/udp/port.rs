//! A UDP port that many peers write to first, and that gives each peer its own connected socket.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::net::{NetError, UdpFlow, socket_option};

/// A bound UDP socket, close-on-exec, that never blocks.
#[derive(Debug)]
pub struct UdpPort {
    inner: UdpSocket,
    local: SocketAddr,
}

impl UdpPort {
    /// Binds `local`; port 0 takes a free one.
    ///
    /// The address is shared with the connected sockets of [`UdpPort::flow_to`], and so with other programs
    /// that bind it with the same option (`SO_REUSEADDR`, socket(7)): hold the TCP port of that number to be
    /// sure that you are alone.
    /// Errors: [`NetError`]: in use by others, not an address of this host.
    pub fn bind(local: SocketAddr) -> Result<Self, NetError> {
        let inner = shared(local)?;
        let local = inner.local_addr().map_err(|e| NetError::new("read the address of", local, e))?;
        Ok(Self { inner, local })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Takes the next datagram: how many bytes of `buffer` it fills (the rest is lost) and who sent
    /// it. `None`: none waits.
    /// Errors: [`NetError`]. That a peer of an earlier datagram is gone is passed over.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, NetError> {
        receive(&self.inner, buffer).map_err(|e| NetError::new("receive on", self.local, e))
    }

    /// As [`UdpPort::receive`], but leaves the datagram where it is.
    pub fn peek(&self, buffer: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, NetError> {
        take(|| self.inner.peek_from(buffer)).map_err(|e| NetError::new("receive on", self.local, e))
    }

    /// Gives the socket to `peer`, with all that waits in it, and goes on with a new one: nothing is lost of
    /// a peer that sends without waiting.
    pub fn hand_over(&mut self, peer: SocketAddr) -> Result<UdpFlow, NetError> {
        self.inner.connect(peer).map_err(|e| NetError::new("connect to", peer, e))?;
        let handed = std::mem::replace(&mut self.inner, shared(self.local)?);
        UdpFlow::try_from(handed)
    }

    /// Sends a datagram to `peer`, or drops it if the socket buffer is full.
    pub fn send_to(&self, bytes: &[u8], peer: SocketAddr) -> Result<(), NetError> {
        match self.inner.send_to(bytes, peer) {
            Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Err(NetError::new("send to", peer, e))
            }
            _ => Ok(()),
        }
    }

    /// Asks for so much room for what arrives (`SO_RCVBUF`), beyond `net.core.rmem_max` where this process
    /// may (`SO_RCVBUFFORCE`, socket(7)); returns the resulting size (twice the request).
    pub fn set_receive_buffer(&self, bytes: u64) -> Result<u64, NetError> {
        socket_option::enlarge_receive_buffer(&SockRef::from(&self.inner), bytes)
            .map_err(|e| NetError::new("set SO_RCVBUF of", self.local, e))
    }

    /// How many datagrams the kernel has dropped here because they were not taken in time: the counter of
    /// `SO_RXQ_OVFL`, socket(7).
    /// Errors: [`NetError`]: kernels before 4.12 do not report it.
    pub fn dropped(&self) -> Result<u32, NetError> {
        socket_option::drops(self.as_fd()).map_err(|e| NetError::new("read the drops of", self.local, e))
    }

    /// A socket on the same port that takes what `peer` sends from now on, in preference to this one; at the
    /// local address `from` if given (which the peer wrote to, where this port is bound to all).
    ///
    /// What others sent to the port in the moment before the new socket was connected goes to `astray`, with
    /// its sender; what `peer` itself sent then is lost.
    pub fn flow_to(
        &self,
        peer: SocketAddr,
        from: Option<IpAddr>,
        mut astray: impl FnMut(&[u8], SocketAddr),
    ) -> Result<UdpFlow, NetError> {
        let local = SocketAddr::new(from.unwrap_or(self.local.ip()), self.local.port());
        let socket = shared(local)?;
        socket.connect(peer).map_err(|e| NetError::new("connect to", peer, e))?;
        let mut buffer = [0; 2048];
        while let Some((len, sender)) =
            receive(&socket, &mut buffer).map_err(|e| NetError::new("receive from", peer, e))?
        {
            if sender != peer {
                astray(&buffer[..len], sender);
            }
        }
        UdpFlow::try_from(socket)
    }
}

fn shared(local: SocketAddr) -> Result<UdpSocket, NetError> {
    let bind = || -> io::Result<UdpSocket> {
        let kind = Type::DGRAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(local), kind, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&local.into())?;
        Ok(socket.into())
    };
    bind().map_err(|e| NetError::new("bind to", format_args!("UDP {local}"), e))
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    take(|| socket.recv_from(buffer))
}

fn take(
    mut call: impl FnMut() -> io::Result<(usize, SocketAddr)>,
) -> io::Result<Option<(usize, SocketAddr)>> {
    loop {
        match call() {
            Ok(taken) => return Ok(Some(taken)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => {}
            Err(e) => return Err(e),
        }
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Arrived, Moved};

    #[test]
    fn each_peer_gets_its_own_socket() {
        let port = UdpPort::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let [one, other] = [(); 2].map(|()| UdpFlow::connect(port.local_addr(), None).unwrap());
        let mut buffer = [0; 16];
        assert_eq!(port.receive(&mut buffer).unwrap(), None);
        assert_eq!(one.send(b"hello").unwrap(), Moved::Bytes(5));
        let one_address = one.local_addr().unwrap();
        assert_eq!(port.receive(&mut buffer).unwrap(), Some((5, one_address)));
        let flow = port.flow_to(one_address, None, |_, _| panic!("no other sender")).unwrap();
        for (from, text) in [(&one, &b"mine"[..]), (&other, b"new")] {
            assert_eq!(from.send(text).unwrap(), Moved::Bytes(text.len()));
        }
        assert!(matches!(flow.receive(&mut buffer).unwrap(), Arrived::Batch(batch) if batch.bytes == 4));
        assert_eq!(flow.receive(&mut buffer).unwrap(), Arrived::WouldBlock);
        assert_eq!(port.receive(&mut buffer).unwrap(), Some((3, other.local_addr().unwrap())));
        port.send_to(b"back", other.local_addr().unwrap()).unwrap();
        assert!(matches!(other.receive(&mut buffer).unwrap(), Arrived::Batch(batch) if batch.bytes == 4));
    }

    #[test]
    fn datagrams_without_room_are_counted() {
        let port = UdpPort::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(port.set_receive_buffer(8 << 10).unwrap() >= 8 << 10);
        let peer = UdpFlow::connect(port.local_addr(), None).unwrap();
        for _ in 0..100 {
            assert_eq!(peer.send(&[0; 1000]).unwrap(), Moved::Bytes(1000));
        }
        let (mut taken, mut buffer) = (0, [0; 1000]);
        while port.receive(&mut buffer).unwrap().is_some() {
            taken += 1;
        }
        assert!(taken < 100 && port.dropped().unwrap() == 100 - taken, "{taken}");
    }

    #[test]
    fn waiting_datagrams_are_handed_over() {
        let mut port = UdpPort::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let peer = UdpFlow::connect(port.local_addr(), None).unwrap();
        for _ in 0..2 {
            for text in [b"one", b"two"] {
                assert_eq!(peer.send(text).unwrap(), Moved::Bytes(3));
            }
            let mut buffer = [0; 16];
            let peer_address = peer.local_addr().unwrap();
            assert_eq!(port.peek(&mut buffer).unwrap(), Some((3, peer_address)));
            let flow = port.hand_over(peer_address).unwrap();
            assert_eq!(port.peek(&mut buffer).unwrap(), None);
            for text in [b"one", b"two"] {
                assert!(
                    matches!(flow.receive(&mut buffer).unwrap(), Arrived::Batch(batch) if batch.bytes == 3)
                );
                assert_eq!(&buffer[..3], text);
            }
        }
    }
}
