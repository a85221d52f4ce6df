//! Front ends that are not kagiri's: nothing is claimed of them that nothing shows.

use crate::scripted_source::{ScriptedSource, header};
use crate::trial::{Trial, merged, settings};
use daq::judge::judge;
use daq::report::{BuilderReport, BuildersReport, Cause};
use daq::settings::DaqSettings;
use daq::trial_reports::TrialReports;
use daq::wire::{FragmentHeader, Kind};
use serde_json::{Value, json};

const PAYLOAD: [u8; 100] = [7; 100];

/// Two front ends, with orders over their connections.
fn two(more: Value) -> DaqSettings {
    let all = json!({ "sources": 2, "front_ends": 2, "size": "100B", "orders": "tcp", "timeout": "300ms" });
    settings(merged(all, more))
}

/// What the program prints and stores of a trial, as text.
fn account(settings: &DaqSettings, report: &BuilderReport) -> String {
    let hosts = vec![BuildersReport { builders: vec![report.clone()] }];
    let judgement = judge(settings, &TrialReports { hosts, sources: Vec::new() });
    format!("{:?} {:?} {:?}", judgement.account, judgement.doubts, judgement.metrics)
}

/// A front end's thread that sends each ordered fragment, changed or not at all, until the stop order.
fn serve(
    mut source: ScriptedSource,
    change: impl Fn(&mut FragmentHeader) -> bool + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(order) = source.order() {
            let mut fragment = header(Kind::Fragment, source.run, source.source, order.event, &PAYLOAD);
            if change(&mut fragment) {
                source.write(&[&fragment.encode()[..], &PAYLOAD].concat());
            }
        }
    })
}

#[test]
fn silent_front_end_is_told_as_silent_not_as_loss() {
    let settings = two(json!({ "events": 5 }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let [silent, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let report = trial.finish([serve(silent, |_| false), serve(honest, |_| true)]);
    assert_eq!((report.events.complete, report.events.incomplete), (0, 5));
    assert_eq!(report.causes, [(Cause::Silent, 5)].into());
    assert!(report.slow.iter().all(|slow| slow.source == 0), "{:?}", report.slow);
    let said = account(&settings, &report);
    assert!(said.contains("waited for a connected source that sent nothing"), "{said}");
    for invented in ["retransmission timeout", "tail-loss", "overflowed the port", "events waited for lost"] {
        assert!(!said.contains(invented), "{invented}: {said}");
    }
}

#[test]
fn slow_front_end_has_an_unknown_cause_without_its_counters() {
    let settings = two(json!({ "events": 40, "timeout": "10s" }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let [slow, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    // It reads its clock and then sleeps: nothing was lost, and the kernel retransmits nothing.
    let slow = serve(slow, |fragment| {
        if fragment.event % 20 == 19 {
            std::thread::sleep(std::time::Duration::from_millis(210));
        }
        true
    });
    let report = trial.finish([slow, serve(honest, |_| true)]);
    assert_eq!((report.events.complete, report.events.incomplete), (40, 0));
    assert!(report.causes[&Cause::Unknown] >= 2, "{:?}", report.causes);
    let said = account(&settings, &report);
    for invented in ["retransmission timeout", "tail-loss", "waited in a queue", "events waited for lost"] {
        assert!(!said.contains(invented), "{invented}: {said}");
    }
}

#[test]
fn absurd_send_times_are_unknown_and_named() {
    let absurd: [fn(u64) -> u64; 4] =
        [|_| 0, |_| u64::MAX, |ns| ns + 3_000_000_000_000, |ns| ns.saturating_sub(20_000_000)];
    for absurd in absurd {
        let settings = two(json!({ "events": 20, "timeout": "10s" }));
        let mut trial = Trial::new(&settings);
        let facts = trial.facts.clone();
        let [liar, honest] = [0, 1].map(|source| {
            let mut source = ScriptedSource::silent(&facts, source);
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap().to_be_bytes();
            source.send_hello(|_, hello| hello.boot = boot);
            source
        });
        trial.start();
        let liar = serve(liar, move |fragment| {
            fragment.sent_ns = absurd(fragment.sent_ns);
            true
        });
        let report = trial.finish([liar, serve(honest, |_| true)]);
        assert_eq!((report.events.complete, report.ledger.built), (20, 40));
        let counts: Vec<_> = report.sources_seen.iter().map(|seen| seen.implausible_times).collect();
        assert_eq!(counts, [20, 0]);
        // The honest source alone has no skew, and a known clock.
        assert_eq!(report.skew.max_ns().unwrap_or(0), 0, "{:?}", report.skew);
        let said = account(&settings, &report);
        assert!(said.contains("SendTimesImplausible") || said.contains("send times of source 0"), "{said}");
    }
}
