//! The readers of all watched counters, opened once.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use base::part::Watch;
use sys::cgroup::{CgroupVersion, Hierarchies};
use sys::clock::monotonic_ns;
use sys::netlink::Queue;
use sys::proc::{
    BlockDevice, BlockDeviceReader, CgroupCpu, HostCpu, HostMemory, NetDevice, Pressure, ProcessSet,
    SocketMemory, Softnet,
};

use super::quantity::Quantity;
use super::rates::rates;
use super::senders::Senders;
use super::snapshot::Snapshot;

/// Open readers, and what could not be opened.
#[derive(Debug)]
pub struct Sources {
    host_cpu: Option<HostCpu>,
    server: Option<ProcessSet>,
    /// Processes of target and measuring side together: one may be a child of the other and must count once.
    known: Option<ProcessSet>,
    cgroup: Option<CgroupCpu>,
    cgroup_is_server: bool,
    disk: Option<BlockDeviceReader>,
    network: Option<NetDevice>,
    queue: Option<Queue>,
    senders: Option<Senders>,
    softnet: Option<Softnet>,
    sockets: Option<SocketMemory>,
    memory: Option<HostMemory>,
    pressure: Option<Pressure>,
    disk_name: Option<String>,
    offered: Vec<Quantity>,
    unavailable: Vec<String>,
}

impl Sources {
    /// Opens everything in `watch` and of the host below `root` (`/` on a live machine). Never fails as a
    /// whole: [`Sources::unavailable`] lists what is missing.
    pub fn open(root: &Path, watch: &Watch) -> Self {
        let mut missing = Missing(Vec::new());
        let (server, known) = processes(root, watch, &mut missing);
        let (cgroup, cgroup_is_server) = cgroup(root, watch, &mut missing);
        let device = block_device(root, watch, &mut missing);
        let mut this = Self {
            host_cpu: missing.or_note("the host's CPU time", HostCpu::open(root)),
            server,
            known,
            cgroup,
            cgroup_is_server,
            disk: device.as_ref().and_then(|device| {
                missing.or_note(
                    format_args!("the block device {}", device.name),
                    BlockDeviceReader::open(device),
                )
            }),
            network: network_device(root, watch, &mut missing),
            queue: queue(watch, &mut missing),
            senders: senders(watch, &mut missing),
            softnet: missing.or_note("drops in front of the network stack", Softnet::open(root)),
            sockets: missing.or_note("socket memory", SocketMemory::open(root)),
            memory: missing.or_note("the host's memory", HostMemory::open(root)),
            pressure: pressure(root, watch, &mut missing),
            disk_name: device.map(|device| device.name),
            offered: Vec::new(),
            unavailable: Vec::new(),
        };
        let first = this.read();
        this.offered = offered(&first);
        missing.left_out(&this);
        this.unavailable = missing.0;
        this
    }

    /// Adds these sentences about what may not be watched.
    pub(super) fn without(mut self, refused: Vec<String>) -> Self {
        self.unavailable.extend(refused);
        self
    }

    pub fn offered(&self) -> &[Quantity] {
        &self.offered
    }

    pub fn unavailable(&self) -> &[String] {
        &self.unavailable
    }

    pub fn disk_name(&self) -> Option<&str> {
        self.disk_name.as_deref()
    }

    /// The target's processes that are known now, descendants included.
    pub fn server_pids(&self) -> Vec<i32> {
        self.server.as_ref().map(|set| set.pids().collect()).unwrap_or_default()
    }

    /// Reads everything now. What cannot be read is `None`.
    pub fn read(&mut self) -> Snapshot {
        // CPU first, next to the clock: its counters grow fastest.
        let mut raw = Snapshot { at_ns: monotonic_ns(), ..Snapshot::default() };
        self.read_cpu(&mut raw);
        self.read_memory(&mut raw);
        raw.disk = self.disk.as_mut().and_then(|disk| disk.read().ok());
        raw.network = self.network.as_mut().and_then(|device| device.read().ok());
        raw.network_queue = self.queue.as_mut().and_then(|queue| queue.read().ok());
        raw.senders = self.senders.as_mut().and_then(Senders::read);
        raw.softnet_dropped = self.softnet.as_mut().and_then(|softnet| Some(softnet.read().ok()?.dropped));
        if let Some(pressure) = self.pressure.as_mut().and_then(|pressure| pressure.read().ok()) {
            raw.pressure_cpu_ns = pressure.cpu_ns;
            raw.pressure_io_ns = pressure.io_ns;
            raw.pressure_memory_ns = pressure.memory_ns;
        }
        raw
    }

