//! What a flow and a thread came to: plain data, the counts of a flow that runs, and its socket.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use sys::net::{NetError, TcpInfo, TcpSocket, UdpFlow};
use sys::thread::{thread_cpu_ns, thread_ready_ns};

/// How far a flow is. Counts only grow; they are read while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCount {
    /// Payload bytes that the kernel took or gave.
    pub bytes: u64,
    pub datagrams: u64,
    /// Datagrams that were sent before the last that came, and never came; receivers only.
    pub lost: u64,
    /// Of these, dropped at the receiver's full socket (`SO_RXQ_OVFL`, socket(7)); absent if unknown.
    pub overflowed: Option<u64>,
    pub reordered: u64,
    pub duplicated: u64,
    /// Times that the kernel had no room for what a sender gave it (`EAGAIN`, `ENOBUFS`).
    pub refused: u64,
    /// By how much a sender at a rate put off its schedule because it was woken too late, ns.
    #[serde(default)]
    pub overslept_ns: u64,
    /// Smoothed jitter of the datagrams' transit time, ns (RFC 1889, A.8).
    pub jitter_ns: u64,
}

impl FlowCount {
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// What came after it was `before`.
    #[must_use]
    pub fn without(&self, before: &Self) -> Self {
        Self { jitter_ns: self.jitter_ns, ..self.each(before, u64::saturating_sub) }
    }

    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: of(self.bytes, other.bytes),
            datagrams: of(self.datagrams, other.datagrams),
            lost: of(self.lost, other.lost),
            overflowed: match (self.overflowed, other.overflowed) {
                (None, None) => None,
                (own, other) => Some(of(own.unwrap_or(0), other.unwrap_or(0))),
            },
            reordered: of(self.reordered, other.reordered),
            duplicated: of(self.duplicated, other.duplicated),
            refused: of(self.refused, other.refused),
            overslept_ns: of(self.overslept_ns, other.overslept_ns),
            jitter_ns: self.jitter_ns.max(other.jitter_ns),
        }
    }
}

/// How long datagrams were on their way, ns: the receiver's monotonic clock at the arrival less the sender's
/// at the departure. Between hosts the offset of the clocks is in it, so that it may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    pub min_ns: i64,
    pub mean_ns: i64,
    pub max_ns: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    #[default]
    Done,
    /// The peer ended it in order.
    ByPeer,
    Stopped,
    /// It could not go on: what happened.
    Failed(String),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    pub count: FlowCount,
    /// The moments of this host's monotonic clock at which its first and last byte moved; absent when none
    /// did.
    pub moved_ns: Option<(u64, u64)>,
    /// What moved at the first of these moments: of a receiver, it had come before.
    #[serde(default)]
    pub first_bytes: u64,
    pub ended: EndReason,
    /// The kernel's view of the connection at its end; TCP only.
    #[serde(skip)]
    pub tcp: Option<TcpInfo>,
    /// The congestion control of the connection; TCP only.
    pub congestion: Option<String>,
    /// The path's MTU that the kernel believes in, bytes.
    pub path_mtu_bytes: Option<u32>,
    /// How long datagrams were on their way; receivers of stamped ones only.
    pub transit: Option<Transit>,
    /// The most datagrams that can have been dropped at the receiver's full socket after the last received
    /// one: they are in no count. Absent if unknown.
    pub overflowed_after: Option<u64>,
}

impl FlowReport {
    pub fn new(ended: EndReason) -> Self {
        Self { ended, ..Self::default() }
    }

