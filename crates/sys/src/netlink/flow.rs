//! The state of one socket, as sock_diag(7) describes it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{BY_FAMILY, DIAG_INFO, DIAG_MESSAGE_BYTES, attributes, messages, u16_at, u32_at};
use crate::net::{CongestionControl, TcpInfo};

/// `INET_DIAG_SKMEMINFO` (`linux/inet_diag.h`): the attribute that holds the array of `SK_MEMINFO_*`.
const DIAG_MEMORY: u16 = 7;
/// `INET_DIAG_TCLASS`: asks for [`DIAG_CLASS`], too, whose own number does not fit into a request.
const DIAG_TRAFFIC_CLASS: u16 = 6;
/// `INET_DIAG_CLASS_ID`: the priority of the socket, unless its process has a class by net_cls.
const DIAG_CLASS: u16 = 17;
/// `INET_DIAG_CONG`: the name of the congestion control.
const DIAG_CONGESTION: u16 = 4;
/// What a request is to ask for, so that nothing of a [`Flow`] is missing.
pub(super) const ATTRIBUTES: u8 = 1 << (DIAG_INFO - 1)
    | 1 << (DIAG_MEMORY - 1)
    | 1 << (DIAG_TRAFFIC_CLASS - 1)
    | 1 << (DIAG_CONGESTION - 1);
/// The places of members of `struct inet_diag_msg`.
const STATE_AT: usize = 1;
const PORTS_AT: usize = 4;
const LOCAL_AT: usize = 8;
const PEER_AT: usize = 24;
const INTERFACE_AT: usize = 40;
const COOKIE_AT: usize = 44;
const UNREAD_AT: usize = 56;
const UNSENT_AT: usize = 60;
const USER_AT: usize = 64;
const INODE_AT: usize = 68;

/// The memory of a socket, bytes (`SK_MEMINFO_*` of `linux/sock_diag.h`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Packets received and not read, with the kernel's own data about them.
    pub receive_used: u32,
    pub receive_max: u32,
    /// Packets that are under way within this host.
    pub send_under_way: u32,
    /// Data to send or not acknowledged, with the kernel's own data about it.
    pub send_used: u32,
    pub send_max: u32,
    /// Datagrams dropped at the socket, not bytes.
    pub drops: u32,
}

/// A TCP or UDP socket at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    pub local: SocketAddr,
    /// Port 0: not connected.
    pub peer: SocketAddr,
    /// Number of the interface that it is bound to; 0: none.
    pub interface: u32,
    /// State (`net/tcp_states.h`): 1 established, 7 closed (UDP: not connected).
    pub state: u8,
    /// The kernel's own number of the socket; no other socket ever gets it.
    pub cookie: u64,
    /// Its number in `/proc/PID/fd`; 0: no program holds it.
    pub inode: u64,
    pub uid: u32,
    /// What has come and was not read.
    pub unread_bytes: u32,
    /// What was written and is not sent, or of TCP not acknowledged.
    pub unsent_bytes: u32,
    pub memory: Option<SocketMemory>,
    /// `SO_PRIORITY`; `None`: the kernel does not report it (before Linux 5.0).
    pub priority: Option<u32>,
    /// `None` for UDP, as below.
    pub tcp: Option<TcpInfo>,
    pub congestion: Option<CongestionControl>,
}

impl Flow {
    /// Reads one answer of sock_diag(7) without its netlink header; `None` if it is cut off or of another
    /// family.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let inside = payload.get(DIAG_MESSAGE_BYTES..)?;
        let family = i32::from(*payload.first()?);
        // Addresses and ports are in network order.
        let port = |place: usize| u16_at(payload, PORTS_AT + 2 * place).map(u16::from_be);
        let address = |at: usize| -> Option<IpAddr> {
            match family {
                libc::AF_INET => Some(Ipv4Addr::from(*payload.get(at..)?.first_chunk::<4>()?).into()),
                // An IPv4 peer of an IPv6 socket is shown as what it is.
                libc::AF_INET6 => {
                    Some(Ipv6Addr::from(*payload.get(at..)?.first_chunk::<16>()?).to_canonical())
                }
                _ => None,
            }
        };
        let mut flow = Self {
            local: SocketAddr::new(address(LOCAL_AT)?, port(0)?),
            peer: SocketAddr::new(address(PEER_AT)?, port(1)?),
            interface: u32_at(payload, INTERFACE_AT)?,
            state: *payload.get(STATE_AT)?,
            // The lower half comes first on every machine.
            cookie: u64::from(u32_at(payload, COOKIE_AT)?) | u64::from(u32_at(payload, COOKIE_AT + 4)?) << 32,
            inode: u32_at(payload, INODE_AT)?.into(),
            uid: u32_at(payload, USER_AT)?,
            unread_bytes: u32_at(payload, UNREAD_AT)?,
            unsent_bytes: u32_at(payload, UNSENT_AT)?,
            memory: None,
            priority: None,
            tcp: None,
            congestion: None,
        };
        for (kind, content) in attributes(inside) {
            match kind {
                DIAG_INFO => flow.tcp = Some(TcpInfo::parse(content)),
                DIAG_MEMORY => flow.memory = memory(content),
                DIAG_CLASS => flow.priority = u32_at(content, 0),
                DIAG_CONGESTION => flow.congestion = CongestionControl::from_kernel(content),
                _ => {}
            }
        }
        Some(flow)
    }

    /// Bytes that TCP has sent and that are still in the network, by its own account (RFC 6675, "pipe").
    /// `None` for UDP.
    pub fn in_flight_bytes(&self) -> Option<u64> {
        let info = self.tcp.as_ref()?;
        let gone = info.sacked_segments?.saturating_add(info.lost_segments?);
        let once = u64::from(info.unacked_segments?.saturating_sub(gone));
        let again = u64::from(info.retransmitted_segments?);
        (once + again).checked_mul(info.send_mss_bytes?.into())
    }
}

