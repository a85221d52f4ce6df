//! Builder and sources over loopback: every pattern builds each event and accounts for each fragment.

use std::time::Duration;

use crate::scripted_source::ScriptedSource;
use crate::trial::{Trial, run, settings};
use daq::report::{BuilderReport, SourcesReport};
use serde_json::{Value, json};

fn balanced(more: Value) -> (Vec<BuilderReport>, SourcesReport) {
    let settings = settings(more.clone());
    let (builders, sources) = run(&settings);
    assert_eq!(builders.len() as u32, settings.builders, "{more}");
    let sent: u64 = sources.sources.iter().map(|source| source.sent).sum();
    let mut built = 0;
    for builder in &builders {
        let (events, ledger) = (&builder.events, &builder.ledger);
        assert_eq!(
            (events.incomplete, events.unfinished),
            (0, 0),
            "{more}: {events:?} {:?}",
            builder.incomplete
        );
        assert_eq!((&builder.broke_off, ledger.broken_connections), (&None, 0), "{more}");
        assert_eq!((ledger.late, ledger.duplicate, ledger.refused_all()), (0, 0, 0), "{more}: {ledger:?}");
        assert_eq!(builder.completion.count(), events.complete, "{more}");
        assert!(builder.memory_bytes_max <= settings.memory.bytes(), "{more}");
        assert!(builder.outstanding_max <= settings.window, "{more}");
        built += ledger.built;
    }
    assert_eq!(built, sent, "{more}");
    let events: u64 = builders.iter().map(|builder| builder.events.complete + builder.events.vetoed).sum();
    assert!(events >= settings.events.unwrap_or(1), "{more}: {events} events");
    (builders, sources)
}

#[test]
fn events_are_built_by_push() {
    let (builders, _) = balanced(json!({ "sources": 20, "events": 100 }));
    let one = &builders[0];
    assert_eq!((one.sources, one.events.complete, one.orders.triggers), (20, 100, 100));
    assert_eq!(one.payload_bytes, 100 * 20 * 1024);
    assert_eq!(one.orders_note, None, "multicast works over loopback");
    assert!(one.clocks.iter().all(|clock| clock.same_kernel && clock.bound_ns.is_some()), "{:?}", one.clocks);
    assert_eq!(one.skew.count(), 100);
    assert!(one.sources_seen.iter().all(|seen| seen.connected && seen.fragments == 100));
}

#[test]
fn events_are_built_with_other_patterns_and_transports() {
    for more in [
        json!({ "sources": 20, "events": 40, "window": 4, "size": "100KiB" }),
        json!({ "sources": 20, "events": 40, "pattern": "grant", "credit": 6, "window": 3 }),
        json!({ "sources": 20, "events": 40, "pattern": "grant", "credit": 4, "orders": "tcp" }),
        json!({ "sources": 20, "events": 40, "pattern": "pull", "credit": 3, "window": 2 }),
        json!({ "sources": 20, "events": 40, "pattern": "pull", "credit": 8, "orders": "tcp" }),
        json!({ "sources": 20, "events": 40, "pattern": "grant" }),
        json!({ "sources": 20, "events": 40, "orders": "tcp" }),
        json!({ "sources": 20, "events": 40, "protocol": "udp", "size": "9000B" }),
        json!({ "sources": 20, "events": 40, "protocol": "udp", "pattern": "grant", "credit": 5 }),
        json!({ "sources": 20, "events": 40, "size": "uniform 1B..9KiB", "window": 2 }),
        json!({ "sources": 3, "events": 40, "size": "0B" }),
        json!({ "sources": 20, "events": 40, "checksum": false, "omit": "100ms" }),
        json!({ "sources": 20, "events": 40, "builders": 2 }),
        json!({ "sources": 9, "events": 60, "builders": 3, "builder_choice": "round_robin",
            "triggers": "500/s" }),
        json!({ "sources": 9, "events": 60, "builders": 2, "builder_choice": "least_outstanding",
            "window": 2 }),
        json!({ "sources": 9, "time": "300ms", "triggers": "poisson 300/s", "window": 8, "omit": "50ms" }),
    ] {
        balanced(more);
    }
}

