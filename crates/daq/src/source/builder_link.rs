//! One worker's link to one builder: its multicast receiver, the events it knows, and one connection per
//! source.

use std::collections::VecDeque;
use std::net::SocketAddr;

use sys::net::MulticastReceiver;

use super::connection::{Connection, State};
use super::event_tracker::EventTracker;

/// How long a builder may take to close the connections after its stop order.
const GRACE_NS: u64 = 500_000_000;

/// A range of sources that send their fragments of an event, each `stagger` later than the one before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub(super) event: u64,
    pub(super) received_ns: u64,
    pub(super) flags: u16,
    /// The next source's index in the worker, and the end of the range.
    pub(super) next: usize,
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) struct BuilderLink {
    pub(super) index: usize,
    pub(super) address: SocketAddr,
    pub(super) receiver: Option<MulticastReceiver>,
    pub(super) events: EventTracker,
    pub(super) bursts: VecDeque<Burst>,
    /// Bursts that wait for further orders, so that each source sends several fragments in one write.
    pub(super) batched: Vec<Burst>,
    /// By the source's index in the worker.
    pub(super) connections: Vec<Connection>,
    /// How many of them ended for good.
    pub(super) ended: usize,
    /// Whether the builder sent a stop order.
    pub(super) is_stopped: bool,
    /// When all connections are closed even if the builder leaves them open; `u64::MAX` before the stop
    /// order.
    pub(super) over_ns: u64,
    pub(super) last_sent_ns: u64,
    /// The event of the last fragment sent.
    pub(super) last_event: u64,
    /// `last_event` at the last two sweeps of the TCP_INFO sampler, older first.
    pub(super) asked_events: [u64; 2],
}

impl BuilderLink {
    pub(super) fn builder(&self) -> u16 {
        self.index as u16
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended == self.connections.len()
    }

    /// Ends the connections that the builder has not closed within [`GRACE_NS`] of its stop order.
    pub(super) fn end_after_grace(&mut self, now_ns: u64) {
        if self.over_ns <= now_ns {
            (0..self.connections.len()).for_each(|place| self.end(place));
            self.over_ns = u64::MAX;
        }
    }

    /// Handles a stop order: drops what is queued and starts the grace period.
    pub(super) fn stop_sending(&mut self, now_ns: u64) {
        if self.is_stopped {
            return;
        }
        (self.is_stopped, self.over_ns) = (true, now_ns.saturating_add(GRACE_NS));
        self.bursts.clear();
        self.batched.clear();
        for connection in &mut self.connections {
            connection.pending.clear();
        }
    }

    pub(super) fn end(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if connection.state == State::Ended {
            return;
        }
        self.ended += 1;
        if let Some(socket) = connection.end() {
            // Resetting skips TIME_WAIT: otherwise each local port stays taken for a minute, and later trials
            // find none.
            let _ = socket.reset_on_close();
        }
    }
}
