//! One flow of a group, whichever side it is on, and what it counts.

use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::{Interest, Moved, NetError};
use sys::span::{SpanName, enter};

use super::super::flow::calls::{RECV, SEND};
use super::super::flow::{
    Cell, Ended, FlowCount, FlowReport, FlowSocket, Member, Orders, Turn, fill, report_of,
};
use super::super::settings::Waiting;
use super::account::Account;
use super::answerer::Answerer;
use super::order::{RequestOrder, RequestSide};
use super::requester::Requester;
use super::schedule::Schedule;

/// What one receiving call is given room for: a datagram, or as much of a large answer as stays in a core's cache.
const ROOM_BYTES: usize = 256 << 10;
/// Linux's default holds some 280 small datagrams, which come within milliseconds: what a thread may wait for its turn.
const QUEUE_BYTES: u64 = 4 << 20;
/// A datagram carries its number in so many bytes, or as many as fit both it and its answer.
const NUMBER_BYTES: usize = 8;

/// What the flows of a thread share: only one of them moves at a time.
#[derive(Debug)]
pub(super) struct Desk {
    /// What is received; never read but for numbers.
    pub(super) room: Vec<u8>,
    /// The datagram to be sent, filled with content.
    pub(super) datagram: Vec<u8>,
    pub(super) account: Account,
    /// Whether its thread asks again and again.
    pub(super) spins: bool,
}

impl Desk {
    pub(super) fn new(order: &RequestOrder) -> Self {
        let largest = order.size_bytes.max(order.answer_bytes) as usize;
        // Of a connection, nothing is sent from it.
        let mut datagram = vec![0; largest.min(ROOM_BYTES)];
        fill(&mut datagram);
        let account = Account::new(order.omit_until_ns.unwrap_or(0));
        let spins = order.waiting == Waiting::Spin;
        Self { room: vec![0; ROOM_BYTES], datagram, account, spins }
    }
}

/// The sizes of what goes to and fro.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) request: usize,
    pub(super) answer: usize,
    /// How many of a datagram's first bytes are its number.
    pub(super) number: usize,
}

impl Sizes {
    fn new(order: &RequestOrder) -> Self {
        let (request, answer) = (order.size_bytes as usize, order.answer_bytes as usize);
        Self { request, answer, number: NUMBER_BYTES.min(request).min(answer) }
    }

    /// How many bits of a number are kept.
    pub(super) fn number_bits(&self) -> u32 {
        8 * self.number as u32
    }

    /// Writes the low bits of a number to the start of a datagram, big-endian.
    pub(super) fn write_number(&self, datagram: &mut [u8], number: u64) {
        datagram[..self.number].copy_from_slice(&number.to_be_bytes()[NUMBER_BYTES - self.number..]);
    }

    /// The low bits of a datagram's number; `None` if it is too short for them.
    pub(super) fn read_number(&self, datagram: &[u8]) -> Option<u64> {
        let bytes = datagram.get(..self.number)?;
        Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

/// What a flow has received, and when.
#[derive(Debug)]
pub(super) struct Progress {
    cell: Arc<Cell>,
    count: FlowCount,
    moved_ns: Option<(u64, u64)>,
    /// The last reading of the clock: one a message is enough.
    pub(super) now_ns: u64,
}

impl Progress {
    fn new(cell: Arc<Cell>) -> Self {
        Self { cell, count: FlowCount::default(), moved_ns: None, now_ns: monotonic_ns() }
    }

    /// Reads the clock.
    pub(super) fn look(&mut self) -> u64 {
        self.now_ns = monotonic_ns();
        self.now_ns
    }

    /// Something came or went just now.
    pub(super) fn moved(&mut self) {
        let first_ns = self.moved_ns.map_or(self.now_ns, |(first_ns, _)| first_ns);
        self.moved_ns = Some((first_ns, self.now_ns));
    }

    /// Bytes of a connection came just now.
    pub(super) fn came(&mut self, bytes: usize) {
        self.count.bytes += bytes as u64;
        self.cell.set_bytes(self.count.bytes);
        self.moved();
    }

    /// A datagram came just now.
    pub(super) fn datagram_came(&mut self, bytes: usize) {
        self.count.datagrams += 1;
        self.cell.set_datagrams(&self.count);
        self.came(bytes);
    }

    /// A datagram was given up.
    pub(super) fn lost(&mut self) {
        self.count.lost += 1;
        self.cell.set_datagrams(&self.count);
    }

    /// The kernel had no room for a datagram.
    pub(super) fn refused(&mut self) {
        self.count.refused += 1;
        self.cell.set_datagrams(&self.count);
    }

    /// What came, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.count.bytes
    }
}

/// Sends once; waits for room if the socket may.
pub(super) fn send(socket: &FlowSocket, bytes: &[u8], spins: bool) -> Result<Moved, NetError> {
    timed(&SEND, spins, || match socket {
        FlowSocket::Tcp(socket) => socket.send_waiting(bytes),
        FlowSocket::Udp(socket) => socket.send(bytes),
    })
}

/// Receives once; waits for something if the socket may.
pub(super) fn receive(socket: &FlowSocket, room: &mut [u8], spins: bool) -> Result<Moved, NetError> {
    timed(&RECV, spins, || match socket {
        FlowSocket::Tcp(socket) => socket.recv_waiting(room),
        FlowSocket::Udp(socket) => socket.receive_one(room),
    })
}

/// A call as a span. One in vain of a thread that spins is none: millions of them would stand for nothing, and take the
/// place of the others ([`POLLING`](super::super::flow::calls::POLLING) is their sum).
fn timed(
    name: &SpanName,
    spins: bool,
    call: impl FnOnce() -> Result<Moved, NetError>,
) -> Result<Moved, NetError> {
    let span = enter(name);
    let moved = call();
    if spins && matches!(moved, Ok(Moved::WouldBlock)) {
        span.discard();
    }
    moved
}

#[derive(Debug)]
enum Role {
    Requester(Box<Requester>),
    Answerer(Answerer),
}

/// A flow that a thread drives.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) socket: Arc<FlowSocket>,
    cell: Arc<Cell>,
    role: Role,
}

