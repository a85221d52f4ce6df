//! Pattern `bulk`: a throughput test on the path of the event builder, with nothing built.
//!
//! Each source writes messages of `size` back to back to a TCP connection of its own, and the receiver reads
//! them in pieces of that size, each with a thread, as `iperf3 -l SIZE -P SOURCES` does. What the other
//! patterns reach on the same path is compared with this.

mod judge;
mod receiver;
mod senders;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::settings::{DaqSettings, Size};

pub use judge::judge;
pub use receiver::ReceiverPart;
pub use senders::SendersPart;

/// What a connection begins with: the run's number and the source's, big-endian.
const HELLO_BYTES: usize = 8;
/// Parts of the hold whose rates are reported.
const INTERVALS: usize = 50;
/// How long a call waits in the kernel before the thread looks for a stop.
const WAIT_MS: u64 = 50;

/// What the receiver counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Received {
    /// The hold, s after the trial's start.
    pub hold_s: (f64, f64),
    /// Bytes in the hold by source.
    pub bytes: Vec<(u32, u64)>,
    /// Bytes of all sources in each of the equal parts of the hold.
    pub intervals: Vec<u64>,
    pub threads: ThreadTimes,
    /// The rate of its network device, if known.
    pub link_bit_per_s: Option<f64>,
    pub ended_early: bool,
    pub broke_off: Option<String>,
    /// The boot of its host; empty: unknown.
    pub boot: String,
}

/// What the sources of a host counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    pub threads: ThreadTimes,
    /// Segments sent again, of the whole trial.
    pub retransmits: Option<u64>,
    pub broke_off: Option<String>,
    /// The boot of their host; empty: unknown.
    pub boot: String,
}

/// Times of the busiest of several threads, share of the time that they were measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadTimes {
    /// On a CPU.
    pub worked: Option<f64>,
    /// On a CPU, or ready and waiting for one.
    pub taken: Option<f64>,
}

impl ThreadTimes {
    fn busiest(self, other: Self) -> Self {
        let most = |a: Option<f64>, b: Option<f64>| [a, b].into_iter().flatten().max_by(f64::total_cmp);
        Self { worked: most(self.worked, other.worked), taken: most(self.taken, other.taken) }
    }
}

/// CPU times of a thread since a moment of it.
struct Clocked {
    from_ns: u64,
    cpu_ns: u64,
    ready_ns: Option<u64>,
}

impl Clocked {
    /// Begins now, in the thread that is measured.
    fn now() -> Self {
        Self {
            from_ns: sys::clock::monotonic_ns(),
            cpu_ns: sys::thread::thread_cpu_ns(),
            ready_ns: sys::thread::thread_ready_ns(),
        }
    }

    fn times(&self) -> ThreadTimes {
        let now = Self::now();
        let lasted_ns = now.from_ns.saturating_sub(self.from_ns).max(1) as f64;
        let worked_ns = now.cpu_ns.saturating_sub(self.cpu_ns) as f64;
        let ready_ns = now.ready_ns.zip(self.ready_ns).map(|(now, then)| now.saturating_sub(then) as f64);
        ThreadTimes {
            worked: Some(worked_ns / lasted_ns),
            taken: Some((worked_ns + ready_ns.unwrap_or(0.0)) / lasted_ns),
        }
    }
}

/// The bytes of a message; the check of the settings rejects other sizes than fixed ones.
fn message_bytes(settings: &DaqSettings) -> usize {
    match &settings.size {
        Size::Fixed(size) => usize::try_from(size.bytes()).unwrap_or(usize::MAX).max(1),
        _ => 1,
    }
}
