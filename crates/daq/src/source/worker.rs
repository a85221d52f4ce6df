//! One thread's sources: the state machine of an event loop.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use reactor::{EventLoop, Reactor, Registry, StateMachine, ThreadControl, Token};
use sys::clock::monotonic_ns;
use sys::net::{Arrivals, Event, Interest, Moved, MulticastReceiver, NetError};

use super::builder_link::BuilderLink;
use super::config::{SourcesConfig, interface_towards};
use super::connection::{Connection, LossCounters, State, decode_orders};
use super::connector::SourceConnector;
use super::context::{CONNECTION, HANDSHAKE, MULTICAST, UDP, WorkerContext};
use super::counters::Counters;
use super::event_tracker::EventTracker;
use super::order_handler::{self, Delivery};
use super::payload::Payload;
use super::sender;
use super::tcp_info_sampler::TcpInfoSampler;
use crate::report::{SourceSent, SourcesReport};
use crate::wire::{DATAGRAM_HEADER_BYTES, HEADER_BYTES_MAX, Kind, Order};

/// Orders read from one socket before others are served.
const ORDERS_AT_ONCE: usize = 64;

/// What a worker shows while it runs.
#[derive(Debug, Default)]
pub(super) struct WorkerProgress {
    pub(super) established: AtomicUsize,
    pub(super) fragments: AtomicU64,
    pub(super) payload_bytes: AtomicU64,
}

pub(super) struct Worker {
    context: WorkerContext,
    links: Vec<BuilderLink>,
    connector: SourceConnector,
    buffer: Vec<u8>,
}

impl Worker {
    /// A worker of `sources` sources from number `first` on; nothing is connected yet.
    pub(super) fn new(
        config: Arc<SourcesConfig>,
        first: u32,
        sources: usize,
        handshakes_max: usize,
        registry: Registry,
    ) -> Result<Self, NetError> {
        let links: Vec<BuilderLink> =
            (0..config.builders.len()).map(|index| builder_link(&config, index, sources)).collect();
        for link in &links {
            if let Some(receiver) = &link.receiver {
                registry.watch(receiver, Token::fixed(MULTICAST, link.index as u32), Interest::READ)?;
            }
        }
        let udp = udp_socket(&config);
        if let Some(udp) = &udp {
            registry.watch(udp, UDP, Interest::READ)?;
        }
        let udp_port = udp.as_ref().and_then(|udp| udp.local_addr().ok()).map_or(0, |local| local.port());
        let connector = SourceConnector::new(config.congestion.clone(), handshakes_max);
        let context = WorkerContext {
            number: sys::random::number(),
            first,
            sources,
            registry,
            udp_arrivals: udp.as_ref().map(Arrivals::of),
            udp,
            udp_port,
            udp_wants_room: false,
            udp_waiting: VecDeque::new(),
            datagram: vec![0; DATAGRAM_HEADER_BYTES + sender::PART_BYTES],
            payload: Payload::new(config.checksum),
            counters: Counters::default(),
            sampler: TcpInfoSampler::new(),
            retries: Vec::new(),
            random: fastrand::Rng::with_seed(config.seed ^ u64::from(first)),
            config,
        };
        Ok(Self { context, links, connector, buffer: vec![0; 4 * HEADER_BYTES_MAX] })
    }

    /// Connects all sources, then executes orders until every builder has sent stop, or `control` is stopped.
    /// `connected` gets whether all were connected.
    pub(super) fn run(
        mut self,
        mut events: EventLoop,
        control: &ThreadControl,
        progress: &WorkerProgress,
        connected: &Sender<Result<(), String>>,
    ) -> SourcesReport {
        if let Err(error) = self.serve(&mut events, control, progress, connected) {
            // The receiver is gone once all are connected.
            let _ = connected.send(Err(error.to_string()));
            self.context.counters.end_reasons.insert(error.to_string(), 0);
        }
        self.report()
    }