    fn read_cpu(&mut self, raw: &mut Snapshot) {
        if let Some(host) = self.host_cpu.as_mut().and_then(|host| host.read().ok()) {
            let total = &host.total;
            raw.cores = u32::try_from(host.per_cpu.len()).ok().filter(|cores| *cores > 0);
            raw.host_idle_ns = total.idle_ns.checked_add(total.iowait_ns.unwrap_or(0));
            raw.softirq_ns = total.softirq_ns;
            raw.steal_ns = total.steal_ns;
        }
        if let Some(set) = &mut self.server {
            let reading = set.read_cpu();
            // The totals of a target that has ended do not grow; that does not mean that it uses no CPU.
            if reading.processes > 0 {
                raw.server_cpu_ns = Some(reading.cpu_ns);
                raw.server_wait_ns = reading.run_wait_ns;
            }
        }
        raw.known_cpu_ns = self.known.as_mut().map(|set| set.read_cpu().cpu_ns);
        raw.cgroup_is_server = self.cgroup_is_server;
        if let Some(group) = self.cgroup.as_mut().and_then(|group| group.read().ok()) {
            raw.cgroup_usage_ns = group.usage_ns;
            raw.cgroup_throttled_ns = group.throttled_ns;
        }
    }

    fn read_memory(&mut self, raw: &mut Snapshot) {
        raw.server_memory_bytes =
            self.server.as_mut().and_then(ProcessSet::read_memory).map(|memory| memory.rss_bytes);
        raw.socket_memory_bytes = self.sockets.as_mut().and_then(|sockets| sockets.read().ok()?.tcp_bytes);
        if let Some(memory) = self.memory.as_mut().and_then(|memory| memory.read().ok()) {
            raw.page_cache_bytes = memory.page_cache_bytes;
            raw.slab_bytes = memory.slab_bytes;
        }
    }
}

/// What a snapshot has the counters for: those quantities that an interval without any growth would give.
fn offered(raw: &Snapshot) -> Vec<Quantity> {
    let later = Snapshot { at_ns: raw.at_ns.saturating_add(1), ..raw.clone() };
    let still = rates(raw, &later);
    Quantity::ALL.into_iter().filter(|quantity| still.get(quantity.read_with()).is_some()).collect()
}

struct Missing(Vec<String>);

impl Missing {
    fn note(&mut self, what: impl Display, why: impl Display) {
        self.0.push(format!("{what} cannot be watched: {why}."));
    }

    fn or_note<T>(&mut self, what: impl Display, opened: io::Result<T>) -> Option<T> {
        opened.map_err(|error| self.note(what, error)).ok()
    }

    /// Sources that were opened and still lack a value: an older kernel, or one built without it.
    fn left_out(&mut self, sources: &Sources) {
        use Quantity::{
            Connections, CpuWait, DiskRead, HostCpu, Network, NetworkDrops, NetworkQueue, PageCache,
            PressureCpu, PressureIo, PressureMemory, ServerCgroupCpu, ServerCpu, ServerMemory, SocketMemory,
            Softirq, Steal, Throttled,
        };
        let values: [(bool, &[Quantity]); 10] = [
            (sources.host_cpu.is_some(), &[HostCpu, Steal, Softirq]),
            (sources.server.is_some(), &[ServerCpu, CpuWait, ServerMemory]),
            (sources.cgroup.is_some(), &[ServerCgroupCpu, Throttled]),
            (sources.disk.is_some(), &[DiskRead]),
            (sources.network.is_some(), &[Network]),
            (sources.queue.is_some(), &[NetworkDrops, NetworkQueue]),
            (sources.senders.is_some(), &[Connections]),
            (sources.sockets.is_some(), &[SocketMemory]),
            (sources.memory.is_some(), &[PageCache]),
            (sources.pressure.is_some(), &[PressureCpu, PressureIo, PressureMemory]),
        ];
        let opened = values.into_iter().filter(|(opened, _)| *opened).flat_map(|(_, quantities)| quantities);
        for quantity in opened.filter(|quantity| !sources.offered.contains(quantity)) {
            self.note(quantity.name(), "the kernel's file is there but does not have the number");
        }
    }
}

