//! The kernel's counters at one moment.

use sys::netlink::QueueReading;
use sys::proc::{BlockReading, NetDeviceReading};

use super::senders::SendersReading;

/// One snapshot. Counters have grown since an arbitrary start and mean something only beside an earlier
/// snapshot. `None`: not watched, not offered by this kernel, or not readable now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    pub at_ns: u64,
    pub cores: Option<u32>,
    /// Time all CPUs had nothing to do, waiting for a disk included.
    pub host_idle_ns: Option<u64>,
    pub softirq_ns: Option<u64>,
    /// Time the hypervisor took from all CPUs.
    pub steal_ns: Option<u64>,
    pub server_cpu_ns: Option<u64>,
    /// Time the target's threads waited for a CPU.
    pub server_wait_ns: Option<u64>,
    /// CPU time of the target's and the measuring side's processes together, each once.
    pub known_cpu_ns: Option<u64>,
    pub cgroup_usage_ns: Option<u64>,
    /// Whether that group holds the target and nothing of the measuring side, so that its time is the
    /// target's.
    pub cgroup_is_server: bool,
    /// Time the target's control group was throttled.
    pub cgroup_throttled_ns: Option<u64>,
    pub server_memory_bytes: Option<u64>,
    pub socket_memory_bytes: Option<u64>,
    pub page_cache_bytes: Option<u64>,
    /// Kernel objects.
    pub slab_bytes: Option<u64>,
    pub disk: Option<BlockReading>,
    pub network: Option<NetDeviceReading>,
    pub network_queue: Option<QueueReading>,
    pub senders: Option<SendersReading>,
    /// Packets dropped in front of a full backlog.
    pub softnet_dropped: Option<u64>,
    /// Time in which some task waited for a CPU.
    pub pressure_cpu_ns: Option<u64>,
    /// Time some task waited for a disk.
    pub pressure_io_ns: Option<u64>,
    /// Time some task waited for memory.
    pub pressure_memory_ns: Option<u64>,
}