    fn serve(
        &mut self,
        events: &mut EventLoop,
        control: &ThreadControl,
        progress: &WorkerProgress,
        connected: &Sender<Result<(), String>>,
    ) -> Result<(), NetError> {
        let Self { context, links, connector, .. } = self;
        for link in links {
            for place in 0..context.sources {
                connector.connect(context, link, place, events.reactor());
            }
        }
        let mut has_begun = false;
        while !control.is_stopped() && !self.links.iter().all(BuilderLink::is_over) {
            let were_established = self.connector.all_were_established;
            if let Err(failure) = self.connector.handle_outcomes(&mut self.context, &mut self.links) {
                let _ = connected.send(Err(failure));
                return Ok(());
            }
            if !were_established {
                progress.established.store(self.connector.established, Ordering::Relaxed);
                let _ = self.connector.all_were_established.then(|| connected.send(Ok(())));
            }
            let start_ns = if has_begun { u64::MAX } else { control.start_ns() };
            let ready = events.poll_once(self, start_ns)?;
            let now_ns = monotonic_ns();
            if !has_begun && now_ns >= control.start_ns() {
                has_begun = true;
                self.context.counters.begin();
            }
            self.handle_timers(events.reactor(), now_ns, ready == 0);
            let counters = &self.context.counters;
            progress.fragments.store(counters.fragments, Ordering::Relaxed);
            progress.payload_bytes.store(counters.report.payload_bytes, Ordering::Relaxed);
        }
        Ok(())
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
            sender::send_batched(&mut self.context, link);
        }
    }

    /// Reads unicast datagrams, and serves sources that wait for the UDP socket.
    fn read_udp(&mut self) {
        for _ in 0..ORDERS_AT_ONCE {
            let WorkerContext { udp: Some(udp), udp_arrivals: Some(arrivals), .. } = &mut self.context else {
                return;
            };
            let Ok(Some((bytes, from, stamp))) = arrivals.receive(udp.as_fd(), &mut self.buffer) else {
                break;
            };
            let now_ns = monotonic_ns();
            let Ok((order, _)) = Order::decode(&self.buffer[..bytes]) else { continue };
            // The time to wake up and to read would widen the bound of the clock's error.
            let stamped_ns = (order.kind == Kind::Sync).then(|| arrivals.monotonic_ns(stamp)).flatten();
            let received_ns = stamped_ns.unwrap_or(now_ns);
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
            sender::watch_udp(&mut self.context, false);
            for _ in 0..self.context.udp_waiting.len() {
                let Some((link, place)) = self.context.udp_waiting.pop_front() else { break };
                let link = &mut self.links[link];
                link.connections[place].is_blocked = false;
                if link.connections[place].state == State::Open {
                    sender::continue_sending(&mut self.context, link, place);
                }
            }
        }
    }

    fn serve_connection(&mut self, token: Token, event: Event) {
        let sources = self.context.sources;
        let (index, place) = (token.index() / sources, token.index() % sources);
        let Some(link) = self.links.get_mut(index) else { return };
        if link.connections[place].state != State::Open {
            // A stale event.
            return;
        }
        if event.is_readable() {
            self.read(index, place);
        }
        let link = &mut self.links[index];
        let connection = &link.connections[place];
        let waits_for_room = connection.is_blocked && !self.context.udp_waiting.contains(&(index, place));
        if connection.state == State::Open && waits_for_room {
            sender::continue_sending(&mut self.context, link, place);
        }
    }

    fn read(&mut self, index: usize, place: usize) {
        let link = &mut self.links[index];
        let Some(socket) = &link.connections[place].socket else { return };
        let bytes = match socket.recv(&mut self.buffer) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return,
            Ok(Moved::End) => return self.context.connection_lost(link, place, None),
            Err(error) => return self.context.connection_lost(link, place, Some(error)),
        };
        let received_ns = monotonic_ns();
        // Taken out because handling an order borrows the link, and may end the connection.
        let mut partial = std::mem::take(&mut link.connections[place].partial);
        let context = &mut self.context;
        let read = decode_orders(&mut partial, &self.buffer[..bytes], |order| {
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
                self.context.end_connection(link, place, &why);
            }
        }
    }

    fn handle_timers(&mut self, reactor: &mut Reactor, now_ns: u64, is_idle: bool) {
        for link in &mut self.links {
            order_handler::send_due_bursts(&mut self.context, link, now_ns);
            link.end_after_grace(now_ns);
        }
        let WorkerContext { sampler, counters, retries, .. } = &mut self.context;
        retries.drain(..).for_each(|(token, due_ns)| reactor.set_timer(token, due_ns));
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
        counters.report.stalls.iter_mut().for_each(|stall| stall.source += self.context.first);
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
            retransmits: losses.retransmits.filter(|_| is_tcp),
            timeouts: losses.timeouts.filter(|_| is_tcp),
            timeout_ms: losses.timeout_ms.filter(|_| is_tcp),
            dsacks: losses.dsacks.filter(|_| is_tcp),
        }
    }
}

impl StateMachine for Worker {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, event: Event) {
        match token.class() {
            MULTICAST => self.read_multicast(token.index()),
            CONNECTION => self.serve_connection(token, event),
            HANDSHAKE => self.connector.handshakes.on_ready(reactor, token),
            _ => self.read_udp(),
        }
    }

    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        if token.class() == HANDSHAKE {
            return self.connector.handshakes.on_timer(reactor, token);
        }
        let (index, place) = (token.index() / self.context.sources, token.index() % self.context.sources);
        let link = &mut self.links[index];
        if !link.is_stopped && link.connections[place].state == State::Down {
            self.connector.connect(&self.context, link, place, reactor);
        }
    }

    fn on_stop(&mut self, _: &mut Reactor) {}

    fn next_deadline_ns(&self) -> Option<u64> {
        let bursts = self.links.iter().flat_map(|link| &link.bursts);
        let bursts = bursts.map(|burst| sender::next_due_ns(&self.context, burst));
        let over = self.links.iter().map(|link| link.over_ns);
        let others = [self.context.sampler.next_ns(), self.context.counters.next_second_ns()];
        bursts.chain(over).chain(others).min()
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
        connections: (0..sources).map(|_| Connection::default()).collect(),
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
