//! What the sampler is to watch, and what is known of the ceilings.
//!
//! Players on the server's own host are reached over the loopback device, which is not watched: every program of the host
//! sends over it. What the players received stands for the network then. Nor are the server's connections: there is no
//! network to wait for, and a server short of CPU, between whose segments the kernel paces, would seem to wait for one.

use std::net::SocketAddr;
use std::path::Path;

use base::outcome::{Ceiling, Resource};
use base::part::{HostContext, Watch};
use sys::proc::{BlockDevice, block_device_of_path};

use super::process::Serving;
use crate::stream::settings::{ServerKind, StreamSettings};
use crate::watch::{lower, lower_to_link};

/// The server's host, and whether players reach it through a device.
#[derive(Clone, Copy)]
pub struct Reach<'a> {
    /// Where the server runs.
    pub host: &'a HostContext,
    /// Some players are on other hosts.
    pub players_elsewhere: bool,
}

impl Reach<'_> {
    /// The device that the players are reached through.
    fn device(&self) -> Option<String> {
        let address = self.host.address.filter(|_| self.players_elsewhere)?;
        sys::proc::interface_with(address).ok()
    }
}

/// For a server that was made; `cgroup_cpu` is the folder with the accounts of the group that it was started in.
pub fn of_made(
    settings: &StreamSettings,
    serving: &Serving,
    cgroup_cpu: Option<&Path>,
    film: &Path,
    reach: &Reach<'_>,
) -> Watch {
    let device = block_device_of_path(Path::new("/"), film).ok().flatten();
    let mut watch = of_host(reach);
    watch.pids = vec![serving.pid()];
    watch.cgroup_cpu = cgroup_cpu.map(|folder| folder.to_string_lossy().into_owned());
    watch.block_device = device.as_ref().map(BlockDevice::numbers);
    // In the sampler's own namespace, which needs not be entered.
    watch.network_device = reach.device();
    watch.tcp_port = watch.network_device.is_some().then(|| serving.port());
    let (value, source) = usable_cpu(settings);
    lower(&mut watch, Resource::Cpu, value, &source);
    found(&mut watch, device.as_ref());
    given(settings, &mut watch);
    watch
}

/// For a server on this host that listens on `port`; `pids` is empty when this user may not see its processes.
pub fn of_found(settings: &StreamSettings, port: u16, pids: Vec<u32>, reach: &Reach<'_>) -> Watch {
    let mut watch = Watch { pids, network_device: reach.device(), ..of_host(reach) };
    watch.tcp_port = watch.network_device.is_some().then_some(port);
    if watch.pids.is_empty() {
        watch.ceilings.remove(&Resource::Cpu);
    } else {
        lower(&mut watch, Resource::Cpu, 100.0 * cores(), &format!("{} cores", cores()));
    }
    found(&mut watch, None);
    given(settings, &mut watch);
    watch
}

/// For a server at `address`, which is another host's: this host is watched for the players' sake.
pub fn of_elsewhere(settings: &StreamSettings, address: SocketAddr) -> Watch {
    let mut watch = Watch {
        elsewhere: Some(address.to_string()),
        own_pids: vec![std::process::id()],
        ..Watch::default()
    };
    given(settings, &mut watch);
    watch
}

/// What the host's owner says.
fn of_host(reach: &Reach<'_>) -> Watch {
    let ceilings = reach.host.ceilings.clone();
    Watch { own_pids: vec![std::process::id()], ceilings, ..Watch::default() }
}

/// What holds the server back, besides what it is: the limits of its control groups, the rate of its link.
fn found(watch: &mut Watch, device: Option<&BlockDevice>) {
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

/// The CPU that a made server's threads can use, in % of one core.
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

/// What the plan says outranks what was found.
fn given(settings: &StreamSettings, watch: &mut Watch) {
    let said = &settings.ceiling;
    let all = [
        (Resource::Cpu, said.cpu_percent),
        (Resource::Disk, said.disk.map(|rate| rate.bit_per_s() as f64)),
        (Resource::Network, said.network.map(|rate| rate.bit_per_s() as f64)),
        (Resource::Memory, said.memory.map(|size| size.bytes() as f64)),
    ];
    for (resource, value) in all {
        if let Some(value) = value {
            watch.ceilings.insert(resource, ceiling(value, said.source.as_deref().unwrap_or("given")));
        }
    }
}
