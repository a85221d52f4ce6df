//! What kind of machine this is: stored with every run, so that results can be compared knowingly.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupVersion, Hierarchies};
use crate::proc::HostMemory;
use crate::proc::mounts::mounts;
use crate::proc::parse::lines;

/// A description of the host. What could not be found out is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub host_name: Option<String>,
    /// The kernel's release, `6.18.44`.
    pub kernel_release: Option<String>,
    /// The kernel's build, `#1 SMP PREEMPT_DYNAMIC ...`.
    pub kernel_version: Option<String>,
    /// The processor architecture, `x86_64`.
    pub architecture: Option<String>,
    pub cpu_model: Option<String>,
    pub cpus: Option<usize>,
    /// CPUs this program may use; fewer in a container.
    pub cpus_usable: Option<usize>,
    pub memory_bytes: Option<u64>,
    pub virtualised: Option<bool>,
    /// The control group versions mounted, and which one has the CPU and the disk controller.
    pub cgroups: CgroupSupport,
    pub congestion_control: Option<String>,
    pub congestion_controls: Vec<String>,
    /// The kernel's clock source; any other than `tsc` makes reading the clock slow.
    pub clock_source: Option<String>,
    /// Whether the kernel offers pressure stall information.
    pub pressure: bool,
    pub distribution: Option<String>,
    pub root: bool,
}

/// What control groups can do here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSupport {
    /// A version 1 hierarchy is mounted.
    pub v1: bool,
    /// The version 2 hierarchy is mounted.
    pub v2: bool,
    pub cpu: Option<CgroupVersion>,
    pub io: Option<CgroupVersion>,
}

pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Describes the machine whose files are below `root` (`/` for this one).
pub fn describe(root: &Path) -> Environment {
    let text = |relative: &str| {
        let text = std::fs::read_to_string(root.join(relative)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let cpuinfo = std::fs::read(root.join("proc/cpuinfo")).unwrap_or_default();
    let controls = text("proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    Environment {
        host_name: text("proc/sys/kernel/hostname"),
        kernel_release: text("proc/sys/kernel/osrelease"),
        kernel_version: text("proc/sys/kernel/version"),
        architecture: nix::sys::utsname::uname()
            .ok()
            .and_then(|name| Some(name.machine().to_str()?.to_owned())),
        cpu_model: cpu_model(&cpuinfo),
        cpus: text("sys/devices/system/cpu/online").and_then(|list| count_list(&list)),
        cpus_usable: crate::thread::online_cpus().ok().map(|cpus| cpus.len()),
        memory_bytes: HostMemory::open(root)
            .and_then(|mut memory| memory.read())
            .ok()
            .and_then(|m| m.total_bytes),
        virtualised: virtualised(root, &cpuinfo),
        cgroups: cgroups(root),
        congestion_control: text("proc/sys/net/ipv4/tcp_congestion_control"),
        congestion_controls: controls.split_whitespace().map(str::to_owned).collect(),
        clock_source: text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        pressure: root.join("proc/pressure/cpu").exists(),
        distribution: text("etc/os-release").and_then(|text| pretty_name(&text)),
        root: is_root(),
    }
}

/// The value of the first line `key : value` of `/proc/cpuinfo`.
fn cpuinfo_value<'a>(cpuinfo: &'a [u8], key: &str) -> Option<&'a str> {
    lines(cpuinfo).filter_map(|line| std::str::from_utf8(line).ok()).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then_some(value.trim())
    })
}

fn cpu_model(cpuinfo: &[u8]) -> Option<String> {
    // x86, then what ARM and others print.
    ["model name", "Model", "Hardware", "cpu"]
        .iter()
        .find_map(|key| cpuinfo_value(cpuinfo, key))
        .map(str::to_owned)
}

/// A hypervisor shows itself in the processor's flags (x86), in a folder (Xen) or in the firmware's maker.
fn virtualised(root: &Path, cpuinfo: &[u8]) -> Option<bool> {
    if root.join("sys/hypervisor/type").exists() {
        return Some(true);
    }
    if let Some(flags) = cpuinfo_value(cpuinfo, "flags") {
        return Some(flags.split_whitespace().any(|flag| flag == "hypervisor"));
    }
    let maker = std::fs::read_to_string(root.join("sys/class/dmi/id/sys_vendor")).ok()?;
    let virtual_makers =
        ["QEMU", "VMware", "Xen", "innotek", "Amazon EC2", "Google", "Parallels", "OpenStack"];
    Some(virtual_makers.iter().any(|name| maker.contains(name)))
}

fn cgroups(root: &Path) -> CgroupSupport {
    let mounts = mounts(root).unwrap_or_default();
    let found = Hierarchies::find(root).unwrap_or_default();
    CgroupSupport {
        v1: mounts.iter().any(|mount| mount.fs_type == "cgroup"),
        v2: mounts.iter().any(|mount| mount.fs_type == "cgroup2"),
        cpu: found.cpu.map(|(version, _)| version),
        io: found.io.map(|(version, _)| version),
    }
}

/// How many numbers a list like `0-3,5` names.
fn count_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0usize, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn environment_of_this_machine_round_trips() {
        let environment = describe(Path::new("/"));
        let uname = std::process::Command::new("uname").args(["-r"]).output().unwrap();
        assert_eq!(
            environment.kernel_release.as_deref(),
            Some(String::from_utf8_lossy(&uname.stdout).trim())
        );
        assert!(environment.cpus >= environment.cpus_usable);
        assert!(environment.memory_bytes > Some(1 << 20));
        let json = serde_json::to_string(&environment).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&json).unwrap(), environment);
    }

    #[test]
    fn missing_facts_are_none() {
        let root = tempfile::tempdir().unwrap();
        let environment = describe(root.path());
        assert_eq!(environment.memory_bytes, None);
        assert_eq!(environment.cpus, None);
        assert_eq!(environment.virtualised, None);
        assert_eq!(environment.cgroups, CgroupSupport::default());
        assert!(environment.congestion_controls.is_empty());
    }

    #[test]
    fn processor_models_are_recognised() {
        let x86 =
            b"processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu hypervisor vme\n";
        assert_eq!(cpu_model(x86).as_deref(), Some("Intel(R) Xeon(R) Processor"));
        let root = tempfile::tempdir().unwrap();
        assert_eq!(virtualised(root.path(), x86), Some(true));
        assert_eq!(virtualised(root.path(), b"flags : fpu vme\n"), Some(false));
        let arm = b"processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Raspberry Pi 4 Model B Rev 1.1\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("Raspberry Pi 4 Model B Rev 1.1"));
        assert_eq!(virtualised(root.path(), arm), None);
    }

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_list("0-3,5"), Some(5));
        assert_eq!(count_list("0"), Some(1));
        for wrong in ["", "3-1", "a", "0-18446744073709551615"] {
            assert_eq!(count_list(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text: String, bytes: Vec<u8>) {
            count_list(&text);
            pretty_name(&text);
            cpu_model(&bytes);
        }
    }
}
