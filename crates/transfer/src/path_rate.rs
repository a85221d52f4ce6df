//! The goodput that the path between two hosts can carry at best: its rate as far as the hosts know it, and
//! what headers cost.

use std::net::SocketAddr;
use std::path::Path as FilePath;

use serde::{Deserialize, Serialize};
use sys::net::UdpFlow;

use super::flow::Protocol;
use super::settings::TransferSettings;

/// Ethernet around each frame: preamble and delimiter 8, addresses and type 14, checksum 4, gap 12 (IEEE
/// 802.3).
pub const ETHERNET_BYTES: u64 = 38;
/// Of these, what a shaper below the IP layer usually counts (addresses and type).
pub const ETHERNET_HEADER_BYTES: u64 = 14;
/// IPv4's header without options (RFC 791).
pub(super) const IPV4_BYTES: u64 = 20;
/// IPv6's header (RFC 8200).
pub(super) const IPV6_BYTES: u64 = 40;
/// TCP's header (RFC 9293) with the timestamps option, padded (RFC 7323).
const TCP_BYTES: u64 = 20 + 12;
/// UDP's header (RFC 768).
pub(super) const UDP_BYTES: u64 = 8;
/// QUIC's in a packet with one frame of a stream: flags 1, connection 8 (quinn's), number 1, tag 16, frame 1
/// + 1 + 4.
const QUIC_BYTES: u64 = 32;
/// Fragments begin at multiples of 8 bytes of payload (RFC 791).
const FRAGMENT_UNIT_BYTES: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The rate of its slowest link, bit/s.
    pub link_bit_per_s: u64,
    /// The largest IP packet, bytes.
    pub mtu_bytes: u64,
    /// What is spent around each IP packet, bytes: [`ETHERNET_BYTES`] on a wire.
    pub around_bytes: u64,
    pub ipv6: bool,
}

impl Path {
    fn ip_bytes(&self) -> u64 {
        if self.ipv6 { IPV6_BYTES } else { IPV4_BYTES }
    }

    /// The most payload that TCP with timestamps carries, bit/s; `None` for an MTU that has no room for any.
    pub fn tcp_bit_per_s(&self) -> Option<f64> {
        let payload = self.mtu_bytes.checked_sub(self.ip_bytes() + TCP_BYTES).filter(|bytes| *bytes > 0)?;
        Some(self.share(payload, self.mtu_bytes + self.around_bytes))
    }

    /// The most payload that datagrams of `payload_bytes` carry, bit/s; those larger than the MTU go in
    /// fragments (by the sender also with IPv6, whose fragments have 8 more bytes each).
    pub fn udp_bit_per_s(&self, payload_bytes: u64) -> Option<f64> {
        let datagram = payload_bytes + UDP_BYTES;
        let whole = self.mtu_bytes.checked_sub(self.ip_bytes()).filter(|bytes| *bytes >= UDP_BYTES)?;
        let on_wire = if datagram <= whole {
            datagram + self.ip_bytes() + self.around_bytes
        } else {
            let more = if self.ipv6 { 8 } else { 0 };
            let room = whole.checked_sub(more)? / FRAGMENT_UNIT_BYTES * FRAGMENT_UNIT_BYTES;
            let fragments = datagram.div_ceil(room.max(FRAGMENT_UNIT_BYTES));
            datagram + fragments * (self.ip_bytes() + more + self.around_bytes)
        };
        Some(self.share(payload_bytes, on_wire))
    }

    /// The most payload that one stream of QUIC carries, bit/s: each packet fills the MTU, and spends as
    /// little as it can on its own headers (RFC 9000, 17.3 and 19.8) and the encryption's tag (RFC 9001).
    pub fn quic_bit_per_s(&self) -> Option<f64> {
        let payload = self.mtu_bytes.checked_sub(self.ip_bytes() + UDP_BYTES + QUIC_BYTES)?;
        Some(self.share(payload, self.mtu_bytes + self.around_bytes)).filter(|_| payload > 0)
    }

    fn share(&self, payload_bytes: u64, on_wire_bytes: u64) -> f64 {
        self.link_bit_per_s as f64 * payload_bytes as f64 / on_wire_bytes as f64
    }
}

