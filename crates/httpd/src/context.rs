//! What a worker lends to the connection that it serves.

use std::sync::Arc;

use reactor::TimeoutKind;
use sys::clock::realtime_ns;

use super::config::Limits;
use super::cpu_cost::{self, CpuCost};
use super::date;
use super::handler::Handler;
use super::log::LogSender;
use super::stats::WorkerShared;

/// Content sent to one connection before the next one is served.
const SLICE_BYTES: usize = 1 << 20;
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;
/// What a connection has a timeout for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Completing a request head.
    Head,
    /// Sending another request.
    Idle,
    /// Moving bytes of a response or an upload; a check, not an end.
    Stall,
    /// Closing after an error response.
    Linger,
}

impl TimeoutKind for Timeout {
    fn index(self) -> usize {
        self as usize
    }
}

/// What all connections of a worker use while they are served.
#[derive(Debug)]
pub struct WorkerContext {
    pub handler: Arc<Handler>,
    pub worker: Arc<WorkerShared>,
    pub limits: Limits,
    pub log: LogSender,
    pub cpu_cost: CpuCost,
    pub slice_bytes: usize,
    pub receive_buffer: Vec<u8>,
    /// The monotonic clock when the last wait ended.
    pub now_ns: u64,
    /// `Date` of this second.
    pub date: String,
    date_s: i64,
}

impl WorkerContext {
    pub fn new(
        handler: Arc<Handler>,
        worker: Arc<WorkerShared>,
        limits: Limits,
        log: LogSender,
        cost_ns_per_byte: f64,
    ) -> Self {
        let cpu_cost = CpuCost::new(cost_ns_per_byte);
        Self {
            handler,
            worker,
            log,
            slice_bytes: if cpu_cost.is_free() { SLICE_BYTES } else { cpu_cost::SLICE_BYTES },
            cpu_cost,
            receive_buffer: vec![0; RECEIVE_BUFFER_BYTES.max(limits.header_bytes_max)],
            limits,
            now_ns: sys::clock::monotonic_ns(),
            date: String::new(),
            date_s: i64::MIN,
        }
    }

    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let second = (realtime_ns() / 1_000_000_000).cast_signed();
        if second != self.date_s {
            self.date_s = second;
            self.date = date::format(second);
        }
    }
}
