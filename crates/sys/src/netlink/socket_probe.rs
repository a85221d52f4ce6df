//! Single TCP sockets: sock_diag(7), without a list of all.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::SockProtocol;

use super::flow::{ATTRIBUTES, Flow};
use super::{BY_FAMILY, Netlink, diag_request, u32_at};

/// Members of `struct inet_diag_req_v2`, and of `struct inet_diag_msg`.
const LOCAL_PORT_AT: usize = 8;
const PEER_PORT_AT: usize = 10;
const LOCAL_AT: usize = 12;
const PEER_AT: usize = 28;
const INTERFACE_AT: usize = 44;
const COOKIE_AT: usize = 48;
const UNSENT_AT: usize = 60;
/// Requests of one call: the answers fit into the socket's buffer.
const AT_ONCE: usize = 32;

/// Looks at single TCP sockets of this thread's network namespace. A call with a few sockets costs some 2 us
/// each, however many the host has.
#[derive(Debug)]
pub struct SocketProbe {
    netlink: Netlink,
    requests: Vec<[u8; 56]>,
}

impl SocketProbe {
    /// # Errors
    /// The kernel was built without it (`CONFIG_INET_DIAG`).
    pub fn open() -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open(SockProtocol::NetlinkSockDiag)?, requests: Vec::new() })
    }

    /// Hands the place of each flow and its bytes that were written and are not acknowledged to `take`;
    /// `None`: the socket is gone, or closed.
    pub fn unsent_bytes<'a>(
        &mut self,
        flows: impl Iterator<Item = &'a Flow>,
        take: &mut dyn FnMut(usize, Option<u32>),
    ) -> io::Result<()> {
        // Nothing but the structure itself is asked for.
        self.ask(flows, 0, &mut |at, answer| take(at, answer.and_then(|payload| u32_at(payload, UNSENT_AT))))
    }

    /// Hands the place of each flow and what it is now to `take`; `None`: the socket is gone, or closed.
    pub fn flows<'a>(
        &mut self,
        flows: impl Iterator<Item = &'a Flow>,
        take: &mut dyn FnMut(usize, Option<Flow>),
    ) -> io::Result<()> {
        self.ask(flows, ATTRIBUTES, &mut |at, answer| take(at, answer.and_then(Flow::parse)))
    }

    fn ask<'a>(
        &mut self,
        flows: impl Iterator<Item = &'a Flow>,
        attributes: u8,
        take: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> io::Result<()> {
        self.requests.clear();
        self.requests.extend(flows.map(|flow| request(flow, attributes)));
        for (part, requests) in self.requests.chunks(AT_ONCE).enumerate() {
            let place = |at: usize| part * AT_ONCE + at;
            self.netlink.ask_each(BY_FAMILY, requests, &mut |at, answer| take(place(at), answer))?;
        }
        Ok(())
    }
}

fn request(flow: &Flow, attributes: u8) -> [u8; 56] {
    let family = if flow.local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = diag_request(family, libc::IPPROTO_TCP, u32::MAX, flow.local.port());
    request[2] = attributes;
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(LOCAL_PORT_AT, &flow.local.port().to_be_bytes());
    put(PEER_PORT_AT, &flow.peer.port().to_be_bytes());
    for (at, address) in [(LOCAL_AT, flow.local), (PEER_AT, flow.peer)] {
        match SocketAddr::ip(&address) {
            IpAddr::V4(address) => put(at, &address.octets()),
            IpAddr::V6(address) => put(at, &address.octets()),
        }
    }
    put(INTERFACE_AT, &flow.interface.to_ne_bytes());
    // The lower half comes first on every machine.
    put(COOKIE_AT, &(flow.cookie as u32).to_ne_bytes());
    put(COOKIE_AT + 4, &((flow.cookie >> 32) as u32).to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::super::FlowSampler;
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn unsent_bytes_of_single_sockets_are_seen_and_a_closed_one_is_gone() {
        // An IPv4 peer of an IPv6 socket is listed as what it is.
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let listener = TcpListener::bind(listen).unwrap();
            let to = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
            let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(to).unwrap()).collect();
            let accepted: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
            let ports: Vec<u16> = clients.iter().map(|client| client.local_addr().unwrap().port()).collect();
            let mut flows: Vec<Flow> = Vec::new();
            FlowSampler::open(None)
                .unwrap()
                .read(&mut |flow| {
                    // Both ends.
                    let is_own = |port: u16| ports.contains(&port);
                    if flow.tcp.is_some() && (is_own(flow.local.port()) || is_own(flow.peer.port())) {
                        flows.push(flow);
                    }
                })
                .unwrap();
            assert_eq!(flows.len(), 6, "{flows:?}");
            // More than the peer's buffer takes: the rest waits.
            clients[1].set_nonblocking(true).unwrap();
            let chunk = vec![0; 1 << 20];
            while clients[1].write(&chunk).is_ok() {}
            let first = clients.remove(0);
            nix::sys::socket::setsockopt(
                &first,
                nix::sys::socket::sockopt::Linger,
                &libc::linger { l_onoff: 1, l_linger: 0 },
            )
            .unwrap();
            drop(first);
            let mut seen = vec![None; 6];
            let mut probe = SocketProbe::open().unwrap();
            for _ in 0..2 {
                probe.unsent_bytes(flows.iter(), &mut |at, bytes| seen[at] = Some(bytes)).unwrap();
            }
            // More than one call takes.
            let many = flows.iter().cycle().take(100 * flows.len());
            let mut answers = vec![0; flows.len()];
            probe
                .flows(many, &mut |at, flow| {
                    let at = at % flows.len();
                    answers[at] += 1;
                    assert_eq!(flow.is_some(), seen[at] != Some(None), "{:?}", flows[at]);
                    if let Some(flow) = flow {
                        assert_eq!((flow.cookie, flow.inode), (flows[at].cookie, flows[at].inode));
                        assert_eq!((flow.local, flow.peer), (flows[at].local, flows[at].peer));
                        assert_eq!(flow.congestion, flows[at].congestion);
                        assert!(flow.tcp.is_some() && flow.memory.is_some() && flow.priority.is_some());
                    }
                })
                .unwrap();
            assert!(answers.iter().all(|answers| *answers == 100), "{answers:?}");
            for (flow, seen) in flows.iter().zip(&seen) {
                match (flow.local.port(), flow.peer.port()) {
                    (own, _) if own == ports[0] => assert_eq!(*seen, Some(None), "reset: {flow:?}"),
                    (own, _) if own == ports[1] => assert!(seen.unwrap() > Some(0), "{flow:?} {seen:?}"),
                    (_, peer) if peer == ports[0] => {}
                    _ => assert_eq!(*seen, Some(Some(0)), "{flow:?}"),
                }
            }
            drop(accepted);
        }
    }
}
