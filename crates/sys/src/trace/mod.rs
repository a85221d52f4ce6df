//! Watching the system calls of other programs: which, from when to when, and whether the thread was away
//! from its CPU meanwhile.
//!
//! Two ways into the kernel stand behind [`Tracer`]: [`bpf`], a program that the kernel runs at its
//! tracepoints, and [`perf`], records of the same tracepoints in rings (perf_event_open(2)). Both tell times
//! of `CLOCK_MONOTONIC` and count what they lose. What is made of their [`Event`]s is no concern of this
//! crate.

pub mod bpf;
pub mod perf;

mod target;

use std::io;

pub use target::{Target, children_of, name_of_thread, threads_of, waits_in};

/// The largest number of a system call that can be asked for, and one more.
pub const CALLS_MAX: usize = 512;

/// So many events are enough at once: they may come faster than anybody can take them, and memory is bounded.
pub const EVENTS_AT_ONCE: usize = 1 << 16;

/// A way into the kernel.
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

    /// The capabilities that it needs (capabilities(7)): perf's numbers of tracepoints are in files of
    /// root's.
    fn rights(self) -> &'static str {
        match self {
            Self::Bpf => "cap_bpf,cap_perfmon",
            Self::Perf => "cap_perfmon,cap_dac_read_search",
        }
    }
}

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The process is not there.
    #[error("there is no process {pid}; it may have ended (see 'ps')")]
    NoProcess {
        /// Its number.
        pid: i32,
    },
    /// The process is there, but its threads cannot be listed.
    #[error("cannot list the threads of process {pid}: {source}")]
    NotSeen {
        /// Its number.
        pid: i32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel does not let this user trace.
    #[error(
        "the kernel does not permit tracing by {} ({what}: {source}); run as root, or give the program the \
         rights: sudo setcap {}+ep PATH/TO/kagiri (everybody who may execute that file has them then)",
        backend.name(), backend.rights()
    )]
    NotPermitted {
        /// Which way.
        backend: Backend,
        /// What was refused.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// This kernel or this build cannot.
    #[error("no tracing by {}: {why}", backend.name())]
    Unsupported {
        /// Which way.
        backend: Backend,
        /// What is missing, and what to do.
        why: String,
    },
    /// The kernel failed.
    #[error("tracing by {}: {what}: {source}", backend.name())]
    Kernel {
        /// Which way.
        backend: Backend,
        /// What was being done.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
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

/// What a tracer is to tell.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Numbers of the system calls that are wanted; those of [`CALLS_MAX`] and more are none.
    pub calls: Vec<u16>,
    /// Every call, run and softirq as an [`Event`]; otherwise the tracer may count by itself
    /// ([`Tracer::tallies`]).
    pub picture: bool,
    /// The kernel's network receive and send work (softirqs NET_RX and NET_TX), of all CPUs.
    pub softirqs: bool,
    /// Room for events that were not fetched yet, bytes; [`bpf`] has it once, [`perf`] for each CPU. It is
    /// brought up to a power of two.
    pub ring_bytes: usize,
}

/// How a thread was away from its CPU during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Away {
    /// It gave the CPU up, to wait.
    pub waited: bool,
    /// The CPU was taken from it.
    pub preempted: bool,
    /// It ended in the call.
    pub ended: bool,
    /// The call began before its thread was followed.
    pub began_before: bool,
}

/// What a tracer tells. Times are nanoseconds of the monotonic clock, threads and processes have the numbers
/// of this process's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A call began.
    Entered { at_ns: u64, thread: u32, process: u32, number: u16 },
    /// A thread was in a call already when it began to be followed.
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
    /// It ended.
    SoftirqEnded { at_ns: u64, cpu: u32, vector: u32 },
    /// A whole softirq.
    Softirq { from_ns: u64, to_ns: u64, cpu: u32, vector: u32 },
    /// A followed thread started this one.
    Started { at_ns: u64, thread: u32, process: u32, parent: u32 },
    /// A thread is called so from now on; `executed` if because it runs another program.
    Named { at_ns: u64, thread: u32, process: u32, name: String, executed: bool },
    /// A thread ended; its name, where the tracer knows it.
    Ended { at_ns: u64, thread: u32, process: u32, name: Option<String> },
    /// So many events found no room. `from_ns` is `None` where only the end is known.
    Lost { from_ns: Option<u64>, to_ns: u64, cpu: u32, events: u64 },
}

