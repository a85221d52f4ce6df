//! One thread's sources: a loop over one epoll(7) instance.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Event, Events as Ready, Interest, Moved, MulticastReceiver, NetError};

use super::account::Account;
use super::connection::{Connection, State, Troubles};
use super::crew::Shared;
use super::dial::{self, Dial};
use super::events::Events;
use super::lane::Lane;
use super::orders::{self, Way};
use super::payload::Payload;
use super::stalls::Looks;
use super::told::{Told, interface_towards};
use super::udp;
use crate::daq::report::{SourceSent, SourcesReport};
use crate::daq::wire::{HEADER_BYTES_MAX, Order, PART_HEADER_BYTES};

const WAKER: u64 = u64::MAX;
/// The token of the group's UDP socket.
pub(super) const UDP: u64 = u64::MAX - 1;
/// The token of the ear of the last lane; those of the others are above it.
const EARS: u64 = UDP - (1 << 16);
const READY_MAX: usize = 512;
/// So many orders are taken from one ear before others have their turn.
const ORDERS_AT_ONCE: usize = 64;
/// No wait is longer.
const WAIT_NS: u64 = 250_000_000;

/// What sending and following orders needs besides the lane.
pub(super) struct Desk {
    pub(super) told: Arc<Told>,
    /// The group's number.
    pub(super) number: u64,
    /// The number of its first source.
    pub(super) first: u32,
    pub(super) sources: usize,
    pub(super) epoll: Epoll,
    pub(super) udp: Option<UdpSocket>,
    /// 0 where there is none.
    pub(super) udp_port: u16,
    pub(super) udp_wants_room: bool,
    /// Lane and place of sources that wait for room in the UDP socket.
    pub(super) udp_waiting: VecDeque<(usize, usize)>,
    pub(super) datagram: Vec<u8>,
    pub(super) payload: Payload,
    pub(super) account: Account,
    pub(super) looks: Looks,
    pub(super) dial: Dial,
    /// When which lost connection (lane, place) is to be begun anew.
    pub(super) again: Vec<(u64, usize, usize)>,
    pub(super) random: fastrand::Rng,
}

/// The sources of one thread.
pub(super) struct Group {
    desk: Desk,
    lanes: Vec<Lane>,
    buffer: Vec<u8>,
    waker: usize,
}

/// The token of a connection.
pub(super) fn token(desk: &Desk, lane: &Lane, place: usize) -> u64 {
    (lane.index * desk.sources + place) as u64
}

