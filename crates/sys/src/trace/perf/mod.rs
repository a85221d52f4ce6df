//! Tracing by records of tracepoints in rings, perf_event_open(2): needs CAP_PERFMON and tracefs, and no
//! compiler.
//!
//! Events are opened for every followed thread on every CPU (an event that children inherit must be bound to
//! a CPU to have a ring), all of one CPU write into its one ring.

mod attributes;
mod loss_counters;
mod records;
mod ring;
mod tracepoints;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use attributes::{
    Attributes, COUNT_DUMMY, DISABLED, ENABLE_ON_EXEC, FORMAT_LOST, INHERIT, OF_THREADS, TYPE_SOFTWARE,
    TYPE_TRACEPOINT, cpus,
};
use loss_counters::LossCounters;
use ring::Ring;
use tracepoints::{Tracepoints, call_filter, set_filter};

use super::target::{for_each_thread, process_of, waits_in};
use super::{
    Backend, Counts, Event, OpenCall, Setting, Tally, Target, TraceError, Tracer, wait_for_all_cpus,
};
use crate::thread::raise_file_limit;

const IOC_ENABLE: libc::Ioctl = 0x2400;
const IOC_DISABLE: libc::Ioctl = 0x2401;
const IOC_SET_OUTPUT: libc::Ioctl = 0x2405;

/// Descriptors that are needed beside the events.
const OTHER_FILES: u64 = 256;

/// One CPU's ring and the event that it belongs to.
#[derive(Debug)]
struct Lane {
    cpu: u32,
    /// The event that the ring was mapped from; the others of this CPU write there too.
    leader: OwnedFd,
    ring: Ring,
    /// When its last record was written.
    last_ns: u64,
    reported_lost: u64,
    delivered: BTreeMap<EventKind, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    Entries,
    Ends,
    Softirqs,
    Threads,
}

#[derive(Debug)]
struct Opened {
    kind: EventKind,
    cpu: u32,
    event: OwnedFd,
}

#[derive(Debug)]
pub(super) struct PerfTracer {
    setting: Setting,
    tracepoints: Tracepoints,
    cpus: Vec<u32>,
    lanes: Vec<Lane>,
    events: Vec<Opened>,
    /// `PERF_FORMAT_LOST` where the kernel has it.
    read_format: u64,
    drained: Vec<Event>,
    /// Events from this moment on are kept back until the next time: a CPU may be about to write an earlier
    /// one.
    settled_ns: u64,
    stopped: bool,
}

