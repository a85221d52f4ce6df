//! A trial in words and tables.

use base::format::{count, number, quantity};
use base::outcome::{Account, Cell, Table};

use crate::engine::report::RowReport;
use crate::limit;
use crate::report::{ObjectsReport, WorkersReport};
use crate::totals::Totals;

pub(crate) fn of(totals: &Totals) -> Account {
    let broke_off = totals.broke_off();
    let limit = Some(limit::of(totals)).filter(|_| broke_off.is_none() && totals.operations > 0);
    let tables = match totals.objects {
        Some(_) => vec![operations(totals)],
        None => vec![operations(totals), cpu(totals)],
    };
    Account { headline: headline(totals), limit, tables, broke_off, ..Account::default() }
}

/// One row per flowop, as filebench prints them.
fn operations(totals: &Totals) -> Table {
    let columns = [
        ("operation", ""),
        ("kind", ""),
        ("count", ""),
        ("rate", "/s"),
        ("bytes", "MiB/s"),
        ("mean", "s"),
        ("p50", "s"),
        ("p99", "s"),
        ("max", "s"),
        ("failed", ""),
    ];
    let mut table = Table::new("Operations", &columns);
    let s = |ns: Option<u64>| Cell::from(ns.map(|ns| ns as f64 / 1e9));
    let row = |row: &RowReport| {
        let mean_s = (row.count > 0).then(|| row.sum_ns as f64 / row.count as f64 / 1e9);
        vec![
            row.name.as_str().into(),
            row.kind.as_str().into(),
            row.count.into(),
            totals.per_s(row.count).into(),
            totals.per_s(row.bytes).map(|bytes| bytes / f64::from(1 << 20)).into(),
            mean_s.into(),
            s(row.times.percentile_ns(50.0)),
            s(row.times.percentile_ns(99.0)),
            s(row.times.max_ns()),
            row.errors.values().sum::<u64>().into(),
        ]
    };
    table.rows =
        totals.rows.iter().filter(|row| row.all_count > 0 || !row.errors.is_empty()).map(row).collect();
    if let Some(objects) = &totals.objects {
        table.notes = notes_of_objects(totals, objects);
        return table;
    }
    for report in &totals.reports {
        let around = &report.surroundings;
        let of = |part: &str, whole: Option<u64>| match whole.filter(|bytes| *bytes > 0) {
            Some(bytes) => {
                format!(", {} % of {part}", number(100.0 * report.data_bytes as f64 / bytes as f64))
            }
            None => String::new(),
        };
        let cached = match around.cached_percent {
            Some(percent) => format!("{} % of a sample were in the page cache at the start", number(percent)),
            None => "it is unknown how much the page cache had of them at the start".to_owned(),
        };
        table.notes.push(format!(
            "{} files in {} directories on {}: {}{}, made in {}; {cached}",
            report.files,
            report.dirs,
            around.file_system.as_deref().unwrap_or("an unknown file system"),
            quantity(Some(report.data_bytes as f64), "B"),
            of("the memory", around.memory_bytes),
            quantity(Some(report.populate_s), "s")
        ));
    }
    table
}

fn notes_of_objects(totals: &Totals, objects: &ObjectsReport) -> Vec<String> {
    let made = |report: &WorkersReport| {
        format!(
            "{} objects on {}: {}, made in {}",
            report.files,
            objects.endpoint,
            quantity(Some(report.data_bytes as f64), "B"),
            quantity(Some(report.populate_s), "s")
        )
    };
    let s = |percent| quantity(objects.first_byte.percentile_ns(percent).map(|ns| ns as f64 / 1e9), "s");
    let mut notes: Vec<String> = totals.reports.iter().map(made).collect();
    notes.push(format!("head of the answer to a GET: p50 {}, p99 {}", s(50.0), s(99.0)));
    notes.push(
        "no request of a worker is sent again; an object whose PUT was answered is durable by the protocol"
            .to_owned(),
    );
    notes
}

/// What the threads cost and where they waited.
fn cpu(totals: &Totals) -> Table {
    let columns = [
        ("threads", ""),
        ("user per operation", "s"),
        ("kernel per operation", "s"),
        ("ready without a CPU", "%"),
        ("blocked in calls", "%"),
        ("waits per operation", ""),
        ("preemptions per operation", ""),
    ];
    let cpu = &totals.cpu;
    let percent = |share: Option<f64>| Cell::from(share.map(|share| 100.0 * share));
    let mut table = Table::new("Threads", &columns);
    table.rows = vec![vec![
        totals.threads.into(),
        totals.per_operation(cpu.user_s).into(),
        totals.per_operation(cpu.system_s).into(),
        percent(cpu.ready_s.and_then(|s| totals.thread_share(s))),
        percent(crate::metrics::blocked_share(totals)),
        totals.per_operation(cpu.waits as f64).into(),
        totals.per_operation(cpu.preemptions as f64).into(),
    ]];
    table
        .notes
        .push("read from getrusage(2) and schedstat of each thread, within the judged time".to_owned());
    table
}

/// The sentence of a trial.
fn headline(totals: &Totals) -> Option<String> {
    let rate = totals.per_s(totals.operations)?;
    let mib_per_s = totals.per_s(totals.bytes)? / f64::from(1 << 20);
    let mean_ms = totals.per_operation(totals.sum_ns as f64 / 1e6)?;
    let durable = match totals.durable_after_s() {
        Some(s) => format!("; everything was durable {} after the end", quantity(Some(s), "s")),
        None if totals.is_behind_mount() => "; when it is durable behind the mount is unknown".to_owned(),
        None => String::new(),
    };
    // A mean above the 99th percentile looks wrong where it stands alone.
    let p99_ns = totals.times.percentile_ns(99.0).map(|ns| ns as f64).filter(|ns| *ns < mean_ms * 1e6);
    let spread = p99_ns.map_or(String::new(), |ns| {
        format!(
            " on average (99 % took at most {}: few took most of the time)",
            quantity(Some(ns / 1e9), "s")
        )
    });
    Some(format!(
        "Did {} operations a second and moved {} MiB/s with {} threads, {} an operation{spread}\
         {durable}",
        count(rate),
        number(mib_per_s),
        totals.threads,
        quantity(Some(mean_ms / 1e3), "s")
    ))
}
