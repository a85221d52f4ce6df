//! One flow: its socket, its course, and the engine that moves its bytes.

use std::sync::Arc;
use std::time::Duration;

use sys::net::{Interest, NetError, TcpSocket, UdpFlow};

use super::cell::Cell;
use super::choice::Engines;
use super::content;
use super::course::{Course, Turn};
use super::order::{End, Ended, FlowOrder, FlowReport, Side};
use super::tcp_receive::TcpReceiver;
use super::tcp_send::TcpSender;
use super::udp_receive::UdpReceiver;
use super::udp_send::{UdpSender, datagrams_a_call};

/// A slow sender waits until an Ethernet frame's worth is due (RFC 894: 1500 bytes less headers): less at a time would be
/// mostly headers on the wire and mostly wake-ups here.
const SEGMENT_BYTES: usize = 1448;

/// What a flow moves its bytes over.
#[derive(Debug)]
pub enum FlowSocket {
    /// A connection.
    Tcp(TcpSocket),
    /// A connected UDP socket.
    Udp(UdpFlow),
}

impl FlowSocket {
    /// Lets its calls wait in the kernel, see [`TcpSocket::set_wait`].
    pub(in crate::transfer) fn set_wait(&self, wait: Option<Duration>) -> Result<(), NetError> {
        match self {
            Self::Tcp(socket) => socket.set_wait(wait),
            Self::Udp(socket) => socket.set_wait(wait),
        }
    }

    fn path_mtu(&self) -> Option<u32> {
        match self {
            Self::Tcp(socket) => socket.path_mtu().ok(),
            Self::Udp(socket) => socket.path_mtu().ok(),
        }
    }
}

/// Memory that the flows of a thread share: only one of them moves at a time.
#[derive(Debug)]
pub(super) struct Room {
    /// What is received; never read but for headers.
    receive: Vec<u8>,
    /// What a call of a UDP sender is given, filled with content.
    send: Vec<u8>,
}

/// What moves a flow's bytes.
#[derive(Debug)]
enum Mover {
    TcpSend(TcpSender),
    TcpReceive(TcpReceiver),
    UdpSend(UdpSender),
    UdpReceive(Box<UdpReceiver>),
}

/// A flow that a thread drives.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) socket: Arc<FlowSocket>,
    pub(super) course: Course,
    mover: Mover,
}

impl Flow {
    /// Gets a flow ready that starts at `start_ns`, with the engine that `engines` names for it.
    ///
    /// # Errors
    /// [`NetError`]: an option or a pipe that it cannot do without.
    pub(super) fn new(
        socket: Arc<FlowSocket>,
        order: &FlowOrder,
        cell: Arc<Cell>,
        engines: &mut Engines,
        start_ns: u64,
    ) -> Result<Self, NetError> {
        let size = order.size_bytes as usize;
        let (mover, unit, call) = match (&*socket, order.side) {
            (FlowSocket::Tcp(_), Side::Sender) => {
                let message = if size == 0 { engines.call_bytes() } else { size };
                (
                    Mover::TcpSend(TcpSender::new(message, engines.pipes())),
                    SEGMENT_BYTES.min(message),
                    message,
                )
            }
            (FlowSocket::Tcp(_), Side::Receiver) => {
                (Mover::TcpReceive(TcpReceiver::new(order.mode, size, engines.are_few())), 1, 1)
            }
            (FlowSocket::Udp(udp), Side::Sender) => {
                let sender = UdpSender::new(udp, order.stamp, size)?;
                engines.note_segments(sender.is_segmented());
                (Mover::UdpSend(sender), size, size * datagrams_a_call(size))
            }
            (FlowSocket::Udp(udp), Side::Receiver) => {
                let receiver = UdpReceiver::new(udp, order.stamp, order.mode, engines.flows())?;
                (Mover::UdpReceive(Box::new(receiver)), 1, 1)
            }
        };
        let course = Course::new(cell, order, start_ns, unit, call);
        Ok(Self { socket, course, mover })
    }

    /// Moves once.
    pub(super) fn turn(&mut self, room: &mut Room) -> Turn {
        let course = &mut self.course;
        match (&mut self.mover, &*self.socket) {
            (Mover::TcpSend(sender), FlowSocket::Tcp(socket)) => sender.turn(socket, course),
            (Mover::TcpReceive(receiver), FlowSocket::Tcp(socket)) => {
                receiver.turn(socket, course, &mut room.receive)
            }
            (Mover::UdpSend(sender), FlowSocket::Udp(socket)) => sender.turn(socket, course, &mut room.send),
            (Mover::UdpReceive(receiver), FlowSocket::Udp(socket)) => {
                receiver.turn(socket, course, &mut room.receive)
            }
            // `new` pairs them.
            _ => Turn::Over(Ended::Failed("the engine does not fit the socket; please report this".into())),
        }
    }

