//! The sources of a host as a part of a run: kind `daq.sources`.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use base::part::{HostContext, Live, PartError, Progress};
use reactor::{EventLoop, ThreadGroup, ThreadSpec};
use sys::clock::{Deadline, monotonic_ns};
use sys::proc::SocketMemory;
use workload::part::{Part, Peers};

use super::config::{SourcesConfig, rate_max_bit_per_s};
use super::counters::merge;
use super::worker::{Worker, WorkerProgress};
use crate::fd_limit;
use crate::listen_addresses::PortPart;
use crate::part_settings::{PortEndpoint, SourcesTask};
use crate::report::SourcesReport;
use crate::settings::FragmentSizes;

const CONNECT: Duration = Duration::from_secs(20);
/// Interval of checking for a stop request while sources connect.
const LOOK: Duration = Duration::from_millis(20);
/// How long the threads may take to end after a stop.
const LEAVE: Duration = Duration::from_secs(5);
/// Interval of sampling memory and rates.
const LIVE_NS: u64 = 500_000_000;
/// The kernel's error for an unknown congestion control.
const NO_SUCH: &str = "(os error 2)";
/// Files that a process has open besides the sources' connections.
const FILES_BESIDES: u64 = 256;
/// Concurrent handshakes over all threads: below any builder's listen backlog.
const HANDSHAKES_MAX: usize = 64;
/// Sources per thread. On two CPUs, 1000 sources send half as much again with four threads as with one: the
/// kernel schedules the builder more often between them.
const SOURCES_A_THREAD: usize = 250;
const READY_MAX: usize = 512;
/// Buffers are on the heap.
const STACK_BYTES: usize = 512 << 10;

pub struct SourcesPart {
    task: SourcesTask,
    threads: Option<SourceThreads>,
    /// The time until all connections were established, s.
    connect_s: f64,
    /// Connections that are to stand, to all builders.
    connections: u64,
    /// Memory before the first connection, and the most since.
    memory: Option<(u64, u64)>,
    /// When rates were last computed, what had been sent then, and the rates.
    seen: (u64, (u64, u64)),
    live: Live,
}

impl SourcesPart {
    fn config(&self, ports: &[PortEndpoint], host: &HostContext) -> Result<SourcesConfig, PartError> {
        let sizes = FragmentSizes::read(&self.task.settings.size, self.task.seed, host)?;
        let config = SourcesConfig::new(&self.task, ports, sizes);
        if config.builders.is_empty() || config.builders.len() > usize::from(u16::MAX) {
            return Err(PartError::new(format!(
                "{} builders; possible are 1 to 65535",
                config.builders.len()
            )));
        }
        for builder in &config.builders {
            host.permit.peer(builder.address)?;
        }
        let mean_bytes = config.sizes.mean_bytes();
        host.permit.rate(rate_max_bit_per_s(&self.task.settings, mean_bytes, self.task.sources))?;
        Ok(config)
    }

    /// Waits until all connections are established.
    fn connect(
        &self,
        threads: &mut SourceThreads,
        host: &HostContext,
        wanted: usize,
    ) -> Result<(), PartError> {
        let until = Deadline::after(CONNECT);
        loop {
            let how = match threads.wait_connected(LOOK) {
                Ok(true) => return Ok(()),
                Ok(false) if host.stop_requested() => "the run is stopping".to_owned(),
                Ok(false) if !until.passed() => continue,
                Ok(false) => format!(
                    "the others were not accepted within {} s; use fewer sources, or more builders",
                    CONNECT.as_secs()
                ),
                Err(why) => why,
            };
            if let Some(why) = self.unknown_congestion_control(&how) {
                return Err(PartError::usage(why));
            }
            let established = threads.established();
            let advice = advice(&how);
            return Err(PartError::new(format!(
                "only {established} of {wanted} connections of sources were established: {how}{advice}"
            )));
        }
    }

    /// What is wrong with the congestion control that was asked for, where that is why no connection could be
    /// made.
    fn unknown_congestion_control(&self, why: &str) -> Option<String> {
        let asked = self.task.settings.congestion_control.as_ref();
        let asked = asked.filter(|_| why.contains("set the congestion control") && why.contains(NO_SUCH))?;
        let offered = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
        let offered: Vec<&str> = offered.split_whitespace().collect();
        Some(format!(
            "daq.congestion_control: '{asked}' is not available; this kernel offers {}",
            offered.join(", ")
        ))
    }

