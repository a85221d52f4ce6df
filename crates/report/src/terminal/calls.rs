//! Where a program's time went, on a terminal: the tables of calls and of network softirqs.

use base::timeline::CallTimes;

use super::Style;
use super::brief::{COLUMNS, EVERYTHING, LINES, as_fits, first_lines};
use super::paint::Tone;
use super::summary::toned;
use super::table::{Column, is_one_table, render};
use crate::text::plain;
use crate::words::calls as sentences;
use base::format::{UNKNOWN, number, plural};

/// Lines of what was watched and how.
const HEAD_LINES: usize = 4;
/// Least rows of calls that are kept before doubts.
const ROWS_MIN: usize = 3;

/// The calls that took most of the time, in at most [`LINES`] lines, and as many doubts as there is room for.
/// Ends with a line break.
pub fn brief_call_times(times: &CallTimes, style: Style) -> String {
    let style = Style { width: style.width.min(COLUMNS), ..style };
    let head = toned(&style, Tone::Bold, "", &sentences::watched(times))
        + &style.wrapped("", &sentences::traced_briefly(times));
    let mut text = first_lines(&head, HEAD_LINES);
    let rest = style.paint(Tone::Faint, EVERYTHING) + "\n";
    let doubts: Vec<_> =
        times.doubts.iter().map(|doubt| toned(&style, Tone::Odd, "Doubt: ", &plain(doubt))).collect();
    let mut columns = call_columns(times);
    // Name, state, calls and the share of the time come first.
    while columns.len() > 4 && !is_one_table(&columns, &style) {
        columns.remove(columns.len() - 2);
    }
    let heads = columns.iter().map(|column| column.head.len()).max().unwrap_or(0) + 1;
    let room = LINES - text.lines().count() - heads - 1 - usize::from(!doubts.is_empty());
    let all = times.calls.len();
    let rows = if all > room { room.saturating_sub(1).max(ROWS_MIN) } else { all };
    columns.iter_mut().for_each(|column| column.cells.truncate(rows));
    if all > 0 {
        text += &render(&columns, 2, &style);
    }
    if all > rows {
        text += &format!("and {}\n", plural((all - rows) as u64, "more row"));
    }
    let used = text.lines().count() + 1;
    text += &as_fits(&doubts, "doubt", LINES.saturating_sub(used));
    style.spell(text + &rest)
}

/// The tables as text: what was watched and how, then calls by time, softirqs, calls without an end, and
/// doubts. Ends with a line break.
pub fn call_times(times: &CallTimes, style: Style) -> String {
    let mut text = toned(&style, Tone::Bold, "", &sentences::watched(times));
    text += &style.wrapped("", &sentences::traced(times));
    if !times.calls.is_empty() {
        text += "\n";
        text += &render(&call_columns(times), 2, &style);
    }
    if !times.softirqs.is_empty() {
        text += "\n";
        text += &render(&softirq_columns(times), 2, &style);
    }
    let notes = sentences::notes(times);
    if !notes.is_empty() || !times.doubts.is_empty() {
        text += "\n";
    }
    for note in notes {
        text += &style.wrapped("", &note);
    }
    for doubt in &times.doubts {
        text += &toned(&style, Tone::Odd, "Doubt: ", &plain(doubt));
    }
    style.spell(text)
}

pub(crate) fn call_columns(times: &CallTimes) -> Vec<Column> {
    let of = |what: fn(&base::timeline::CallRow) -> String| times.calls.iter().map(what).collect::<Vec<_>>();
    let mut columns = vec![
        Column::words(&["call"], of(|row| plain(&row.name))),
        Column::words(&["state"], of(|row| row.state.name().to_owned())),
        Column::numbers(&["calls"], of(|row| row.count.to_string())),
        Column::numbers(&["p50", "µs"], of(|row| number(row.p50_us))),
        Column::numbers(&["mean", "µs"], of(|row| number(row.mean_us))),
        Column::numbers(&["p99", "µs"], of(|row| number(row.p99_us))),
        Column::numbers(&["max", "µs"], of(|row| number(row.max_us))),
        Column::numbers(&["of wall", "%"], of(|row| share(row.wall_share))),
    ];
    if times.calls.iter().any(|row| row.preempted > Some(0)) {
        let taken = of(|row| row.preempted.map_or_else(|| UNKNOWN.to_owned(), |count| count.to_string()));
        columns.push(Column::numbers(&["CPU taken", "calls"], taken));
    }
    columns
}

/// A share in %; what is not worth a power of ten is less than the least.
fn share(of: f64) -> String {
    const LEAST: f64 = 0.001;
    let percent = 100.0 * of;
    if percent > 0.0 && percent < LEAST { format!("<{LEAST}") } else { number(percent) }
}

