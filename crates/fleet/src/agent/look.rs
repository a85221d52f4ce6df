//! Whether somebody listens at an endpoint: far cheaper than a session that fails, and not noticed by who listens.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// How long an answer is waited for.
const WITHIN: Duration = Duration::from_millis(2500);

/// Look.
///
/// # Errors
/// Why nobody can be reached there.
pub fn look(endpoint: &str) -> io::Result<()> {
    let (scheme, place) = endpoint.split_once('/').unwrap_or(("tcp", endpoint));
    if scheme.starts_with("unixsock") {
        return UnixStream::connect(place).map(drop);
    }
    let place = place.split(['?', '#']).next().unwrap_or(place);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in place.to_socket_addrs()? {
        match look_at(address) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sees that a connection would be taken, and lets go of it before it stands.
///
/// After a connection over which no TLS comes, zenoh takes none for 0.1 s: a thousand agents that look would keep each
/// other out for minutes.
fn look_at(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // The kernel then holds back the handshake's last packet, in the hope of data to send with it (tcp(7)) ...
    socket.set_tcp_quickack(false)?;
    // ... and resets what is closed before that: the listening program never hears of it.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.connect_timeout(&address.into(), WITHIN)
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
            look(&format!("tls/{address}")).unwrap();
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(listener);
        assert_eq!(look(&format!("tcp/{address}")).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