#[test]
fn lost_orders_are_retransmitted() {
    for more in [
        json!({ "sources": 20, "events": 200, "drop_orders_percent": 10.0 }),
        json!({ "sources": 20, "events": 200, "drop_orders_percent": 10.0, "window": 4 }),
        json!({ "sources": 20, "events": 100, "drop_orders_percent": 10.0, "pattern": "grant", "credit": 5 }),
    ] {
        let (builders, sources) = balanced(more);
        assert!(sources.orders_dropped > 0 && builders[0].orders.repeated > 0 && builders[0].recovered > 0);
        assert!(builders[0].recovery.count() > 0);
    }
}

#[test]
fn triggers_beyond_window_are_vetoed() {
    let more = json!({ "sources": 4, "time": "500ms", "triggers": "bursts 10 20/s", "window": 3 });
    let (builders, _) = balanced(more);
    let events = builders[0].events;
    assert!(events.vetoed > events.complete, "{events:?}");
    assert_eq!(events.offered, events.vetoed + events.triggered, "{events:?}");
}

#[test]
fn pull_of_next_source_precedes_end_of_large_fragment() {
    let more = json!({
        "sources": 2, "events": 1, "size": "64KiB", "pattern": "pull", "credit": 1, "orders": "tcp",
        "timeout": "20s",
    });
    let mut trial = Trial::new(&settings(more));
    let [mut one, mut other] = [0, 1].map(|source| ScriptedSource::connect(&trial.facts, source));
    trial.start();
    let payload = vec![7; 64 << 10];
    let event = one.event(None);
    let fragment = one.fragment(event, &payload);
    let (most, rest) = fragment.split_at(fragment.len() - (16 << 10));
    one.write(most);
    assert_eq!(other.event(None), event, "asked while the first one's end is still to come");
    one.write(rest);
    other.send(event, &payload);
    let sources = [one, other].map(|source| source.send_until_stop(payload.clone()));
    let report = trial.finish(sources);
    assert_eq!((report.events.complete, report.ledger.built), (1, 2), "{:?}", report.ledger);
}

/// Every probe stalls, whatever its credit: granting is compared with push all the same.
#[test]
fn gain_over_push_is_measured_even_if_every_credit_stalled() {
    let more = json!({
        "sources": 2, "front_ends": 2, "events": 3, "size": "100B", "pattern": "grant", "orders": "tcp",
    });
    let mut trial = Trial::new(&settings(more));
    let sources = [0, 1].map(|source| ScriptedSource::connect(&trial.facts, source));
    trial.start();
    let sources = sources.map(|mut source| {
        std::thread::spawn(move || {
            let mut last = None;
            while let Some(order) = source.order() {
                if last.replace(order.event) >= Some(order.event) {
                    continue;
                }
                // Its send time is that of a fragment that is long on its way.
                let fragment = source.fragment(order.event, &[7; 100]);
                if order.event % 2 == 0 && source.source == 0 {
                    std::thread::sleep(Duration::from_millis(200));
                }
                source.write(&fragment);
            }
        })
    });
    let report = trial.finish(sources);
    let steered = report.steered.expect("a search");
    assert!(steered.tried.iter().all(|tried| tried.stalled > 0), "{steered:?}");
    let (granted, push) = (steered.granted.expect("compared"), steered.push.expect("compared"));
    for one in [granted, push] {
        // For two seconds, and the events under way: not until a few have stalled.
        assert!(one.lasted_s >= 2.0 && one.complete == one.events && one.stalled > 5, "{one:?}");
    }
    let gain = granted.events_per_s / push.events_per_s;
    assert!((0.7..1.4).contains(&gain), "the same front ends, {gain} times: {granted:?} {push:?}");
}
