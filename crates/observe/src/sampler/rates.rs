//! Two snapshots make a sample. Pure: the tests are tables.

use super::quantity::Quantity;
use super::snapshot::Snapshot;

const NS_PER_S: f64 = 1e9;
const NS_PER_MS: f64 = 1e6;
const BITS: f64 = 8.0;

/// The value of every [`Quantity`] over one interval, by its index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample([Option<f64>; Quantity::ALL.len()]);

impl Sample {
    pub const UNKNOWN: Self = Self([None; Quantity::ALL.len()]);

    /// One value; `None` where it could not be read or is not watched.
    pub const fn get(&self, quantity: Quantity) -> Option<f64> {
        self.0[quantity as usize]
    }

    pub const fn set(&mut self, quantity: Quantity, value: Option<f64>) {
        self.0[quantity as usize] = value;
    }
}

/// The rates between two snapshots.
///
/// A counter that is missing in either, or that went back (reset, wrapped, another device of the same name),
/// gives `None`; so does every rate when no time has passed. Contents (memory, queues, connections) are those
/// of `current`.
pub fn rates(previous: &Snapshot, current: &Snapshot) -> Sample {
    let mut sample = Sample::UNKNOWN;
    contents(current, &mut sample);
    let elapsed_ns = current.at_ns.saturating_sub(previous.at_ns);
    if elapsed_ns > 0 {
        let step = Step { previous, current, elapsed_ns: elapsed_ns as f64 };
        step.cpu(&mut sample);
        step.disk(&mut sample);
        step.network(&mut sample);
        step.pressure(&mut sample);
    }
    sample
}

fn contents(raw: &Snapshot, sample: &mut Sample) {
    let bytes = |value: Option<u64>| value.map(|bytes| bytes as f64);
    sample.set(Quantity::ServerMemory, bytes(raw.server_memory_bytes));
    sample.set(Quantity::SocketMemory, bytes(raw.socket_memory_bytes));
    sample.set(Quantity::PageCache, bytes(raw.page_cache_bytes));
    sample.set(Quantity::Slab, bytes(raw.slab_bytes));
    sample.set(Quantity::NetworkQueue, bytes(raw.network_queue.and_then(|queue| queue.backlog_bytes)));
    sample.set(Quantity::Connections, raw.senders.map(|senders| senders.connections as f64));
    sample.set(Quantity::SenderLimited, raw.senders.and_then(|senders| senders.limited_percent));
}

struct Step<'a> {
    previous: &'a Snapshot,
    current: &'a Snapshot,
    elapsed_ns: f64,
}

impl Step<'_> {
    fn growth(&self, counter: impl Fn(&Snapshot) -> Option<u64>) -> Option<f64> {
        let (from, to) = (counter(self.previous)?, counter(self.current)?);
        to.checked_sub(from).map(|growth| growth as f64)
    }

    /// A counter of nanoseconds as a share of the time passed.
    fn percent(&self, counter: impl Fn(&Snapshot) -> Option<u64>) -> Option<f64> {
        self.growth(counter).map(|ns| 100.0 * ns / self.elapsed_ns)
    }

    fn per_s(&self, counter: impl Fn(&Snapshot) -> Option<u64>) -> Option<f64> {
        self.growth(counter).map(|growth| growth * NS_PER_S / self.elapsed_ns)
    }

    fn cpu(&self, sample: &mut Sample) {
        let steal = self.percent(|raw| raw.steal_ns);
        let group = self.percent(|raw| raw.cgroup_usage_ns);
        let processes = self.percent(|raw| raw.server_cpu_ns);
        // The group also counts processes that lived between two readings; without a group, the known
        // processes are the best estimate.
        let whole_group = group.filter(|_| self.current.cgroup_is_server);
        let host = self.host_cpu(steal);
        sample.set(Quantity::ServerCpu, whole_group.or(processes));
        sample.set(Quantity::ServerCgroupCpu, group);
        sample.set(Quantity::HostCpu, host);
        sample.set(Quantity::CpuWait, self.percent(|raw| raw.server_wait_ns));
        sample.set(Quantity::Throttled, self.percent(|raw| raw.cgroup_throttled_ns));
        sample.set(Quantity::Softirq, self.percent(|raw| raw.softirq_ns));
        sample.set(Quantity::Steal, steal);
        let unseen =
            whole_group.zip(processes).map_or(0.0, |(group, processes)| (group - processes).max(0.0));
        let known = self.percent(|raw| raw.known_cpu_ns);
        sample.set(Quantity::OtherCpu, host.zip(known).map(|(host, known)| host - known - unseen));
    }

    /// What is left when idle and stolen time are taken from all CPUs' time. The kernel measures idle time
    /// exactly, while it only samples the busy kinds at its ticks and so misses programs that wake up
    /// between them.
    fn host_cpu(&self, steal: Option<f64>) -> Option<f64> {
        let cores = self.current.cores.filter(|cores| self.previous.cores == Some(*cores))?;
        let idle = self.percent(|raw| raw.host_idle_ns)?;
        Some((100.0 * f64::from(cores) - idle - steal.unwrap_or(0.0)).max(0.0))
    }

    fn disk(&self, sample: &mut Sample) {
        sample.set(Quantity::DiskRead, self.per_s(|raw| Some(raw.disk?.read_bytes)).map(|rate| rate * BITS));
        sample.set(
            Quantity::DiskWrite,
            self.per_s(|raw| Some(raw.disk?.written_bytes)).map(|rate| rate * BITS),
        );
        // The kernel counts in whole milliseconds, so the sum can slightly exceed a busy interval.
        let busy = self.percent(|raw| Some(raw.disk?.busy_ns));
        sample.set(Quantity::DiskBusy, busy.map(|percent| percent.min(100.0)));
        sample.set(Quantity::DiskQueue, self.percent(|raw| Some(raw.disk?.queue_time_ns)).map(|p| p / 100.0));
        let requests = self.growth(|raw| raw.disk?.reads.checked_add(raw.disk?.writes));
        let time = self.growth(|raw| raw.disk?.read_time_ns.checked_add(raw.disk?.write_time_ns));
        let wait = requests.zip(time).filter(|(requests, _)| *requests > 0.0);
        sample.set(Quantity::DiskAwait, wait.map(|(requests, ns)| ns / requests / NS_PER_MS));
    }

    fn network(&self, sample: &mut Sample) {
        // A server mostly sends or mostly receives: the busier direction carries the load.
        let sent = self.per_s(|raw| Some(raw.network?.tx_bytes));
        let received = self.per_s(|raw| Some(raw.network?.rx_bytes));
        sample.set(Quantity::Network, sent.zip(received).map(|(sent, received)| sent.max(received) * BITS));
        let dropped = |raw: &Snapshot| raw.network?.rx_dropped.checked_add(raw.network?.tx_dropped);
        sample.set(Quantity::NetworkDrops, self.per_s(|raw| raw.network_queue?.drops));
        sample.set(Quantity::DeviceDrops, self.per_s(dropped));
        sample.set(Quantity::SoftnetDrops, self.per_s(|raw| raw.softnet_dropped));
    }

    fn pressure(&self, sample: &mut Sample) {
        sample.set(Quantity::PressureCpu, self.percent(|raw| raw.pressure_cpu_ns));
        sample.set(Quantity::PressureIo, self.percent(|raw| raw.pressure_io_ns));
        sample.set(Quantity::PressureMemory, self.percent(|raw| raw.pressure_memory_ns));
    }
}