    fn note_memory(&mut self) {
        if let (Some((_, most)), Some(now)) = (&mut self.memory, used_bytes(self.connections)) {
            *most = now.max(*most);
        }
    }
}

/// Whether builders are in this process too, and open a file for each of the sources' connections.
fn is_among_builders(ports: &[PortEndpoint]) -> bool {
    let is_here = |address: &SocketAddr| sys::proc::interface_with(address.ip()).is_ok();
    ports.iter().any(|port| port.pid == std::process::id() && port.addresses.iter().all(is_here))
}

/// Resident memory of this process plus the kernel's socket queues of `connections`, bytes; `None` if it
/// cannot be read.
///
/// The kernel reports the queues of the whole host only: each connection counts with the mean.
fn used_bytes(connections: u64) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok();
    let resident = status.as_deref().and_then(resident_bytes);
    let queues = SocketMemory::open(Path::new("/")).and_then(|mut memory| memory.read());
    let queues = queues.ok().and_then(|reading| reading.tcp_bytes.zip(reading.tcp_allocated));
    let own = queues.map_or(0, |(bytes, all)| bytes / all.max(1) * connections.min(all));
    resident.map(|resident| resident.saturating_add(own))
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What to do about a connection that could not be made.
fn advice(why: &str) -> &'static str {
    if why.contains("(os error 99)") {
        "; this host has no free port left (net.ipv4.ip_local_port_range): use more hosts or more builders"
    } else if why.contains("(os error 111)") {
        "; no builder listens there any more"
    } else if why.contains("(os error 24)") {
        "; this process may not open more files: raise the limit (ulimit -n, LimitNOFILE=), or use more hosts"
    } else {
        ""
    }
}

impl Part for SourcesPart {
    const KIND: &'static str = "daq.sources";
    type Task = SourcesTask;
    type Endpoint = ();
    type Report = SourcesReport;

    fn report_items(task: &SourcesTask) -> u64 {
        u64::from(task.sources)
    }

    fn new(task: SourcesTask) -> Result<Self, PartError> {
        Ok(Self {
            task,
            threads: None,
            connect_s: 0.0,
            connections: 0,
            memory: None,
            seen: (0, (0, 0)),
            live: Live::new(),
        })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let ports = self.task.ports.iter().map(|name| peers.get::<PortPart>(name));
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        let config = Arc::new(self.config(&ports, host)?);
        let sources = self.task.sources as usize;
        let wanted = sources * config.builders.len();
        fd_limit::raise_for(wanted as u64, is_among_builders(&ports), FILES_BESIDES)?;
        self.connections = wanted as u64;
        self.memory = used_bytes(0).map(|before| (before, before));
        let began_ns = monotonic_ns();
        let threads = self.task.settings.threads as usize;
        let mut threads = SourceThreads::start(&config, self.task.source_first, sources, threads)
            .map_err(|error| PartError::new(error.to_string()))?;
        self.connect(&mut threads, host, wanted)?;
        self.connect_s = monotonic_ns().saturating_sub(began_ns) as f64 / 1e9;
        self.threads = Some(threads);
        self.note_memory();
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let threads =
            self.threads.as_ref().ok_or_else(|| PartError::new("the sources were started unprepared"))?;
        threads.group.begin(at_monotonic_ns);
        self.seen = (at_monotonic_ns, threads.sent());
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match &self.threads {
            Some(threads) if threads.group.is_finished() => Progress::Finished,
            _ => Progress::Running { done: None },
        }
    }

    fn live(&mut self) -> Live {
        let Some(threads) = &self.threads else { return Live::new() };
        let (now_ns, now) = (monotonic_ns(), threads.sent());
        let (then_ns, then) = self.seen;
        let elapsed_ns = now_ns.saturating_sub(then_ns);
        // This is called many times a second, more often than the numbers are displayed.
        if elapsed_ns >= LIVE_NS {
            let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 * 1e9 / elapsed_ns as f64;
            self.seen = (now_ns, now);
            self.live = Live::from([
                ("fragments_per_s".to_owned(), per_s(now.0, then.0)),
                ("payload_bit_per_s".to_owned(), per_s(now.1, then.1) * 8.0),
            ]);
            self.note_memory();
        }
        self.live.clone()
    }

