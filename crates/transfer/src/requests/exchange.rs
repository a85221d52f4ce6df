//! What requesters and responders share: buffers, message sizes, counts, and calls that are timed.

use std::sync::Arc;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::net::{Moved, NetError};
use sys::span::{SpanName, enter};

use super::request_spec::{RequestEnd, RequestSide, RequestSpec};
use crate::driver::span_names::{RECV, SEND};
use crate::driver::{FlowCount, FlowCounters, FlowSocket, LatencyStats, fill};
use crate::settings::Waiting;

/// The buffer of a receiving call: a datagram, or as much of a large response as stays in a core's cache.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a datagram's number; fewer if request or response are smaller.
const NUMBER_BYTES: usize = 8;

#[derive(Debug)]
pub(super) struct ThreadBuffers {
    /// The receive buffer; only numbers are read from it.
    pub(super) receive: Vec<u8>,
    /// The datagram to be sent, filled with the payload.
    pub(super) datagram: Vec<u8>,
    pub(super) stats: LatencyStats,
    pub(super) spins: bool,
    pub(super) is_requester: bool,
}

impl ThreadBuffers {
    /// The buffers of a thread whose flows begin at a moment of the monotonic clock.
    pub(super) fn new(spec: &RequestSpec, start_ns: u64) -> Self {
        let largest = spec.size_bytes.max(spec.answer_bytes) as usize;
        // Connections send the payload block instead.
        let mut datagram = vec![0; largest.min(BUFFER_BYTES)];
        fill(&mut datagram);
        let from_ns = spec.omit_until_ns.unwrap_or(start_ns);
        let whole = match spec.end {
            RequestEnd::AtNs(end_ns) => Duration::from_nanos(end_ns.saturating_sub(from_ns)),
            RequestEnd::Requests(_) | RequestEnd::Peer => Duration::ZERO,
        };
        let stats = LatencyStats::new(spec.omit_until_ns.unwrap_or(0), from_ns, whole);
        let (spins, is_requester) = (spec.waiting == Waiting::Spin, spec.side == RequestSide::Requester);
        Self { receive: vec![0; BUFFER_BYTES], datagram, stats, spins, is_requester }
    }
}

/// Sizes of the messages, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) request: usize,
    pub(super) answer: usize,
    /// Bytes at the start of a datagram that hold its number.
    pub(super) number: usize,
}

impl Sizes {
    pub(super) fn new(spec: &RequestSpec) -> Self {
        let (request, answer) = (spec.size_bytes as usize, spec.answer_bytes as usize);
        Self { request, answer, number: NUMBER_BYTES.min(request).min(answer) }
    }

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

/// The counts and the clock of a flow.
#[derive(Debug)]
pub(super) struct Progress {
    counters: Arc<FlowCounters>,
    pub(super) count: FlowCount,
    pub(super) moved_ns: Option<(u64, u64)>,
    /// The last reading of the clock: one for each message is enough.
    pub(super) now_ns: u64,
}

impl Progress {
    pub(super) fn new(counters: Arc<FlowCounters>) -> Self {
        Self { counters, count: FlowCount::default(), moved_ns: None, now_ns: monotonic_ns() }
    }

    pub(super) fn read_clock(&mut self) -> u64 {
        self.now_ns = monotonic_ns();
        self.now_ns
    }

    pub(super) fn moved(&mut self) {
        let first_ns = self.moved_ns.map_or(self.now_ns, |(first_ns, _)| first_ns);
        self.moved_ns = Some((first_ns, self.now_ns));
    }

    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.count.bytes += bytes as u64;
        self.counters.set_bytes(self.count.bytes);
        self.moved();
    }

    pub(super) fn add_datagram(&mut self, bytes: usize) {
        self.count.datagrams += 1;
        self.counters.set_datagrams(&self.count);
        self.add_bytes(bytes);
    }

    pub(super) fn lost(&mut self) {
        self.count.lost += 1;
        self.counters.set_datagrams(&self.count);
    }

    pub(super) fn refused(&mut self) {
        self.count.refused += 1;
        self.counters.set_datagrams(&self.count);
    }
}

/// Sends once; waits if the socket is blocking.
pub(super) fn send(socket: &FlowSocket, bytes: &[u8], spins: bool) -> Result<Moved, NetError> {
    timed(&SEND, spins, || match socket {
        FlowSocket::Tcp(socket) => socket.send_waiting(bytes),
        FlowSocket::Udp(socket) => socket.send(bytes),
    })
}

/// Receives once; waits if the socket is blocking.
pub(super) fn receive(socket: &FlowSocket, buffer: &mut [u8], spins: bool) -> Result<Moved, NetError> {
    timed(&RECV, spins, || match socket {
        FlowSocket::Tcp(socket) => socket.recv_waiting(buffer),
        FlowSocket::Udp(socket) => socket.receive_one(buffer),
    })
}

/// Times a call. A poll without data is discarded: millions of them would displace the other spans, and
/// [`POLLING`] is their sum.
///
/// [`POLLING`]: crate::driver::span_names::POLLING
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