    /// A flow that has moved `count` within a second.
    #[cfg(test)]
    pub(crate) fn in_a_second(count: FlowCount) -> Self {
        Self { count, moved_ns: Some((0, 1_000_000_000)), ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    pub cpu_ns: u64,
    /// Time that it was ready to run and had no CPU, ns; absent where the kernel does not count it.
    #[serde(default)]
    pub ready_ns: Option<u64>,
    /// From its start to its end, ns.
    pub wall_ns: u64,
}

/// Stands for an unknown count: no flow counts so far.
const UNKNOWN: u64 = u64::MAX;

/// One writer, any number of readers. Each count by itself is right at some recent moment; together they need
/// not be of the same one. A cache line pair of its own, so that flows do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct FlowCounters {
    bytes: AtomicU64,
    datagrams: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
    reordered: AtomicU64,
    duplicated: AtomicU64,
    refused: AtomicU64,
    overslept_ns: AtomicU64,
    jitter_ns: AtomicU64,
}

impl FlowCounters {
    pub(crate) fn read(&self) -> FlowCount {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FlowCount {
            bytes: of(&self.bytes),
            datagrams: of(&self.datagrams),
            lost: of(&self.lost),
            overflowed: Some(of(&self.overflowed)).filter(|&count| count != UNKNOWN),
            reordered: of(&self.reordered),
            duplicated: of(&self.duplicated),
            refused: of(&self.refused),
            overslept_ns: of(&self.overslept_ns),
            jitter_ns: of(&self.jitter_ns),
        }
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_overslept_ns(&self, overslept_ns: u64) {
        self.overslept_ns.store(overslept_ns, Ordering::Relaxed);
    }

    /// All that a datagram flow counts, but its bytes and what its schedule does.
    pub(crate) fn set_datagrams(&self, count: &FlowCount) {
        let set = |counters: &AtomicU64, value: u64| counters.store(value, Ordering::Relaxed);
        set(&self.datagrams, count.datagrams);
        set(&self.lost, count.lost);
        set(&self.overflowed, count.overflowed.unwrap_or(UNKNOWN));
        set(&self.reordered, count.reordered);
        set(&self.duplicated, count.duplicated);
        set(&self.refused, count.refused);
        set(&self.jitter_ns, count.jitter_ns);
    }
}

#[derive(Debug)]
pub enum FlowSocket {
    Tcp(TcpSocket),
    Udp(UdpFlow),
}

impl AsFd for FlowSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

impl FlowSocket {
    pub(crate) fn set_wait(&self, wait: Option<Duration>) -> Result<(), NetError> {
        match self {
            Self::Tcp(socket) => socket.set_wait(wait),
            Self::Udp(socket) => socket.set_wait(wait),
        }
    }

    /// Closing it drops what the kernel has still to send.
    pub(crate) fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            // It is closed anyhow, if perhaps later.
            let _ = socket.reset_on_close();
        }
    }

    /// What the socket and the counters show, without the flow's thread.
    pub(crate) fn report(&self, counters: &FlowCounters, reason: EndReason) -> FlowReport {
        let (tcp, path_mtu) = match self {
            Self::Tcp(socket) => (Some(socket), socket.path_mtu()),
            Self::Udp(socket) => (None, socket.path_mtu()),
        };
        FlowReport {
            count: counters.read(),
            tcp: tcp.and_then(|tcp| tcp.info().ok()),
            congestion: tcp.and_then(|tcp| tcp.congestion().ok()),
            path_mtu_bytes: path_mtu.ok(),
            ..FlowReport::new(reason)
        }
    }
}

/// The end of a flow whose socket failed after `bytes` bytes.
pub(crate) fn broken(error: &NetError, bytes: u64) -> EndReason {
    use ErrorKind as K;
    let what = match error.kind() {
        K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted => "the peer closed the connection",
        K::TimedOut => "the peer no longer answers",
        K::ConnectionRefused => "nobody listens at the peer any more",
        _ => "the flow broke",
    };
    EndReason::Failed(format!("{what} after {bytes} bytes: {error}"))
}

/// The accounts of this thread at its beginning.
#[derive(Debug)]
pub(crate) struct CpuUsage {
    from_ns: u64,
    cpu_ns: u64,
    ready_ns: Option<u64>,
    throttled_ns: Option<u64>,
}

/// Time for which the control group of this process had used up its quota, ns, summed over CPUs; `None`
/// without a quota.
fn throttled_ns() -> Option<u64> {
    let own = i32::try_from(std::process::id()).ok()?;
    sys::cgroup::cpu_reader_of(Path::new("/"), own).ok()?.read().ok()?.throttled_ns
}

impl CpuUsage {
    /// Begins now, or at `start_ns` if that is later.
    pub(crate) fn begin(start_ns: u64) -> Self {
        // First, as it takes the longest.
        let throttled_ns = throttled_ns();
        let from_ns = monotonic_ns().max(start_ns);
        Self { from_ns, cpu_ns: thread_cpu_ns(), ready_ns: thread_ready_ns(), throttled_ns }
    }

    pub(crate) fn end(self) -> ThreadReport {
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_ns);
        let wall_ns = monotonic_ns().saturating_sub(self.from_ns);
        let ready_ns = since(thread_ready_ns(), self.ready_ns);
        // A thread whose group has used up its quota is off the run queue since Linux 6.18 (throttling is put
        // off until the way out of the kernel), so that the wait counts as no wait for a CPU. It is
        // one.
        let throttled_ns = since(throttled_ns(), self.throttled_ns).filter(|ns| *ns > 0);
        let throttled_ns = throttled_ns.map(|ns| ns.min(wall_ns.saturating_sub(cpu_ns)));
        ThreadReport { cpu_ns, ready_ns: ready_ns.max(throttled_ns), wall_ns }
    }
}