/// The host's pressure counts as the target's, which is wrong if the target is on another host.
fn pressure(root: &Path, watch: &Watch, missing: &mut Missing) -> Option<Pressure> {
    let is_here = watch.elsewhere.is_none();
    is_here.then(|| missing.or_note("pressure stall information", Pressure::open(root))).flatten()
}

fn signed(pids: &[u32]) -> Vec<i32> {
    pids.iter().filter_map(|pid| i32::try_from(*pid).ok()).collect()
}

fn processes(root: &Path, watch: &Watch, missing: &mut Missing) -> (Option<ProcessSet>, Option<ProcessSet>) {
    let target = signed(&watch.pids);
    let server = (!target.is_empty())
        .then(|| missing.or_note("the target's processes", ProcessSet::open(root, &target)))
        .flatten();
    let mut known = target;
    known.extend(signed(&watch.own_pids));
    known.push(std::process::id().cast_signed());
    (server, missing.or_note("the measuring side's processes", ProcessSet::open(root, &known)))
}

/// The target's control group, and whether its CPU time is the target's alone.
fn cgroup(root: &Path, watch: &Watch, missing: &mut Missing) -> (Option<CgroupCpu>, bool) {
    let Some(folder) = watch.cgroup_cpu.as_deref().map(Path::new) else { return (None, false) };
    let usage = accounting(root, folder);
    let opened = CgroupCpu::open(&folder.join("cpu.stat"), usage.as_deref());
    let Some(group) = missing.or_note(format_args!("the control group {}", folder.display()), opened) else {
        return (None, false);
    };
    let mut own = signed(&watch.own_pids);
    own.push(std::process::id().cast_signed());
    // The root group has no quota, and contains all processes.
    let procs = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let inside = procs.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
    let shared = inside.into_iter().any(|pid| own.contains(&pid) && !signed(&watch.pids).contains(&pid));
    if shared {
        missing.note(
            format_args!("the target's CPU time by its control group {}", folder.display()),
            "the measuring side is in that group too, so the processes' own CPU clocks are read instead",
        );
    }
    (Some(group), !shared)
}

/// The `cpuacct.usage` of a version 1 group, which may be mounted beside the CPU controller's folder.
fn accounting(root: &Path, folder: &Path) -> Option<PathBuf> {
    let here = folder.join("cpuacct.usage");
    if here.exists() {
        return Some(here);
    }
    let found = Hierarchies::find(root).ok()?;
    let (version, top) = found.cpu?;
    let inside = folder.strip_prefix(&top).ok().filter(|_| version == CgroupVersion::V1)?;
    Some(found.cpu_accounting?.join(inside).join("cpuacct.usage")).filter(|path| path.exists())
}

fn block_device(root: &Path, watch: &Watch, missing: &mut Missing) -> Option<BlockDevice> {
    let numbers = watch.block_device.as_deref()?;
    let what = format!("the block device {numbers}");
    let parsed = numbers.split_once(':').and_then(|(major, minor)| {
        Some((major.trim().parse::<u32>().ok()?, minor.trim().parse::<u32>().ok()?))
    });
    let Some((major, minor)) = parsed else {
        missing.note(what, "its numbers must be written as MAJOR:MINOR");
        return None;
    };
    let device = BlockDevice::from_numbers(root, major, minor);
    if device.is_none() {
        missing.note(what, "the kernel has no device with these numbers");
    }
    device
}

fn network_device(root: &Path, watch: &Watch, missing: &mut Missing) -> Option<NetDevice> {
    let name = watch.network_device.as_deref()?;
    let opened = match namespace_of(watch) {
        Some(pid) => NetDevice::open_of_pid(root, pid, name),
        None => NetDevice::open(root, name),
    };
    missing.or_note(format_args!("the network device {name}"), opened)
}

fn namespace_of(watch: &Watch) -> Option<i32> {
    watch.network_namespace_pid.and_then(|pid| i32::try_from(pid).ok())
}

fn queue(watch: &Watch, missing: &mut Missing) -> Option<Queue> {
    let name = watch.network_device.as_deref()?;
    let opened = Queue::open(name, namespace_of(watch));
    // A link without a queue has no queue counters to miss.
    missing.or_note(format_args!("the queue in front of the network device {name}"), opened).flatten()
}

fn senders(watch: &Watch, missing: &mut Missing) -> Option<Senders> {
    let port = watch.tcp_port?;
    let opened = Senders::open(port, namespace_of(watch));
    missing.or_note(format_args!("the connections to port {port}"), opened)
}