impl Talk {
    /// The flow `index` of `flows`, which starts at `start_ns`; gets its socket ready.
    ///
    /// # Errors
    /// [`NetError`]: an option that it cannot do without.
    pub(super) fn new(
        member: &Member,
        order: &RequestOrder,
        start_ns: u64,
        (index, flows): (usize, usize),
    ) -> Result<Self, NetError> {
        match &*member.socket {
            // A request must not wait for the acknowledgement of the last (Nagle, RFC 896).
            FlowSocket::Tcp(socket) => socket.set_nodelay(true)?,
            FlowSocket::Udp(socket) => {
                socket.suggest_receive_buffer(QUEUE_BYTES)?;
                // Where the kernel knows nothing of it, nothing is to be switched off.
                socket.set_coalesce(false)?;
            }
        }
        let sizes = Sizes::new(order);
        let progress = Progress::new(member.cell.clone());
        let role = match order.side {
            RequestSide::Requester => {
                let schedule = Schedule::new(order.rate_per_s, start_ns, index, flows);
                Role::Requester(Box::new(Requester::new(sizes, order.end, schedule, progress)))
            }
            RequestSide::Answerer => Role::Answerer(Answerer::new(sizes, order.end, progress)),
        };
        Ok(Self { socket: member.socket.clone(), cell: member.cell.clone(), role })
    }

    /// Sends once, if anything is due. [`Turn::Blocked`]: nothing is, or there is no room.
    pub(super) fn send(&mut self, desk: &mut Desk) -> Turn {
        match &mut self.role {
            Role::Requester(requester) => requester.send(&self.socket, desk),
            Role::Answerer(answerer) => answerer.send(&self.socket, desk),
        }
    }

    /// Receives once.
    pub(super) fn receive(&mut self, desk: &mut Desk) -> Turn {
        match &mut self.role {
            Role::Requester(requester) => requester.receive(&self.socket, desk),
            Role::Answerer(answerer) => answerer.receive(&self.socket, desk),
        }
    }

    /// Whether something may come now that it has use for.
    pub(super) fn awaits(&self) -> bool {
        match &self.role {
            Role::Requester(requester) => requester.awaits(),
            Role::Answerer(answerer) => answerer.awaits(),
        }
    }

    /// What its socket must be ready for.
    pub(super) fn interest(&self) -> Interest {
        let lacks_room = match &self.role {
            Role::Requester(requester) => requester.lacks_room(),
            Role::Answerer(answerer) => !answerer.awaits(),
        };
        match (self.awaits(), lacks_room) {
            (true, true) => Interest::READ | Interest::WRITE,
            (true, false) => Interest::READ,
            (false, _) => Interest::WRITE,
        }
    }

    /// Reads the clock and says whether its end has come, or its patience has: to be asked now and then when nothing
    /// moves.
    pub(super) fn overdue(&mut self, desk: &mut Desk, orders: &Orders) -> Option<Ended> {
        match &mut self.role {
            Role::Requester(requester) => requester.overdue(&self.socket, &mut desk.account, orders),
            Role::Answerer(answerer) => answerer.overdue(orders),
        }
    }

    pub(super) fn is_requester(&self) -> bool {
        matches!(self.role, Role::Requester(_))
    }

    fn progress(&mut self) -> &mut Progress {
        match &mut self.role {
            Role::Requester(requester) => &mut requester.progress,
            Role::Answerer(answerer) => &mut answerer.progress,
        }
    }

    /// Reads the clock.
    pub(super) fn look(&mut self) -> u64 {
        self.progress().look()
    }

    /// Its report, once it has ended; what it still waited for is put down as such.
    pub(super) fn close(&mut self, ended: Ended, account: &mut Account) -> FlowReport {
        if let Role::Requester(requester) = &mut self.role {
            requester.give_up(&ended, account);
        }
        let moved_ns = self.progress().moved_ns;
        FlowReport { moved_ns, ..report_of(&self.socket, &self.cell, ended) }
    }
}