impl Group {
    /// A group of `sources` sources from number `first` on, with ears and a UDP socket, and no connection yet. `waker` is
    /// the index of its thread.
    pub(super) fn new(
        told: Arc<Told>,
        first: u32,
        sources: usize,
        handshakes_max: usize,
        waker: usize,
    ) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        let lanes: Vec<Lane> = (0..told.builders.len()).map(|index| lane(&told, index, sources)).collect();
        for lane in &lanes {
            if let Some(ear) = &lane.ear {
                epoll.add(ear, EARS + lane.index as u64, Interest::READ)?;
            }
        }
        let udp = udp_socket(&told);
        if let Some(udp) = &udp {
            epoll.add(udp, UDP, Interest::READ)?;
        }
        let udp_port = udp.as_ref().and_then(|udp| udp.local_addr().ok()).map_or(0, |local| local.port());
        let desk = Desk {
            number: sys::random::number(),
            first,
            sources,
            epoll,
            udp,
            udp_port,
            udp_wants_room: false,
            udp_waiting: VecDeque::new(),
            datagram: vec![0; PART_HEADER_BYTES + udp::PART_BYTES],
            payload: Payload::new(told.checksum),
            account: Account::default(),
            looks: Looks::new(),
            dial: Dial::new(told.congestion.clone(), handshakes_max),
            again: Vec::new(),
            random: fastrand::Rng::with_seed(told.seed ^ u64::from(first)),
            told,
        };
        Ok(Self { desk, lanes, buffer: vec![0; 4 * HEADER_BYTES_MAX], waker })
    }

    /// Connects all, then follows orders until every builder says that the run is over, or until `shared` says stop.
    pub(super) fn run(mut self, shared: &Shared) -> SourcesReport {
        let went = self.serve(shared);
        if let Err(error) = went {
            shared.connected(Err(error.to_string()));
            self.desk.account.ends.insert(error.to_string(), 0);
        }
        self.report()
    }

    fn serve(&mut self, shared: &Shared) -> Result<(), NetError> {
        let waker = shared.waker(self.waker);
        self.desk.epoll.add(waker, WAKER, Interest::READ)?;
        let mut ready = Ready::with_capacity(READY_MAX);
        let (mut has_told, mut has_begun) = (false, false);
        while !shared.is_stopped() && !self.lanes.iter().all(Lane::is_over) {
            if !has_told {
                dial::go_on(&mut self.desk, &mut self.lanes);
                if let Some(failure) = self.desk.dial.failure.take() {
                    shared.connected(Err(failure));
                    return Ok(());
                }
                has_told = self.desk.dial.is_done;
                if has_told {
                    shared.connected(Ok(()));
                }
                shared.note_standing(self.waker, self.desk.dial.standing);
            }
            let until_ns = self.next_ns().min(if has_begun { u64::MAX } else { shared.start_ns() });
            self.desk.epoll.wait_until(&mut ready, until_ns)?;
            self.turn(&ready);
            if ready.iter().any(|event| event.token == WAKER) {
                waker.clear();
            }
            let now_ns = monotonic_ns();
            if !has_begun && now_ns >= shared.start_ns() {
                has_begun = true;
                self.desk.account.begin();
            }
            self.later(now_ns, ready.is_empty());
            shared.note_sent(self.waker, self.desk.account.fragments, self.desk.account.payload_bytes);
        }
        Ok(())
    }

    fn next_ns(&self) -> u64 {
        let soon_ns = monotonic_ns() + WAIT_NS;
        let waves = self.lanes.iter().flat_map(|lane| &lane.waves);
        let waves = waves.map(|wave| super::send::wave_due_ns(&self.desk, wave));
        let again = self.desk.again.iter().map(|&(due_ns, _, _)| due_ns);
        let over = self.lanes.iter().map(|lane| lane.over_ns);
        let next_ns = waves.chain(again).chain(over).min().unwrap_or(u64::MAX);
        next_ns.min(soon_ns).min(self.desk.looks.next_ns()).min(self.desk.account.next_look_ns())
    }

    /// Does what has become possible; orders to all come first.
    fn turn(&mut self, ready: &Ready) {
        for event in ready.iter().filter(|event| (EARS..UDP).contains(&event.token)) {
            self.hear((event.token - EARS) as usize);
        }
        for event in ready.iter() {
            match event.token {
                UDP => self.hear_udp(),
                token if token < EARS => self.serve_connection(event),
                _ => {}
            }
        }
    }

    /// Takes orders from the ear of a lane.
    fn hear(&mut self, index: usize) {
        for _ in 0..ORDERS_AT_ONCE {
            let Some(lane) = self.lanes.get_mut(index) else { return };
            let Some(Ok(Some(bytes))) = lane.ear.as_ref().map(|ear| ear.receive(&mut self.buffer)) else {
                break;
            };
            let received_ns = monotonic_ns();
            // Whatever else is said there is passed over.
            let Ok((order, _)) = Order::decode(&self.buffer[..bytes]) else { continue };
            orders::follow(&mut self.desk, lane, &order, Way::Multicast, received_ns);
        }
        if let Some(lane) = self.lanes.get_mut(index) {
            super::send::roll_together(&mut self.desk, lane);
        }
    }

    /// Takes what comes to the group alone, and lets those go on that wait for room.
    fn hear_udp(&mut self) {
        for _ in 0..ORDERS_AT_ONCE {
            let Some(udp) = &self.desk.udp else { return };
            let Ok((bytes, from)) = udp.recv_from(&mut self.buffer) else { break };
            let received_ns = monotonic_ns();
            let Ok((order, _)) = Order::decode(&self.buffer[..bytes]) else { continue };
            let Some(lane) = self.lanes.get_mut(usize::from(order.builder)) else { continue };
            if from.ip().to_canonical() == lane.address.ip().to_canonical() {
                orders::follow(&mut self.desk, lane, &order, Way::Udp(from), received_ns);
            }
        }
        if self.desk.udp_wants_room {
            udp::watch(&mut self.desk, false);
            for _ in 0..self.desk.udp_waiting.len() {
                let Some((lane, place)) = self.desk.udp_waiting.pop_front() else { break };
                let lane = &mut self.lanes[lane];
                lane.connections[place].is_blocked = false;
                if lane.connections[place].state == State::Open {
                    super::send::go_on(&mut self.desk, lane, place);
                }
            }
        }
    }

    fn serve_connection(&mut self, event: Event) {
        let sources = self.desk.sources;
        let (index, place) = (event.token as usize / sources, event.token as usize % sources);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        match lane.connections[place].state {
            State::Connecting => dial::settle(&mut self.desk, lane, place),
            State::Open => {
                if event.is_readable() {
                    self.read(index, place);
                }
                let lane = &mut self.lanes[index];
                let connection = &lane.connections[place];
                let waits_for_room =
                    connection.is_blocked && !self.desk.udp_waiting.contains(&(index, place));
                if connection.state == State::Open && waits_for_room {
                    super::send::go_on(&mut self.desk, lane, place);
                }
            }
            // It happened before the connection ended.
            State::Down | State::Ended => {}
        }
    }

    /// Reads what a builder says over a connection.
    fn read(&mut self, index: usize, place: usize) {
        let lane = &mut self.lanes[index];
        let Some(socket) = &lane.connections[place].socket else { return };
        let bytes = match socket.recv(&mut self.buffer) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return,
            Ok(Moved::End) => return dial::lost(&mut self.desk, lane, place, None),
            Err(error) => return dial::lost(&mut self.desk, lane, place, Some(error)),
        };
        let received_ns = monotonic_ns();
        // Taken out so that orders can be followed while they are read; an order may end the connection.
        let mut partial = std::mem::take(&mut lane.connections[place].partial);
        let desk = &mut self.desk;
        let read = super::connection::read(&mut partial, &self.buffer[..bytes], |order| {
            orders::follow(desk, lane, &order, Way::Connection(place), received_ns);
        });
        let lane = &mut self.lanes[index];
        match read {
            Ok(()) if lane.connections[place].state == State::Open => {
                lane.connections[place].partial = partial;
            }
            Ok(()) => {}
            Err(error) => {
                let why = format!("the builder said what is no order ({error})");
                dial::end(&mut self.desk, lane, place, &why);
            }
        }
    }

    /// What waits for a moment.
    fn later(&mut self, now_ns: u64, is_idle: bool) {
        for lane in &mut self.lanes {
            orders::roll_waves(&mut self.desk, lane, now_ns);
            lane.end_in_time(now_ns);
        }
        dial::again(&mut self.desk, &mut self.lanes, now_ns);
        let Desk { looks, account, .. } = &mut self.desk;
        looks.go_on(&mut self.lanes, account, now_ns, is_idle);
        account.look(now_ns);
    }

    fn report(mut self) -> SourcesReport {
        let Desk { looks, account, .. } = &mut self.desk;
        looks.end(&mut self.lanes, account);
        for lane in &mut self.lanes {
            lane.connections.iter_mut().for_each(Connection::give_up_current);
            if lane.is_stopped {
                (0..lane.connections.len()).for_each(|place| lane.end(place));
            }
        }
        let mut account = std::mem::take(&mut self.desk.account);
        account.stalls.iter_mut().for_each(|stall| stall.source += self.desk.first);
        let sources = (0..self.desk.sources).map(|place| self.sent_by(place)).collect();
        let dropped = self.lanes.iter().filter_map(|lane| lane.ear.as_ref());
        let dropped: Vec<u32> = dropped.filter_map(|ear| ear.dropped().ok()).collect();
        let mut report = account.report(sources);
        report.orders_overflowed =
            (!dropped.is_empty()).then(|| dropped.iter().map(|&dropped| u64::from(dropped)).sum());
        report
    }

    /// What one source did, over all builders.
    fn sent_by(&self, place: usize) -> SourceSent {
        let connections = self.lanes.iter().map(|lane| &lane.connections[place]);
        let (mut sent, mut cut, mut troubles) = (0, 0, Troubles::default());
        for connection in connections {
            sent += connection.sent;
            cut += connection.cut;
            troubles = troubles.plus(&connection.troubles);
        }
        // With datagrams the connections carry orders alone: what TCP sent again was no fragment.
        let is_tcp = !self.desk.told.is_udp;
        SourceSent {
            source: self.desk.first + place as u32,
            sent,
            cut,
            retransmits: is_tcp.then_some(troubles.retransmits),
            timeouts: troubles.timeouts.filter(|_| is_tcp),
            timeout_ms: troubles.timeout_ms.filter(|_| is_tcp),
            dsacks: troubles.dsacks.filter(|_| is_tcp),
        }
    }
}

fn lane(told: &Told, index: usize, sources: usize) -> Lane {
    let builder = &told.builders[index];
    let ear = builder.orders.and_then(|group| {
        // Where it cannot be joined the builder notices that nobody hears, and uses the connections.
        let local = interface_towards(builder.address)?;
        MulticastReceiver::join(group, local).ok()
    });
    Lane {
        index,
        address: builder.address,
        ear,
        events: Events::new(sources, told.step, told.events_max),
        waves: VecDeque::new(),
        together: Vec::with_capacity(told.together_max),
        connections: (0..sources).map(|_| Connection::new()).collect(),
        ended: 0,
        is_stopped: false,
        over_ns: u64::MAX,
        last_sent_ns: 0,
        last_event: 0,
        asked_events: [0; 2],
    }
}

/// The UDP socket of a group; without one all goes over the connections.
fn udp_socket(told: &Told) -> Option<UdpSocket> {
    let is_v6 = told.builders.first()?.address.is_ipv6();
    let any: IpAddr = if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