    fn stop(&mut self) -> Result<SourcesReport, PartError> {
        let Some(threads) = self.threads.take() else {
            return Err(PartError::new("the sources were not prepared, so there is no report"));
        };
        if !threads.group.is_finished() {
            self.note_memory();
        }
        let mut report = threads.stop(LEAVE).map_err(PartError::new)?;
        report.connect_s = self.connect_s;
        report.memory_bytes = self.memory.map(|(before, most)| most.saturating_sub(before));
        Ok(report)
    }
}

/// The threads of the sources: start, wait for connections, stop.
#[derive(Debug)]
struct SourceThreads {
    group: ThreadGroup<SourcesReport>,
    progress: Vec<Arc<WorkerProgress>>,
    /// One message of each thread: its sources are all connected, or why they are not.
    connected: Receiver<Result<(), String>>,
    threads_connected: usize,
}

fn threads_for(sources: usize, wanted: usize) -> usize {
    let cpus = sys::thread::online_cpus().map_or(1, |cpus| cpus.len().max(1));
    let threads = if wanted == 0 { sources.div_ceil(SOURCES_A_THREAD).min(2 * cpus) } else { wanted };
    threads.clamp(1, sources.max(1))
}

impl SourceThreads {
    /// Starts threads that connect `sources` sources from number `first` on.
    fn start(
        config: &Arc<SourcesConfig>,
        first: u32,
        sources: usize,
        wanted: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let number = threads_for(sources, wanted);
        let (sender, connected) = channel();
        let group = ThreadGroup::new(u64::MAX)?;
        let mut started = Self { group, progress: Vec::new(), connected, threads_connected: 0 };
        for thread in 0..number {
            // Split evenly, in the order of their numbers.
            let (from, to) = (thread * sources / number, (thread + 1) * sources / number);
            let handshakes_max = (HANDSHAKES_MAX / number).max(1);
            let mut events = EventLoop::new(started.group.control().stop_handle(), READY_MAX)?;
            let registry = events.reactor().registry();
            let worker =
                Worker::new(config.clone(), first + from as u32, to - from, handshakes_max, registry)?;
            let (sender, progress) = (sender.clone(), Arc::new(WorkerProgress::default()));
            started.progress.push(progress.clone());
            let spec = ThreadSpec {
                name: "daq-sources".into(),
                stack_bytes: Some(STACK_BYTES),
                // Otherwise staggered fragments are about 50 us late.
                is_precise: true,
                ..ThreadSpec::default()
            };
            started.group.spawn(spec, move |control| worker.run(events, control, &progress, &sender))?;
        }
        Ok(started)
    }

    /// Waits at most `step` for all connections; `Ok(false)`: not yet.
    fn wait_connected(&mut self, step: Duration) -> Result<bool, String> {
        let until = Deadline::after(step);
        while self.threads_connected < self.progress.len() {
            match self.connected.recv_timeout(until.left()) {
                Ok(connected) => connected?,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("a thread of the sources panicked; please report this".to_owned());
                }
            }
            self.threads_connected += 1;
        }
        Ok(true)
    }

    fn established(&self) -> usize {
        self.progress.iter().map(|progress| progress.established.load(Ordering::Relaxed)).sum()
    }

    /// Fragments sent so far, and their payload in bytes.
    fn sent(&self) -> (u64, u64) {
        let sum = |of: fn(&WorkerProgress) -> &AtomicU64| {
            self.progress.iter().map(|progress| of(progress).load(Ordering::Relaxed)).sum()
        };
        (sum(|progress| &progress.fragments), sum(|progress| &progress.payload_bytes))
    }

    /// Stops all threads, waits for them at most `within`, and adds up their reports.
    fn stop(mut self, within: Duration) -> Result<SourcesReport, String> {
        self.group.stop();
        let mut sum = SourcesReport::default();
        for report in self.group.finish(Deadline::after(within)) {
            merge(&mut sum, report.map_err(|error| error.to_string())?);
        }
        sum.sources.sort_by_key(|source| source.source);
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_parsed() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  12 kB\n"), Some(12 << 10));
        assert_eq!(resident_bytes("VmRSS: many kB"), None);
        assert!(used_bytes(0).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn every_thread_has_sources() {
        assert_eq!((threads_for(1, 0), threads_for(3, 8), threads_for(5000, 3)), (1, 3, 3));
        assert!(threads_for(1_000_000, 0) >= 1);
    }
}
