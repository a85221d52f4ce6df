//! Whether somebody listens at an endpoint: far cheaper than a session that fails, and not noticed by who listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

/// How long an answer is waited for.
const WITHIN: Duration = Duration::from_millis(2500);

/// Where a coordinator was found, and from where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The addresses of its host, the one that answered first; none for a UNIX socket.
    pub there: Vec<IpAddr>,
    /// The address of this host that it is reached from: the kernel's choice, until a network changes.
    pub here: Option<IpAddr>,
}

/// Look.
///
/// # Errors
/// Why nobody can be reached there.
pub fn look(endpoint: &str) -> io::Result<Found> {
    let (scheme, place) = endpoint.split_once('/').unwrap_or(("tcp", endpoint));
    let place = place.split(['?', '#']).next().unwrap_or(place);
    if scheme.starts_with("unixsock") {
        look_at_file(place)?;
        // Whoever meets at a file is on one machine.
        return Ok(Found { there: Vec::new(), here: Some(Ipv4Addr::LOCALHOST.into()) });
    }
    let all: Vec<SocketAddr> = place.to_socket_addrs()?.collect();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in &all {
        match look_at(*address) {
            Ok(here) => {
                let there = [address].into_iter().chain(&all).map(|address| address.ip().to_canonical());
                return Ok(Found { there: there.collect(), here });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sees that a connection would be taken. Without waiting: who listens and takes nobody would be waited for without end
/// (connect(2), EAGAIN).
fn look_at_file(path: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(error.kind(), "who listens there takes nobody now"),
        _ => error,
    })
}

/// Sees that a connection would be taken, and lets go of it before it stands. Says from which address.
///
/// After a connection over which no TLS comes, zenoh takes none for 0.1 s: a thousand agents that look would keep each
/// other out for minutes.
fn look_at(address: SocketAddr) -> io::Result<Option<IpAddr>> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // The kernel then holds back the handshake's last packet, in the hope of data to send with it (tcp(7)) ...
    socket.set_tcp_quickack(false)?;
    // ... and resets what is closed before that: the listening program never hears of it.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.connect_timeout(&address.into(), WITHIN)?;
    Ok(socket.local_addr()?.as_socket().map(|own| own.ip().to_canonical()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_does_not_notice() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..20 {
            let found = look(&format!("tls/{address}")).unwrap();
            assert_eq!((found.there[0], found.here), (address.ip(), Some(address.ip())));
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(listener);
        assert_eq!(look(&format!("tcp/{address}")).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
    #[test]
    fn who_listens_at_a_file_and_takes_nobody_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus.sock");
        let endpoint = format!("unixsock-stream/{}", path.display());
        assert_eq!(look(&endpoint).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(1).unwrap();
        // As many as the kernel queues; each look leaves one behind.
        let error = (0..100).find_map(|_| look(&endpoint).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
