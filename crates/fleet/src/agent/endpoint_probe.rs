//! Checks whether an endpoint accepts connections: far cheaper than a failing session, and unnoticed by the
//! listener.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

const WITHIN: Duration = Duration::from_millis(2500);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReachableEndpoint {
    /// Addresses of the coordinator's host, the one that answered first; none for a UNIX socket.
    pub peer_addresses: Vec<IpAddr>,
    pub local_address: Option<IpAddr>,
}

pub fn probe_endpoint(endpoint: &str) -> io::Result<ReachableEndpoint> {
    let (scheme, place) = endpoint.split_once('/').unwrap_or(("tcp", endpoint));
    let place = place.split(['?', '#']).next().unwrap_or(place);
    if scheme.starts_with("unixsock") {
        probe_socket_file(place)?;
        // UNIX sockets are local.
        return Ok(ReachableEndpoint {
            peer_addresses: Vec::new(),
            local_address: Some(Ipv4Addr::LOCALHOST.into()),
        });
    }
    let all: Vec<SocketAddr> = place.to_socket_addrs()?.collect();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in &all {
        match probe_address(*address) {
            Ok(local_address) => {
                let peer_addresses =
                    [address].into_iter().chain(&all).map(|address| address.ip().to_canonical());
                return Ok(ReachableEndpoint { peer_addresses: peer_addresses.collect(), local_address });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects without blocking: connect(2) waits without end while the listen backlog is full (EAGAIN).
fn probe_socket_file(path: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(error.kind(), "the listen backlog is full"),
        _ => error,
    })
}

/// Connects and resets the connection before it is accepted. Returns the local address.
///
/// zenoh accepts no link for a moment after a connection that fails, and handshakes cost the listener CPU:
/// a thousand probing agents would lock each other out.
fn probe_address(address: SocketAddr) -> io::Result<Option<IpAddr>> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Delays the last packet of the handshake until there is data to send (tcp(7)) ...
    socket.set_tcp_quickack(false)?;
    // ... so that closing resets the connection before the listener sees it.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.connect_timeout(&address.into(), WITHIN)?;
    Ok(socket.local_addr()?.as_socket().map(|own| own.ip().to_canonical()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn probe_is_invisible_to_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..20 {
            let endpoint = probe_endpoint(&format!("tls/{address}")).unwrap();
            assert_eq!(
                (endpoint.peer_addresses[0], endpoint.local_address),
                (address.ip(), Some(address.ip()))
            );
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(listener);
        assert_eq!(
            probe_endpoint(&format!("tcp/{address}")).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
    #[test]
    fn full_listen_backlog_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus.sock");
        let endpoint = format!("unixsock-stream/{}", path.display());
        assert_eq!(probe_endpoint(&endpoint).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(1).unwrap();
        // Each probe occupies one place in the backlog.
        let error = (0..100).find_map(|_| probe_endpoint(&endpoint).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
