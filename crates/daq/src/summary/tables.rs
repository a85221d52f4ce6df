//! The tables of events, times, fragments, causes, credit and orders.

use base::format::{number, plural, quantity};
use base::histogram::Histogram;
use base::outcome::{Cell, Table};

use super::super::missing_sources;
use super::super::report::{BuilderReport, Cause, Incomplete, SlowEvent, SourcesReport};
use super::super::settings::{DaqSettings, Pattern};
use super::super::slow_event_causes;
use super::super::trial_reports::TrialReports;

/// Rows of events that a table lists.
const EVENTS_SHOWN: usize = 10;

/// The triggers of the hold by outcome, per builder.
pub(super) fn events(settings: &DaqSettings, reports: &TrialReports) -> Option<Table> {
    let row = |name: String, of: &[&BuilderReport]| {
        let sum = |count: fn(&BuilderReport) -> u64| of.iter().map(|builder| count(builder)).sum::<u64>();
        vec![
            name.into(),
            sum(|builder| builder.events.offered).into(),
            sum(|builder| builder.events.vetoed).into(),
            sum(|builder| builder.events.triggered).into(),
            sum(|builder| builder.events.complete).into(),
            sum(|builder| builder.events.incomplete).into(),
            sum(|builder| builder.events.unfinished).into(),
        ]
    };
    let mut notes = vec![
        "due: vetoed (window or memory full) + triggered; incomplete: given up after --timeout; unfinished: \
         in progress at the end"
            .to_owned(),
    ];
    notes.extend(carried(settings, reports));
    notes.extend(cliff(settings, reports));
    let counts =
        ["due", "vetoed", "triggered", "complete", "incomplete", "unfinished"].map(|name| (name, ""));
    let columns = [&[("builder", "")], &counts[..]].concat();
    Some(Table { rows: by_builder(reports, row), notes, ..Table::new("Events", &columns) })
}

/// The most that was in progress at once.
pub(super) fn held(reports: &TrialReports) -> Option<Table> {
    let row = |name: String, of: &[&BuilderReport]| {
        let most = |value: fn(&BuilderReport) -> u64| of.iter().map(|builder| value(builder)).max();
        vec![
            name.into(),
            most(|builder| builder.outstanding_max.into()).unwrap_or(0).into(),
            most(|builder| builder.memory_bytes_max).unwrap_or(0).into(),
        ]
    };
    let columns = [("builder", ""), ("events", ""), ("memory", "B")];
    Some(Table { rows: by_builder(reports, row), ..Table::new("Maximum in progress", &columns) })
}

/// A time that was counted in ns, in s.
pub(super) fn seconds(ns: Option<u64>) -> Cell {
    ns.map(|ns| ns as f64 / 1e9).into()
}

/// A row per builder whose hold began, and a row of totals for several.
fn by_builder(
    reports: &TrialReports,
    row: impl Fn(String, &[&BuilderReport]) -> Vec<Cell>,
) -> Vec<Vec<Cell>> {
    let mut builders = reports.builders();
    builders.retain(|builder| builder.has_held());
    let mut rows: Vec<_> =
        builders.iter().map(|builder| row(format!("builder {}", builder.builder), &[builder])).collect();
    if builders.len() > 1 {
        rows.push(row("all".to_owned(), &builders));
    }
    rows
}

/// Where the port's buffer overflows, if its size is given.
fn cliff(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let buffer = settings.buffer?;
    let Some(cliff) = reports.cliff_sources(settings) else {
        let lacks_rate = settings.pattern == Pattern::Push && reports.link_bit_per_s(settings).is_none();
        return lacks_rate.then(|| {
            format!(
                "the number of fragments that the port's buffer of {buffer} holds is unknown: set the port's \
                 rate (--link)"
            )
        });
    };
    let then = match settings.pattern {
        Pattern::Push | Pattern::Bulk => "with more sources some may be lost",
        Pattern::Grant | Pattern::Pull => "with a larger credit some may be lost",
    };
    Some(format!("by arithmetic the port's buffer of {buffer} holds {cliff:.0} fragments at once: {then}"))
}

/// The rates of payload and wire, and the possible event rate.
fn carried(settings: &DaqSettings, reports: &TrialReports) -> Option<String> {
    let rate = |bit_per_s: f64| quantity(Some(bit_per_s), "bit/s");
    let payload = rate(reports.per_s(|builder| builder.payload_bytes)? * 8.0);
    let wire = rate(reports.per_s(|builder| builder.wire_bytes)? * 8.0);
    let ideal = reports.ideal_events_per_s(settings).zip(reports.link_bit_per_s(settings));
    let ideal =
        ideal.map(|(ideal, link)| format!("; {} allows at most {} events/s", rate(link), number(ideal)));
    Some(format!("{payload} of payload, {wire} with all headers{}", ideal.unwrap_or_default()))
}

