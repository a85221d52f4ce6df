//! Drives flows by threads: one loop that blocks in the kernel for a thread with one flow, one `epoll(7)`
//! loop for a thread with several. What a flow does with its socket is the [`Drive`] implementation's:
//! streams of bytes (`crate::flow`) and requests with their responses (`crate::requests`).

mod blocking_loop;
mod engine_choice;
mod epoll_loop;
mod flow_report;
mod group;
mod latency_stats;
mod over_time;
mod payload;
pub(crate) mod span_names;

pub(crate) use flow_report::{CpuUsage, FlowCounters, broken};
pub(crate) use group::{DriveSetting, Member, cpus, threads_for};
pub(crate) use latency_stats::{LatencyStats, SentRequest};
pub(crate) use payload::{BLOCK_BYTES, block, fill, slices};

pub use engine_choice::{Engine, EngineChoice, Mode, ProbeReport, Probed};
pub use flow_report::{EndReason, FlowCount, FlowReport, FlowSocket, ThreadReport, Transit};
pub use group::{Group, GroupReport, room_for};
pub use latency_stats::Responses;
pub use over_time::{OverTime, Slot};

use std::time::Duration;

use reactor::ThreadError;
use sys::net::{Interest, NetError};

/// The longest wait of a blocking call: a stop is noticed within it.
pub(crate) const WAIT_NS: u64 = 40_000_000;
/// A stopped receiver reads for at most this long what its socket had queued.
const DRAIN_NS: u64 = 40_000_000;
/// A spinning thread checks the clock and yields after this number of polls without an event: its peer may be
/// waiting for the same CPU.
const POLLS_PER_CHECK: u32 = 32;

#[derive(Debug)]
pub(crate) enum Step {
    /// Bytes moved; more may at once.
    Moved,
    /// Nothing moves until the socket is ready.
    Blocked,
    /// Nothing is due before this moment of the monotonic clock.
    WaitUntil(u64),
    Over(EndReason),
}

/// Ends flows whose peer is silent for too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SilenceLimit {
    /// Nothing is expected before the common start.
    start_ns: u64,
    max: Duration,
}

impl SilenceLimit {
    /// [`Step::Over`] if nothing has moved since `since_ns` for longer than the limit.
    pub(crate) fn check(&self, since_ns: u64, now_ns: u64) -> Step {
        let silent_ns = now_ns.saturating_sub(since_ns.max(self.start_ns));
        if u128::from(silent_ns) < self.max.as_nanos() {
            return Step::Blocked;
        }
        Step::Over(silent(self.max))
    }
}

/// The end of a flow whose peer was silent for `max`.
pub(crate) fn silent(max: Duration) -> EndReason {
    let s = max.as_secs_f64();
    EndReason::Failed(format!(
        "nothing moved for {s} s: is the peer alive, and does a firewall let it through?"
    ))
}

/// Why flows cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error("flow {flow}: {problem}")]
    Spec {
        /// Which of the group, from 0.
        flow: usize,
        problem: String,
    },
    /// Fewer files may be open than the flows need.
    #[error(
        "{flows} flows need {needed} open files, and this process may have {limit}; raise the limit \
         (ulimit -n) or \
         use fewer flows"
    )]
    Files { flows: usize, needed: u64, limit: u64 },
    #[error("cannot compare the engines over loopback: {0}")]
    Probe(String),
}

pub(crate) trait Drive: Send + 'static {
    /// What the flows of a thread share: only one of them moves at a time.
    type Buffers;

    /// The time between two calls of [`Self::check`] in the epoll loop.
    const CHECK_EVERY_NS: u64;

    fn socket(&self) -> &FlowSocket;

    /// Whether the first step waits for the common start.
    fn waits_for_start(&self) -> bool;

    /// The moment at which it ends by itself, if that is known.
    fn end_ns(&self) -> Option<u64>;

    /// How long its calls may wait in the kernel; `None`: not at all.
    fn set_wait(&mut self, wait: Option<Duration>) -> Result<(), NetError>;

    fn read_clock(&mut self) -> u64;

    /// Moves once; may wait as [`Self::set_wait`] allows.
    fn step_blocking(&mut self, buffers: &mut Self::Buffers) -> Step;

    /// Moves as much as is fair to other flows, without waiting. [`Step::Moved`]: it is to be called again
    /// although its socket may not be ready.
    fn step_ready(&mut self, is_ready: bool, buffers: &mut Self::Buffers) -> Step;

    /// What its socket must be ready for after such a step; `None`: nothing.
    fn interest(&self, after: &Step) -> Option<Interest>;

    /// Called now and then while nothing moves: ends a flow that is overdue. [`Step::Moved`]: a step may be
    /// due.
    fn check(&mut self, buffers: &mut Self::Buffers, silence: SilenceLimit) -> Step;

    /// Reads what its socket has queued: the sender counts it as delivered.
    fn drain(&mut self, buffers: &mut Self::Buffers, until_ns: u64);

    fn report(&mut self, reason: EndReason, buffers: &mut Self::Buffers) -> FlowReport;

    /// The latencies of all flows of a thread, if they are measured.
    fn latency_stats(buffers: Self::Buffers) -> Option<LatencyStats>;
}