impl PerfTracer {
    /// Reads the tracepoints and CPUs, and probes for permission; keeps no event open.
    pub(super) fn open(setting: &Setting) -> Result<Self, TraceError> {
        let tracepoints = Tracepoints::read()?;
        let failed = |error| TraceError::of_call(Backend::Perf, "list the CPUs", error);
        let mut this = Self {
            setting: setting.clone(),
            tracepoints,
            cpus: cpus().map_err(failed)?,
            lanes: Vec::new(),
            events: Vec::new(),
            read_format: FORMAT_LOST,
            drained: Vec::new(),
            settled_ns: 0,
            stopped: false,
        };
        // Check permission and the read format before a target is suspended.
        let probe = this.attributes(EventKind::Ends, 0);
        match probe.open(0, -1) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => this.read_format = 0,
            Err(error) => return Err(refused("open an event", error)),
        }
        Ok(this)
    }

    fn attributes(&self, kind: EventKind, flags: u64) -> Attributes {
        let (event_type, config) = match kind {
            EventKind::Entries => (TYPE_TRACEPOINT, self.tracepoints.enter.into()),
            EventKind::Ends => (TYPE_TRACEPOINT, self.tracepoints.leave.into()),
            EventKind::Threads => (TYPE_SOFTWARE, COUNT_DUMMY),
            EventKind::Softirqs => (TYPE_TRACEPOINT, self.tracepoints.softirq_entry.into()),
        };
        let flags = if kind == EventKind::Threads { flags | OF_THREADS } else { flags };
        Attributes::new(event_type, config, flags, self.read_format)
    }

    fn follow_running(&mut self, thread: i32, process: i32) -> Result<(), TraceError> {
        let at_ns = crate::clock::monotonic_ns();
        // Read before its events are enabled: they then report the end of this call, or the next call.
        let waits_in = waits_in(thread).filter(|number| self.setting.calls.contains(number));
        self.follow_thread(thread, 0)?;
        let (thread, process) = (thread.cast_unsigned(), process.cast_unsigned());
        self.drained.extend(waits_in.map(|number| Event::Within { at_ns, thread, process, number }));
        Ok(())
    }

    /// Opens one thread's events on every CPU.
    fn follow_thread(&mut self, thread: i32, flags: u64) -> Result<(), TraceError> {
        let wanted = (self.events.len() + 3 * self.cpus.len()) as u64 + OTHER_FILES;
        // If this is not enough, the next open fails.
        let _ = raise_file_limit(wanted.next_power_of_two());
        let filter = call_filter(&self.setting.calls);
        for cpu in self.cpus.clone() {
            for kind in [EventKind::Threads, EventKind::Entries, EventKind::Ends] {
                let event = self.attributes(kind, flags | DISABLED | INHERIT).open(thread, cpu.cast_signed());
                let event = event.map_err(|error| of_open(thread, error))?;
                if kind != EventKind::Threads {
                    set_filter(&event, &filter)?;
                }
                self.keep(kind, event, cpu)?;
                if flags & ENABLE_ON_EXEC == 0 {
                    self.enable_last()?;
                }
            }
        }
        Ok(())
    }

    /// Lets an event write into its CPU's ring, which the first one brings.
    fn keep(&mut self, kind: EventKind, event: OwnedFd, cpu: u32) -> Result<(), TraceError> {
        match self.lanes.iter().find(|lane| lane.cpu == cpu) {
            Some(lane) => {
                let leader = lane.leader.as_raw_fd();
                control(&event, IOC_SET_OUTPUT, leader as libc::c_ulong)
                    .map_err(|error| refused("share a ring", error))?;
            }
            None => {
                let ring = Ring::map(event.as_fd(), self.setting.ring_bytes)
                    .map_err(|error| refused("map a ring", error))?;
                let leader = event.try_clone().map_err(|error| refused("keep an event", error))?;
                self.lanes.push(Lane {
                    cpu,
                    leader,
                    ring,
                    last_ns: 0,
                    reported_lost: 0,
                    delivered: BTreeMap::new(),
                });
            }
        }
        self.events.push(Opened { kind, cpu, event });
        Ok(())
    }

    /// Enables the event that was kept last. Before it has its ring and filter it would count events that it
    /// cannot deliver.
    fn enable_last(&self) -> Result<(), TraceError> {
        let last = self.events.last().map(|opened| control(&opened.event, IOC_ENABLE, 0));
        last.unwrap_or(Ok(())).map_err(|error| refused("enable an event", error))
    }

    fn open_softirqs(&mut self) -> Result<(), TraceError> {
        for cpu in self.cpus.clone() {
            for tracepoint in [self.tracepoints.softirq_entry, self.tracepoints.softirq_exit] {
                let attributes =
                    Attributes::new(TYPE_TRACEPOINT, tracepoint.into(), DISABLED, self.read_format);
                let event = attributes.open(-1, cpu.cast_signed());
                let event = event.map_err(|error| refused("see the softirqs of a CPU", error))?;
                set_filter(&event, "vec==2||vec==3")?;
                self.keep(EventKind::Softirqs, event, cpu)?;
                self.enable_last()?;
            }
        }
        Ok(())
    }

    /// An event's count, and how many of its records were lost.
    fn count_of(&self, event: &OwnedFd) -> Result<(u64, u64), TraceError> {
        let mut bytes = [0; 16];
        let wanted = if self.read_format == 0 { 8 } else { 16 };
        let read = nix::unistd::read(event, &mut bytes[..wanted]);
        read.map_err(|error| refused("read a count", error.into()))?;
        let half = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Ok((half(0), half(8)))
    }

    fn loss_counters(&self) -> Result<BTreeMap<(EventKind, u32), LossCounters>, TraceError> {
        let mut loss_counters: BTreeMap<_, LossCounters> = BTreeMap::new();
        for opened in self.events.iter().filter(|opened| opened.kind != EventKind::Threads) {
            let (counted, lost) = self.count_of(&opened.event)?;
            let counters = loss_counters.entry((opened.kind, opened.cpu)).or_default();
            counters.opened += 1;
            counters.counted += counted;
            counters.lost += lost;
        }
        for lane in &self.lanes {
            for (kind, count) in &lane.delivered {
                loss_counters.entry((*kind, lane.cpu)).or_default().delivered += count;
            }
        }
        Ok(loss_counters)
    }

    /// Losses after the last record, which no later record reports.
    fn last_losses(&mut self) -> Vec<Event> {
        let to_ns = crate::clock::monotonic_ns();
        let lost_on = |cpu: u32| {
            let of_cpu = self.events.iter().filter(|opened| opened.cpu == cpu);
            of_cpu.filter_map(|opened| self.count_of(&opened.event).ok()).map(|(_, lost)| lost).sum::<u64>()
        };
        let lost: Vec<u64> = self.lanes.iter().map(|lane| lost_on(lane.cpu)).collect();
        let with_lost = self.lanes.iter_mut().zip(lost).filter(|(lane, lost)| *lost > lane.reported_lost);
        let loss = |(lane, lost): (&mut Lane, u64)| {
            let events = lost - std::mem::replace(&mut lane.reported_lost, lost);
            Event::Lost { from_ns: Some(lane.last_ns), to_ns, cpu: lane.cpu, events }
        };
        with_lost.map(loss).collect()
    }
}

