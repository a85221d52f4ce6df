//! What the sampler is to watch, and what is known of the ceilings.
//!
//! The loopback device is not watched: every program of the host sends over it. What the players received stands for
//! the network then. Nor are the server's connections: there is no network to wait for, and a server short of CPU,
//! between whose segments the kernel paces, would seem to wait for one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use base::outcome::{Ceiling, Resource};
use base::part::Watch;
use sys::proc::block_device_of_path;

use super::process::Serving;
use super::stand::Stand;
use crate::stream::settings::{ServerKind, StreamSettings};

/// For a server that was made.
pub fn of_made(settings: &StreamSettings, stand: &Stand, serving: &Serving, film: &Path) -> Watch {
    let device = block_device_of_path(Path::new("/"), film).ok().flatten();
    let mut watch = Watch {
        pids: vec![serving.pid()],
        cgroup_cpu: stand.cgroup_cpu_dir(),
        block_device: device.map(|device| device.numbers()),
        own_pids: vec![std::process::id()],
        ceilings: BTreeMap::from([(Resource::Cpu, cpu_of_made(settings))]),
        ..Watch::default()
    };
    if let Some(link) = stand.link() {
        watch.tcp_port = Some(serving.port());
        watch.network_device = Some(link.device().to_owned());
        watch.network_namespace_pid = Some(serving.pid());
    }
    if let Some(limit) = settings.disk.as_ref().and_then(|disk| disk.read_limit) {
        watch
            .ceilings
            .insert(Resource::Disk, ceiling(limit.bit_per_s() as f64, "the read limit that was set"));
    }
    if let Some(link) = &settings.link {
        watch
            .ceilings
            .insert(Resource::Network, ceiling(link.rate.bit_per_s() as f64, "the rate of the link"));
    }
    given(settings, &mut watch);
    watch
}

/// For a server on this host; `pids` is empty when this user may not see its processes.
pub fn of_found(settings: &StreamSettings, pids: Vec<u32>) -> Watch {
    let mut watch = Watch { pids, own_pids: vec![std::process::id()], ..Watch::default() };
    if !watch.pids.is_empty() {
        let cores = cores();
        watch.ceilings.insert(Resource::Cpu, ceiling(100.0 * cores, &format!("{cores} cores")));
    }
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

fn ceiling(value: f64, source: &str) -> Ceiling {
    Ceiling { value, source: source.to_owned() }
}

fn cores() -> f64 {
    sys::thread::online_cpus().map_or(1, |cpus| cpus.len()) as f64
}

/// The least of what the host has, what the server's threads can use, and its quota.
fn cpu_of_made(settings: &StreamSettings) -> Ceiling {
    let threads = f64::from(settings.server.threads.max(1));
    let what = match settings.server.kind {
        ServerKind::Embedded => "thread",
        ServerKind::Nginx => "worker",
    };
    let plural = if threads > 1.0 { "s" } else { "" };
    let usable = if threads < cores() {
        ceiling(100.0 * threads, &format!("the server has {threads} {what}{plural}"))
    } else {
        ceiling(100.0 * cores(), &format!("{} cores", cores()))
    };
    match settings.server.cpu_quota_percent {
        Some(percent) if percent <= usable.value => ceiling(percent, "the CPU quota that was set"),
        _ => usable,
    }
}

/// What the user says outranks what was found.
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
