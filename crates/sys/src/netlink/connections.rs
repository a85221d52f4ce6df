//! The TCP connections of a server with what the kernel knows of each, whichever program holds them:
//! sock_diag(7).

use std::io;

use nix::sys::socket::SockProtocol;

use super::{
    BY_FAMILY, DIAG_INFO, DIAG_MESSAGE_BYTES, Netlink, attributes, diag_request, in_namespace_of, u64_at,
};
use crate::net::TcpInfo;

/// States in which data is sent: established, close-wait, fin-wait-1 (`net/tcp_states.h`).
const STATES: u32 = 1 << 1 | 1 << 8 | 1 << 4;
/// Where the socket's cookie stands in `struct inet_diag_msg`.
const COOKIE_AT: usize = 44;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The kernel's own number of the socket; no other socket ever gets it.
    pub cookie: u64,
    /// What the kernel knows of it, seen from the server's side.
    pub info: TcpInfo,
}

/// Lists the connections to a TCP port of this host.
#[derive(Debug)]
pub struct Connections {
    netlink: Netlink,
    port: u16,
}

impl Connections {
    /// Opens the list of the connections that were made to `port`, in the network namespace of process
    /// `namespace_of` or in this process's own.
    /// Errors: The kernel was built without it (`CONFIG_INET_DIAG`), or the namespace cannot be entered.
    pub fn open(port: u16, namespace_of: Option<i32>) -> io::Result<Self> {
        let netlink = in_namespace_of(namespace_of, || Netlink::open(SockProtocol::NetlinkSockDiag))?;
        let mut this = Self { netlink, port };
        this.read(&mut |_| {})?;
        Ok(this)
    }

    /// Hands each connection to `take`. The kernel walks its table of all connections for it, which takes
    /// about a millisecond, and a few microseconds more for each that is handed out.
    pub fn read(&mut self, take: &mut dyn FnMut(Connection)) -> io::Result<()> {
        // A server on `::` holds connections from IPv4 peers in sockets of IPv6.
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = diag_request(family, libc::IPPROTO_TCP, STATES, self.port);
            self.netlink.dump((BY_FAMILY, BY_FAMILY), &request, &mut |payload| {
                parse(payload).into_iter().for_each(&mut *take);
            })?;
        }
        Ok(())
    }
}

pub(super) fn parse(payload: &[u8]) -> Option<Connection> {
    let cookie = u64_at(payload, COOKIE_AT)?;
    let (_, info) = attributes(payload.get(DIAG_MESSAGE_BYTES..)?).find(|(kind, _)| *kind == DIAG_INFO)?;
    Some(Connection { cookie, info: TcpInfo::parse(info) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn server_connections_are_listed_without_clients() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                features::skip("needs IPv6");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let mut connections = Connections::open(port, None).unwrap();
            let mut list = || {
                let mut all = Vec::new();
                connections.read(&mut |one| all.push(one)).unwrap();
                all
            };
            assert_eq!(list(), []);
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let mut server = listener.accept().unwrap().0;
            server.write_all(&[7; 1000]).unwrap();
            client.read_exact(&mut [0; 1000]).unwrap();
            client.write_all(&[8; 10]).unwrap();
            server.read_exact(&mut [0; 10]).unwrap();
            let found = list();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].info.received_bytes, found[0].info.state), (Some(10), Some(1)));
            assert!(found[0].info.busy_us.is_some(), "{found:?}");
            assert_eq!(list()[0].cookie, found[0].cookie, "a connection keeps its number");
        }
    }
}