    /// Lets its calls wait in the kernel, at most so long.
    pub(super) fn set_wait(&mut self, wait: Duration) -> Result<(), NetError> {
        match &mut self.mover {
            Mover::TcpReceive(receiver) => receiver.vigil.wait_in_kernel(),
            Mover::UdpReceive(receiver) => receiver.vigil.wait_in_kernel(),
            Mover::TcpSend(_) | Mover::UdpSend(_) => {}
        }
        self.socket.set_wait(Some(wait))
    }

    /// What its socket must be ready for.
    pub(super) fn interest(&self) -> Interest {
        if self.is_sender() { Interest::WRITE } else { Interest::READ }
    }

    /// How often it may move before others have their turn. A connection is emptied or filled by one large call, so that a
    /// second would only find out that there is no more.
    pub(super) fn turns_at_once(&self) -> u32 {
        match self.mover {
            Mover::TcpReceive(_) => 1,
            Mover::TcpSend(_) if !self.course.is_paced() => 1,
            _ => 16,
        }
    }

    pub(super) fn is_sender(&self) -> bool {
        matches!(self.mover, Mover::TcpSend(_) | Mover::UdpSend(_))
    }

    /// After it was told to stop: takes what had come by then, as the sender counts it as delivered.
    pub(super) fn drain(&mut self, room: &mut Room, until_ns: u64) {
        if self.is_sender() || self.socket.set_wait(None).is_err() {
            return;
        }
        let queued = match &*self.socket {
            FlowSocket::Tcp(socket) => socket.queued_bytes().unwrap_or(0),
            FlowSocket::Udp(_) => u64::MAX,
        };
        let goal = self.course.bytes().saturating_add(queued);
        while self.course.bytes() < goal && self.course.now_ns() < until_ns {
            if !matches!(self.turn(room), Turn::Moved) {
                return;
            }
        }
    }

    /// Its report, once it has ended.
    pub(super) fn report(&self, ended: Ended) -> FlowReport {
        let mut report = report_of(&self.socket, self.course.cell(), ended);
        report.moved_ns = self.course.moved_ns();
        report.first_bytes = self.course.first_bytes();
        if let (Mover::UdpReceive(receiver), FlowSocket::Udp(socket)) = (&self.mover, &*self.socket) {
            report.transit = receiver.transit();
            report.overflowed_after = receiver.overflowed_after(socket);
        }
        report
    }
}

/// What can be said of a flow from outside its thread.
pub(in crate::transfer) fn report_of(socket: &FlowSocket, cell: &Cell, ended: Ended) -> FlowReport {
    let tcp = match socket {
        FlowSocket::Tcp(tcp) => Some(tcp),
        FlowSocket::Udp(_) => None,
    };
    FlowReport {
        count: cell.read(),
        tcp: tcp.and_then(|tcp| tcp.info().ok()),
        congestion: tcp.and_then(|tcp| tcp.congestion().ok()),
        path_mtu_bytes: socket.path_mtu(),
        ..FlowReport::new(ended)
    }
}

impl Room {
    /// Room for any of `flows`.
    pub(super) fn for_flows(flows: &[Flow]) -> Self {
        let receive = flows.iter().map(|flow| match &flow.mover {
            Mover::TcpReceive(receiver) => receiver.room_bytes(),
            Mover::UdpReceive(_) => UdpFlow::CALL_BYTES_MAX,
            Mover::TcpSend(_) | Mover::UdpSend(_) => 0,
        });
        let sends_datagrams = flows.iter().any(|flow| matches!(flow.mover, Mover::UdpSend(_)));
        let mut send = vec![0; if sends_datagrams { UdpFlow::CALL_BYTES_MAX } else { 0 }];
        content::fill(&mut send);
        Self { receive: vec![0; receive.max().unwrap_or(0)], send }
    }
}

/// What is wrong with an order for such a socket, if anything is.
pub(super) fn problem(socket: &FlowSocket, order: &FlowOrder) -> Option<String> {
    let FlowSocket::Udp(_) = socket else { return None };
    if order.side == Side::Receiver {
        return None;
    }
    let (size, header) = (order.size_bytes as usize, order.stamp.bytes());
    if size < header.max(1) || size > UdpFlow::CALL_BYTES_MAX {
        let most = UdpFlow::CALL_BYTES_MAX;
        return Some(format!("a datagram of {size} bytes; choose {} to {most}", header.max(1)));
    }
    match order.end {
        End::Bytes(total) if total % size as u64 != 0 && (size < 2 * header || total < header as u64) => {
            Some(format!(
                "{total} bytes in datagrams of {size}; choose a multiple, or datagrams of at least {}",
                2 * header
            ))
        }
        _ => None,
    }
}
