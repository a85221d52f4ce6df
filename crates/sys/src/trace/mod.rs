//! Traces the system calls of other programs: which call, its start and end, and whether the thread was
//! switched out meanwhile.
//!
//! [`Tracer`] has two backends: [`bpf`], a program that the kernel runs at its tracepoints, and [`perf`],
//! records of the same tracepoints in ring buffers (perf_event_open(2)). Both use `CLOCK_MONOTONIC` and count
//! lost events. `observe` interprets the [`Event`]s.

pub mod bpf;
pub mod perf;

mod target;

use std::io;

pub use target::{Target, children_of, name_of_thread, threads_of, waits_in};

/// System call numbers are below this.
pub const CALLS_MAX: usize = 512;

/// Events that one [`Tracer::drain`] delivers at most. Bounds memory when events arrive faster than they are
/// read.
pub const EVENTS_AT_ONCE: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A BPF program at raw tracepoints.
    Bpf,
    /// Rings of perf_event_open(2).
    Perf,
}

impl Backend {
    /// Its name: `bpf`, `perf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Perf => "perf",
        }
    }

    /// The required capabilities (capabilities(7)). Only root can read the numbers of perf's tracepoints.
    fn rights(self) -> &'static str {
        match self {
            Self::Bpf => "cap_bpf,cap_perfmon",
            Self::Perf => "cap_perfmon,cap_dac_read_search",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("there is no process {pid}; it may have ended (see 'ps')")]
    NoProcess { pid: i32 },
    #[error("cannot list the threads of process {pid}: {source}")]
    NotSeen { pid: i32, source: io::Error },
    #[error(
        "the kernel does not permit tracing by {} ({what}: {source}); run as root, or give the program the \
         rights: sudo setcap {}+ep PATH/TO/kagiri (then every user who may execute that file has them)",
        backend.name(), backend.rights()
    )]
    NotPermitted { backend: Backend, what: String, source: io::Error },
    #[error("no tracing by {}: {why}", backend.name())]
    Unsupported { backend: Backend, why: String },
    #[error("tracing by {}: {what}: {source}", backend.name())]
    Kernel { backend: Backend, what: String, source: io::Error },
}

impl TraceError {
    /// What a failed call of the kernel means.
    fn of_call(backend: Backend, what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { backend, what, source },
            _ => Self::Kernel { backend, what, source },
        }
    }
}

#[derive(Debug, Clone)]
pub struct Setting {
    /// Numbers of the system calls to trace, below [`CALLS_MAX`].
    pub calls: Vec<u16>,
    /// Every call, run and softirq as an [`Event`]; otherwise the tracer may count by itself
    /// ([`Tracer::tallies`]).
    pub picture: bool,
    /// The kernel's network receive and send work (softirqs NET_RX and NET_TX), of all CPUs.
    pub softirqs: bool,
    /// Size of the event buffer, bytes, rounded up to a power of two. [`bpf`] has one, [`perf`] one per CPU.
    pub ring_bytes: usize,
}

/// Why a thread was off its CPU during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Away {
    pub waited: bool,
    pub preempted: bool,
    /// It exited during the call.
    pub ended: bool,
    /// The call began before its thread was followed.
    pub began_before: bool,
}

/// A traced event. Times are nanoseconds of the monotonic clock; thread and process ids are those of this
/// process's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call began.
    Entered { at_ns: u64, thread: u32, process: u32, number: u16 },
    /// A thread was already in a call when tracing of it started.
    Within { at_ns: u64, thread: u32, process: u32, number: u16 },
    /// A call ended.
    Left { at_ns: u64, thread: u32, process: u32, number: u16, returned: i64 },
    /// A whole call.
    Called { from_ns: u64, to_ns: u64, thread: u32, process: u32, number: u16, away: Away, returned: i64 },
    /// A thread left its CPU.
    SwitchedOut { at_ns: u64, thread: u32, process: u32, cpu: u32, preempted: bool },
    /// A thread came onto a CPU.
    SwitchedIn { at_ns: u64, thread: u32, process: u32, cpu: u32 },
    /// A thread was on a CPU.
    Ran { from_ns: u64, to_ns: u64, thread: u32, process: u32, cpu: u32 },
    /// Softirq `vector` (2 NET_TX, 3 NET_RX) began on a CPU.
    SoftirqBegan { at_ns: u64, cpu: u32, vector: u32 },
    /// A softirq ended.
    SoftirqEnded { at_ns: u64, cpu: u32, vector: u32 },
    /// A whole softirq.
    Softirq { from_ns: u64, to_ns: u64, cpu: u32, vector: u32 },
    /// A followed thread started this one.
    Started { at_ns: u64, thread: u32, process: u32, parent: u32 },
    /// A thread has a new name; `executed`: because it runs another program.
    Named { at_ns: u64, thread: u32, process: u32, name: String, executed: bool },
    /// A thread ended; its name, where the tracer knows it.
    Ended { at_ns: u64, thread: u32, process: u32, name: Option<String> },
    /// Events were lost because the buffer was full. `from_ns` is `None` where only the end is known.
    Lost { from_ns: Option<u64>, to_ns: u64, cpu: u32, events: u64 },
}

