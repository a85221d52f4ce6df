//! What an agent says of itself.

use std::collections::BTreeMap;

use super::Setting;
use crate::protocol::{Description, PROTOCOL};

/// What should be the same on hosts that share a role, and where the kernel says it.
const CONFIGURATION: [(&str, &str); 7] = [
    ("kernel", "/proc/sys/kernel/osrelease"),
    ("congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("receive buffers (tcp_rmem)", "/proc/sys/net/ipv4/tcp_rmem"),
    ("send buffers (tcp_wmem)", "/proc/sys/net/ipv4/tcp_wmem"),
    ("default queue (default_qdisc)", "/proc/sys/net/core/default_qdisc"),
    ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("CPU governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
];

/// The description of an agent.
pub fn describe(setting: &Setting, instance: &str, busy: Option<String>) -> Description {
    Description {
        name: setting.name.clone(),
        instance: instance.to_owned(),
        protocol: PROTOCOL,
        version: setting.version.clone(),
        address: setting.host.address,
        configuration: configuration(&setting.version),
        environment: setting.environment.clone(),
        realtime_s: sys::clock::realtime_ns() as f64 / 1e9,
        busy,
    }
}

/// What is there; what this kernel does not have is left out.
fn configuration(version: &str) -> BTreeMap<String, String> {
    let read = |(name, path): (&str, &str)| {
        let text = std::fs::read_to_string(path).ok()?;
        Some((name.to_owned(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    let own = ("kagiri".to_owned(), version.to_owned());
    CONFIGURATION.into_iter().filter_map(read).chain([own]).collect()
}
