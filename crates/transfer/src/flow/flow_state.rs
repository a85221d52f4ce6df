//! The state of one flow: its end, its rate, its counts. The engines ask it before each call.

use std::sync::Arc;

use base::pace::{ByteRate, Due};
use sys::clock::monotonic_ns;

use super::flow_spec::{End, FlowSpec, Side};
use crate::driver::{EndReason, FlowCounters, Step};

#[derive(Debug)]
pub(super) struct FlowState {
    pub(super) counters: Arc<FlowCounters>,
    end: End,
    pub(super) pacer: Option<ByteRate>,
    pub(super) bytes: u64,
    pub(super) moved_ns: Option<(u64, u64)>,
    /// Bytes that moved at the first of these moments.
    pub(super) first_bytes: u64,
    /// The last reading of the clock: one for each call is enough.
    pub(super) now_ns: u64,
}

impl FlowState {
    /// A flow that starts at `start_ns`; a sender passes units of `unit_bytes` to the kernel, at most
    /// `call_bytes` at a time.
    pub(super) fn new(
        counters: Arc<FlowCounters>,
        spec: &FlowSpec,
        start_ns: u64,
        unit_bytes: usize,
        call_bytes: usize,
    ) -> Self {
        let rate = spec.rate_bit_per_s.filter(|&rate| rate > 0 && spec.side == Side::Sender);
        let pacer = rate.map(|rate| ByteRate::new(rate, start_ns, unit_bytes as u64, call_bytes as u64));
        let (end, now_ns) = (spec.end, monotonic_ns());
        Self { counters, end, pacer, bytes: 0, moved_ns: None, first_bytes: 0, now_ns }
    }

    /// How many bytes may move now, at most `most`; or why none may.
    pub(super) fn allow(&mut self, most: usize) -> Result<usize, Step> {
        let mut allowed = most as u64;
        match self.end {
            End::Bytes(total) if self.bytes >= total => return Err(Step::Over(EndReason::Done)),
            End::Bytes(total) => allowed = allowed.min(total - self.bytes),
            End::AtNs(end_ns) if self.now_ns >= end_ns => return Err(Step::Over(EndReason::Done)),
            End::AtNs(_) | End::Peer => {}
        }
        if let Some(pacer) = &mut self.pacer {
            match pacer.due(self.bytes, self.now_ns) {
                Due::Bytes(due) => {
                    self.counters.set_overslept_ns(pacer.overslept_ns());
                    allowed = allowed.min(due);
                }
                Due::NotBefore(ns) => return Err(Step::WaitUntil(ns)),
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
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.read_clock();
        self.bytes += bytes as u64;
        self.counters.set_bytes(self.bytes);
        self.moved_ns = match self.moved_ns {
            Some((first_ns, _)) => Some((first_ns, self.now_ns)),
            None => {
                self.first_bytes = bytes as u64;
                Some((self.now_ns, self.now_ns))
            }
        };
    }

    pub(super) fn read_clock(&mut self) -> u64 {
        self.now_ns = monotonic_ns();
        self.now_ns
    }

    /// The moment at which it is over, if that is set.
    pub(super) fn end_ns(&self) -> Option<u64> {
        match self.end {
            End::AtNs(end_ns) => Some(end_ns),
            End::Bytes(_) | End::Peer => None,
        }
    }
}
