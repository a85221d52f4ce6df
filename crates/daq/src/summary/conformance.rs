//! Which rules of the wire format (docs/daq-wire.md) front ends kept, as far as the builders saw it.

use std::collections::BTreeMap;

use base::format::plural;
use base::outcome::Table;

use super::super::missing_sources;
use super::super::report::{BuilderReport, SourceSeen, counted};
use super::super::settings::{Carrier, DaqSettings, Orders};
use super::super::trial_reports::TrialReports;
use super::sources::clock_sources;

/// Why messages are refused (see [`crate::report::REASONS`]), by the rule that they break.
const NO_HELLO: &[&str] = &["no_hello", "incomplete_hello"];
const WRONG_HELLO: &[&str] = &["configuration", "duplicate_source", "no_group"];
const WRONG_NAMES: &[&str] = &["wrong_run", "wrong_builder", "unknown_source"];
const WRONG_BYTES: &[&str] = &["bad_header", "header_checksum", "wrong_version", "wrong_kind"];
const WRONG_ADDRESS: &[&str] = &["wrong_address"];
const WRONG_CHECKSUM: &[&str] = &["payload_checksum"];
const WRONG_LENGTH: &[&str] = &["payload_length", "too_large"];
const WRONG_EVENT: &[&str] = &["never_triggered", "from_the_past"];

enum State {
    Kept,
    /// What was seen instead.
    Broken(String),
    /// Nothing put the rule to the test.
    NotSeen,
}

impl State {
    /// Broken if anything else was seen.
    fn of_seen(seen: String, was_tested: bool) -> Self {
        match (seen.is_empty(), was_tested) {
            (true, true) => Self::Kept,
            (true, false) => Self::NotSeen,
            (false, _) => Self::Broken(seen),
        }
    }

    fn of_fragments(count: u64, was_tested: bool) -> Self {
        Self::of_seen(if count > 0 { plural(count, "fragment") } else { String::new() }, was_tested)
    }

    fn of_sources(sources: &[u32], was_tested: bool) -> Self {
        let seen = missing_sources::text(sources.len() as u32, sources);
        Self::of_seen(if sources.is_empty() { String::new() } else { seen }, was_tested)
    }

    /// By the counts of `reasons`, each with its name.
    fn of_reasons(counts: &BTreeMap<String, u64>, reasons: &[&[&str]], was_tested: bool) -> Self {
        let named = reasons.iter().copied().flatten().filter_map(|reason| {
            let count = counts.get(*reason).filter(|count| **count > 0)?;
            Some(counted(reason, *count))
        });
        Self::of_seen(named.collect::<Vec<_>>().join(", "), was_tested)
    }
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
    let is_udp = settings.protocol == Carrier::Udp;
    let (has_ended, has_sent) = (reports.events().triggered > 0, seen().any(|seen| seen.fragments > 0));
    let repeats: u64 = builders.iter().map(|builder| builder.orders.repeated + builder.orders.unicast).sum();
    let clocks: Vec<_> = builders
        .iter()
        .flat_map(|builder| &builder.clocks)
        .filter(|clock| clock.source_range.is_some_and(|(_, last)| u64::from(last) >= first))
        .collect();
    let has_answers = clocks.iter().any(|clock| clock.probes > 0);
    let contradictory: Vec<String> =
        clocks.iter().filter(|clock| clock.contradictory).map(|clock| clock_sources(clock)).collect();
    let refused = |reasons: &[&[&str]]| State::of_reasons(&ledger.refused, reasons, has_sent);
    let turned_away =
        |reasons: &[&[&str]], was_tested| State::of_reasons(&ledger.turned_away, reasons, was_tested);
    let hello = [WRONG_NAMES, WRONG_HELLO, WRONG_BYTES, WRONG_CHECKSUM, WRONG_LENGTH];
    let multicast = match (settings.orders, builders.iter().find_map(|builder| builder.orders_note.as_ref()))
    {
        (Orders::Multicast, None) => State::Kept,
        _ => State::NotSeen,
    };
    vec![
        ("a whole hello first, within 5 s", turned_away(&[NO_HELLO], has_ended)),
        ("first messages that fit this run", turned_away(&hello, has_ended)),
        ("datagrams from the address in the hello", turned_away(&[WRONG_ADDRESS], is_udp && has_sent)),
        ("one hello for each connection", refused(&[WRONG_HELLO])),
        ("headers, kinds and header checksums", refused(&[WRONG_BYTES])),
        ("payload checksums", refused(&[WRONG_CHECKSUM])),
        ("payload lengths", refused(&[WRONG_LENGTH])),
        ("run, builder and source in each header", refused(&[WRONG_NAMES])),
        ("fragments of triggered events only", refused(&[WRONG_EVENT])),
        ("a fragment for each order", State::of_sources(&with(|seen| seen.missed > 0), has_ended)),
        ("fragments before the timeout", State::of_fragments(ledger.late, has_sent)),
        ("one fragment for each event", State::of_fragments(ledger.duplicate, has_sent)),
        (
            "one fragment even if the order is repeated",
            match repeats {
                0 => State::NotSeen,
                _ => State::of_fragments(ledger.duplicate, true),
            },
        ),
        ("answers to multicast probes", multicast),
        ("answers to clock probes", if has_answers { State::Kept } else { State::NotSeen }),
        ("clock answers that agree", State::of_seen(contradictory.join(", "), has_answers)),
        (
            "send times between trigger and arrival",
            State::of_sources(&with(|seen| seen.implausible_times > 0), has_sent && !clocks.is_empty()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::report::REASONS;
    use super::*;

    /// Neither a broken rule nor a missing explanation: memory is the builder's own.
    const NO_RULE: &[&str] = &["no_memory"];

    #[test]
    fn every_reason_breaks_a_rule_and_is_explained_on_the_page() {
        let page = include_str!("../../../../docs/daq-wire.md");
        let table = page.split_once("| reason | meaning |").unwrap().1.split_once("\n\n").unwrap().0;
        let rules = [
            NO_HELLO,
            WRONG_HELLO,
            WRONG_NAMES,
            WRONG_BYTES,
            WRONG_ADDRESS,
            WRONG_CHECKSUM,
            WRONG_LENGTH,
            WRONG_EVENT,
            NO_RULE,
        ]
        .concat();
        assert_eq!(rules.len(), REASONS.len(), "{rules:?}");
        for reason in REASONS {
            assert!(rules.contains(reason), "{reason} breaks no rule");
            assert!(table.contains(&reason.replace('_', " ")), "{reason} is not on the page");
        }
    }
}
