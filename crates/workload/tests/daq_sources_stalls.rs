//! Fragments that are lost on their way show in what the sources report: which source, at which event, and whether a
//! tail-loss probe or a timeout brought it. In two network namespaces of its own; needs root.

mod daq_sources_common;

use std::net::Ipv4Addr;

use daq_sources_common::{Builder, Rig, until};
use kagiri_workload::daq::report::Stall;
use kagiri_workload::daq::wire::Kind;
use serde_json::json;
use sys::journal::Journal;
use sys::netns::Namespace;

const BUILDER: Ipv4Addr = Ipv4Addr::new(10, 177, 3, 2);
const SOURCES: u64 = 3;

/// Two namespaces and a wire between them.
struct Wire {
    sources: Namespace,
    builder: Namespace,
    address: String,
    _folder: tempfile::TempDir,
}

impl Wire {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let name = |end| format!("kagiri-test-stalls-{}-{end}", std::process::id());
        let [sources, builder] =
            ["s", "b"].map(|end| Namespace::create(&journal, &name(end)).expect("a namespace"));
        let peer = builder.name();
        sources.ip(&format!("link add wire type veth peer name wire netns {peer}\n")).unwrap();
        for (namespace, address) in [(&sources, "10.177.3.1/24"), (&builder, "10.177.3.2/24")] {
            let commands = format!("link set lo up\naddress add {address} dev wire\nlink set wire up\n");
            namespace.ip(&commands).unwrap();
        }
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").map(drop);
        builder.within(read).unwrap().unwrap();
        let hardware = builder.within(hardware_address).unwrap();
        Self { sources, builder, address: hardware, _folder: folder }
    }

    /// Lets what the sources send go nowhere, or to the builder.
    fn cut(&self, is_cut: bool) {
        let hardware = if is_cut { "02:00:00:00:00:01" } else { &self.address };
        let command = format!("neighbour replace {BUILDER} lladdr {hardware} dev wire nud permanent\n");
        self.sources.ip(&command).unwrap();
    }

    /// Packets that came to the builder's end, those included that are for nobody.
    fn packets(&self) -> u64 {
        let text =
            self.builder.within(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("wire:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// That of the wire's end in the namespace of this thread, as `ip` shows it.
fn hardware_address() -> String {
    let shown = std::process::Command::new("ip").args(["-o", "link", "show", "wire"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    shown.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_owned()
}

fn trigger(builder: &Builder, event: u64) {
    builder.say(&builder.order(Kind::Trigger, event));
}

/// Sends an event whose fragments are lost until each was sent `times` times; how the sources tell of it.
fn stalls(wire: &Wire, times: u64) -> Vec<Stall> {
    let settings = json!({ "sources": SOURCES, "congestion_control": "reno" });
    let builder = wire.builder.within(|| Builder::new(0, SOURCES as u32, BUILDER)).unwrap();
    let (mut rig, endpoints) = Rig::with(&settings, vec![builder]);
    wire.sources.within(|| rig.connect(&endpoints).map(drop)).unwrap().unwrap();
    rig.part.start(sys::clock::monotonic_ns()).unwrap();
    for event in 0..5 {
        trigger(rig.only(), event);
        rig.only().event(event);
    }
    wire.cut(true);
    let before = wire.packets();
    trigger(rig.only(), 5);
    until("what is lost", || wire.packets() >= before + times * SOURCES);
    wire.cut(false);
    rig.only().event(5);
    for event in 6..10 {
        trigger(rig.only(), event);
        rig.only().event(event);
    }
    let report = rig.stop();
    let retransmits: u64 = report.sources.iter().filter_map(|source| source.retransmits).sum();
    let told: u64 = report.stalls.iter().map(|stall| u64::from(stall.retransmits)).sum();
    assert_eq!(told, retransmits, "{:?}", report.stalls);
    report.stalls
}

#[test]
fn a_lost_fragment_is_told_with_its_event() {
    if !sys::environment::is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let wire = Wire::new();
    // Once: the probe after it comes through. Three times: the first timeout was in vain, too.
    for times in [1, 3] {
        let stalls = stalls(&wire, times);
        for source in 0..SOURCES as u32 {
            let of_source: Vec<&Stall> = stalls.iter().filter(|stall| stall.source == source).collect();
            assert!(of_source.iter().any(|stall| stall.event == 5), "source {source}: {stalls:?}");
            let sum = |count: fn(&Stall) -> u32| of_source.iter().map(|stall| count(stall)).sum::<u32>();
            assert!(sum(|stall| stall.retransmits) >= times as u32, "{stalls:?}");
            if times == 3 {
                assert!(sum(|stall| stall.timeouts) > 0, "{stalls:?}");
            } else {
                assert!(sum(|stall| stall.timeouts) < sum(|stall| stall.retransmits), "{stalls:?}");
            }
        }
    }
}
