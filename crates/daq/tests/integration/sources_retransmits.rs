//! Lost fragments appear in the sources' report: which source, which event, and whether a tail-loss probe or
//! a timeout recovered them. Uses two network namespaces; needs root.

use crate::scripted_builder::{Builder, Rig, until};
use crate::wire_pair::{BUILDER, Wire};
use daq::report::Stall;
use daq::wire::Kind;
use serde_json::json;

const SOURCES: u64 = 3;

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
    let wire = Wire::new("stalls");
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
