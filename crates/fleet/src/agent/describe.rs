//! What an agent says of itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

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

/// What this kernel has of it. Opened once: a file of `/proc` that is read from its start says what holds now, and
/// opening it is most of what reading it costs.
static FILES: LazyLock<Vec<(&str, File)>> = LazyLock::new(|| {
    CONFIGURATION.into_iter().filter_map(|(name, path)| Some((name, File::open(path).ok()?))).collect()
});
/// The longest of these texts has less than half of that.
const TEXT_BYTES_MAX: usize = 256;

/// What is there; what this kernel does not have is left out.
fn configuration(version: &str) -> BTreeMap<String, String> {
    let read = |(name, file): &(&str, File)| {
        let mut text = [0; TEXT_BYTES_MAX];
        let read = file.read_at(&mut text, 0).ok()?;
        let text = String::from_utf8_lossy(&text[..read]);
        Some(((*name).to_owned(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    let own = ("kagiri".to_owned(), version.to_owned());
    FILES.iter().filter_map(read).chain([own]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_now_is_read_each_time() {
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
