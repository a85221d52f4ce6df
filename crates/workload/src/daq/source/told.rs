//! What all threads of the sources are told.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use crate::daq::settings::{BuilderChoice, Carrier, DaqSettings, Draw, Orders, Pattern};
use crate::daq::task::{PortFacts, SourcesTask, boot_of_host, configuration_of};

/// Events that a source may have on hand beyond those that the builder's window allows: told of late, or again.
const EVENTS_BEYOND_WINDOW: usize = 8;

/// One builder.
#[derive(Debug, Clone)]
pub(super) struct BuilderAt {
    /// Where it listens, by TCP and UDP.
    pub(super) address: SocketAddr,
    /// Where it gives its orders to all.
    pub(super) orders: Option<SocketAddrV4>,
    /// Which run: each builders' host has drawn its own number.
    pub(super) run: u32,
}

/// What does not change during a trial.
#[derive(Debug)]
pub(super) struct Told {
    /// All builders, in the order of their numbers.
    pub(super) builders: Vec<BuilderAt>,
    /// How large fragments are.
    pub(super) draw: Draw,
    /// Whether each carries a checksum.
    pub(super) checksum: bool,
    /// Whether sources send as soon as they hear of an event.
    pub(super) is_push: bool,
    /// Whether fragments go in datagrams.
    pub(super) is_udp: bool,
    /// How far apart the numbers of a builder's events are; `None`: that is not known in advance.
    pub(super) step: Option<u64>,
    /// How much longer each source waits than the one before it, ns.
    pub(super) stagger_ns: u64,
    /// Events of one builder that a source may have on hand.
    pub(super) events_max: usize,
    /// See [`DaqSettings::together_max`].
    pub(super) together_max: usize,
    /// The share of the orders that is overheard on purpose.
    pub(super) drop_share: f64,
    /// Seed of what is drawn here.
    pub(super) seed: u64,
    /// Congestion control of the connections.
    pub(super) congestion: Option<String>,
    /// Tells the builder what was told here.
    pub(super) configuration: u64,
    /// Which kernel, and so which clock.
    pub(super) boot: [u8; 16],
}

impl Told {
    /// Puts together what the task and the ports of the builders say; `sizes` is the text of the file of sizes.
    ///
    /// # Errors
    /// What is wrong with the sizes.
    pub(super) fn new(task: &SourcesTask, ports: &[PortFacts], sizes: &str) -> Result<Self, String> {
        let settings = &task.settings;
        let by_multicast = settings.orders == Orders::Multicast;
        let builders = ports.iter().flat_map(|port| {
            port.addresses.iter().enumerate().map(move |(at, &address)| BuilderAt {
                address,
                // There are no IPv4 groups at an IPv6 address: the builder says all over the connections.
                orders: port.groups.get(at).copied().filter(|_| by_multicast && address.is_ipv4()),
                run: port.run,
            })
        });
        let builders: Vec<_> = builders.collect();
        let is_modulo = settings.builder_choice == BuilderChoice::Modulo;
        Ok(Self {
            step: is_modulo.then_some(builders.len().max(1) as u64),
            builders,
            draw: Draw::new(&settings.size, task.seed, sizes)?,
            checksum: settings.checksum,
            is_push: settings.pattern == Pattern::Push,
            is_udp: settings.protocol == Carrier::Udp,
            stagger_ns: settings.stagger.map_or(0, |stagger| stagger.ns()),
            events_max: settings.window as usize + EVENTS_BEYOND_WINDOW,
            together_max: settings.together_max() as usize,
            drop_share: settings.drop_orders_percent / 100.0,
            seed: task.seed,
            congestion: settings.congestion_control.clone(),
            configuration: configuration_of(settings),
            boot: boot_of_host(),
        })
    }
}

impl Told {
    /// The number by which a builder knows its run.
    pub(super) fn run_of(&self, builder: u16) -> u32 {
        self.builders.get(usize::from(builder)).map_or(0, |builder| builder.run)
    }
}

/// The most that the sources of a task may send, bit/s, for whoever must permit it.
pub(super) fn rate_max_bit_per_s(settings: &DaqSettings, mean_bytes: f64, sources: u32) -> u64 {
    let events_per_s = settings.triggers.rate_per_s().unwrap_or(f64::INFINITY);
    // As much as an integer holds stands for "without limit".
    (events_per_s * mean_bytes * 8.0 * f64::from(sources)) as u64
}

/// The address of the interface that leads to `peer`, as far as IPv4 goes.
pub(super) fn interface_towards(peer: SocketAddr) -> Option<Ipv4Addr> {
    // Connecting a UDP socket asks the routes and sends nothing.
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
    fn the_way_to_oneself_is_loopback() {
        assert_eq!(interface_towards("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn only_a_given_rate_is_limited() {
        let mut settings = DaqSettings::default();
        assert_eq!(rate_max_bit_per_s(&settings, 1000.0, 10), u64::MAX);
        settings.triggers = "100/s".parse().unwrap();
        assert_eq!(rate_max_bit_per_s(&settings, 1000.0, 10), 8_000_000);
    }
}