fn memory(numbers: &[u8]) -> Option<SocketMemory> {
    let number = |place: usize| u32_at(numbers, 4 * place);
    Some(SocketMemory {
        receive_used: number(0)?,
        receive_max: number(1)?,
        send_under_way: number(2)?,
        send_max: number(3)?,
        send_used: number(5)?,
        // Since Linux 4.7.
        drops: number(8).unwrap_or_default(),
    })
}

/// Hands each flow of an answer of sock_diag(7), of which `bytes` is one read, to `take`.
pub fn flows_in(bytes: &[u8], take: &mut dyn FnMut(&Flow)) {
    for message in messages(bytes).filter(|message| message.kind == BY_FAMILY) {
        if let Some(flow) = Flow::parse(message.payload) {
            take(&flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::queue::tests::attribute;

    #[test]
    fn answer_of_known_bytes_is_parsed() {
        let mut payload = vec![0; DIAG_MESSAGE_BYTES];
        payload[0] = libc::AF_INET6 as u8;
        payload[1] = 8;
        payload[4..8].copy_from_slice(&[0x14, 0x51, 0, 80]);
        payload[LOCAL_AT + 10..LOCAL_AT + 16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        payload[PEER_AT] = 0xfe;
        payload[PEER_AT + 15] = 9;
        payload[COOKIE_AT..COOKIE_AT + 4].copy_from_slice(&7u32.to_ne_bytes());
        payload[COOKIE_AT + 4..COOKIE_AT + 8].copy_from_slice(&1u32.to_ne_bytes());
        payload[INODE_AT..INODE_AT + 4].copy_from_slice(&77u32.to_ne_bytes());
        let memory: Vec<u8> = (1..=9u32).flat_map(u32::to_ne_bytes).collect();
        payload.extend(attribute(DIAG_MEMORY, &memory));
        let mut info = vec![0; 248];
        for (at, number) in [(16, 1448u32), (24, 10), (28, 3), (32, 2), (36, 1), (140, 50), (192, 40)] {
            info[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        info[112..120].copy_from_slice(&u64::MAX.to_ne_bytes());
        info[7] = 1;
        payload.extend(attribute(DIAG_INFO, &info));
        let flow = Flow::parse(&payload).unwrap();
        assert_eq!(flow.local, "192.0.2.1:5201".parse().unwrap());
        assert_eq!(flow.peer, "[fe00::9]:80".parse().unwrap());
        assert_eq!((flow.cookie, flow.inode, flow.state), (1 << 32 | 7, 77, 8));
        let memory = flow.memory.unwrap();
        assert_eq!((memory.send_max, memory.send_used, memory.drops), (4, 6, 9));
        let tcp = flow.tcp.as_ref().unwrap();
        assert_eq!((tcp.received_segments, tcp.delivered_segments), (Some(50), Some(40)));
        assert_eq!(tcp.pacing_max_bytes_per_s, Some(u64::MAX));
        assert_eq!(tcp.is_delivery_limited_by_program, Some(true));
        assert_eq!(flow.in_flight_bytes(), Some((10 - 5 + 1) * 1448));
        assert_eq!(Flow::parse(&payload[..DIAG_MESSAGE_BYTES - 1]), None);
        payload[0] = libc::AF_UNIX as u8;
        assert_eq!(Flow::parse(&payload), None);
    }
}