pub(crate) fn softirq_columns(times: &CallTimes) -> Vec<Column> {
    let of =
        |what: fn(&base::timeline::SoftirqRow) -> String| times.softirqs.iter().map(what).collect::<Vec<_>>();
    let known = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), number);
    let maybe = |what: fn(&base::timeline::SoftirqRow) -> Option<f64>| {
        times.softirqs.iter().map(|row| known(what(row))).collect::<Vec<_>>()
    };
    vec![
        Column::words(&["softirq"], of(|row| plain(&row.name))),
        Column::numbers(&["CPU"], of(|row| row.cpu.to_string())),
        Column::numbers(&["runs"], of(|row| row.count.to_string())),
        Column::numbers(&["period", "p50 µs"], maybe(|row| row.period_p50_us)),
        Column::numbers(&["mean", "µs"], maybe(|row| row.period_mean_us)),
        Column::numbers(&["p99", "µs"], maybe(|row| row.period_p99_us)),
        Column::numbers(&["run", "p50 µs"], of(|row| number(row.run_p50_us))),
        Column::numbers(&["mean", "µs"], of(|row| number(row.run_mean_us))),
        Column::numbers(&["p99", "µs"], of(|row| number(row.run_p99_us))),
        Column::numbers(&["of wall", "%"], of(|row| number(100.0 * row.wall_share))),
    ]
}

#[cfg(test)]
mod tests {
    use base::timeline::{CallRow, CallState, SoftirqRow, TraceCost, UnfinishedRow};

    use super::*;

    fn row(state: CallState, count: u64, us: f64) -> CallRow {
        CallRow {
            name: "pselect6".into(),
            state,
            count,
            p50_us: us,
            mean_us: us * 2.0,
            p99_us: us * 10.0,
            max_us: us * 100.0,
            wall_share: us * count as f64 / 2e6,
            preempted: Some(0),
            returned: 0,
        }
    }

    fn times() -> CallTimes {
        let softirq = SoftirqRow {
            name: "NET_RX".into(),
            cpu: 1,
            count: 1,
            period_p50_us: None,
            period_mean_us: None,
            period_p99_us: None,
            run_p50_us: 0.94,
            run_mean_us: 1.9,
            run_p99_us: 21.3,
            wall_share: 0.0001,
        };
        CallTimes {
            target: "server \u{1b}[31m".into(),
            ended: None,
            wall_s: 2.0,
            processes: 1,
            threads: 3,
            calls: vec![row(CallState::Blocked, 3, 35.6), row(CallState::Ready, 40_000, 0.57)],
            softirqs: vec![softirq],
            unfinished: vec![UnfinishedRow {
                name: "accept4".into(),
                count: 2,
                longest_s: 1.9,
                began_before: 0,
                wall_share: 1.8,
            }],
            backend: "bpf".into(),
            backend_because: None,
            events_counted: 40_003,
            events: 40_003,
            events_lost: 0,
            calls_lost: 0,
            cost_ns_per_call: Some(190.0),
            cost: Some(TraceCost { untraced_ns: 400.0, traced_ns: 590.0, batches: 200 }),
            doubts: vec!["something".into()],
        }
    }

    #[test]
    fn call_table_shows_calls_and_tracing_cost() {
        let text = call_times(&times(), Style { colour: false, width: 100, unicode: true });
        for part in [
            "1 process, 3 threads, 40003 calls",
            "Most time: accept4 (unfinished, not in the\ntable), 1.8 times",
            "pselect6  blocked",
            "pselect6  ready    40000",
            "about 190 ns to each call",
            "none of the 40003 kernel records was lost",
            "2 × accept4",
            "select()",
            "Doubt: something",
        ] {
            assert!(text.contains(part), "no '{part}' in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "a program's name cannot recolour the terminal");
        let softirq = text.lines().find(|line| line.starts_with("NET_RX")).expect("its row");
        assert!(softirq.contains(UNKNOWN) && softirq.contains("0.94"), "{softirq}");
        let own = CallTimes { backend: base::timeline::IN_PROCESS.into(), ..times() };
        let text = call_times(&own, Style { colour: false, width: 1000, unicode: true });
        assert!(
            text.contains(
                "Timed inside the program, by its own spans, which added about 190 ns to each span"
            ),
            "{text}"
        );
        let [waits, read] =
            [(CallState::Blocked, 17.779), (CallState::Ready, 0.002)].map(|(state, share)| {
                let calls = vec![CallRow { wall_share: share, ..row(state, 3, 1.0) }];
                call_times(
                    &CallTimes { calls, unfinished: Vec::new(), ..times() },
                    Style { colour: false, width: 1000, unicode: true },
                )
            });
        assert!(
            waits.contains("pselect6 (blocked), 17.8 times the elapsed time (sum over threads)."),
            "{waits}"
        );
        assert!(
            read.contains("pselect6 (not blocked), 0.2 % of the elapsed time. All traced calls: 0.2 %"),
            "{read}"
        );
        let ascii = call_times(&times(), Style { colour: false, width: 40, unicode: false });
        assert!(ascii.is_ascii() && ascii.lines().all(|line| line.len() <= 60), "{ascii}");
    }
}
