//! Lost fragments appear in the sources' report: which source, which event, and whether a tail-loss probe or
//! a timeout recovered them. Uses two network namespaces; needs root.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::scripted_builder::{Builder, Rig, until};
use daq::report::Stall;
use daq::wire::Kind;
use serde_json::json;
use sys::journal::Journal;
use sys::netns::Namespace;
use sys::proc::TcpCounters;

const BUILDER: Ipv4Addr = Ipv4Addr::new(10, 177, 3, 2);
const SOURCES: u64 = 3;

/// Two namespaces joined by a veth pair.
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
        let hardware = builder.within(hardware_address).unwrap();
        Self { sources, builder, address: hardware, _folder: folder }
    }

    /// Sends the sources' frames to a wrong hardware address, or to the builder's.
    fn cut(&self, is_cut: bool) {
        let hardware = if is_cut { "02:00:00:00:00:01" } else { &self.address };
        let command = format!("neighbour replace {BUILDER} lladdr {hardware} dev wire nud permanent\n");
        self.sources.ip(&command).unwrap();
    }

    /// Segments sent and retransmitted by the sources' host.
    fn segments(&self) -> (u64, u64) {
        let read = || TcpCounters::open_of_thread(Path::new("/")).and_then(|mut counters| counters.read());
        let reading = self.sources.within(read).unwrap().unwrap();
        (reading.segments_sent.unwrap(), reading.segments_retransmitted.unwrap())
    }
}

/// The hardware address of the veth end in this thread's namespace, as `ip` prints it.
fn hardware_address() -> String {
    let shown = std::process::Command::new("ip").args(["-o", "link", "show", "wire"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    shown.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_owned()
}

fn trigger(builder: &Builder, event: u64) {
    builder.multicast_order(&builder.order(Kind::Trigger, event));
}

/// Sends an event whose fragments are lost, and `lost_again` retransmissions as well; returns the reported
/// stalls.
fn stalls(wire: &Wire, lost_again: u64) -> Vec<Stall> {
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
    let before = wire.segments();
    trigger(rig.only(), 5);
    until("what is lost", || {
        let (sent, again) = wire.segments();
        sent >= before.0 + SOURCES && again >= before.1 + lost_again * SOURCES
    });
    wire.cut(false);
    rig.only().event(5);
    for event in 6..10 {
        trigger(rig.only(), event);
        rig.only().event(event);
    }
    let report = rig.stop();
    let retransmits: u64 = report.sources.iter().filter_map(|source| source.retransmits).sum();
    let attributed: u64 = report.stalls.iter().map(|stall| u64::from(stall.retransmits)).sum();
    assert_eq!(attributed, retransmits, "{:?}", report.stalls);
    report.stalls
}

#[test]
fn lost_fragment_is_reported_with_its_event() {
    if !sys::environment::is_root() {
        return features::skip("needs root");
    }
    let wire = Wire::new();
    // 0: the tail-loss probe arrives; 2: the probe and the first timeout's retransmission are lost as well.
    for lost_again in [0, 2] {
        let stalls = stalls(&wire, lost_again);
        for source in 0..SOURCES as u32 {
            let of_event = |stall: &&Stall| (stall.source, stall.event) == (source, 5);
            let held_up = stalls.iter().filter(of_event).any(|stall| stall.retransmits > 0);
            assert!(held_up, "source {source}: {stalls:?}");
        }
        let sum = |count: fn(&Stall) -> u32| stalls.iter().map(count).sum::<u32>();
        let (timeouts, retransmits) = (sum(|stall| stall.timeouts), sum(|stall| stall.retransmits));
        assert!(timeouts < retransmits && (lost_again == 0 || timeouts > 0), "{stalls:?}");
    }
}
