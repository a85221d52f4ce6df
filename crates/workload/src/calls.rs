//! The table of a part's own calls to the kernel, as a trial tells of it.

use base::outcome::Table;
use base::timeline::{CallRow, CallTimes};

/// Where the time of a part's threads went, one row a call and state.
pub(crate) fn table(title: String, times: &CallTimes) -> Table {
    let us = |us: f64| format!("{us:.2}");
    let row = |row: &CallRow| {
        let wall = format!("{:.1} %", 100.0 * row.wall_share);
        let cells = [us(row.p50_us), us(row.mean_us), us(row.p99_us), us(row.max_us), wall];
        [vec![row.name.clone(), row.state.name().to_owned(), row.count.to_string()], cells.to_vec()].concat()
    };
    let lost = (times.events_lost > 0)
        .then(|| format!("{} of {} spans were lost", times.events_lost, times.events_counted));
    let head = ["call", "state", "calls", "p50 us", "mean us", "p99 us", "max us", "of wall"];
    Table {
        title,
        head: head.map(str::to_owned).to_vec(),
        rows: times.calls.iter().map(row).collect(),
        notes: lost.into_iter().chain(times.doubts.iter().cloned()).collect(),
    }
}