impl Event {
    /// Its end.
    pub fn at_ns(&self) -> u64 {
        match *self {
            Self::Entered { at_ns, .. }
            | Self::Within { at_ns, .. }
            | Self::Left { at_ns, .. }
            | Self::SwitchedOut { at_ns, .. }
            | Self::SwitchedIn { at_ns, .. }
            | Self::SoftirqBegan { at_ns, .. }
            | Self::SoftirqEnded { at_ns, .. }
            | Self::Started { at_ns, .. }
            | Self::Named { at_ns, .. }
            | Self::Ended { at_ns, .. } => at_ns,
            Self::Called { to_ns, .. }
            | Self::Ran { to_ns, .. }
            | Self::Softirq { to_ns, .. }
            | Self::Lost { to_ns, .. } => to_ns,
        }
    }
}

/// The kernel's own counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that matched; for [`perf`] those of calls and softirqs. An event in progress at
    /// [`Tracer::stop`] may or may not be included.
    pub events: u64,
    /// Events dropped because the buffer was full.
    pub events_lost: u64,
    /// Events delivered. After [`Tracer::stop`] and a last [`Tracer::drain`], delivered and lost add up to
    /// `events`; on kernels before 6.0 [`perf`] also counts other records as lost.
    pub events_delivered: u64,
    pub calls: u64,
    /// Threads that were not traced because the table was full.
    pub threads_missed: u64,
}

/// Counts of one call, kept by the tracer itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    pub of: Tallied,
    pub count: u64,
    /// Of those, how many were preempted but did not block.
    pub preempted: u64,
    pub total_ns: u64,
    pub max_ns: u64,
    /// Sum of the positive return values.
    pub returned: u64,
    /// Histogram: duration in ns (within 1.6 %) and count.
    pub durations: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tallied {
    /// A system call, during which the thread was or was not away from its CPU.
    Call { number: u16, away: bool },
    /// How long a softirq took.
    SoftirqRun { cpu: u32, vector: u32 },
    /// Interval between the starts of two softirqs.
    SoftirqPeriod { cpu: u32, vector: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenCall {
    pub thread: u32,
    pub process: u32,
    pub number: u16,
    /// Its start, ns; the start of tracing if it began before.
    pub from_ns: u64,
    /// It began before its thread was followed.
    pub began_before: bool,
}

/// An open tracer. Dropping it ends the tracing; the traced programs are not changed.
pub trait Tracer: Send {
    fn backend(&self) -> Backend;

    /// Starts tracing in the kernel, and the events of softirqs.
    fn start(&mut self) -> Result<(), TraceError>;

    /// Traces a target, and all threads and processes that it starts; after [`Tracer::start`]. A
    /// [`Target::Suspended`] is traced from the moment it executes its program.
    fn follow(&mut self, target: Target) -> Result<(), TraceError>;

    /// Delivers pending events, in order of time per thread, about [`EVENTS_AT_ONCE`] at most. Never waits.
    fn drain(&mut self, into: &mut Vec<Event>);

    /// Stops tracing. Afterwards the last events can be drained, and counts and open calls do not change.
    fn stop(&mut self) -> Result<(), TraceError>;

    fn counts(&self) -> Result<Counts, TraceError>;

    /// The tracer's own counts without [`Setting::picture`]; empty for a tracer that delivers every event.
    fn tallies(&self) -> Result<Vec<Tally>, TraceError>;

    /// Calls in progress, as far as the tracer knows them.
    fn open_calls(&self) -> Vec<OpenCall>;
}

pub fn open(backend: Backend, setting: &Setting) -> Result<Box<dyn Tracer>, TraceError> {
    match backend {
        Backend::Bpf => bpf::open(setting),
        Backend::Perf => Ok(Box::new(perf::PerfTracer::open(setting)?)),
    }
}

/// Waits for an RCU grace period (`MEMBARRIER_CMD_GLOBAL`, membarrier(2)): a stopped tracepoint may still be
/// running on another CPU.
fn wait_for_all_cpus() {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes integers only. Where it is not there, a record of the last moment may be
    // missing.
    unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
}

/// The number of the call that [`call_nothing`] makes.
pub const NOTHING_CALL: u16 = libc::SYS_write as u16;

/// Makes a system call that fails at once (write(2) to no file), to measure the cost of tracing.
#[inline]
pub fn call_nothing() {
    // SAFETY: no bytes are read of the null pointer, for none are to be written.
    unsafe { libc::write(-1, std::ptr::null(), 0) };
}
