//! Two snapshots make a sample: tables of cases.

use observe::sampler::{Quantity, SendersReading, Snapshot, rates};
use sys::netlink::QueueReading;
use sys::proc::{BlockReading, NetDeviceReading};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Snapshot {
    Snapshot { at_ns: ms * MS, cores: Some(2), ..Snapshot::default() }
}

/// One counter of a snapshot set, as a function of its value.
type Set = fn(&mut Snapshot, Option<u64>);

fn disk(raw: &mut Snapshot, value: Option<u64>, set: fn(&mut BlockReading, u64)) {
    raw.disk = value.map(|value| {
        let mut reading = BlockReading::default();
        set(&mut reading, value);
        reading
    });
}

fn network(raw: &mut Snapshot, value: Option<u64>, set: fn(&mut NetDeviceReading, u64)) {
    raw.network = value.map(|value| {
        let mut reading = NetDeviceReading::default();
        set(&mut reading, value);
        reading
    });
}

fn dropped(drops: u64) -> QueueReading {
    QueueReading { drops: Some(drops), ..QueueReading::default() }
}

/// Every rate: its counter, and the value of a growth by 50,000,000 in 100 ms.
const RATES: [(Quantity, Set, f64); 19] = [
    (Quantity::ServerCpu, |raw, value| raw.server_cpu_ns = value, 50.0),
    (Quantity::ServerCgroupCpu, |raw, value| raw.cgroup_usage_ns = value, 50.0),
    (Quantity::CpuWait, |raw, value| raw.server_wait_ns = value, 50.0),
    (Quantity::Throttled, |raw, value| raw.cgroup_throttled_ns = value, 50.0),
    (Quantity::Softirq, |raw, value| raw.softirq_ns = value, 50.0),
    (Quantity::Steal, |raw, value| raw.steal_ns = value, 50.0),
    (Quantity::HostCpu, |raw, value| raw.host_idle_ns = value, 150.0),
    (Quantity::PressureCpu, |raw, value| raw.pressure_cpu_ns = value, 50.0),
    (Quantity::PressureIo, |raw, value| raw.pressure_io_ns = value, 50.0),
    (Quantity::PressureMemory, |raw, value| raw.pressure_memory_ns = value, 50.0),
    (Quantity::SoftnetDrops, |raw, value| raw.softnet_dropped = value, 5e8),
    (Quantity::DiskRead, |raw, value| disk(raw, value, |disk, value| disk.read_bytes = value), 4e9),
    (Quantity::DiskWrite, |raw, value| disk(raw, value, |disk, value| disk.written_bytes = value), 4e9),
    (Quantity::DiskBusy, |raw, value| disk(raw, value, |disk, value| disk.busy_ns = value), 50.0),
    (Quantity::DiskQueue, |raw, value| disk(raw, value, |disk, value| disk.queue_time_ns = value), 0.5),
    (Quantity::Network, |raw, value| network(raw, value, |device, value| device.tx_bytes = value), 4e9),
    (Quantity::Network, |raw, value| network(raw, value, |device, value| device.rx_bytes = value), 4e9),
    (Quantity::DeviceDrops, |raw, value| network(raw, value, |device, value| device.rx_dropped = value), 5e8),
    (Quantity::NetworkDrops, |raw, drops| raw.network_queue = drops.map(dropped), 5e8),
];

#[test]
fn rates_of_growth_reset_and_absence() {
    let growth = 50 * MS;
    for (quantity, set, expected) in RATES {
        let of = |from: Option<u64>, to: Option<u64>, elapsed_ms: u64| {
            let (mut previous, mut current) = (at(1000), at(1000 + elapsed_ms));
            set(&mut previous, from);
            set(&mut current, to);
            rates(&previous, &current).get(quantity)
        };
        let name = quantity.name();
        assert_eq!(of(Some(7), Some(7 + growth), 100), Some(expected), "{name}: growth");
        assert_eq!(of(Some(u64::MAX - growth), Some(u64::MAX), 100), Some(expected), "{name}: near the end");
        assert_eq!(of(Some(7), Some(6), 100), None, "{name}: reset or wrapped");
        assert_eq!(of(Some(7), Some(8), 0), None, "{name}: no time has passed");
        assert_eq!(of(None, Some(8), 100), None, "{name}: not known before");
        assert_eq!(of(Some(7), None, 100), None, "{name}: not known now");
        assert_eq!(of(None, None, 100), None, "{name}: not watched");
    }
}

#[test]
fn rates_use_the_elapsed_time() {
    // A sample that is 60 ms late covers 160 ms.
    let (mut previous, mut current) = (at(0), at(160));
    (previous.server_cpu_ns, current.server_cpu_ns) = (Some(0), Some(40 * MS));
    assert_eq!(rates(&previous, &current).get(Quantity::ServerCpu), Some(25.0));
    // A clock that went back is no time passed.
    assert_eq!(rates(&current, &previous).get(Quantity::ServerCpu), None);
}

#[test]
fn contents_need_no_earlier_snapshot() {
    let current = Snapshot {
        server_memory_bytes: Some(1),
        socket_memory_bytes: Some(2),
        page_cache_bytes: Some(3),
        slab_bytes: Some(0),
        network_queue: Some(QueueReading { backlog_bytes: Some(4), ..QueueReading::default() }),
        senders: Some(SendersReading { connections: 5, limited_percent: Some(6.0) }),
        ..at(0)
    };
    let sample = rates(&current, &current);
    assert_eq!(sample.get(Quantity::ServerMemory), Some(1.0));
    assert_eq!(sample.get(Quantity::SocketMemory), Some(2.0));
    assert_eq!(sample.get(Quantity::PageCache), Some(3.0));
    assert_eq!(sample.get(Quantity::Slab), Some(0.0));
    assert_eq!(sample.get(Quantity::NetworkQueue), Some(4.0));
    assert_eq!(sample.get(Quantity::Connections), Some(5.0));
    assert_eq!(sample.get(Quantity::SenderLimited), Some(6.0));
    assert_eq!(rates(&current, &at(1)).get(Quantity::Slab), None);
}

