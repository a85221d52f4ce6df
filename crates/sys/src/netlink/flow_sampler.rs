//! Samples the state of all flows of a network namespace: sock_diag(7).
//!
//! A list of TCP sockets walks the kernel's table of connections, which network namespaces usually share and
//! which grows with the memory of the host (one chain per 128 KiB, 512 Ki at most). A request of sock_diag(7)
//! names one family, so that IPv4 and IPv6 take two walks. The older request of tcp_diag takes both in one.

use std::io::{self, ErrorKind};

use nix::sys::socket::SockProtocol;

use super::flow::{ATTRIBUTES, Flow};
use super::{BY_FAMILY, Netlink, diag_request, in_namespace_of};

/// States of sockets that send or may send (`net/tcp_states.h`): all but TIME_WAIT, LISTEN and those of
/// connections that no program has accepted; of UDP, "closed" means not connected.
const TCP_STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
const UDP_STATES: u32 = u32::MAX;
/// `TCPDIAG_GETSOCK` (`linux/inet_diag.h`), for requests and answers.
const TCP_OF_ALL_FAMILIES: u16 = 18;

/// Lists the TCP and UDP sockets of a network namespace with what the kernel knows about each. The kernel
/// locks a TCP socket for a part of it.
///
/// Costs 1 us per socket, and 1 ms for the walk over 262,144 chains (24 GiB of memory) if other programs have
/// taken the cache meanwhile; half of both and less from the cache.
#[derive(Debug)]
pub struct FlowSampler {
    netlink: Netlink,
}

impl FlowSampler {
    /// Opens the list of the network namespace of process `namespace_of`, or of this thread's own.
    /// Errors: the namespace cannot be entered, or the kernel was built without it (`CONFIG_INET_DIAG`).
    pub fn open(namespace_of: Option<i32>) -> io::Result<Self> {
        Ok(Self { netlink: in_namespace_of(namespace_of, || Netlink::open(SockProtocol::NetlinkSockDiag))? })
    }

    /// Hands each socket to `take`.
    pub fn read(&mut self, take: &mut dyn FnMut(Flow)) -> io::Result<()> {
        let kind = (TCP_OF_ALL_FAMILIES, TCP_OF_ALL_FAMILIES);
        self.netlink.dump(kind, &tcp_request(ATTRIBUTES), &mut |payload| hand(payload, take))?;
        self.read_udp(take)
    }

    /// Hands each UDP socket to `take`. The kernel's tables of UDP sockets are small.
    pub fn read_udp(&mut self, take: &mut dyn FnMut(Flow)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut request = diag_request(family, libc::IPPROTO_UDP, UDP_STATES, 0);
            request[2] = ATTRIBUTES;
            let answered =
                self.netlink.dump((BY_FAMILY, BY_FAMILY), &request, &mut |payload| hand(payload, take));
            // A kernel without udp_diag lists no sockets of UDP.
            answered
                .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }
}

fn hand(payload: &[u8], take: &mut dyn FnMut(Flow)) {
    if let Some(flow) = Flow::parse(payload) {
        take(flow);
    }
}

/// `struct inet_diag_req` for TCP sockets of both families, with attributes by a mask of their numbers.
fn tcp_request(attributes: u8) -> [u8; 60] {
    let mut request = [0; 60];
    request[3] = attributes;
    request[52..56].copy_from_slice(&TCP_STATES.to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

    #[test]
    fn own_flows_are_sampled_and_listeners_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        // Sockets of IPv6, of which the second one sends IPv4.
        let other = ["[::1]:0", "[::ffff:127.0.0.1]:0"].map(|address| {
            let Ok(listener) = TcpListener::bind(address) else {
                features::skip("needs IPv6");
                return None;
            };
            Some((TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener))
        });
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsFd::as_fd(&datagrams);
        crate::net::socket_option::set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, 6).unwrap();
        let mut flows: Vec<Flow> = Vec::new();
        FlowSampler::open(None).unwrap().read(&mut |flow| flows.push(flow.clone())).unwrap();
        let find = |local: SocketAddr, is_tcp: bool| {
            flows
                .iter()
                .filter(|flow| flow.local == local && flow.tcp.is_some() == is_tcp)
                .collect::<Vec<_>>()
        };
        let [found] = find(client.local_addr().unwrap(), true)[..] else { panic!("{flows:?}") };
        assert_eq!((found.peer, found.state), (server.local_addr().unwrap(), 1));
        let info = found.tcp.as_ref().unwrap();
        assert_eq!(info.pacing_max_bytes_per_s, Some(u64::MAX));
        assert!(info.received_segments > Some(0) && found.cookie != 0 && found.inode != 0, "{found:?}");
        assert!(found.memory.unwrap().send_max > 0, "{found:?}");
        let usual = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        assert_eq!(found.congestion.unwrap().name(), usual.trim(), "{found:?}");
        for (other, _) in other.iter().flatten() {
            let canonical =
                |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            let [found] = find(canonical(other.local_addr().unwrap()), true)[..] else { panic!("{flows:?}") };
            assert_eq!(found.peer, canonical(other.peer_addr().unwrap()));
        }
        // The listener has the same address as the accepted connection.
        assert_eq!(find(server.local_addr().unwrap(), true).len(), 1, "{flows:?}");
        let [found] = find(datagrams.local_addr().unwrap(), false)[..] else { panic!("{flows:?}") };
        assert_eq!(found.priority, Some(6));
    }

    #[test]
    fn list_that_the_kernel_cannot_make_is_an_error_and_not_empty() {
        let mut netlink = Netlink::open(SockProtocol::NetlinkSockDiag).unwrap();
        // A protocol for experiments (RFC 3692), of which no kernel lists sockets.
        let request = diag_request(libc::AF_INET, 253, UDP_STATES, 0);
        let refused = netlink.dump((BY_FAMILY, BY_FAMILY), &request, &mut |_| {}).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
    }
}
