//! The tables of sources and their clocks.

use std::collections::{BTreeMap, BTreeSet};

use base::format::plural;
use base::outcome::Table;

use super::super::report::{GroupClock, SourceSeen, SourceSent};
use super::super::settings::{DaqSettings, Pattern};
use super::super::trial_reports::TrialReports;
use super::tables::seconds;

const SOURCES_SHOWN: usize = 10;
/// Groups of sources whose clock is listed.
const CLOCKS_SHOWN: usize = 16;

#[derive(Default)]
struct Known<'a> {
    seen: Vec<&'a SourceSeen>,
    sent: Option<(&'a SourceSent, Option<&'a str>)>,
}

impl Known<'_> {
    fn missed(&self) -> u64 {
        self.seen.iter().map(|seen| seen.missed).sum()
    }

    fn last(&self) -> u64 {
        self.seen.iter().map(|seen| seen.last).sum()
    }

    fn p99_us(&self) -> Option<f64> {
        self.seen.iter().filter_map(|seen| seen.delay_p99_us).max_by(f64::total_cmp)
    }
}

/// The sources that events waited for: first the most often missing, then the most often last ones.
pub(super) fn worst(settings: &DaqSettings, reports: &TrialReports) -> Option<Table> {
    let is_push = settings.pattern == Pattern::Push;
    let mut all: BTreeMap<u32, Known<'_>> = BTreeMap::new();
    for seen in reports.builders().into_iter().flat_map(|builder| &builder.sources_seen) {
        all.entry(seen.source).or_default().seen.push(seen);
    }
    for host in &reports.sources {
        for sent in &host.sources {
            all.entry(sent.source).or_default().sent = Some((sent, host.host.as_deref()));
        }
    }
    let means = reports.delays_us();
    let events = reports.events();
    let ended = events.complete + events.incomplete;
    if ended == 0 {
        return None;
    }
    // A source's percentile cannot exceed that of the events that it belongs to.
    let p99_ns = reports.merged(|builder| &builder.completion).percentile_ns(99.0);
    let p99_max_us = p99_ns.filter(|_| events.incomplete == 0).map_or(f64::INFINITY, |ns| ns as f64 / 1e3);
    let several = reports.sources.len() > 1;
    let mut sorted: Vec<_> = all.iter().collect();
    sorted.sort_by(|(_, a), (_, b)| {
        let p99 = |known: &Known<'_>| known.p99_us().unwrap_or(0.0);
        // The order of grants decides who comes last, not the sources.
        let waited = |known: &Known<'_>| (known.missed(), if is_push { known.last() } else { 0 });
        waited(b).cmp(&waited(a)).then(p99(b).total_cmp(&p99(a)))
    });
    let row = |(source, known): &(&u32, &Known<'_>)| {
        let from_us = |us: Option<f64>| us.map(|us| us / 1e6).into();
        let of_tcp = |of: fn(&SourceSent) -> Option<u64>| known.sent.and_then(|(sent, _)| of(sent)).into();
        let name = match known.sent.and_then(|(_, host)| host).filter(|_| several) {
            Some(host) => format!("{source} on {host}"),
            None => source.to_string(),
        };
        vec![
            name.into(),
            from_us(means.get(source).copied()),
            from_us(known.p99_us().map(|us| us.min(p99_max_us))),
            (100.0 * known.last() as f64 / ended as f64).into(),
            known.missed().into(),
            of_tcp(|sent| sent.retransmits),
            of_tcp(|sent| sent.timeouts),
            of_tcp(|sent| sent.dsacks),
        ]
    };
    let rows: Vec<_> = sorted.iter().take(SOURCES_SHOWN).map(row).collect();
    let columns = [
        ("source", ""),
        ("delay, mean", "s"),
        ("p99", "s"),
        ("last", "%"),
        ("missed", ""),
        ("retransmitted", ""),
        ("timeouts", ""),
        ("unneeded", ""),
    ];
    let mut notes = controls(reports);
    let from = if is_push { "trigger" } else { "its own order" };
    notes.push(format!(
        "delay: {from} to its fragment; last: share of events that it completed; missed: events without its \
         fragment; unneeded: retransmissions of what had arrived"
    ));
    Some(Table { rows, notes, ..Table::new("Sources that events waited for", &columns) })
}

fn controls(reports: &TrialReports) -> Vec<String> {
    let builders = reports.builders();
    let seen = builders.iter().flat_map(|builder| &builder.sources_seen);
    let names: BTreeSet<&str> = seen.filter_map(|seen| seen.congestion_control.as_deref()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.is_empty() { Vec::new() } else { vec![format!("congestion control: {}", names.join(", "))] }
}

/// Offsets of the sources' clocks from the builder's.
pub(super) fn clocks(reports: &TrialReports) -> Option<Table> {
    let builders = reports.builders();
    let all: Vec<_> = builders
        .iter()
        .flat_map(|builder| builder.clocks.iter().map(|clock| (builder.builder, clock)))
        .collect();
    let row = |(builder, clock): &(u16, &GroupClock)| {
        vec![
            builder.to_string().into(),
            of_group(clock).into(),
            clock.offset_ns.map(|offset| offset as f64 / 1e9).into(),
            seconds(clock.bound_ns),
            clock.drift_ppm.into(),
            clock.probes.into(),
            clock.violations.into(),
        ]
    };
    let mut notes = Vec::new();
    if all.len() > CLOCKS_SHOWN {
        notes.push(format!("and {} more groups", all.len() - CLOCKS_SHOWN));
    }
    if all.iter().any(|(_, clock)| clock.same_kernel) {
        notes.push(
            "on the builder's host the true offset is 0; 'missed' (offsets wrong by more than 'error at \
             most') must be 0 there"
                .to_owned(),
        );
    }
    let columns = [
        ("builder", ""),
        ("sources", ""),
        ("offset", "s"),
        ("error at most", "s"),
        ("drift", "ppm"),
        ("probes", ""),
        ("missed", ""),
    ];
    let rows = all.iter().take(CLOCKS_SHOWN).map(row).collect();
    Some(Table { rows, notes, ..Table::new("Clocks of the sources relative to the builder's", &columns) })
}

/// "sources 0-124", for sentences.
pub(crate) fn clock_sources(clock: &GroupClock) -> String {
    match clock.source_range {
        None => of_group(clock),
        Some((first, last)) if first == last => format!("source {first}"),
        Some(_) => format!("sources {}", of_group(clock)),
    }
}

/// "0-124": the sources that share a clock; "3 of 0-9" if others are between them.
fn of_group(clock: &GroupClock) -> String {
    // Another host's report may contain any number.
    let known = clock.source_range.and_then(|(first, last)| Some((first, last, last.checked_sub(first)?)));
    match known {
        None => plural(clock.sources.into(), "source"),
        Some((first, _, 0)) => first.to_string(),
        Some((first, last, more)) if more < clock.sources => format!("{first}-{last}"),
        Some((first, last, _)) => format!("{} of {first}-{last}", clock.sources),
    }
}
