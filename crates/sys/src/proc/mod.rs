//! Readers of `/proc` and `/sys`: opened once, read many times, without allocating in between.
//!
//! Every reader has `open(root, ...)`, which fails when the kernel does not offer the source at all (the
//! sampler then reports that source as missing), and `read(&mut self)`. A value that an older kernel leaves
//! out of a file is `None`: missing is not zero. Counters are cumulative; the difference of two readings is
//! the caller's business, because only the caller knows the time between them.
//!
//! `root` is `/` on a live machine; tests pass a directory with sample files.

pub mod block;
pub mod cgroup_cpu;
pub mod host_cpu;
pub mod listener;
pub mod memory;
pub mod mounts;
pub mod network;
pub mod parse;
pub mod pressure;
pub mod process;
pub mod udp_socket;
pub mod wait_channel;

mod proc_file;

pub use block::{BlockDevice, BlockDeviceReader, BlockReading, block_device_of_path};
pub use cgroup_cpu::{CgroupCpu, CgroupCpuReading};
pub use host_cpu::{CpuTimes, HostCpu, HostCpuReading};
pub use listener::Listening;
pub use memory::{HostMemory, HostMemoryReading, page_bytes};
pub use network::route::{
    interface_name, interface_number, interface_to, interface_with, link_speed_bit_per_s,
};
pub use network::{
    NetDevice, NetDeviceReading, OpenedConnections, SocketMemory, SocketMemoryReading, Softnet,
    SoftnetReading, TcpCounters, TcpCountersReading,
};
pub use pressure::{Pressure, PressureReading};
pub use process::set::ProcessSet;
pub use process::{ProcessCpuReading, ProcessMemoryReading, is_ending, start_ticks};
pub use udp_socket::{UdpEnds, UdpSocketReading, udp_sockets};
pub use wait_channel::wait_channel;

pub(crate) use proc_file::ProcFile;

/// Identifies this boot of the kernel (`random(4)`); empty where the kernel does not offer it.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Identifies this process's PID namespace (pid_namespaces(7)) within this boot: `pid:[4026531836]`. `None`
/// where the kernel does not offer it.
pub fn pid_namespace() -> Option<String> {
    std::fs::read_link("/proc/self/ns/pid").ok().map(|link| link.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text: Vec<u8>) {
            block::parse(&text);
            cgroup_cpu::parse(&text);
            listener::parse_address(&text);
            let meant = Listening { port: 1, address: Some(Ipv4Addr::LOCALHOST.into()), namespace_of: None };
            meant.parse(&text, &mut Vec::new());
            memory::parse(&text);
            mounts::parse_line(&text);
            prop_assert!(mounts::unescape(&text).len() <= text.len());
            pressure::parse(&text);
            process::parse_schedstat(&text);
            udp_socket::parse_line(&text);
        }
    }
}
