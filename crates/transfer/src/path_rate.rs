//! What the path between two hosts can carry at best, as far as they know.

use std::net::SocketAddr;
use std::path::Path as FilePath;

use serde::{Deserialize, Serialize};
use sys::net::UdpFlow;

use super::flow::Protocol;
use super::line_rate::{ETHERNET_BYTES, ETHERNET_HEADER_BYTES, Path};
use super::settings::TransferSettings;

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
    let path = Path {
        link_bit_per_s: link.rate_bit_per_s,
        mtu_bytes,
        around_bytes: link.around_bytes,
        ipv6: server.is_ipv6(),
    };
    match settings.protocol {
        Protocol::Tcp => path.tcp_bit_per_s(),
        Protocol::Udp => path.udp_bit_per_s(settings.size_bytes()),
        Protocol::Quic => path.quic_bit_per_s(),
    }
}