/// A device towards a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The most that it sends, bit/s.
    pub rate_bit_per_s: u64,
    /// What its rate counts around each IP packet, bytes.
    pub around_bytes: u64,
}

impl Link {
    /// This host's device towards `peer`: its shaper's rate, else its own; `None` over loopback and where
    /// none is known.
    pub fn towards(peer: SocketAddr) -> Option<Self> {
        let device = sys::proc::interface_to(peer).ok().filter(|device| device != "lo")?;
        let of = |around_bytes| move |rate_bit_per_s| Self { rate_bit_per_s, around_bytes };
        // A shaper counts what it queues: no preamble, checksum or gap.
        let shaped = sys::netlink::rate_of(&device, None).ok().flatten().map(of(ETHERNET_HEADER_BYTES));
        let wired = || sys::proc::link_speed_bit_per_s(FilePath::new("/"), &device).map(of(ETHERNET_BYTES));
        shaped.or_else(wired)
    }
}

/// The most payload that the path to `server` can carry, bit/s: by the rate that was given, else by the
/// slower of the two ends' devices; `None` where no rate is known.
pub(super) fn theoretical_bit_per_s(
    settings: &TransferSettings,
    server: SocketAddr,
    of_server: Option<Link>,
) -> Option<f64> {
    let given =
        settings.link.map(|link| Link { rate_bit_per_s: link.bit_per_s(), around_bytes: ETHERNET_BYTES });
    let slower =
        || [Link::towards(server), of_server].into_iter().flatten().min_by_key(|link| link.rate_bit_per_s);
    let link = given.or_else(slower)?;
    // Connecting a UDP socket asks the routing table and sends nothing.
    let mtu_bytes = u64::from(UdpFlow::connect(server, None).ok()?.path_mtu().ok()?);
    let (link_bit_per_s, around_bytes) = (link.rate_bit_per_s, link.around_bytes);
    let path = Path { link_bit_per_s, mtu_bytes, around_bytes, ipv6: server.is_ipv6() };
    match settings.protocol {
        Protocol::Tcp => path.tcp_bit_per_s(),
        Protocol::Udp => path.udp_bit_per_s(settings.size_bytes()),
        Protocol::Quic => path.quic_bit_per_s(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Path =
        Path { link_bit_per_s: 1_000_000_000, mtu_bytes: 1500, around_bytes: ETHERNET_BYTES, ipv6: false };

    #[test]
    fn line_rate_matches_published_numbers() {
        // 1448 of 1538 bytes; 1472 of 1538; IPv6 has 20 bytes less room.
        for (path, tcp, udp) in [
            (GIGABIT, 941.482e6, 957.087e6),
            (Path { ipv6: true, ..GIGABIT }, 928.479e6, 944.083e6),
            (Path { mtu_bytes: 9000, ..GIGABIT }, 990.042e6, 992.697e6),
        ] {
            assert!((path.tcp_bit_per_s().unwrap() - tcp).abs() < 1e3, "{:?}", path.tcp_bit_per_s());
            let found = path.udp_bit_per_s(path.mtu_bytes - path.ip_bytes() - UDP_BYTES).unwrap();
            assert!((found - udp).abs() < 1e3, "{found}");
        }
    }

    #[test]
    fn large_datagram_pays_for_each_fragment() {
        let (fits, two) = (GIGABIT.udp_bit_per_s(1472).unwrap(), GIGABIT.udp_bit_per_s(1473).unwrap());
        assert!(two < fits, "one byte more costs a second packet");
        // 1481 bytes of datagram in two fragments: 1473 of 1481 + 2 x 58.
        assert!((two - 1e9 * 1473.0 / 1597.0).abs() < 1.0);
    }

    #[test]
    fn mtu_below_the_headers_carries_nothing() {
        let narrow = Path { mtu_bytes: 50, ..GIGABIT };
        assert_eq!(narrow.tcp_bit_per_s(), None);
        assert_eq!(Path { mtu_bytes: 20, ..GIGABIT }.udp_bit_per_s(100), None);
        assert_eq!(Path { mtu_bytes: 60, ..GIGABIT }.quic_bit_per_s(), None);
    }
}
