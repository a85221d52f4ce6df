//! What the path to a server can carry at best, as far as this host knows.

use std::net::SocketAddr;
use std::path::Path as FilePath;

use sys::net::UdpFlow;

use crate::transfer::flow::Protocol;
use crate::transfer::settings::TransferSettings;
use crate::transfer::theory::{ETHERNET_BYTES, ETHERNET_HEADER_BYTES, Path};

/// The most payload that the path to `server` can carry, bit/s: by the rate that was given, else by the rate of the device
/// towards it; `None` over loopback, and where no rate is known.
pub(super) fn theoretical_bit_per_s(settings: &TransferSettings, server: SocketAddr) -> Option<f64> {
    let path = path(settings, server)?;
    match settings.protocol {
        Protocol::Tcp => path.tcp_bit_per_s(),
        Protocol::Udp => path.udp_bit_per_s(settings.size_bytes()),
    }
}

fn path(settings: &TransferSettings, server: SocketAddr) -> Option<Path> {
    let device = sys::proc::interface_to(server).ok().filter(|device| device != "lo")?;
    // Connecting a UDP socket asks the routing table and sends nothing.
    let mtu_bytes = u64::from(UdpFlow::connect(server, None).ok()?.path_mtu().ok()?);
    let shaped = sys::netlink::rate_of(&device, None).ok().flatten();
    let wired = || sys::proc::link_speed_bit_per_s(FilePath::new("/"), &device);
    let given = settings.link.map(|link| (link.bit_per_s(), ETHERNET_BYTES));
    // A shaper counts what it queues: no preamble, checksum or gap.
    let shaped = shaped.map(|rate| (rate, ETHERNET_HEADER_BYTES));
    let (link_bit_per_s, around_bytes) =
        given.or(shaped).or_else(|| wired().map(|rate| (rate, ETHERNET_BYTES)))?;
    Some(Path { link_bit_per_s, mtu_bytes, around_bytes, ipv6: server.is_ipv6() })
}
