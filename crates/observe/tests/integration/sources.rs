//! Readers fed from a directory that looks like `/proc` and `/sys`.

use std::os::unix::fs::symlink;
use std::path::Path;

use base::part::Watch;
use observe::sampler::{Quantity, Sources};

const BLOCK: &str = "10 0 200 30 5 0 100 20 1 40 50 0 0 0 0 0 0\n";
const DEVICES: &str = "Inter-| Receive | Transmit\n face |bytes packets errs drop fifo frame compressed \
    multicast|bytes\n  lo: 1000 10 0 1 0 0 0 0 2000 20 0 2 0 0 0 0\n";

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn put_process(root: &Path, pid: u32, run_ns: u64) {
    let place = format!("proc/{pid}");
    let zeroes = "0 ".repeat(16);
    put(root, &format!("{place}/stat"), &format!("{pid} (a server) S 1 {zeroes} 0 42 0 0\n"));
    put(root, &format!("{place}/statm"), "100 50 10 0 0 0 0\n");
    put(root, &format!("{place}/task/{pid}/schedstat"), &format!("{run_ns} 7000 3\n"));
    put(root, &format!("{place}/task/{pid}/children"), "");
}

fn host() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = root.path();
    put(path, "proc/stat", "cpu 1 2 3 40 5 6 7 8 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\nctxt 9\n");
    put(path, "proc/meminfo", "MemTotal: 100 kB\nCached: 10 kB\nSlab: 3 kB\n");
    put(path, "proc/net/dev", DEVICES);
    put(path, "proc/net/softnet_stat", "00000010 00000002 00000000\n");
    put(path, "proc/net/sockstat", "sockets: used 3\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 4\n");
    put(path, "proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=11\n");
    put(path, "proc/self/mountinfo", "");
    root
}

#[test]
fn all_existing_sources_are_read() {
    let root = host();
    let path = root.path();
    put_process(path, 70, 5_000_000);
    put_process(path, std::process::id(), 1_000_000);
    put(path, "sys/devices/block/vdx/stat", BLOCK);
    std::fs::create_dir_all(path.join("sys/dev/block")).unwrap();
    symlink(path.join("sys/devices/block/vdx"), path.join("sys/dev/block/253:7")).unwrap();
    let group = path.join("group");
    put(path, "group/cpu.stat", "usage_usec 8\nnr_periods 1\nnr_throttled 1\nthrottled_usec 2\n");
    put(path, "group/cgroup.procs", "70\n");
    let watch = Watch {
        pids: vec![70],
        cgroup_cpu: Some(group.display().to_string()),
        block_device: Some("253:7".into()),
        network_device: Some("lo".into()),
        ..Watch::default()
    };
    let mut sources = Sources::open(path, &watch);
    assert_eq!(sources.disk_name(), Some("vdx"));
    assert_eq!(sources.server_pids(), [70]);
    let raw = sources.read();
    let tick_ns = 1_000_000_000 / sys::clock::tick_hz();
    assert_eq!(raw.cores, Some(1));
    assert_eq!(raw.host_idle_ns, Some(45 * tick_ns));
    assert_eq!((raw.softirq_ns, raw.steal_ns), (Some(7 * tick_ns), Some(8 * tick_ns)));
    assert_eq!((raw.server_cpu_ns, raw.server_wait_ns), (Some(5_000_000), Some(7_000)));
    assert_eq!(raw.known_cpu_ns, Some(6_000_000));
    assert_eq!((raw.cgroup_usage_ns, raw.cgroup_throttled_ns), (Some(8_000), Some(2_000)));
    assert!(raw.cgroup_is_server);
    assert_eq!(raw.server_memory_bytes, Some(50 * sys::proc::page_bytes()));
    assert_eq!(raw.socket_memory_bytes, Some(4 * sys::proc::page_bytes()));
    assert_eq!((raw.page_cache_bytes, raw.slab_bytes), (Some(10 << 10), Some(3 << 10)));
    assert_eq!(raw.disk.unwrap().read_bytes, 200 * 512);
    assert_eq!(raw.network.unwrap().tx_bytes, 2000);
    assert_eq!((raw.softnet_dropped, raw.pressure_cpu_ns), (Some(2), Some(11_000)));
    // The kernel of this directory has no pressure of disk and memory, and the port of the target is unknown:
    // two series less for each, and a sentence for each requested one. Loopback has no queue: two series
    // less, and nothing that could be missed.
    assert_eq!(raw.pressure_io_ns, None);
    assert_eq!(sources.offered().len(), Quantity::ALL.len() - 6);
    assert_eq!(sources.unavailable().len(), 2, "{:?}", sources.unavailable());
    assert!(!sources.unavailable().concat().contains("queue"), "{:?}", sources.unavailable());
}

