//! Addresses of servers as users write them.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Where `host` is: `HOST` or `HOST:PORT`, where `HOST` is a name or an address, an IPv6 one also in
/// brackets. The port is `port` unless given.
/// Errors: `InvalidInput`: it is written in another way, or has no address; else the resolver's.
pub fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // A bare IPv6 address has colons too.
    let is_bare_v6 = bare.parse::<Ipv6Addr>().is_ok() && !host.contains("]:");
    let has_port = !is_bare_v6
        && host.rsplit_once(':').is_some_and(|(name, _)| !name.contains(':') || name.ends_with(']'));
    let mut found = if has_port { host.to_socket_addrs() } else { (bare, port).to_socket_addrs() }?;
    found.next().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_ipv6_needs_brackets_only_before_a_port() {
        for (host, expected) in [
            ("127.0.0.1", "127.0.0.1:80"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("::1", "[::1]:80"),
            ("[::1]", "[::1]:80"),
            ("[::1]:7", "[::1]:7"),
            ("::1%1", "[::1%1]:80"),
        ] {
            assert_eq!(resolve(host, 80).unwrap().to_string(), expected, "{host}");
        }
        assert_eq!(resolve("127.0.0.1:port", 80).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
