//! One thread's sources: an event loop over one epoll(7) instance.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Event, Events as ReadyEvents, Interest, Moved, MulticastReceiver, NetError};

use super::builder_link::BuilderLink;
use super::config::{SourcesConfig, interface_towards};
use super::connection::{Connection, LossCounters, State};
use super::connector::{self, Connector};
use super::counters::Counters;
use super::event_tracker::EventTracker;
use super::order_handler::{self, Delivery};
use super::payload::Payload;
use super::tcp_info_sampler::TcpInfoSampler;
use super::threads::Shared;
use super::udp;
use crate::report::{SourceSent, SourcesReport};
use crate::wire::{DATAGRAM_HEADER_BYTES, FragmentHeader, HEADER_BYTES_MAX, Kind, Order};

const WAKER: u64 = u64::MAX;
pub(super) const UDP: u64 = u64::MAX - 1;
/// The first token of the links' multicast receivers.
const MULTICAST_TOKENS: u64 = UDP - (1 << 16);
const READY_MAX: usize = 512;
/// Orders read from one socket before others are served.
const ORDERS_AT_ONCE: usize = 64;
/// Upper bound of a wait.
const WAIT_NS: u64 = 250_000_000;

/// The worker's state besides its links.
pub(super) struct WorkerContext {
    pub(super) config: Arc<SourcesConfig>,
    /// Group number in hellos.
    pub(super) number: u64,
    /// Number of its first source.
    pub(super) first: u32,
    pub(super) sources: usize,
    pub(super) epoll: Epoll,
    pub(super) udp: Option<UdpSocket>,
    /// 0: no UDP socket.
    pub(super) udp_port: u16,
    pub(super) udp_wants_room: bool,
    /// Link and index of sources that wait for the UDP socket.
    pub(super) udp_waiting: VecDeque<(usize, usize)>,
    pub(super) datagram: Vec<u8>,
    pub(super) payload: Payload,
    pub(super) counters: Counters,
    pub(super) sampler: TcpInfoSampler,
    pub(super) connector: Connector,
    /// Reconnections: due time, link, index.
    pub(super) again: Vec<(u64, usize, usize)>,
    pub(super) random: fastrand::Rng,
}

impl WorkerContext {
    /// A header of the source with this index, for the builder of `link`.
    pub(super) fn header(&self, kind: Kind, link: &BuilderLink, place: usize) -> FragmentHeader {
        let builder = link.builder();
        FragmentHeader::new(kind, self.config.run_of(builder), builder, self.first + place as u32)
    }
}

pub(super) struct Worker {
    context: WorkerContext,
    links: Vec<BuilderLink>,
    buffer: Vec<u8>,
    waker: usize,
}

pub(super) fn token(context: &WorkerContext, link: &BuilderLink, place: usize) -> u64 {
    (link.index * context.sources + place) as u64
}