impl Event {
    /// When it was told: its end.
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

/// What the kernel itself counted, from the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that came to pass and were wanted; for [`perf`] those of calls and softirqs. What was being
    /// told at the moment of [`Tracer::stop`] may or may not be one of them.
    pub events: u64,
    /// Those of them that found no room, and were dropped.
    pub events_lost: u64,
    /// Those of them that were handed out. After [`Tracer::stop`] and a last [`Tracer::drain`] this and the
    /// lost make up all `events`; on kernels before 6.0 [`perf`] counts more as lost than belongs to
    /// them.
    pub events_told: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Threads that could not be followed, because the table of them was full.
    pub threads_missed: u64,
}

/// Counts of one call, kept by the tracer itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// What was counted.
    pub of: Tallied,
    /// How many.
    pub count: u64,
    /// How many of them only had their CPU taken away, and did not wait.
    pub preempted: u64,
    /// All their time, ns.
    pub total_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// The sum of what they returned, where it was positive.
    pub returned: u64,
    /// How many took about so many ns: within 1.6 % of it.
    pub durations: Vec<(u64, u64)>,
}

/// What a [`Tally`] is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tallied {
    /// A system call, during which the thread was or was not away from its CPU.
    Call { number: u16, away: bool },
    /// How long a softirq took.
    SoftirqRun { cpu: u32, vector: u32 },
    /// How long after the one before it a softirq began.
    SoftirqPeriod { cpu: u32, vector: u32 },
}

/// A call that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenCall {
    /// The thread that is in it.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Which call.
    pub number: u16,
    /// Since when, ns; since it is followed, if it began before.
    pub from_ns: u64,
    /// It began before its thread was followed.
    pub began_before: bool,
}

/// A way into the kernel that is open. Dropping it ends the tracing and leaves nothing behind; what was
/// traced is never touched.
pub trait Tracer: Send {
    /// Which one.
    fn backend(&self) -> Backend;

    /// Arm the kernel. From now on softirqs are told.
    ///
    /// # Errors
    /// The kernel refused.
    fn start(&mut self) -> Result<(), TraceError>;

    /// Follow a target, and all threads and processes that it starts; after [`Tracer::start`]. One that is
    /// [`Target::Suspended`] is told of from when it executes its program.
    ///
    /// # Errors
    /// The target is not there, or must not be traced.
    fn follow(&mut self, target: Target) -> Result<(), TraceError>;

    /// Take the events that are there, in order of time for each thread; once there are [`EVENTS_AT_ONCE`],
    /// the rest may be left to the next time. Never waits.
    fn drain(&mut self, into: &mut Vec<Event>);

    /// Tell no more, from one moment on: when it returns, the last events can be drained, and counts and open
    /// calls stand still.
    ///
    /// # Errors
    /// The kernel refused.
    fn stop(&mut self) -> Result<(), TraceError>;

    /// The kernel's own counts.
    ///
    /// # Errors
    /// The kernel refused.
    fn counts(&self) -> Result<Counts, TraceError>;

    /// What it counted by itself, where the [`Setting`] asked for no picture; empty for a tracer that tells
    /// every event.
    ///
    /// # Errors
    /// The kernel refused.
    fn tallies(&self) -> Result<Vec<Tally>, TraceError>;

    /// The calls in which threads are at this moment, as far as the tracer itself knows them.
    fn open_calls(&self) -> Vec<OpenCall>;
}

/// Opens a tracer.
///
/// # Errors
/// No right to, or this kernel or this build cannot.
pub fn open(backend: Backend, setting: &Setting) -> Result<Box<dyn Tracer>, TraceError> {
    match backend {
        Backend::Bpf => bpf::open(setting),
        Backend::Perf => Ok(Box::new(perf::PerfTracer::open(setting)?)),
    }
}

/// Waits until whatever ran on any CPU has ended (`MEMBARRIER_CMD_GLOBAL`, membarrier(2): an RCU grace
/// period): what was told to stop may be at work still.
fn wait_for_all_cpus() {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes integers only. Where it is not there, a record of the last moment may be
    // missing.
    unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
}

/// The number of the call that [`call_nothing`] makes.
pub const NOTHING_CALL: u16 = libc::SYS_write as u16;

/// Makes a system call that is refused at once (write(2) to no file), to find out what tracing it costs.
#[inline]
pub fn call_nothing() {
    // SAFETY: no bytes are read of the null pointer, for none are to be written.
    unsafe { libc::write(-1, std::ptr::null(), 0) };
}
