//! How far a flow is and how far it may go: its end, its rate, its counts. The engines ask it before each call.

use std::sync::Arc;

use sys::clock::monotonic_ns;

use super::cell::Cell;
use super::order::{End, Ended, FlowOrder, Side};
use super::pace::{Due, Pacer};

/// What came of one turn of a flow.
#[derive(Debug)]
pub(in crate::transfer) enum Turn {
    /// Something moved; more may at once.
    Moved,
    /// Nothing moves until the socket is ready.
    Blocked,
    /// Nothing is due before this moment of the monotonic clock.
    NotBefore(u64),
    /// It is over.
    Over(Ended),
}

/// The account of one flow.
#[derive(Debug)]
pub(super) struct Course {
    cell: Arc<Cell>,
    end: End,
    pacer: Option<Pacer>,
    bytes: u64,
    moved_ns: Option<(u64, u64)>,
    /// What moved at the first of these moments.
    first_bytes: u64,
    /// The last reading of the clock: one a call is enough.
    now_ns: u64,
}

impl Course {
    /// A flow that has `order` and starts at `start_ns`; a sender gives the kernel units of `unit_bytes`, at most
    /// `call_bytes` at a time.
    pub(super) fn new(
        cell: Arc<Cell>,
        order: &FlowOrder,
        start_ns: u64,
        unit_bytes: usize,
        call_bytes: usize,
    ) -> Self {
        let rate = order.rate_bit_per_s.filter(|&rate| rate > 0 && order.side == Side::Sender);
        let pacer = rate.map(|rate| Pacer::new(rate, start_ns, unit_bytes as u64, call_bytes as u64));
        Self { cell, end: order.end, pacer, bytes: 0, moved_ns: None, first_bytes: 0, now_ns: monotonic_ns() }
    }

    /// How many bytes may move now, at most `most`; or why none may.
    pub(super) fn allow(&mut self, most: usize) -> Result<usize, Turn> {
        let mut allowed = most as u64;
        match self.end {
            End::Bytes(total) if self.bytes >= total => return Err(Turn::Over(Ended::Done)),
            End::Bytes(total) => allowed = allowed.min(total - self.bytes),
            End::AtNs(end_ns) if self.now_ns >= end_ns => return Err(Turn::Over(Ended::Done)),
            End::AtNs(_) | End::Peer => {}
        }
        if let Some(pacer) = &mut self.pacer {
            match pacer.due(self.bytes, self.now_ns) {
                Due::Bytes(due) => {
                    self.cell.set_overslept_ns(pacer.overslept_ns());
                    allowed = allowed.min(due);
                }
                Due::NotBefore(ns) => return Err(Turn::NotBefore(ns)),
            }
        }
        // No more than `most`, which is a usize.
        Ok(allowed as usize)
    }

    /// Bytes that are left until the end; `None` when it is not counted in bytes.
    pub(super) fn left_bytes(&self) -> Option<u64> {
        match self.end {
            End::Bytes(total) => Some(total.saturating_sub(self.bytes)),
            End::AtNs(_) | End::Peer => None,
        }
    }

    /// `bytes` moved just now.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.look();
        self.bytes += bytes as u64;
        self.cell.set_bytes(self.bytes);
        self.moved_ns = match self.moved_ns {
            Some((first_ns, _)) => Some((first_ns, self.now_ns)),
            None => {
                self.first_bytes = bytes as u64;
                Some((self.now_ns, self.now_ns))
            }
        };
    }

    /// Reads the clock.
    pub(super) fn look(&mut self) -> u64 {
        self.now_ns = monotonic_ns();
        self.now_ns
    }

    /// The last reading of the clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The moment at which it is over, if that is set.
    pub(super) fn end_ns(&self) -> Option<u64> {
        match self.end {
            End::AtNs(end_ns) => Some(end_ns),
            End::Bytes(_) | End::Peer => None,
        }
    }

    /// The moments of its first and last bytes.
    pub(super) fn moved_ns(&self) -> Option<(u64, u64)> {
        self.moved_ns
    }

    /// What moved at the first moment.
    pub(super) fn first_bytes(&self) -> u64 {
        self.first_bytes
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.cell
    }

    pub(super) fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }
}