impl Worker {
    /// A worker of `sources` sources from number `first` on; nothing is connected yet. `waker`: index of its
    /// thread.
    pub(super) fn new(
        config: Arc<SourcesConfig>,
        first: u32,
        sources: usize,
        handshakes_max: usize,
        waker: usize,
    ) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        let links: Vec<BuilderLink> =
            (0..config.builders.len()).map(|index| builder_link(&config, index, sources)).collect();
        for link in &links {
            if let Some(receiver) = &link.receiver {
                epoll.add(receiver, MULTICAST_TOKENS + link.index as u64, Interest::READ)?;
            }
        }
        let udp = udp_socket(&config);
        if let Some(udp) = &udp {
            epoll.add(udp, UDP, Interest::READ)?;
        }
        let udp_port = udp.as_ref().and_then(|udp| udp.local_addr().ok()).map_or(0, |local| local.port());
        let context = WorkerContext {
            number: sys::random::number(),
            first,
            sources,
            epoll,
            udp,
            udp_port,
            udp_wants_room: false,
            udp_waiting: VecDeque::new(),
            datagram: vec![0; DATAGRAM_HEADER_BYTES + udp::PART_BYTES],
            payload: Payload::new(config.checksum),
            counters: Counters::default(),
            sampler: TcpInfoSampler::new(),
            connector: Connector::new(config.congestion.clone(), handshakes_max),
            again: Vec::new(),
            random: fastrand::Rng::with_seed(config.seed ^ u64::from(first)),
            config,
        };
        Ok(Self { context, links, buffer: vec![0; 4 * HEADER_BYTES_MAX], waker })
    }

    /// Connects all sources, then executes orders until every builder has sent stop, or `shared` is stopped.
    pub(super) fn run(mut self, shared: &Shared) -> SourcesReport {
        let went = self.serve(shared);
        if let Err(error) = went {
            shared.connected(Err(error.to_string()));
            self.context.counters.end_reasons.insert(error.to_string(), 0);
        }
        self.report()
    }

    fn serve(&mut self, shared: &Shared) -> Result<(), NetError> {
        let waker = shared.waker(self.waker);
        self.context.epoll.add(waker, WAKER, Interest::READ)?;
        let mut ready = ReadyEvents::with_capacity(READY_MAX);
        let (mut has_reported, mut has_begun) = (false, false);
        while !shared.is_stopped() && !self.links.iter().all(BuilderLink::is_over) {
            if !has_reported {
                connector::start_handshakes(&mut self.context, &mut self.links);
                if let Some(failure) = self.context.connector.failure.take() {
                    shared.connected(Err(failure));
                    return Ok(());
                }
                has_reported = self.context.connector.is_done;
                if has_reported {
                    shared.connected(Ok(()));
                }
                shared.note_standing(self.waker, self.context.connector.standing);
            }
            let until_ns = self.next_ns().min(if has_begun { u64::MAX } else { shared.start_ns() });
            self.context.epoll.wait_until(&mut ready, until_ns)?;
            self.turn(&ready);
            if ready.iter().any(|event| event.token == WAKER) {
                waker.clear();
            }
            let now_ns = monotonic_ns();
            if !has_begun && now_ns >= shared.start_ns() {
                has_begun = true;
                self.context.counters.begin();
            }
            self.later(now_ns, ready.is_empty());
            shared.note_sent(
                self.waker,
                self.context.counters.fragments,
                self.context.counters.payload_bytes,
            );
        }
        Ok(())
    }

    fn next_ns(&self) -> u64 {
        let soon_ns = monotonic_ns() + WAIT_NS;
        let bursts = self.links.iter().flat_map(|link| &link.bursts);
        let bursts = bursts.map(|burst| super::sender::next_due_ns(&self.context, burst));
        let again = self.context.again.iter().map(|&(due_ns, _, _)| due_ns);
        let over = self.links.iter().map(|link| link.over_ns);
        let next_ns = bursts.chain(again).chain(over).min().unwrap_or(u64::MAX);
        next_ns.min(soon_ns).min(self.context.sampler.next_ns()).min(self.context.counters.next_second_ns())
    }

    /// Handles epoll events; multicast orders first.
    fn turn(&mut self, ready: &ReadyEvents) {
        for event in ready.iter().filter(|event| (MULTICAST_TOKENS..UDP).contains(&event.token)) {
            self.read_multicast((event.token - MULTICAST_TOKENS) as usize);
        }
        for event in ready.iter() {
            match event.token {
                UDP => self.read_udp(),
                token if token < MULTICAST_TOKENS => self.serve_connection(event),
                _ => {}
            }
        }
    }

    fn read_multicast(&mut self, index: usize) {
        for _ in 0..ORDERS_AT_ONCE {
            let Some(link) = self.links.get_mut(index) else { return };
            let Some(Ok(Some(bytes))) =
                link.receiver.as_ref().map(|receiver| receiver.receive(&mut self.buffer))
            else {
                break;
            };
            let received_ns = monotonic_ns();
            // Ignore other datagrams.
            let Ok((order, _)) = Order::decode(&self.buffer[..bytes]) else { continue };
            order_handler::handle_order(&mut self.context, link, &order, Delivery::Multicast, received_ns);
        }
        if let Some(link) = self.links.get_mut(index) {
            super::sender::send_batched(&mut self.context, link);
        }
    }

    /// Reads unicast datagrams, and serves sources that wait for the UDP socket.
    fn read_udp(&mut self) {
        for _ in 0..ORDERS_AT_ONCE {
            let Some(udp) = &self.context.udp else { return };
            let Ok((bytes, from)) = udp.recv_from(&mut self.buffer) else { break };
            let received_ns = monotonic_ns();
            let Ok((order, _)) = Order::decode(&self.buffer[..bytes]) else { continue };
            let Some(link) = self.links.get_mut(usize::from(order.builder)) else { continue };
            if from.ip().to_canonical() == link.address.ip().to_canonical() {
                order_handler::handle_order(
                    &mut self.context,
                    link,
                    &order,
                    Delivery::Udp(from),
                    received_ns,
                );
            }
        }
        if self.context.udp_wants_room {
            udp::watch(&mut self.context, false);
            for _ in 0..self.context.udp_waiting.len() {
                let Some((link, place)) = self.context.udp_waiting.pop_front() else { break };
                let link = &mut self.links[link];
                link.connections[place].is_blocked = false;
                if link.connections[place].state == State::Open {
                    super::sender::continue_sending(&mut self.context, link, place);
                }
            }
        }
    }

    fn serve_connection(&mut self, event: Event) {
        let sources = self.context.sources;
        let (index, place) = (event.token as usize / sources, event.token as usize % sources);
        let Some(link) = self.links.get_mut(index) else { return };
        match link.connections[place].state {
            State::Connecting => connector::finish_handshake(&mut self.context, link, place),
            State::Open => {
                if event.is_readable() {
                    self.read(index, place);
                }
                let link = &mut self.links[index];
                let connection = &link.connections[place];
                let waits_for_room =
                    connection.is_blocked && !self.context.udp_waiting.contains(&(index, place));
                if connection.state == State::Open && waits_for_room {
                    super::sender::continue_sending(&mut self.context, link, place);
                }
            }
            // A stale event.
            State::Down | State::Ended => {}
        }
    }

    fn read(&mut self, index: usize, place: usize) {
        let link = &mut self.links[index];
        let Some(socket) = &link.connections[place].socket else { return };
        let bytes = match socket.recv(&mut self.buffer) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return,
            Ok(Moved::End) => return connector::connection_lost(&mut self.context, link, place, None),
            Err(error) => return connector::connection_lost(&mut self.context, link, place, Some(error)),
        };
        let received_ns = monotonic_ns();
        // Taken out because handling an order borrows the link, and may end the connection.
        let mut partial = std::mem::take(&mut link.connections[place].partial);
        let context = &mut self.context;
        let read = super::connection::decode_orders(&mut partial, &self.buffer[..bytes], |order| {
            order_handler::handle_order(context, link, &order, Delivery::Connection(place), received_ns);
        });
        let link = &mut self.links[index];
        match read {
            Ok(()) if link.connections[place].state == State::Open => {
                link.connections[place].partial = partial;
            }
            Ok(()) => {}
            Err(error) => {
                let why = format!("the builder sent an invalid order ({error})");
                connector::end_connection(&mut self.context, link, place, &why);
            }
        }
    }

    /// Handles timers.
    fn later(&mut self, now_ns: u64, is_idle: bool) {
        for link in &mut self.links {
            order_handler::send_due_bursts(&mut self.context, link, now_ns);
            link.end_after_grace(now_ns);
        }
        connector::reconnect_due(&mut self.context, &mut self.links, now_ns);
        let WorkerContext { sampler, counters, .. } = &mut self.context;
        sampler.continue_sweep(&mut self.links, counters, now_ns, is_idle);
        counters.close_cpu_second_if_due(now_ns);
    }

    fn report(mut self) -> SourcesReport {
        let WorkerContext { sampler, counters, .. } = &mut self.context;
        sampler.sweep_all(&mut self.links, counters);
        for link in &mut self.links {
            link.connections.iter_mut().for_each(Connection::drop_current);
            if link.is_stopped {
                (0..link.connections.len()).for_each(|place| link.end(place));
            }
        }
        let mut counters = std::mem::take(&mut self.context.counters);
        counters.stalls.iter_mut().for_each(|stall| stall.source += self.context.first);
        let sources = (0..self.context.sources).map(|place| self.sent_by(place)).collect();
        let dropped = self.links.iter().filter_map(|link| link.receiver.as_ref());
        let dropped: Vec<u32> = dropped.filter_map(|receiver| receiver.dropped().ok()).collect();
        let mut report = counters.report(sources);
        report.orders_overflowed =
            (!dropped.is_empty()).then(|| dropped.iter().map(|&dropped| u64::from(dropped)).sum());
        report
    }

    /// The totals of one source over all builders.
    fn sent_by(&self, place: usize) -> SourceSent {
        let connections = self.links.iter().map(|link| &link.connections[place]);
        let (mut sent, mut cut, mut losses) = (0, 0, LossCounters::default());
        for connection in connections {
            sent += connection.sent;
            cut += connection.cut;
            losses = losses.plus(&connection.losses);
        }
        // With UDP the connections carry only orders: their retransmissions are no fragments.
        let is_tcp = !self.context.config.is_udp;
        SourceSent {
            source: self.context.first + place as u32,
            sent,
            cut,
            retransmits: is_tcp.then_some(losses.retransmits),
            timeouts: losses.timeouts.filter(|_| is_tcp),
            timeout_ms: losses.timeout_ms.filter(|_| is_tcp),
            dsacks: losses.dsacks.filter(|_| is_tcp),
        }
    }
}

fn builder_link(config: &SourcesConfig, index: usize, sources: usize) -> BuilderLink {
    let builder = &config.builders[index];
    let receiver = builder.orders.and_then(|group| {
        // If joining fails, the builder notices and uses the connections.
        let local = interface_towards(builder.address)?;
        MulticastReceiver::join(group, local).ok()
    });
    BuilderLink {
        index,
        address: builder.address,
        receiver,
        events: EventTracker::new(sources, config.step, config.events_max),
        bursts: VecDeque::new(),
        batched: Vec::with_capacity(config.batch_max),
        connections: (0..sources).map(|_| Connection::new()).collect(),
        ended: 0,
        is_stopped: false,
        over_ns: u64::MAX,
        last_sent_ns: 0,
        last_event: 0,
        asked_events: [0; 2],
    }
}

/// `None`: everything goes over the connections.
fn udp_socket(config: &SourcesConfig) -> Option<UdpSocket> {
    let is_v6 = config.builders.first()?.address.is_ipv6();
    let any: IpAddr = if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
