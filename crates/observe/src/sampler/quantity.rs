//! What is sampled: the names are fixed, each ends in its unit, and stored runs rely on them.
//!
//! Each per cent is of one of two things. **Of one core**: CPU time over wall time, 100 for each core that is
//! busy all the time. **Of the wall time**: how long something was so; never more than 100, unless it is said
//! to be added up.

/// Declares the quantities once: variant and series name, in the order of their places.
macro_rules! quantities {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One sampled quantity; `as usize` is its index in a [`super::Sample`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Quantity {
            $($(#[$doc])* $variant,)*
        }

        impl Quantity {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The series' name, with the unit last.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

quantities! {
    /// CPU time of the target: its control group's where it has one of its own, else its processes', in % of
    /// one core.
    ServerCpu = "server_cpu_percent",
    /// CPU time of the target's control group, in % of one core.
    ServerCgroupCpu = "server_cgroup_cpu_percent",
    /// CPU time of everything on the host, in % of one core: up to 100 for each core.
    HostCpu = "host_cpu_percent",
    /// Time the target's threads were ready to run and had no CPU, added up over threads, in % of the wall
    /// time: may be more than 100.
    CpuWait = "cpu_wait_percent",
    /// Time the target's control group was throttled by its quota, added up over CPUs, in % of the wall time:
    /// may be more than 100.
    Throttled = "throttled_percent",
    /// Soft interrupts of all CPUs (most of the network stack's work), in % of one core.
    Softirq = "softirq_percent",
    /// Time the hypervisor gave to others while a CPU of this host had work, all CPUs added up, in % of one
    /// core (`top` and `vmstat` have it in % of all cores' time).
    Steal = "steal_percent",
    /// CPU time of the host without the target's and without the measuring side's, in % of one core.
    OtherCpu = "other_cpu_percent",
    /// Resident memory of the target's processes. What several of them share counts several times.
    ServerMemory = "server_memory_bytes",
    /// Memory in the queues of all TCP sockets of the host; no process's resident memory contains it.
    SocketMemory = "socket_memory_bytes",
    /// File content in memory.
    PageCache = "page_cache_bytes",
    /// Kernel objects.
    Slab = "slab_bytes",
    /// Read from the block device.
    DiskRead = "disk_bit_per_s",
    /// Written to the block device.
    DiskWrite = "disk_write_bit_per_s",
    /// Time with at least one request in progress, in % of the wall time.
    DiskBusy = "disk_busy_percent",
    /// Mean time of the requests that ended in the interval; `None` if none did.
    DiskAwait = "disk_await_ms",
    /// Mean number of requests in progress.
    DiskQueue = "disk_queue",
    /// Sent or received by the network device, whichever is more; on loopback this is all traffic.
    Network = "network_bit_per_s",
    /// Packets dropped by the queue (queueing discipline) in front of the network device: what a link that is
    /// full does.
    NetworkDrops = "network_drops_per_s",
    /// Bytes waiting in that queue.
    NetworkQueue = "network_queue_bytes",
    /// Packets the network device itself dropped, in and out: its driver or its ring, not the queue in front
    /// of it.
    DeviceDrops = "network_device_drops_per_s",
    /// Packets dropped because a CPU's backlog was full.
    SoftnetDrops = "softnet_drops_per_s",
    /// Connections of the target over which it can send.
    Connections = "server_connections",
    /// Time the target had data to send or on its way and neither the client's receive window nor its own
    /// send buffer held it back, so that it waited for the network (congestion window, pacing, the queue
    /// of the link), in % of the wall time, on average over its connections; `None` without a connection.
    /// Not by itself a proof: the kernel also paces what a target sends that is short of CPU or disk
    /// (measured with a slow CPU over loopback: 69).
    SenderLimited = "sender_limited_percent",
    /// Time at least one task of the host waited for a CPU, in % of the wall time.
    PressureCpu = "pressure_cpu_percent",
    /// Time at least one task of the host waited for a disk, in % of the wall time.
    PressureIo = "pressure_io_percent",
    /// Time at least one task of the host waited for memory, in % of the wall time.
    PressureMemory = "pressure_memory_percent",
}

impl Quantity {
    /// The unit as printed; empty for a count.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::ServerMemory | Self::SocketMemory | Self::PageCache | Self::Slab | Self::NetworkQueue => {
                "B"
            }
            Self::DiskRead | Self::DiskWrite | Self::Network => "bit/s",
            Self::DiskAwait => "ms",
            Self::DiskQueue | Self::Connections => "",
            Self::NetworkDrops | Self::DeviceDrops | Self::SoftnetDrops => "/s",
            _ => "%",
        }
    }

    /// The quantity that shows whether this one could be read. A disk without requests has no waiting time,
    /// and a server without connections waits for no network: that is no failure.
    pub const fn read_with(self) -> Self {
        match self {
            Self::DiskAwait => Self::DiskBusy,
            Self::SenderLimited => Self::Connections,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_names_are_unique_and_end_in_their_unit() {
        let mut names = std::collections::BTreeSet::new();
        for (place, quantity) in Quantity::ALL.into_iter().enumerate() {
            assert_eq!(quantity as usize, place);
            assert!(names.insert(quantity.name()), "{} twice", quantity.name());
            let suffix = match quantity.unit() {
                "%" => "_percent",
                "B" => "_bytes",
                "bit/s" => "_bit_per_s",
                "/s" => "_per_s",
                "ms" => "_ms",
                _ => "",
            };
            assert!(quantity.name().ends_with(suffix), "{} [{}]", quantity.name(), quantity.unit());
        }
    }

    #[test]
    fn metrics_of_all_resources_are_sampled() {
        use base::outcome::Resource;
        for resource in [Resource::Cpu, Resource::Disk, Resource::Network, Resource::Memory] {
            let metric = resource.metric().unwrap();
            let quantity = Quantity::ALL.into_iter().find(|quantity| quantity.name() == metric);
            assert_eq!(quantity.map(Quantity::unit), Some(resource.unit()), "{metric}");
        }
    }
}
