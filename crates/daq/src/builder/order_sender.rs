//! Sends orders and clock probes: by multicast, to one group, or over connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::MulticastSender;

use super::clocks::ClockProbe;
use super::config::BuilderConfig;
use super::sockets::Sockets;
use super::source_registry::SourceRegistry;
use crate::settings::Orders;
use crate::wire::{Kind, Order};

/// Number of the clock probe that is multicast to find out which groups receive multicast.
pub(super) const MULTICAST_PROBE: u64 = u64::MAX;

/// Sources that share a multicast receiver and a clock.
#[derive(Debug)]
struct Group {
    /// The host from which its last source connected.
    ip: IpAddr,
    /// Where it receives unicast datagrams; `None`: over its delegate's connection.
    udp: Option<SocketAddr>,
    /// One of its sources.
    delegate: u32,
    /// Whether it has answered a multicast probe.
    multicast_ok: bool,
    /// Whether its orders go over connections: there is no multicast, it joined late, or it did not answer a
    /// probe in time.
    unicast_only: bool,
}

pub(super) struct OrderSender {
    config: Arc<BuilderConfig>,
    multicast: Option<MulticastSender>,
    /// Why there is no multicast though the settings ask for it.
    multicast_error: Option<String>,
    groups: Vec<Group>,
    /// Whether [`Self::settle_multicast`] was called.
    is_settled: bool,
}

fn multicast_sender(config: &BuilderConfig) -> Result<Option<MulticastSender>, String> {
    if config.settings.orders != Orders::Multicast {
        return Ok(None);
    }
    let IpAddr::V4(local) = config.address.ip() else {
        return Err("orders used TCP instead of multicast, which needs IPv4 addresses".to_owned());
    };
    MulticastSender::new(config.group, local)
        .map(Some)
        .map_err(|error| format!("orders used TCP instead of multicast: {error}"))
}

impl OrderSender {
    pub(super) fn new(config: Arc<BuilderConfig>) -> Self {
        let (multicast, multicast_error) = match multicast_sender(&config) {
            Ok(multicast) => (multicast, None),
            Err(error) => (None, Some(error)),
        };
        Self { config, multicast, multicast_error, groups: Vec::new(), is_settled: false }
    }

    pub(super) const fn has_multicast(&self) -> bool {
        self.multicast.is_some()
    }

    /// A source connected. A new group that comes late gets its orders over connections until it answers a
    /// multicast probe.
    pub(super) fn join(
        &mut self,
        group: u32,
        source: u32,
        (ip, udp): (IpAddr, Option<SocketAddr>),
        is_new: bool,
        sources: &SourceRegistry,
    ) {
        let at = group as usize;
        if is_new {
            let unicast_only = self.multicast.is_none() || self.is_settled;
            let new = Group { ip, udp, delegate: source, multicast_ok: false, unicast_only };
            match self.groups.get_mut(at) {
                Some(old) => *old = new,
                None => self.groups.push(new),
            }
            if self.is_settled {
                self.send_multicast_probe();
            }
        }
        if let Some(group) = self.groups.get_mut(at) {
            (group.ip, group.udp) = (ip, udp);
            if !sources.is_connected(group.delegate) {
                group.delegate = source;
            }
        }
    }

    fn udp_address(&self, group: u32) -> Option<SocketAddr> {
        self.groups.get(group as usize)?.udp
    }

    /// Whether the group's fragments come from this address: its UDP port, or any port of its host if the
    /// group has not named one.
    pub(super) fn is_address_of(&self, group: u32, from: SocketAddr) -> bool {
        let group = self.groups.get(group as usize);
        group.is_some_and(|group| group.udp.map_or(group.ip == from.ip(), |udp| udp == from))
    }

    /// An order without an event.
    fn plain_order(&self, kind: Kind) -> Order {
        Order::new(kind, self.config.run, self.config.builder, self.config.sources())
    }

    pub(super) fn send(&self, order: &Order, sources: &SourceRegistry, sockets: &mut Sockets) {
        let bytes = order.encode();
        if let Some(multicast) = &self.multicast {
            // A datagram that finds no room is repeated like a lost one.
            let _ = multicast.send(&bytes);
            if self.groups.iter().all(|group| !group.unicast_only) {
                return;
            }
        }
        let last = order.first_source.saturating_add(order.sources).min(sources.sources());
        for source in order.first_source..last {
            let group = self.groups.get(sources.group(source) as usize);
            if group.is_some_and(|group| group.unicast_only) {
                Self::send_unicast(source, &bytes, sources, sockets);
            }
        }
    }

