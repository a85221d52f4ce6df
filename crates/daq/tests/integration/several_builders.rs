//! Several builders in one process: they share one hold, and do not wait for a failed one.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::scripted_builder::host;
use crate::scripted_source::ScriptedSource;
use crate::trial::{Trial, merged, run, settings};
use base::part::HostContext;
use daq::part_settings::PortEndpoint;
use daq::report::BuilderReport;
use serde_json::{Value, json};

const PAYLOAD: [u8; 100] = [7; 100];

/// The only source of that builder; connects after `late`.
fn source_of(facts: &PortEndpoint, builder: u16, late: Duration) -> JoinHandle<()> {
    let facts = facts.clone();
    std::thread::spawn(move || {
        std::thread::sleep(late);
        let mut source = ScriptedSource::silent_to(&facts, builder, 0);
        source.send_hello(|_, hello| hello.sources = 1);
        source.send_until_stop(PAYLOAD.to_vec()).join().expect("an honest source");
    })
}

/// Two builders with a source each that connects late; `None`: the second one's never does.
fn two(more: Value, second_late: Option<Duration>) -> Vec<BuilderReport> {
    let all = json!({ "sources": 1, "size": "100B", "orders": "tcp", "builders": 2, "window": 100 });
    let mut trial = Trial::new(&settings(merged(all, more)));
    let mut sources = vec![source_of(&trial.facts, 0, Duration::ZERO)];
    sources.extend(second_late.map(|late| source_of(&trial.facts, 1, late)));
    trial.start();
    trial.wait();
    let (builders, _) = trial.end();
    sources.into_iter().for_each(|source| source.join().expect("an honest source"));
    builders
}

#[test]
fn builders_start_their_hold_together() {
    for (choice, omit) in [("modulo", "0s"), ("round_robin", "50ms"), ("least_outstanding", "50ms")] {
        let more = json!({ "time": "300ms", "triggers": "1000/s", "builder_choice": choice, "omit": omit });
        // The first builder's hold alone would be over by then.
        let builders = two(more, Some(Duration::from_millis(700)));
        assert!(builders.iter().all(|one| one.broke_off.is_none() && !one.ended_early), "{builders:?}");
        let from_s = builders[0].hold_from_s;
        assert!(from_s > 0.6 && (from_s - builders[1].hold_from_s).abs() < 1e-6, "{choice} {from_s}");
        let offered = [0, 1].map(|at| builders[at].events.offered);
        assert_eq!(offered.iter().sum::<u64>(), 300, "{choice} {offered:?}");
        assert!(offered.iter().all(|&offered| offered >= 50), "{choice} {offered:?}");
        assert!(builders.iter().all(|one| one.events.complete + one.events.vetoed == one.events.offered));
    }
}

/// The second builder fails after 10 s.
fn alone(more: Value) -> BuilderReport {
    let mut builders = two(more, None);
    let gone = builders.pop().expect("the second");
    assert!(gone.broke_off.is_some_and(|why| why.starts_with("no source connected")));
    let left = builders.pop().expect("the first");
    assert_eq!((&left.broke_off, left.ended_early), (&None, false));
    left
}

#[test]
fn triggers_of_a_failed_builder_are_counted_or_passed_on() {
    let [vetoed, passed_on, free] = [
        json!({ "time": "300ms", "triggers": "1000/s" }),
        json!({ "events": 200, "triggers": "1000/s", "builder_choice": "round_robin" }),
        json!({ "events": 200 }),
    ]
    .map(|more| std::thread::spawn(|| alone(more)))
    .map(|left| left.join().expect("a report").events);
    assert_eq!(vetoed.offered, 300, "{vetoed:?}");
    assert!(vetoed.vetoed >= 150 && vetoed.complete > 100, "only it could build them: {vetoed:?}");
    assert_eq!([passed_on.complete, free.complete], [200, 200], "{passed_on:?} {free:?}");
}

#[test]
fn builders_search_credit_and_compare_after_all_holds() {
    let more = json!({
        "sources": 20, "builders": 2, "pattern": "grant", "time": "300ms", "triggers": "200/s", "window": 8,
    });
    let (builders, _) = run(&settings(more));
    for one in &builders {
        assert_eq!((&one.broke_off, one.ended_early), (&None, false));
        assert!((one.hold_from_s - builders[0].hold_from_s).abs() < 1e-6);
        let compared = one.steered.as_ref().map(|steered| (steered.granted, steered.push));
        let Some((Some(granted), Some(push))) = compared else { panic!("{:?}", one.steered) };
        assert!(granted.complete > 0 && push.complete > 0, "{granted:?} {push:?}");
    }
    assert_eq!(builders.iter().map(|one| one.events.offered).sum::<u64>(), 60);
}

/// A front end that connects upon the line is never refused.
#[test]
fn line_for_front_ends_is_printed_once_the_builder_listens() {
    let shown: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = shown.clone();
    let announce = move |line: &str| {
        let address = line.split([' ', ',']).nth(2).expect("an address");
        TcpStream::connect(address).expect("the builder listens");
        seen.lock().unwrap().push(line.to_owned());
    };
    let host = HostContext { announce: Some(Arc::new(announce)), ..host() };
    let all = json!({ "sources": 3, "front_ends": 1, "builders": 2 });
    let trial = Trial::on(&host, &settings(all.clone()));
    let facts = &trial.facts;
    let lines: Vec<String> = facts
        .addresses
        .iter()
        .zip(&facts.groups)
        .map(|(at, group)| {
            let run = facts.run;
            format!("builder at {at}, orders at {group}, run {run}; waiting for 1 front end, up to 30 s")
        })
        .collect();
    assert_eq!(*shown.lock().unwrap(), lines);
    drop(trial);
    Trial::on(&host, &settings(merged(all, json!({ "front_ends": 0 }))));
    assert_eq!(shown.lock().unwrap().len(), 2, "without front ends nothing is printed");
}

#[test]
fn overloaded_builder_builds_and_stops_on_request() {
    for builders in [1, 2] {
        let more = json!({
            "sources": 2, "time": "60s", "triggers": "bursts 10000 100/s", "builders": builders, "window": 2,
        });
        let settings = settings(more);
        let mut trial = Trial::new(&settings);
        trial.connect(&settings).expect("the sources connect");
        trial.start();
        trial.wait_until_done(0.02);
        let asked = Instant::now();
        let (reports, _) = trial.end();
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
        for one in reports {
            assert!(one.ended_early && one.events.complete > 10, "{:?}", one.events);
            assert!(one.events.vetoed > one.events.complete, "{:?}", one.events);
        }
    }
}
