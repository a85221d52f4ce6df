//! What the sampler watches of a server, and the known ceilings.
//!
//! With players on the server's own host neither the loopback device, which every program uses, nor the
//! server's connections are sampled: received bytes stand for the network, and a server short of CPU, whose
//! segments the kernel paces, would seem to wait for one.

use std::net::SocketAddr;
use std::path::Path;

use base::outcome::{Ceiling, Resource};
use base::part::{HostContext, Watch};
use sys::proc::{BlockDevice, block_device_of_path};

use super::server_process::ServerProcess;
use crate::settings::{ServerKind, StreamSettings};
use workload::watch::{lower, lower_to_link};

#[derive(Clone, Copy)]
pub struct ServerHost<'a> {
    pub host: &'a HostContext,
    pub players_elsewhere: bool,
}

impl ServerHost<'_> {
    /// The network device towards players on other hosts.
    fn device(&self) -> Option<String> {
        let address = self.host.address.filter(|_| self.players_elsewhere)?;
        sys::proc::interface_with(address).ok()
    }
}

/// For a launched server; `cgroup_cpu` is the folder with the CPU statistics of its control group.
pub fn for_launched(
    settings: &StreamSettings,
    server: &ServerProcess,
    cgroup_cpu: Option<&Path>,
    content: &Path,
    server_host: &ServerHost<'_>,
) -> Watch {
    let device = block_device_of_path(Path::new("/"), content).ok().flatten();
    let mut watch = for_host(server_host);
    watch.pids = vec![server.pid()];
    watch.cgroup_cpu = cgroup_cpu.map(|folder| folder.to_string_lossy().into_owned());
    watch.block_device = device.as_ref().map(BlockDevice::numbers);
    watch.network_device = server_host.device();
    watch.tcp_port = watch.network_device.is_some().then(|| server.port());
    let (value, source) = usable_cpu(settings);
    lower(&mut watch, Resource::Cpu, value, &source);
    apply_host_limits(&mut watch, device.as_ref());
    apply_plan_ceilings(settings, &mut watch);
    watch
}

/// For an existing server on this host; `pids` is empty when this user may not see its processes.
pub fn for_local(
    settings: &StreamSettings,
    port: u16,
    pids: Vec<u32>,
    server_host: &ServerHost<'_>,
) -> Watch {
    let mut watch = Watch { pids, network_device: server_host.device(), ..for_host(server_host) };
    watch.tcp_port = watch.network_device.is_some().then_some(port);
    if watch.pids.is_empty() {
        watch.ceilings.remove(&Resource::Cpu);
    } else {
        lower(&mut watch, Resource::Cpu, 100.0 * cores(), &format!("{} cores", cores()));
    }
    apply_host_limits(&mut watch, None);
    apply_plan_ceilings(settings, &mut watch);
    watch
}

/// For a server on another host: this host is sampled for the players' sake.
pub fn for_remote(settings: &StreamSettings, address: SocketAddr) -> Watch {
    let mut watch = Watch {
        elsewhere: Some(address.to_string()),
        own_pids: vec![std::process::id()],
        ..Watch::default()
    };
    apply_plan_ceilings(settings, &mut watch);
    watch
}

fn for_host(server_host: &ServerHost<'_>) -> Watch {
    let ceilings = server_host.host.ceilings.clone();
    Watch { own_pids: vec![std::process::id()], ceilings, ..Watch::default() }
}

/// Lower the ceilings to the limits of the server's control groups and the rate of its link.
fn apply_host_limits(watch: &mut Watch, device: Option<&BlockDevice>) {
    let root = Path::new("/");
    let disk = device.map(|device| device.whole_disk(root));
    let pid = watch.pids.first().and_then(|pid| i32::try_from(*pid).ok());
    let limits =
        pid.and_then(|pid| sys::cgroup::limits_of(root, pid, disk.as_ref()).ok()).unwrap_or_default();
    if let Some(percent) = limits.cpu_quota_percent {
        lower(watch, Resource::Cpu, percent, "the CPU quota that was set");
    }
    if let Some(bytes) = limits.read_bytes_per_s {
        lower(watch, Resource::Disk, bytes as f64 * 8.0, "the read limit that was set");
    }
    lower_to_link(watch);
}

fn ceiling(value: f64, source: &str) -> Ceiling {
    Ceiling { value, source: source.to_owned() }
}

fn cores() -> f64 {
    sys::thread::online_cpus().map_or(1, |cpus| cpus.len()) as f64
}

/// The CPU that a launched server's threads can use, in % of one core.
fn usable_cpu(settings: &StreamSettings) -> (f64, String) {
    let threads = f64::from(settings.server.threads.max(1));
    let what = match settings.server.kind {
        ServerKind::Embedded => "thread",
        ServerKind::Nginx => "worker",
    };
    let plural = if threads > 1.0 { "s" } else { "" };
    if threads < cores() {
        (100.0 * threads, format!("the server has {threads} {what}{plural}"))
    } else {
        (100.0 * cores(), format!("{} cores", cores()))
    }
}

/// Ceilings in the plan override all others.
fn apply_plan_ceilings(settings: &StreamSettings, watch: &mut Watch) {
    let given = &settings.ceiling;
    let all = [
        (Resource::Cpu, given.cpu_percent),
        (Resource::Disk, given.disk.map(|rate| rate.bit_per_s() as f64)),
        (Resource::Network, given.network.map(|rate| rate.bit_per_s() as f64)),
        (Resource::Memory, given.memory.map(|size| size.bytes() as f64)),
    ];
    for (resource, value) in all {
        if let Some(value) = value {
            watch.ceilings.insert(resource, ceiling(value, given.source.as_deref().unwrap_or("given")));
        }
    }
}