    /// Sends an order over one source's connection.
    pub(super) fn send_unicast(source: u32, bytes: &[u8], sources: &SourceRegistry, sockets: &mut Sockets) {
        if let Some(at) = sources.connection(source) {
            sockets.send(at, bytes);
        }
    }

    /// Sends to one group: by datagram, or over the connection of one of its sources.
    fn send_to_group(&self, group: u32, bytes: &[u8], sources: &SourceRegistry, sockets: &mut Sockets) {
        let Some(&Group { udp, delegate, .. }) = self.groups.get(group as usize) else { return };
        if let Some(to) = udp {
            return sockets.send_datagram(bytes, to);
        }
        let delegate =
            Some(delegate).filter(|&one| sources.is_connected(one)).or_else(|| sources.member(group));
        if let Some(delegate) = delegate {
            Self::send_unicast(delegate, bytes, sources, sockets);
        }
    }

    pub(super) fn send_nack(&self, nack: &Order, sources: &SourceRegistry, sockets: &mut Sockets) {
        let (source, bytes) = (nack.first_source, nack.encode());
        match self.udp_address(sources.group(source)) {
            Some(to) => sockets.send_datagram(&bytes, to),
            None => Self::send_unicast(source, &bytes, sources, sockets),
        }
    }

    pub(super) fn send_stop(&self, sockets: &mut Sockets) {
        self.multicast_stop();
        sockets.send_last(&self.plain_order(Kind::Stop).encode());
    }

    pub(super) fn multicast_stop(&self) {
        if let Some(multicast) = &self.multicast {
            let _ = multicast.send(&self.plain_order(Kind::Stop).encode());
        }
    }

    fn clock_probe(&self, number: u64) -> Order {
        Order { event: number, triggered_ns: monotonic_ns(), ..self.plain_order(Kind::Sync) }
    }

    pub(super) fn send_clock_probe(
        &self,
        probe: ClockProbe,
        sources: &SourceRegistry,
        sockets: &mut Sockets,
    ) {
        self.send_to_group(probe.group, &self.clock_probe(probe.number).encode(), sources, sockets);
    }

    fn send_multicast_probe(&self) {
        if let Some(multicast) = &self.multicast {
            let _ = multicast.send(&self.clock_probe(MULTICAST_PROBE).encode());
        }
    }

    /// Multicasts a probe if a group whose orders are multicast has not answered one. Returns whether such a
    /// group exists.
    pub(super) fn probe_unanswered_groups(&self) -> bool {
        let is_unanswered = self.multicast.is_some()
            && self.groups.iter().any(|group| !group.multicast_ok && !group.unicast_only);
        if is_unanswered {
            self.send_multicast_probe();
        }
        is_unanswered
    }

    /// Whether a group has not answered a multicast probe, wherever its orders go.
    pub(super) fn has_unanswered_groups(&self) -> bool {
        self.multicast.is_some() && self.groups.iter().any(|group| !group.multicast_ok)
    }

    pub(super) fn multicast_answered(&mut self, group: u32) {
        if let Some(group) = self.groups.get_mut(group as usize) {
            group.multicast_ok = true;
            group.unicast_only &= self.multicast.is_none();
        }
    }

    /// From now on groups that have not answered get their orders over connections. Returns a note for the
    /// report.
    pub(super) fn settle_multicast(&mut self) -> Option<String> {
        self.is_settled = true;
        if self.multicast.is_none() {
            return self.multicast_error.clone();
        }
        for group in &mut self.groups {
            group.unicast_only |= !group.multicast_ok;
        }
        let unicast = self.groups.iter().filter(|group| group.unicast_only).count();
        (unicast > 0).then(|| {
            format!(
                "multicast to {} did not reach {unicast} of {} groups of sources, which received their \
                 orders over TCP; make switches forward it (IGMP snooping needs a querier)",
                self.config.group,
                self.groups.len()
            )
        })
    }
}
