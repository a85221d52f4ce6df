//! What the network device toward the server carries.

use std::net::SocketAddr;
use std::path::Path;

use sys::clock::monotonic_ns;
use sys::proc::NetDevice;

/// A device, and the most that it carries in one direction, if that is known.
pub(crate) struct Network {
    device: NetDevice,
    pub link_bit_per_s: Option<f64>,
}

/// When it was read, and the bytes of both directions until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    at_ns: u64,
    bytes: [u64; 2],
}

impl Network {
    /// `None` for a server on this host.
    pub(crate) fn toward(server: SocketAddr) -> Option<Self> {
        let name = sys::proc::interface_to(server).ok().filter(|name| name != "lo")?;
        let shaped = sys::netlink::rate_of(&name, None).ok().flatten();
        let rate = shaped.or_else(|| sys::proc::link_speed_bit_per_s(Path::new("/"), &name));
        let device = NetDevice::open(Path::new("/"), &name).ok()?;
        Some(Self { device, link_bit_per_s: rate.map(|rate| rate as f64) })
    }

    pub(crate) fn name(&self) -> &str {
        self.device.name()
    }

    pub(crate) fn read(&mut self) -> Option<Reading> {
        let reading = self.device.read().ok()?;
        Some(Reading { at_ns: monotonic_ns(), bytes: [reading.rx_bytes, reading.tx_bytes] })
    }
}

/// Of the busier direction.
pub(crate) fn bit_per_s(before: Reading, after: Reading) -> Option<f64> {
    let s = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let bytes = (0..2).map(|way| after.bytes[way].saturating_sub(before.bytes[way])).max()?;
    (s > 0.0).then(|| bytes as f64 * 8.0 / s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busier_direction_counts() {
        let before = Reading { at_ns: 0, bytes: [100, 100] };
        let after = Reading { at_ns: 2_000_000_000, bytes: [1100, 350] };
        assert_eq!(bit_per_s(before, after), Some(4000.0));
        assert_eq!(bit_per_s(before, before), None);
        assert!(Network::toward(SocketAddr::from(([127, 0, 0, 1], 80))).is_none());
    }
}