#[test]
fn remote_server_has_only_host_quantities() {
    let root = host();
    put_process(root.path(), std::process::id(), 1);
    let watch = Watch { elsewhere: Some("192.0.2.1".into()), ..Watch::default() };
    let sources = Sources::open(root.path(), &watch);
    let names: Vec<&str> = sources.offered().iter().map(|quantity| quantity.name()).collect();
    let expected = [
        "host_cpu_percent",
        "softirq_percent",
        "steal_percent",
        "other_cpu_percent",
        "socket_memory_bytes",
        "page_cache_bytes",
        "slab_bytes",
        "softnet_drops_per_s",
    ];
    // Pressure would be taken for the server's, and it is the players' host's.
    assert_eq!(names, expected);
    assert!(sources.unavailable().is_empty(), "{:?}", sources.unavailable());
}

#[test]
fn missing_sources_are_reported_without_failure() {
    let root = tempfile::tempdir().unwrap();
    let watch = Watch {
        pids: vec![70],
        cgroup_cpu: Some("/nowhere".into()),
        block_device: Some("9:9".into()),
        network_device: Some("eth9".into()),
        network_namespace_pid: Some(70),
        own_pids: vec![71],
        ..Watch::default()
    };
    let mut sources = Sources::open(root.path(), &watch);
    assert_eq!(sources.offered(), []);
    let said = sources.unavailable().join("\n");
    for what in ["target's processes", "/nowhere", "9:9", "eth9", "CPU time", "pressure", "socket memory"] {
        assert!(said.contains(what), "{what} in {said}");
    }
    assert!(sources.unavailable().iter().all(|sentence| sentence.ends_with('.')), "{said}");
    assert_eq!(sources.read().server_cpu_ns, None);
    let numbers = Watch { block_device: Some("vda".into()), ..Watch::default() };
    let said = Sources::open(root.path(), &numbers).unavailable().join("\n");
    assert!(said.contains("MAJOR:MINOR"), "{said}");
}

#[test]
fn group_that_contains_kagiri_is_not_the_server() {
    let root = host();
    let path = root.path();
    put_process(path, 70, 5);
    put_process(path, std::process::id(), 1);
    put(path, "group/cpu.stat", "usage_usec 8\n");
    put(path, "group/cgroup.procs", &format!("70\n{}\n", std::process::id()));
    let group = Some(path.join("group").display().to_string());
    let watch = Watch { pids: vec![70], cgroup_cpu: group, ..Watch::default() };
    let mut sources = Sources::open(path, &watch);
    assert!(!sources.read().cgroup_is_server);
    let said = sources.unavailable().join("\n");
    assert!(said.contains("measuring side is in that group"), "{said}");
    assert!(sources.offered().contains(&Quantity::ServerCpu));
    assert!(
        !sources.offered().contains(&Quantity::Throttled),
        "a group without quota does not count throttling"
    );
}

#[test]
fn unreadable_file_is_missing_not_zero() {
    let root = host();
    put_process(root.path(), std::process::id(), 1);
    let mut sources =
        Sources::open(root.path(), &Watch { network_device: Some("lo".into()), ..Watch::default() });
    assert_eq!(sources.read().network.unwrap().tx_bytes, 2000);
    // The readers keep the file open, so it is changed in its place.
    std::fs::write(root.path().join("proc/net/dev"), "no such thing\n").unwrap();
    std::fs::write(root.path().join("proc/stat"), "").unwrap();
    let raw = sources.read();
    assert_eq!((raw.network, raw.host_idle_ns, raw.cores), (None, None, None));
    assert!(raw.page_cache_bytes.is_some());
}
