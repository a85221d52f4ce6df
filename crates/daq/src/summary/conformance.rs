//! Which rules of the wire format (docs/daq-wire.md) front ends kept, as far as the builders saw it.

use std::collections::BTreeMap;

use base::outcome::Table;

use super::super::missing_sources;
use super::super::report::{BuilderReport, SourceSeen};
use super::super::settings::{DaqSettings, Orders};
use super::super::trial_reports::TrialReports;
use super::sources::clock_sources;

enum State {
    Kept,
    /// What was seen instead.
    Broken(String),
    /// Nothing put the rule to the test.
    NotSeen,
}

impl State {
    fn of_count(count: u64, was_tested: bool) -> Self {
        match (count, was_tested) {
            (0, true) => Self::Kept,
            (0, false) => Self::NotSeen,
            _ => Self::Broken(format!("{count} times")),
        }
    }

    fn of_sources(sources: &[u32], was_tested: bool) -> Self {
        match (sources, was_tested) {
            ([], true) => Self::Kept,
            ([], false) => Self::NotSeen,
            _ => Self::Broken(missing_sources::text(sources.len() as u32, sources)),
        }
    }
}

fn sum(counts: &BTreeMap<String, u64>, reasons: &[&str]) -> u64 {
    reasons.iter().filter_map(|reason| counts.get(*reason)).sum()
}

/// A row per rule: kept, broken or not seen.
pub(super) fn front_ends(settings: &DaqSettings, reports: &TrialReports) -> Option<Table> {
    let builders = reports.builders();
    if settings.front_ends == 0 || builders.is_empty() {
        return None;
    }
    let rows = rules(settings, reports, &builders).into_iter().map(|(rule, state)| {
        let (state, seen) = match state {
            State::Kept => ("kept", String::new()),
            State::Broken(seen) => ("broken", seen),
            State::NotSeen => ("not seen", String::new()),
        };
        vec![rule.into(), state.into(), seen.into()]
    });
    let notes = vec!["as far as the builders saw it; try push, grant and pull, over TCP and UDP".to_owned()];
    let columns = [("rule", ""), ("", ""), ("seen", "")];
    Some(Table { rows: rows.collect(), notes, ..Table::new("Front ends and the wire format", &columns) })
}

fn rules(
    settings: &DaqSettings,
    reports: &TrialReports,
    builders: &[&BuilderReport],
) -> Vec<(&'static str, State)> {
    let first = settings.sources.saturating_sub(settings.front_ends);
    let seen = || {
        let all = builders.iter().flat_map(|builder| &builder.sources_seen);
        all.filter(|seen| u64::from(seen.source) >= first)
    };
    let with = |is: fn(&SourceSeen) -> bool| {
        let mut sources: Vec<u32> = seen().filter(|seen| is(seen)).map(|seen| seen.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    };
    let ledger = reports.ledger();
    let refused = |reasons: &[&str]| sum(&ledger.refused, reasons);
    let turned_away = |reasons: &[&str]| sum(&ledger.turned_away, reasons);
    let (has_ended, has_sent) = (reports.events().triggered > 0, seen().any(|seen| seen.fragments > 0));
    let repeats: u64 = builders.iter().map(|builder| builder.orders.repeated + builder.orders.unicast).sum();
    let clocks: Vec<_> = builders
        .iter()
        .flat_map(|builder| &builder.clocks)
        .filter(|clock| clock.source_range.is_some_and(|(_, last)| u64::from(last) >= first))
        .collect();
    let contradictory: Vec<String> =
        clocks.iter().filter(|clock| clock.contradictory).map(|clock| clock_sources(clock)).collect();
    let hellos = ["no_hello", "incomplete_hello", "configuration", "duplicate_source", "wrong_version"];
    let bytes = ["bad_header", "header_checksum", "wrong_version", "wrong_kind"];
    let names = ["wrong_run", "wrong_builder", "unknown_source"];
    let multicast = match (settings.orders, builders.iter().find_map(|builder| builder.orders_note.as_ref()))
    {
        (Orders::Multicast, None) => State::Kept,
        _ => State::NotSeen,
    };
    vec![
        ("a whole hello first, within 5 s", State::of_count(turned_away(&hellos), has_ended)),
        ("headers, kinds and header checksums", State::of_count(refused(&bytes), has_sent)),
        ("payload checksums", State::of_count(refused(&["payload_checksum"]), has_sent)),
        ("payload lengths", State::of_count(refused(&["payload_length", "too_large"]), has_sent)),
        ("run, builder and source in each header", State::of_count(refused(&names), has_sent)),
        (
            "fragments of triggered events only",
            State::of_count(refused(&["never_triggered", "from_the_past"]), has_sent),
        ),
        ("a fragment for each order", State::of_sources(&with(|seen| seen.missed > 0), has_ended)),
        ("one fragment for each event", State::of_count(ledger.duplicate, has_sent)),
        ("one fragment even if the order is repeated", State::of_count(ledger.duplicate, repeats > 0)),
        ("answers to multicast probes", multicast),
        (
            "answers to clock probes",
            if clocks.iter().any(|clock| clock.probes > 0) { State::Kept } else { State::NotSeen },
        ),
        (
            "clock answers that agree",
            match contradictory.is_empty() {
                true => State::of_count(0, clocks.iter().any(|clock| clock.probes > 0)),
                false => State::Broken(contradictory.join(", ")),
            },
        ),
        (
            "send times between trigger and arrival",
            State::of_sources(&with(|seen| seen.implausible_times > 0), has_sent && !clocks.is_empty()),
        ),
    ]
}
