//! Timing of a part's own system calls: the table of a trial, and the spans for a picture of this process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base::outcome::{Cell, Table};
use base::timeline::{CallRow, CallTimes};
use sys::span::{Recorded, Recorder};

/// What the parts of this process keep for a picture.
static KEPT: Mutex<Kept> = Mutex::new(Kept { room: None, parts: Vec::new() });

struct Kept {
    /// How many more spans, where there is to be a picture.
    room: Option<usize>,
    parts: Vec<Recorded>,
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, parts of this process that time their calls keep the spans too: at most `spans_max` each, and
/// none once others have kept as many.
pub fn keep(spans_max: usize) {
    kept().room = Some(spans_max);
}

/// What they have kept so far, part by part, in the order of their ends.
pub fn take_kept() -> Vec<Recorded> {
    std::mem::take(&mut kept().parts)
}

/// Begins to time a part's calls.
pub fn record() -> Recorder {
    Recorder::start(kept().room.unwrap_or(0))
}

/// Ends it: the table.
pub fn finish(recorder: Recorder, target: &str) -> CallTimes {
    keep_spans(recorder.finish(target))
}

/// Ends it: the table, its shares of the time from `start_ns`, before which nothing was timed, to `end_ns`
/// or, where that is later, to the end of the last call.
pub fn finish_between(recorder: Recorder, target: &str, start_ns: u64, end_ns: u64) -> CallTimes {
    let recorded = recorder.finish(target);
    let wall_ns = end_ns.max(recorded.last_ns).saturating_sub(start_ns).max(1);
    let wall_s = wall_ns as f64 / 1e9;
    let mut times = keep_spans(recorded);
    for row in &mut times.calls {
        row.wall_share *= times.wall_s / wall_s;
    }
    times.wall_s = wall_s;
    times
}

fn keep_spans(recorded: Recorded) -> CallTimes {
    let mut kept = kept();
    let Some(room) = kept.room else { return recorded.times };
    let spans: usize = recorded.threads.iter().map(|thread| thread.spans.len()).sum();
    kept.room = Some(room.saturating_sub(spans));
    let times = recorded.times.clone();
    kept.parts.push(recorded);
    times
}

/// Where the time of a part's threads went, one row a call and state.
pub fn table(title: String, times: &CallTimes) -> Table {
    // Of several threads a mean: all of them together are in calls for longer than the wall's time.
    let threads = times.threads.max(1);
    let of = if threads == 1 { "of wall".to_owned() } else { format!("of {threads} threads") };
    let columns = [
        ("call", ""),
        ("state", ""),
        ("calls", ""),
        ("p50", "s"),
        ("mean", "s"),
        ("p99", "s"),
        ("max", "s"),
        (of.as_str(), "%"),
    ];
    let row = |row: &CallRow| {
        let mut cells: Vec<Cell> = vec![row.name.as_str().into(), row.state.name().into(), row.count.into()];
        cells.extend([row.p50_us, row.mean_us, row.p99_us, row.max_us].map(|us| Cell::from(us / 1e6)));
        cells.push((100.0 * row.wall_share / threads as f64).into());
        cells
    };
    let lost = (times.events_lost > 0)
        .then(|| format!("{} of {} spans were lost", times.events_lost, times.events_counted));
    Table {
        rows: times.calls.iter().map(row).collect(),
        notes: lost.into_iter().chain(times.doubts.iter().cloned()).collect(),
        ..Table::new(title, &columns)
    }
}
