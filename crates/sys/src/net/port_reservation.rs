//! Reserves a port before anyone listens at it.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use super::NetError;

/// Attempts to find a port that is free for both TCP and UDP.
const TRIES: u32 = 64;

/// A bound TCP port without a listener: connections are refused until a [`Listener`](super::Listener) with
/// `reuse_port` (and of the same user, socket(7)) takes its address, and again when that is closed. No other
/// process can take the port meanwhile.
///
/// The UDP port of the same number was free when this was created, but is not reserved.
#[derive(Debug)]
pub struct PortReservation {
    _inner: Socket,
    local: SocketAddr,
}

impl PortReservation {
    /// Reserves `address`; port 0 takes one that is free for TCP and UDP.
    /// Errors: [`NetError`] naming the address: in use, not of this host, no permission for a low port.
    pub fn bind(address: SocketAddr) -> Result<Self, NetError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let reserved = Self::bind_tcp(address)?;
            match UdpSocket::bind(reserved.local) {
                Ok(_) => return Ok(reserved),
                Err(_) if address.port() == 0 && tries < TRIES => {}
                Err(e) => {
                    let udp = format_args!("UDP {}", reserved.local).to_string();
                    return Err(NetError::new("reserve", udp, e));
                }
            }
        }
    }

    fn bind_tcp(address: SocketAddr) -> Result<Self, NetError> {
        let fail = |e| NetError::new("reserve", format_args!("TCP {address}"), e);
        let kind = Type::STREAM.nonblocking().cloexec();
        let inner = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP)).map_err(fail)?;
        // Not SO_REUSEADDR: any process with the same option could take the port.
        inner.set_reuse_port(true).map_err(fail)?;
        inner.bind(&address.into()).map_err(fail)?;
        let local = inner.local_addr().map_err(fail)?.as_socket();
        let local = local.ok_or_else(|| fail(std::io::ErrorKind::AddrNotAvailable.into()))?;
        Ok(Self { _inner: inner, local })
    }

    /// The address, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::net::{ListenOptions, Listener, UdpPort};

    #[test]
    fn reserved_port_is_usable_only_by_its_holder() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A host may have no IPv6.
            let Ok(reserved) = PortReservation::bind(address.parse().unwrap()) else { continue };
            let address = reserved.local_addr();
            let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
            for _ in 0..3 {
                assert!(TcpStream::connect(address).is_err(), "there is no listener");
                assert!(Listener::bind(address, &ListenOptions::default()).is_err(), "a stranger got it");
                let listener = Listener::bind(address, &shared).unwrap();
                let _udp = UdpPort::bind(address).unwrap();
                for _ in 0..20 {
                    let mut client = TcpStream::connect(address).unwrap();
                    std::io::Write::write_all(&mut client, b"x").unwrap();
                    assert!(listener.accept().unwrap().is_some(), "a connection went elsewhere");
                }
            }
        }
    }

    #[test]
    fn port_in_use_cannot_be_reserved() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = PortReservation::bind(taken.local_addr().unwrap()).unwrap_err();
        assert!(error.to_string().contains("TCP 127.0.0.1"), "{error}");
        // Another test may have the same port of TCP.
        let errors: Vec<String> = (0..8)
            .map(|_| {
                let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
                PortReservation::bind(taken.local_addr().unwrap()).unwrap_err().to_string()
            })
            .collect();
        assert!(errors.iter().any(|error| error.contains("UDP 127.0.0.1")), "{errors:?}");
    }
}
