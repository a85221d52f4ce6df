//! What the threads of the sources need to know of a trial.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use crate::part_settings::{PortEndpoint, SourcesTask, boot_of_host, configuration_of};
use crate::settings::{BuilderChoice, Carrier, DaqSettings, FragmentSizes, Pattern};

/// Events that a source may have queued beyond the builder's window: late or repeated orders.
const EVENTS_BEYOND_WINDOW: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct BuilderAt {
    pub(super) address: SocketAddr,
    pub(super) orders: Option<SocketAddrV4>,
    /// Run number; each builders' host draws its own.
    pub(super) run: u32,
}

#[derive(Debug)]
pub(super) struct SourcesConfig {
    /// In the order of their numbers.
    pub(super) builders: Vec<BuilderAt>,
    pub(super) sizes: FragmentSizes,
    pub(super) checksum: bool,
    /// Whether sources send at the trigger, without a grant.
    pub(super) is_push: bool,
    pub(super) is_udp: bool,
    /// Distance between the numbers of a builder's events; `None`: not known in advance.
    pub(super) step: Option<u64>,
    /// Delay between one source's fragment and the next one's, ns.
    pub(super) stagger_ns: u64,
    /// Events of one builder that a source may have queued.
    pub(super) events_max: usize,
    /// Orders that a worker collects before its sources send; see [`DaqSettings::together_max`].
    pub(super) batch_max: usize,
    /// Share of the orders that sources drop on purpose (fault injection).
    pub(super) drop_share: f64,
    pub(super) seed: u64,
    pub(super) congestion: Option<String>,
    /// Hash of the settings; the builder compares it with its own.
    pub(super) configuration: u64,
    /// Boot id of the kernel: sources with the builder's id share its clock.
    pub(super) boot: [u8; 16],
}

impl SourcesConfig {
    /// Combines the task and the builders' addresses.
    pub(super) fn new(task: &SourcesTask, ports: &[PortEndpoint], sizes: FragmentSizes) -> Self {
        let settings = &task.settings;
        let builders = ports.iter().flat_map(|port| {
            port.addresses.iter().enumerate().map(move |(at, &address)| BuilderAt {
                address,
                orders: port.group(at, settings),
                run: port.run,
            })
        });
        let builders: Vec<_> = builders.collect();
        let is_modulo = settings.builder_choice == BuilderChoice::Modulo;
        Self {
            step: is_modulo.then_some(builders.len().max(1) as u64),
            builders,
            sizes,
            checksum: settings.checksum,
            is_push: settings.pattern == Pattern::Push,
            is_udp: settings.protocol == Carrier::Udp,
            stagger_ns: settings.stagger.map_or(0, |stagger| stagger.ns()),
            events_max: settings.window as usize + EVENTS_BEYOND_WINDOW,
            batch_max: settings.together_max() as usize,
            drop_share: settings.drop_orders_percent / 100.0,
            seed: task.seed,
            congestion: settings.congestion_control.clone(),
            configuration: configuration_of(settings),
            boot: boot_of_host(),
        }
    }

    pub(super) fn run_of(&self, builder: u16) -> u32 {
        self.builders.get(usize::from(builder)).map_or(0, |builder| builder.run)
    }
}

/// The highest rate at which the sources of a task may send, bit/s; `u64::MAX`: unlimited.
pub(super) fn rate_max_bit_per_s(settings: &DaqSettings, mean_bytes: f64, sources: u32) -> u64 {
    let events_per_s = settings.triggers.rate_per_s().unwrap_or(f64::INFINITY);
    // A saturating cast: infinity becomes `u64::MAX`.
    (events_per_s * mean_bytes * 8.0 * f64::from(sources)) as u64
}

/// The address of the interface that routes to `peer`; IPv4 only.
pub(super) fn interface_towards(peer: SocketAddr) -> Option<Ipv4Addr> {
    // Connecting a UDP socket looks up the route and sends nothing.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(peer).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(local) => Some(*local.ip()),
        SocketAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_towards_loopback_is_loopback() {
        assert_eq!(interface_towards("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn rate_max_is_unlimited_without_trigger_rate() {
        let mut settings = DaqSettings::default();
        assert_eq!(rate_max_bit_per_s(&settings, 1000.0, 10), u64::MAX);
        settings.triggers = "100/s".parse().unwrap();
        assert_eq!(rate_max_bit_per_s(&settings, 1000.0, 10), 8_000_000);
    }
}
