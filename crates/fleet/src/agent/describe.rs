//! The agent's description of itself and its host.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use super::AgentConfig;
use crate::protocol::{Description, PROTOCOL};

/// What should be equal on hosts of one role, and where the kernel shows it.
const CONFIGURATION: [(&str, &str); 7] = [
    ("kernel", "/proc/sys/kernel/osrelease"),
    ("congestion control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("receive buffers (tcp_rmem)", "/proc/sys/net/ipv4/tcp_rmem"),
    ("send buffers (tcp_wmem)", "/proc/sys/net/ipv4/tcp_wmem"),
    ("default queue (default_qdisc)", "/proc/sys/net/core/default_qdisc"),
    ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("CPU governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
];

pub fn describe(config: &AgentConfig, instance: &str, busy: Option<String>) -> Description {
    Description {
        name: config.name.clone(),
        instance: instance.to_owned(),
        protocol: PROTOCOL,
        version: config.version.clone(),
        address: config.host.address,
        kernel: value("kernel"),
        congestion_control: value("congestion control"),
        realtime_s: sys::clock::realtime_ns() as f64 / 1e9,
        busy,
    }
}

/// Opened once: reading a `/proc` file again from its start gives the current value, and opening costs most
/// of the time.
static FILES: LazyLock<Vec<(&str, File)>> = LazyLock::new(|| {
    CONFIGURATION.into_iter().filter_map(|(name, path)| Some((name, File::open(path).ok()?))).collect()
});
/// More than twice the longest of these texts.
const TEXT_BYTES_MAX: usize = 256;

/// Without the entries that this kernel does not have.
pub fn configuration(version: &str) -> BTreeMap<String, String> {
    let own = ("kagiri".to_owned(), version.to_owned());
    FILES.iter().filter_map(|(name, file)| Some(((*name).to_owned(), read(file)?))).chain([own]).collect()
}

/// An entry of [`CONFIGURATION`].
fn value(name: &str) -> Option<String> {
    FILES.iter().find(|(other, _)| *other == name).and_then(|(_, file)| read(file))
}

fn read(file: &File) -> Option<String> {
    let mut text = [0; TEXT_BYTES_MAX];
    let read = file.read_at(&mut text, 0).ok()?;
    let text = String::from_utf8_lossy(&text[..read]);
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_read_anew_each_time() {
        let said = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
        for _ in 0..2 {
            let read = configuration("1.2");
            assert_eq!(read.get("kernel").cloned(), said("/proc/sys/kernel/osrelease"));
            assert_eq!(read.get("kagiri").map(String::as_str), Some("1.2"));
            let buffers = said("/proc/sys/net/ipv4/tcp_rmem").map(|text| text.replace('\t', " "));
            assert_eq!(read.get("receive buffers (tcp_rmem)").cloned(), buffers);
        }
    }
}