impl Tracer for PerfTracer {
    fn backend(&self) -> Backend {
        Backend::Perf
    }

    fn start(&mut self) -> Result<(), TraceError> {
        if self.setting.softirqs { self.open_softirqs() } else { Ok(()) }
    }

    fn follow(&mut self, target: Target) -> Result<(), TraceError> {
        match target {
            Target::Thread(thread) => self.follow_running(thread, process_of(thread)),
            Target::Suspended(pid) => self.follow_thread(pid, ENABLE_ON_EXEC),
            Target::Process(pid) => for_each_thread(pid, |thread| self.follow_running(thread, pid)),
        }
    }

    fn drain(&mut self, into: &mut Vec<Event>) {
        let now_ns = crate::clock::monotonic_ns();
        for lane in &mut self.lanes {
            lane.ring.drain(|record| {
                let Some(mut event) = records::event_of(record, &self.tracepoints) else { return };
                if let Event::Lost { events, from_ns, .. } = &mut event {
                    lane.reported_lost += *events;
                    // Losing began when the last record that fitted had been written.
                    *from_ns = Some(lane.last_ns).filter(|at_ns| *at_ns > 0);
                }
                lane.last_ns = event.at_ns();
                if let Some(kind) = sample_of(&event) {
                    *lane.delivered.entry(kind).or_default() += 1;
                }
                self.drained.push(event);
            });
        }
        // Threads move between CPUs and so between rings: only by time is a thread's own order found again.
        self.drained.sort_by_key(Event::at_ns);
        let until_ns = if self.stopped { u64::MAX } else { self.settled_ns };
        let settled = self.drained.partition_point(|event| event.at_ns() < until_ns);
        into.extend(self.drained.drain(..settled));
        self.settled_ns = now_ns;
        if self.stopped {
            into.extend(self.last_losses());
        }
    }

    fn stop(&mut self) -> Result<(), TraceError> {
        // Ends before entries: a call that is only seen to begin is unfinished, one that is only seen to end
        // would be missing.
        for opened in self.events.iter().rev() {
            control(&opened.event, IOC_DISABLE, 0).map_err(|error| refused("disable an event", error))?;
        }
        // A CPU that was interrupted while it wrote a record shows neither that nor those written in the
        // interruption.
        wait_for_all_cpus();
        self.stopped = true;
        Ok(())
    }

    fn counts(&self) -> Result<Counts, TraceError> {
        let mut counts = Counts::default();
        for ((kind, _), counters) in self.loss_counters()? {
            // Records cut off by the end of tracing do not count.
            let events =
                counters.counted - if self.stopped && self.read_format != 0 { counters.cut_off() } else { 0 };
            counts.events += events;
            counts.events_lost += counters.lost;
            counts.events_delivered += counters.delivered;
            counts.calls += if kind == EventKind::Ends { events } else { 0 };
        }
        if self.read_format == 0 {
            // Before Linux 6.0 only the rings report losses, which include records of threads.
            counts.events_lost = self.lanes.iter().map(|lane| lane.reported_lost).sum();
        }
        Ok(counts)
    }

    fn tallies(&self) -> Result<Vec<Tally>, TraceError> {
        Ok(Vec::new())
    }

    fn open_calls(&self) -> Vec<OpenCall> {
        Vec::new()
    }
}

fn sample_of(event: &Event) -> Option<EventKind> {
    match event {
        Event::Entered { .. } => Some(EventKind::Entries),
        Event::Left { .. } => Some(EventKind::Ends),
        Event::SoftirqBegan { .. } | Event::SoftirqEnded { .. } => Some(EventKind::Softirqs),
        _ => None,
    }
}

/// An ioctl of an event; `argument` is an integer, or the address of what lives until it returns.
fn control(event: &OwnedFd, request: libc::Ioctl, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the descriptor is an event's; the requests that are made take an integer, or a terminated text
    // that the caller holds.
    match unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn refused(what: &str, error: io::Error) -> TraceError {
    TraceError::of_call(Backend::Perf, what, error)
}

fn of_open(thread: i32, error: io::Error) -> TraceError {
    match error.raw_os_error() {
        Some(libc::ESRCH) => TraceError::NoProcess { pid: thread },
        Some(libc::EMFILE | libc::ENFILE) => TraceError::Unsupported {
            backend: Backend::Perf,
            why:
                "it needs three open files for each thread and CPU, and there may be no more; raise 'ulimit \
                  -n'"
                .into(),
        },
        _ => refused(&format!("follow thread {thread}"), error),
    }
}
