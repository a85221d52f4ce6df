//! A trial in words and tables.

use base::format::{count, quantity, quantity_in_sentence};
use base::outcome::{Account, Cell, Table};

use crate::metrics::{delivered_bit_per_s, most_urgent};
use crate::report::{BackgroundReport, ClassReport, ClientsReport};
use crate::settings::{BackgroundKind, Class, ExchangeSettings};
use crate::{figures, limit};

pub(crate) fn of(
    settings: &ExchangeSettings,
    classes: &[Class],
    report: &ClientsReport,
    background: Option<&BackgroundReport>,
) -> Account {
    let urgent = most_urgent(classes).and_then(|class| {
        let own = report.classes.iter().find(|one| one.name == class.name)?;
        Some((class, own))
    });
    let mut tables = vec![responses(classes, report), parts(report)];
    tables.extend(waits(settings, report));
    tables.extend(errors(report));
    tables.extend(background.map(|background| other_traffic(settings, background)));
    Account {
        headline: urgent.and_then(|(class, own)| headline(class, own, classes.len() > 1)),
        limit: urgent.and_then(|(_, own)| limit::of(settings, report, own, background)),
        tables,
        figures: figures::of(classes, report),
        broke_off: report.broke_off.clone(),
        ..Account::default()
    }
}

fn time(ns: Option<u64>) -> String {
    quantity_in_sentence(ns.map(|ns| ns as f64 / 1e9), "s")
}

/// `96 messages: 92 % answered within 500 ms; half within 380 ms, 99 % within 1.3 s`.
fn headline(class: &Class, report: &ClassReport, is_one_of_many: bool) -> Option<String> {
    if report.due() == 0 {
        return None;
    }
    let of = if is_one_of_many { format!(" of {}", class.name) } else { String::new() };
    let response = &report.response;
    let within = format!(
        "half within {}, 99 % within {}",
        time(response.percentile_ns(50.0)),
        time(response.percentile_ns(99.0))
    );
    let all = count(report.due() as f64);
    let errors = match report.errors {
        0 => String::new(),
        errors => format!("; {} ended in an error", count(errors as f64)),
    };
    Some(match (class.target, report.in_time_ratio()) {
        (Some(target), Some(ratio)) => {
            let share = quantity(Some(100.0 * ratio), "%");
            let target = quantity(Some(target.s()), "s");
            format!("{share} of {all} messages{of} answered within {target}; {within}{errors}")
        }
        _ if report.answered == report.due() => format!("Answered all {all} messages{of}: {within}{errors}"),
        _ => format!("Answered {} of {all} messages{of}: {within}{errors}", count(report.answered as f64)),
    })
}

/// One row per class: how long replies took.
fn responses(classes: &[Class], report: &ClientsReport) -> Table {
    let columns = [
        ("class", ""),
        ("priority", ""),
        ("clients", ""),
        ("answered", ""),
        ("errors", ""),
        ("mean", "s"),
        ("p50", "s"),
        ("p99", "s"),
        ("max", "s"),
        ("target", "s"),
        ("in time", "%"),
    ];
    let mut table = Table::new("Response times", &columns);
    for class in classes {
        let Some(own) = report.classes.iter().find(|one| one.name == class.name) else { continue };
        let s = |ns: Option<u64>| Cell::from(ns.map(|ns| ns as f64 / 1e9));
        let in_time = own.in_time_ratio().filter(|_| class.target.is_some());
        table.rows.push(vec![
            class.name.as_str().into(),
            class.priority.into(),
            own.clients.into(),
            own.answered.into(),
            own.errors.into(),
            own.response_mean_ms().map(|ms| ms / 1e3).into(),
            s(own.response.percentile_ns(50.0)),
            s(own.response.percentile_ns(99.0)),
            s(own.response.max_ns()),
            class.target.map(base::units::Span::s).into(),
            in_time.map(|ratio| 100.0 * ratio).into(),
        ]);
    }
    table
        .notes
        .push("From the moment at which a message is meant to be sent to the last byte of its reply.".into());
    table.without_unknown_columns()
}