pub(super) fn latency(reports: &TrialReports) -> Option<Table> {
    let row = |name: &str, times: &Histogram| {
        (times.count() > 0).then(|| {
            let mut row = vec![name.into()];
            row.extend([50.0, 90.0, 99.0, 99.9, 99.99].map(|percent| seconds(times.percentile_ns(percent))));
            row.extend([seconds(times.max_ns()), times.count().into()]);
            row
        })
    };
    let mut own = Histogram::default();
    for host in &reports.sources {
        own.merge(&host.own_delay);
    }
    let rows = [
        row("trigger to last fragment", &reports.merged(|builder| &builder.completion)),
        row("trigger to first fragment", &reports.merged(|builder| &builder.first_fragment)),
        row("first to last fragment", &reports.merged(|builder| &builder.spread)),
        row("first to last send time", &reports.merged(|builder| &builder.skew)),
        row("order to send, with warm-up", &own),
        row("trigger to recovered fragment", &reports.merged(|builder| &builder.recovery)),
    ];
    let builders = reports.builders();
    let bounds = builders.iter().flat_map(|builder| &builder.clocks).filter_map(|clock| clock.bound_ns);
    let bound = bounds
        .max()
        .map(|bound| format!("clock error of send times: at most {}", seconds(Some(bound)).text("s")));
    let columns = [
        ("interval", ""),
        ("p50", "s"),
        ("p90", "s"),
        ("p99", "s"),
        ("p99.9", "s"),
        ("p99.99", "s"),
        ("max", "s"),
        ("count", ""),
    ];
    Some(Table {
        rows: rows.into_iter().flatten().collect(),
        notes: bound.into_iter().collect(),
        ..Table::new("Times", &columns)
    })
}

/// Where the fragments are: sent = built + in incomplete events + late + duplicate + refused + lost.
pub(super) fn ledger(settings: &DaqSettings, reports: &TrialReports) -> Option<Table> {
    if reports.hosts.is_empty() {
        return None;
    }
    let ledger = reports.ledger();
    let balance = reports.balance(settings);
    let mut rows = Vec::new();
    let mut row = |name: &str, count: u64, meaning: &str| {
        rows.push(vec![name.into(), count.into(), meaning.into()]);
    };
    if let Some(balance) = balance {
        row("sent", balance.sent, "handed to the sources' kernels");
        if balance.again > 0 {
            row(
                "sent again on request",
                balance.again,
                "answered requests for lost bytes; they may bring duplicates",
            );
        }
    }
    row("built", ledger.built, "part of a complete event");
    row("in incomplete events", ledger.in_incomplete, "received before their event was given up");
    row("late", ledger.late, "received after their event was given up");
    row("duplicate", ledger.duplicate, "received more than once");
    for (reason, count) in &ledger.refused {
        row(&format!("refused: {}", reason.replace('_', " ")), *count, "not used");
    }
    for (reason, count) in &ledger.turned_away {
        let reason = reason.replace('_', " ");
        row(&format!("turned away: {reason}"), *count, "not from a known source; not part of the balance");
    }
    match balance {
        Some(balance) if balance.is_cut => {
            let missing = balance.sent.saturating_sub(balance.seen);
            row("in flight or lost", missing, "the trial ended while some were in flight");
        }
        Some(balance) => {
            row("lost", balance.lost().unwrap_or(0), "sent, but not received by any builder");
            if balance.unexplained() > 0 {
                row("unexplained", balance.unexplained(), "received, but not counted by any source");
            }
        }
        None => {}
    }
    let mut notes = Vec::new();
    let cut: u64 = reports.sent().map(|source| source.cut).sum();
    if cut > 0 {
        notes.push(format!("{}, sent only in part, count as not sent", plural(cut, "fragment")));
    }
    if ledger.broken_connections > 0 {
        let broken = plural(ledger.broken_connections, "connection");
        notes.push(format!(
            "{broken} broke before the end; {} reconnected",
            plural(ledger.reconnected, "source")
        ));
    }
    if balance.is_none() {
        notes.push(
            "the number of fragments that front ends sent is unknown, so the balance cannot be checked"
                .to_owned(),
        );
    }
    let columns = [("fragments", ""), ("count", ""), ("meaning", "")];
    Some(Table { rows, notes, ..Table::new("Fragments of all events, warm-up included", &columns) })
}

pub(super) fn causes(reports: &TrialReports) -> Option<Table> {
    let counts = slow_event_causes::all(reports);
    let events = reports.events();
    let ended = (events.complete + events.incomplete).max(1) as f64;
    let row = |(cause, count): (&Cause, &u64)| {
        vec![
            slow_event_causes::word(*cause).into(),
            (*count).into(),
            (100.0 * *count as f64 / ended).into(),
            slow_event_causes::meaning(*cause).into(),
        ]
    };
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let columns = [("cause", ""), ("events", ""), ("of all", "%"), ("meaning", "")];
    Some(Table {
        rows: sorted.into_iter().map(row).collect(),
        notes: vec!["slow: over 4 x the median or the median + 20 ms, whichever is less".to_owned()],
        ..Table::new("Why events took long", &columns)
    })
}

