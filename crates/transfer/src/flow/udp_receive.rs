//! A UDP receiver: datagrams that came in a row in one call where the kernel gives them so (`UDP_GRO`), each
//! counted.

use sys::net::{Arrived, Batch, NetError, UdpFlow};

use super::datagram_stats::DatagramStats;
use super::flow_spec::Stamp;
use super::flow_state::FlowState;
use super::rx_moderation::RxModeration;
use crate::driver::span_names::{RECVMSG, WaitSpan};
use crate::driver::{EndReason, FlowCount, Mode, Step, broken};

/// Receive buffers of all flows together, unless a size is set: at 80 Gbit/s full after 3 ms, for which a
/// thread may wait for its step. Linux's default is full after 20 us.
const QUEUES_BYTES: u64 = 32 << 20;
/// Least receive buffer of a flow.
const QUEUE_BYTES_LEAST: u64 = 4 << 20;

/// Classic `ttcp` ends a stream with datagrams of at most this size, bytes.
const TTCP_END_BYTES: usize = 4;

#[derive(Debug)]
pub(super) struct UdpReceiver {
    stamp: Stamp,
    mode: Mode,
    pub(super) stats: DatagramStats,
    count: FlowCount,
    /// Packets that the socket had dropped, by its own count, when the last datagram came.
    overflows: u32,
    counts_overflows: bool,
    /// The most datagrams that came in one packet: what a dropped packet may have held.
    datagrams_most: u64,
    moderation: RxModeration,
    pub(super) wait_span: WaitSpan,
}

impl UdpReceiver {
    /// A receiver of datagrams with `stamp`, one of `flows`; prepares the socket.
    pub(super) fn new(socket: &UdpFlow, stamp: Stamp, mode: Mode, flows: usize) -> Result<Self, NetError> {
        socket.suggest_receive_buffer((QUEUES_BYTES / flows.max(1) as u64).max(QUEUE_BYTES_LEAST))?;
        socket.set_coalesce(true)?;
        let counts_overflows = socket.count_overflows()?;
        let overflowed = (counts_overflows && stamp != Stamp::None).then_some(0);
        Ok(Self {
            stamp,
            mode,
            stats: DatagramStats::default(),
            count: FlowCount { overflowed, ..FlowCount::default() },
            // What was dropped before belongs to this flow too: its peer may have been faster.
            overflows: 0,
            counts_overflows,
            datagrams_most: 1,
            moderation: RxModeration::default(),
            wait_span: WaitSpan::default(),
        })
    }

    /// `buffer` has room for one call; of discarded bytes, only the first header is read.
    pub(super) fn step(&mut self, socket: &UdpFlow, state: &mut FlowState, buffer: &mut [u8]) -> Step {
        if let Err(step) = state.allow(usize::MAX) {
            return step;
        }
        let wanted = match self.mode {
            Mode::Copy => buffer.len(),
            Mode::Discard => self.stamp.bytes().min(buffer.len()),
        };
        let buffer = &mut buffer[..wanted];
        let polls = self.moderation.is_polling(state.now_ns);
        let receive = || if polls { socket.receive_now(buffer) } else { socket.receive(buffer) };
        let came = |arrived: &Result<Arrived, NetError>| polls || !matches!(arrived, Ok(Arrived::WouldBlock));
        match self.wait_span.time(&RECVMSG, receive, came) {
            Ok(Arrived::Batch(mut batch)) => {
                let marks = if self.stamp == Stamp::None { mark_bytes(&batch) } else { Some(0) };
                let Some(marks) = marks else {
                    // The first ones of a stream are of that size too.
                    return if state.bytes > 0 { Step::Over(EndReason::ByPeer) } else { Step::Moved };
                };
                batch.bytes -= marks;
                state.add_bytes(batch.bytes);
                self.moderation.came(batch.bytes, state.now_ns);
                // The arrival time during a sleep is unknown.
                let came_ns = (!polls).then_some(state.now_ns);
                self.account(&batch, &buffer[..batch.bytes.min(wanted)], came_ns);
                state.counters.set_datagrams(&self.count);
                if marks == 0 { Step::Moved } else { Step::Over(EndReason::ByPeer) }
            }
            Ok(Arrived::WouldBlock) => match self.moderation.pause_until(state.read_clock()) {
                Some(until_ns) => Step::WaitUntil(until_ns),
                None => Step::Blocked,
            },
            Err(error) => Step::Over(broken(&error, state.bytes)),
        }
    }

    fn account(&mut self, batch: &Batch, seen: &[u8], came_ns: Option<u64>) {
        let each_bytes = batch.each_bytes.max(1);
        let datagrams = batch.bytes.div_ceil(each_bytes).max(1) as u64;
        self.datagrams_most = self.datagrams_most.max(datagrams);
        self.count.datagrams += datagrams;
        let missing = match self.mode {
            Mode::Copy => self.account_each(seen, each_bytes, came_ns),
            Mode::Discard => self.account_run(seen, datagrams, came_ns),
        };
        let overflows = batch.overflows.unwrap_or(self.overflows);
        let dropped = u64::from(overflows.wrapping_sub(self.overflows)) * self.datagrams_most;
        self.overflows = overflows;
        if let Some(overflowed) = &mut self.count.overflowed {
            *overflowed += missing.min(dropped);
        }
        self.stats.write_to(&mut self.count);
    }

    fn account_each(&mut self, seen: &[u8], each_bytes: usize, came_ns: Option<u64>) -> u64 {
        let mut missing = 0;
        // Those that follow each other are put down together.
        let (mut first, mut number) = (0_u64, 0_u64);
        for datagram in seen.chunks(each_bytes) {
            let Some(header) = self.stamp.read(datagram, self.stats.highest) else { continue };
            if first.checked_add(number) == Some(header.count) {
                number += 1;
            } else {
                missing += self.stats.came(first, number);
                (first, number) = (header.count, 1);
            }
            self.timed(header.sent_us, came_ns);
        }
        missing + self.stats.came(first, number)
    }

    /// Only the first header is read; the datagrams behind it arrived in a row and are assumed to follow it.
    /// If one was lost in between, the next header shows it, so that the loss is exact.
    fn account_run(&mut self, seen: &[u8], datagrams: u64, came_ns: Option<u64>) -> u64 {
        let Some(header) = self.stamp.read(seen, self.stats.highest) else { return 0 };
        self.timed(header.sent_us, came_ns);
        self.stats.came(header.count, datagrams)
    }

    fn timed(&mut self, sent_us: u64, came_ns: Option<u64>) {
        if let Some(came_ns) = came_ns {
            self.stats.timed(sent_us, came_ns);
        }
    }

    /// The most datagrams that the socket can have dropped since the last one came.
    pub(super) fn overflowed_after(&self, socket: &UdpFlow) -> Option<u64> {
        let packets = socket.overflows().filter(|_| self.counts_overflows)?;
        Some(u64::from(packets.wrapping_sub(self.overflows)) * self.datagrams_most)
    }
}

/// How many bytes at the end of a batch are a mark of classic `ttcp`: the kernel may put a smaller datagram
/// behind others that came in a row. `None`: nothing but marks.
fn mark_bytes(batch: &Batch) -> Option<usize> {
    if batch.bytes.min(batch.each_bytes) <= TTCP_END_BYTES {
        return None;
    }
    Some(batch.bytes % batch.each_bytes).map(|last| if last <= TTCP_END_BYTES { last } else { 0 })
}