/// One row per class: where the time went, on average.
fn parts(report: &ClientsReport) -> Table {
    let columns = [
        ("class", ""),
        ("waiting", "s"),
        ("connect", "s"),
        ("write", "s"),
        ("write p99", "s"),
        ("network", "s"),
        ("network p99", "s"),
        ("server", "s"),
        ("server p99", "s"),
    ];
    let mut table = Table::new("Where the response time went (mean)", &columns);
    for class in &report.classes {
        let s = |sum_ns: u64| Cell::from(class.mean_ms(sum_ns).map(|ms| ms / 1e3));
        let p99 = |ns: Option<u64>| Cell::from(ns.map(|ns| ns as f64 / 1e9));
        let server = class.server.as_ref();
        table.rows.push(vec![
            class.name.as_str().into(),
            s(class.wait_ns),
            s(class.connect_ns),
            s(class.write_ns),
            p99(class.write.percentile_ns(99.0)),
            s(class.network_ns),
            p99(class.network.percentile_ns(99.0)),
            server.map_or(Cell::Unknown, |_| s(class.server_ns)),
            p99(server.and_then(|server| server.percentile_ns(99.0))),
        ]);
    }
    let server = match report.classes.iter().any(|class| class.server.is_some()) {
        true => "The server reports its own time.",
        false => "The server does not report its time, which is part of the network's.",
    };
    let protocol_used = report
        .protocol_used
        .as_ref()
        .map_or(String::new(), |protocol_used| format!(" The server spoke {protocol_used}."));
    table
        .notes
        .push(format!("write: in write() until the kernel accepted the last byte. {server}{protocol_used}"));
    table.without_unknown_columns()
}

/// What the connections waited for, and their memory.
fn waits(settings: &ExchangeSettings, report: &ClientsReport) -> Option<Table> {
    let columns = [
        ("class", ""),
        ("connections", ""),
        ("busy", "s"),
        ("window full", "%"),
        ("send buffer too small", "%"),
        ("retransmitted", ""),
        ("least round trip", "s"),
        ("largest memory", "B"),
        ("most streams at a time", ""),
    ];
    let mut table = Table::new("Connections (TCP_INFO)", &columns);
    for class in report.classes.iter().filter(|class| class.connections > 0) {
        let waits = &class.waits;
        let share = |us: u64| (waits.busy_us > 0).then(|| 100.0 * us as f64 / waits.busy_us as f64);
        let rtt = (waits.rtt_min_us > 0).then_some(waits.rtt_min_us as f64 / 1e6);
        table.rows.push(vec![
            class.name.as_str().into(),
            class.connections.into(),
            (waits.busy_us as f64 / 1e6).into(),
            share(waits.rwnd_limited_us).into(),
            share(waits.sndbuf_limited_us).into(),
            waits.retransmits.into(),
            rtt.into(),
            class.memory.iter().map(|sample| sample.max_bytes).max().into(),
            class.streams.into(),
        ]);
    }
    table.notes.push("Shares are of the time with data in flight (busy).".into());
    let wanted = settings.http.streams;
    let allowed = report.classes.iter().filter_map(|class| class.streams_allowed).min();
    table.notes.extend(allowed.filter(|allowed| *allowed < wanted).map(|allowed| {
        format!("The server allows {allowed} streams at a time on a connection; {wanted} were wanted.")
    }));
    (!table.rows.is_empty()).then(|| table.without_unknown_columns())
}

fn errors(report: &ClientsReport) -> Option<Table> {
    let mut table = Table::new("Errors", &[("class", ""), ("error", ""), ("messages", "")]);
    for class in &report.classes {
        for (fault, count) in &class.faults {
            table.rows.push(vec![class.name.as_str().into(), fault.as_str().into(), (*count).into()]);
        }
        table.notes.extend(class.messages.iter().take(3).cloned());
    }
    (!table.rows.is_empty()).then_some(table)
}

fn other_traffic(settings: &ExchangeSettings, background: &BackgroundReport) -> Table {
    let columns =
        [("background", ""), ("flows", ""), ("sent", "bit/s"), ("delivered", "bit/s"), ("lost", "%")];
    // What TCP has sent and has not delivered is in buffers.
    let can_lose = settings.background.kind == BackgroundKind::Udp;
    let shown = columns.len() - usize::from(!can_lose);
    let mut table = Table::new("Other traffic", &columns[..shown]);
    let kind = serde_json::to_value(settings.background.kind).ok();
    let delivered = background.delivered.as_ref();
    let sent = background.sent_bytes as f64;
    let lost =
        delivered.filter(|_| sent > 0.0).map(|delivered| 100.0 * (1.0 - delivered.bytes as f64 / sent));
    let mut row: Vec<Cell> = vec![
        kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default().into(),
        settings.background.flows.into(),
        (sent * 8.0 / background.elapsed_s).into(),
        delivered_bit_per_s(background).into(),
        lost.map(|percent| percent.max(0.0)).into(),
    ];
    row.truncate(shown);
    table.rows.push(row);
    table
        .notes
        .push("Payload; delivered is what the server received until the last client had ended.".into());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_udp_background_is_lost() {
        let lost = |kind| {
            let mut settings = ExchangeSettings::default();
            settings.background.kind = kind;
            other_traffic(&settings, &BackgroundReport::default()).column("lost")
        };
        assert_eq!((lost(BackgroundKind::Udp), lost(BackgroundKind::Tcp)), (Some(4), None));
    }
}