pub(super) fn slowest(reports: &TrialReports) -> Option<Table> {
    let row = |(slow, cause): (SlowEvent, Cause)| {
        vec![
            slow.event.to_string().into(),
            seconds(Some(slow.took_ns)),
            if slow.complete { "complete" } else { "given up" }.into(),
            slow.source.to_string().into(),
            slow.sent_after_ns.map(|sent| sent as f64 / 1e9).into(),
            seconds(slow.arrived_after_ns),
            slow.repeats.into(),
            slow_event_causes::word(cause).into(),
        ]
    };
    let columns = [
        ("event", ""),
        ("took", "s"),
        ("", ""),
        ("source", ""),
        ("sent", "s"),
        ("arrived", "s"),
        ("repeats", ""),
        ("cause", ""),
    ];
    let rows = slow_event_causes::listed(reports).into_iter().take(EVENTS_SHOWN).map(row).collect();
    let notes = vec![
        "source: the one that took longest from its order or on the way, or the first missing one; sent, \
         arrived: after the trigger was due; repeats: of its trigger or grant"
            .to_owned(),
    ];
    Some(Table { rows, notes, ..Table::new("Slowest events", &columns) })
}

/// Incomplete events with their missing sources.
pub(super) fn incomplete(reports: &TrialReports) -> Option<Table> {
    let builders = reports.builders();
    let all: Vec<_> = builders.iter().flat_map(|builder| &builder.incomplete).collect();
    let row = |one: &&Incomplete| {
        vec![
            one.event.to_string().into(),
            one.missing.into(),
            missing_sources::text(one.missing, &one.sources).into(),
        ]
    };
    let rest = reports.events().incomplete.saturating_sub(EVENTS_SHOWN as u64);
    let columns = [("event", ""), ("missing", ""), ("sources", "")];
    Some(Table {
        rows: all.iter().take(EVENTS_SHOWN).map(row).collect(),
        notes: (rest > 0).then(|| format!("and {} more", plural(rest, "event"))).into_iter().collect(),
        ..Table::new("Incomplete events", &columns)
    })
}

/// The orders of the whole trial by outcome.
pub(super) fn orders(settings: &DaqSettings, reports: &TrialReports) -> Option<Table> {
    let builders = reports.builders();
    let sum = |of: fn(&BuilderReport) -> u64| Some(builders.iter().map(|builder| of(builder)).sum::<u64>());
    let of_sources = |of: fn(&SourcesReport) -> u64| Some(reports.sources.iter().map(of).sum::<u64>());
    let overflowed: Option<u64> = reports.sources.iter().map(|host| host.orders_overflowed).sum();
    let all = [
        ("triggers", sum(|builder| builder.orders.triggers), "one for each event"),
        (
            "grants",
            sum(|builder| builder.orders.grants),
            "to ranges of sources, after the trigger's own grant",
        ),
        ("pulls", sum(|builder| builder.orders.pulls), "requests to single sources"),
        (
            "repeated to all",
            sum(|builder| builder.orders.repeated),
            "no answer from a whole group of sources",
        ),
        (
            "repeated to one source",
            sum(|builder| builder.orders.unicast),
            "over its connection, after the repetition to all",
        ),
        ("requests for lost bytes", sum(|builder| builder.orders.nacks), "NACK (UDP)"),
        ("received", of_sources(|host| host.orders), "once by each process of sources"),
        ("dropped on purpose", of_sources(|host| host.orders_dropped), "fault injection (--drop-orders)"),
        ("missed", of_sources(|host| host.orders_missed), "did not arrive; a later order showed it"),
        ("overflowed", overflowed, "dropped at full sockets of the sources"),
        (
            "caught up",
            of_sources(|host| host.caught_up),
            "fragments sent because a later order arrived first",
        ),
    ];
    let rows = all.into_iter().filter(|(_, count, _)| *count != Some(0));
    let rows = rows.map(|(name, count, meaning)| vec![name.into(), count.into(), meaning.into()]);
    let recovered = builders.iter().map(|builder| builder.recovered).sum();
    let mut notes = Vec::new();
    if recovered > 0 {
        notes.push(format!("{} complete although an order was lost or late", plural(recovered, "event")));
    }
    if settings.pattern != Pattern::Push {
        let credits = builders.iter().filter_map(|builder| builder.credit).max();
        notes
            .extend(credits.map(|credit| format!("at most {} in flight", plural(credit.into(), "fragment"))));
    }
    notes.extend(builders.iter().filter_map(|builder| builder.orders_note.clone()).take(1));
    let columns = [("orders", ""), ("count", ""), ("meaning", "")];
    Some(Table {
        rows: rows.collect(),
        notes,
        ..Table::new("Orders of all events, warm-up included", &columns)
    })
}