#[test]
fn own_group_takes_precedence_over_processes() {
    // Grown in 100 ms by: group, processes -> server.
    let table = [
        (true, Some(30), Some(20), Some(30.0)),
        (true, None, Some(20), Some(20.0)),
        (true, Some(30), None, Some(30.0)),
        (false, Some(30), Some(20), Some(20.0)),
        (false, Some(30), None, None),
        (true, None, None, None),
    ];
    for (own, group, processes, expected) in table {
        let (mut previous, mut current) = (at(0), at(100));
        (previous.cgroup_is_server, current.cgroup_is_server) = (own, own);
        previous.cgroup_usage_ns = group.map(|_: u64| 5);
        current.cgroup_usage_ns = group.map(|ms| 5 + ms * MS);
        previous.server_cpu_ns = processes.map(|_: u64| 9);
        current.server_cpu_ns = processes.map(|ms| 9 + ms * MS);
        let server = rates(&previous, &current).get(Quantity::ServerCpu);
        assert_eq!(server, expected, "own {own}, group {group:?}, processes {processes:?}");
    }
}

#[test]
fn other_cpu_is_host_minus_known() {
    // Idle, stolen, known, processes and group in ms of 2 cores x 100 ms -> host and others.
    let table = [
        (Some(50), Some(0), Some(120), Some(100), None, Some(150.0), Some(30.0)),
        (Some(50), Some(10), Some(120), Some(100), None, Some(140.0), Some(20.0)),
        (Some(50), None, Some(120), Some(100), None, Some(150.0), Some(30.0)),
        // The group has counted 20 ms of short-lived processes.
        (Some(50), Some(0), Some(120), Some(100), Some(120), Some(150.0), Some(10.0)),
        // Ticks are coarse: the host may show less than its processes. The record keeps the balance.
        (Some(90), Some(0), Some(120), Some(100), None, Some(110.0), Some(-10.0)),
        (Some(250), Some(0), Some(0), Some(0), None, Some(0.0), Some(0.0)),
        (Some(50), Some(0), None, Some(100), None, Some(150.0), None),
        (None, Some(0), Some(120), Some(100), None, None, None),
    ];
    for (idle, steal, known, processes, group, host, others) in table {
        let zero = |value: Option<u64>| value.map(|_| 0);
        let ns = |value: Option<u64>| value.map(|ms| ms * MS);
        let with = |raw: Snapshot, of: &dyn Fn(Option<u64>) -> Option<u64>| Snapshot {
            host_idle_ns: of(idle),
            steal_ns: of(steal),
            known_cpu_ns: of(known),
            server_cpu_ns: of(processes),
            cgroup_usage_ns: of(group),
            cgroup_is_server: group.is_some(),
            ..raw
        };
        let sample = rates(&with(at(0), &zero), &with(at(100), &ns));
        assert_eq!(sample.get(Quantity::HostCpu), host, "{idle:?} {steal:?}");
        assert_eq!(sample.get(Quantity::OtherCpu), others, "{idle:?} {steal:?} {known:?} {group:?}");
    }
}

#[test]
fn changed_core_count_gives_no_host_cpu() {
    let with = |ms, cores| Snapshot { cores, host_idle_ns: Some(ms * MS), ..at(ms) };
    for (before, after) in [(Some(2), Some(1)), (Some(1), Some(2)), (None, Some(2)), (Some(2), None)] {
        assert_eq!(rates(&with(0, before), &with(100, after)).get(Quantity::HostCpu), None);
    }
    assert_eq!(rates(&with(0, Some(1)), &with(100, Some(1))).get(Quantity::HostCpu), Some(0.0));
}

#[test]
fn disk_await_needs_requests() {
    let reading = |requests, time_ms| BlockReading {
        reads: requests,
        writes: 2 * requests,
        read_time_ns: time_ms * MS,
        write_time_ns: 3 * time_ms * MS,
        ..BlockReading::default()
    };
    let wait = |from, to| {
        let (previous, current) =
            (Snapshot { disk: Some(from), ..at(0) }, Snapshot { disk: Some(to), ..at(100) });
        rates(&previous, &current).get(Quantity::DiskAwait)
    };
    assert_eq!(wait(reading(10, 100), reading(12, 115)), Some(10.0));
    assert_eq!(wait(reading(10, 100), reading(10, 100)), None);
    assert_eq!(wait(reading(10, 100), reading(9, 90)), None);
}

#[test]
fn drops_are_summed_and_busy_time_is_capped() {
    let device =
        |dropped| NetDeviceReading { rx_dropped: dropped, tx_dropped: 2 * dropped, ..Default::default() };
    let (mut previous, mut current) = (at(0), at(100));
    (previous.network, current.network) = (Some(device(1)), Some(device(2)));
    previous.disk = Some(BlockReading::default());
    current.disk = Some(BlockReading { busy_ns: 104 * MS, ..BlockReading::default() });
    let sample = rates(&previous, &current);
    assert_eq!(sample.get(Quantity::DeviceDrops), Some(30.0));
    assert_eq!(sample.get(Quantity::NetworkDrops), None, "a device's drops are not its queue's");
    assert_eq!(sample.get(Quantity::DiskBusy), Some(100.0));
}
