//! Losses planted on the wire between sources and builder: the result names them as the kernel counted them.
//! Needs root.

use std::time::{Duration, Instant};

use crate::scripted_builder::until;
use crate::trial::{Trial, merged, settings};
use crate::wire_pair::{BUILDER, Wire};
use base::outcome::{Cell, Table};
use daq::judge::judge;
use daq::report::{BuildersReport, SourcesReport};
use daq::settings::DaqSettings;
use daq::trial_reports::TrialReports;
use serde_json::{Value, json};

const SOURCES: u64 = 3;
/// Events whose fragments are lost.
const CUTS: u64 = 3;
/// How long the wire is cut at most.
const CUT_MAX: Duration = Duration::from_secs(3);

fn over_the_wire(more: Value) -> DaqSettings {
    let all = json!({
        "sources": SOURCES, "listen": format!("{BUILDER}:0"), "congestion_control": "reno", "triggers": "5/s",
    });
    settings(merged(all, more))
}

/// Builder and sources at both ends of the wire, connected.
fn connected(wire: &Wire, settings: &DaqSettings) -> Trial {
    let mut trial = wire.builder.within(|| Trial::new(settings)).unwrap();
    wire.sources.within(|| trial.connect(settings)).unwrap().expect("the sources connect");
    trial
}

fn complete(trial: &mut Trial) -> f64 {
    trial.builder.live().get("events").copied().unwrap_or(0.0)
}

fn reports(trial: &mut Trial) -> TrialReports {
    trial.wait();
    let (builders, sources) = trial.end();
    TrialReports { hosts: vec![BuildersReport { builders }], sources: vec![sources] }
}

/// What was reported, and what the kernel counted of the sources' host: segments retransmitted, timeouts.
struct Planted {
    causes: Table,
    sources: SourcesReport,
    retransmitted: u64,
    timeouts: u64,
}

impl Planted {
    fn events(&self, cause: &str) -> f64 {
        let row = self.causes.rows.iter().find(|row| row[0] == cause.into());
        row.map_or(0.0, |row| match row[1] {
            Cell::Number(count) => count,
            _ => panic!("not a count: {row:?}"),
        })
    }

    fn of_sources(&self, count: fn(&daq::report::SourceSent) -> Option<u64>) -> u64 {
        self.sources.sources.iter().map(|source| count(source).expect("TCP counts it")).sum()
    }
}

/// Loses every fragment of [`CUTS`] events, and `lost_again` retransmissions of each.
fn plant(wire: &Wire, lost_again: u64) -> Planted {
    let settings = over_the_wire(json!({ "events": 4 * CUTS }));
    let mut trial = connected(wire, &settings);
    let before = wire.counters();
    trial.start();
    for _ in 0..CUTS {
        let from = complete(&mut trial);
        // The next event begins in 200 ms.
        until("events without a loss", || complete(&mut trial) >= from + 2.0);
        wire.cut(true);
        let at = wire.segments();
        let lost = || {
            let (sent, again) = wire.segments();
            sent >= at.0 + SOURCES && again >= at.1 + lost_again * SOURCES
        };
        let (cut_at, complete_before) = (Instant::now(), complete(&mut trial));
        // A wire that was cut late, within an event, loses less: the kernel's counters show it.
        while !lost() && cut_at.elapsed() < CUT_MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
        wire.cut(false);
        until("the event", || complete(&mut trial) > complete_before);
    }
    let reports = reports(&mut trial);
    let after = wire.counters();
    let since = |now: Option<u64>, then: Option<u64>| now.expect("known") - then.expect("known");
    let tables = judge(&settings, &reports).account.tables;
    Planted {
        causes: tables.into_iter().find(|table| table.title == "Why events took long").expect("causes"),
        sources: reports.sources[0].clone(),
        retransmitted: since(after.segments_retransmitted, before.segments_retransmitted),
        timeouts: since(after.timeouts, before.timeouts),
    }
}

/// The same, until the kernel counted what was to be planted: a busy machine may be late with the wire.
fn planted(lost_again: u64, is_planted: impl Fn(&Planted) -> bool) -> Option<Planted> {
    if !sys::environment::is_root() {
        features::skip("needs root");
        return None;
    }
    let wire = Wire::new(&format!("cause{lost_again}"));
    let mut tries = std::iter::repeat_with(|| plant(&wire, lost_again)).take(4);
    Some(tries.find(is_planted).expect("the kernel counted what was planted"))
}

#[test]
fn tail_loss_probes_are_the_cause_where_the_kernel_counted_no_timeout() {
    let is_planted = |it: &Planted| it.timeouts == 0 && it.retransmitted >= CUTS * SOURCES;
    let Some(planted) = planted(0, is_planted) else { return };
    assert_eq!(planted.events("lost, tail-loss probe"), CUTS as f64, "{:?}", planted.causes);
    assert_eq!(planted.events("lost, retransmission timeout"), 0.0, "{:?}", planted.causes);
    assert_eq!(planted.of_sources(|source| source.timeouts), 0);
    assert_eq!(planted.of_sources(|source| source.retransmits), planted.retransmitted);
}

#[test]
fn timeouts_are_the_cause_where_the_kernel_counted_them() {
    // The probe and the first timeout's retransmission are lost as well.
    let Some(planted) = planted(2, |planted| planted.timeouts >= CUTS * SOURCES) else { return };
    assert_eq!(planted.events("lost, retransmission timeout"), CUTS as f64, "{:?}", planted.causes);
    assert_eq!(planted.events("lost, tail-loss probe"), 0.0, "{:?}", planted.causes);
    assert_eq!(planted.of_sources(|source| source.timeouts), planted.timeouts);
    assert_eq!(planted.of_sources(|source| source.retransmits), planted.retransmitted);
}

/// The builder closes connections without a hello after 5 s; TCP repeats a lost hello ever more rarely.
#[test]
fn sources_whose_hello_was_lost_until_the_deadline_connect_again() {
    if !sys::environment::is_root() {
        return features::skip("needs root");
    }
    let wire = Wire::new("hello");
    let settings = over_the_wire(json!({ "events": 10 }));
    // Handshakes pass, hellos do not.
    wire.pass_to_builder(100);
    let mut trial = connected(&wire, &settings);
    trial.start();
    // The next retransmission comes after the deadline: their intervals double from 0.2 s.
    until("what is lost", || wire.counters().segments_retransmitted >= Some(5 * SOURCES));
    wire.pass_to_builder(1500);
    let reports = reports(&mut trial);
    let judgement = judge(&settings, &reports);
    assert_eq!(reports.sources[0].broke_off, None);
    assert_eq!(judgement.verdict, base::verdict::Verdict::Pass, "{:?}", judgement.reasons);
    assert_eq!(reports.sources[0].reconnected, SOURCES);
    assert_eq!(reports.ledger().turned_away, [("no_hello".to_owned(), SOURCES)].into());
}
