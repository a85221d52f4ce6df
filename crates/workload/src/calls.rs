//! Timing of a part's own system calls: the table of a trial, the timeline of a stretch of it, and the spans
//! for a picture of this process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base::outcome::{Cell, Figure, Table};
use base::timeline::{CallRow, CallTimes, SoftirqRow};
use sys::span::{Recorded, Recorder};

use crate::softirqs::Softirqs;
use crate::stretch::{self, Known};

/// The first spans of a part, which it keeps to show a stretch of them, of 40 bytes each.
const SPANS_OF_TIMELINE: usize = 100_000;
/// How the recorder's doubt about a picture begins.
const PICTURE_DOUBT: &str = "the picture is full";

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

/// The same, to show a timeline of a stretch of them, too.
pub fn record_for_timeline() -> Recorder {
    Recorder::start(kept().room.unwrap_or(0).max(SPANS_OF_TIMELINE))
}

/// Ends it: the table.
pub fn finish(recorder: Recorder, target: &str) -> CallTimes {
    keep_spans(recorder.finish(target))
}

/// What became of a part's calls.
#[derive(Debug)]
pub struct Timed {
    pub times: CallTimes,
    /// A stretch of them, without a title.
    pub timeline: Option<Figure>,
}

/// When what was timed began and ended, ns of the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// Nothing was timed before.
    pub start_ns: u64,
    /// From when on it counts.
    pub judged_from_ns: u64,
    pub end_ns: u64,
}

/// Ends it: the table, its shares of the time from the start to the end or, where that is later, to the end
/// of the last call; and the timeline, with the `softirqs` of that time where they are known.
pub fn finish_between(
    recorder: Recorder,
    target: &str,
    moments: Moments,
    softirqs: Option<&Softirqs>,
) -> Timed {
    let Moments { start_ns, judged_from_ns, end_ns } = moments;
    let recorded = recorder.finish(target);
    let until_ns = known_until_ns(&recorded).min(end_ns);
    let known = Known { threads: &recorded.threads, softirqs, start_ns, judged_from_ns, until_ns };
    let timeline = stretch::timeline(&known);
    let wall_ns = end_ns.max(recorded.last_ns).saturating_sub(start_ns).max(1);
    let wall_s = wall_ns as f64 / 1e9;
    let mut times = keep_spans(recorded);
    for row in &mut times.calls {
        row.wall_share *= times.wall_s / wall_s;
    }
    times.wall_s = wall_s;
    times.softirqs = softirqs.map(Softirqs::rows).unwrap_or_default();
    Timed { times, timeline }
}

/// Until when the kept spans are all that there were.
fn known_until_ns(recorded: &Recorded) -> u64 {
    let kept: usize = recorded.threads.iter().map(|thread| thread.spans.len()).sum();
    if recorded.times.events == kept as u64 {
        return u64::MAX;
    }
    // Spans are kept thread by thread, a few milliseconds of each at a time.
    let last = recorded.threads.iter().filter_map(|thread| thread.spans.last()).map(|span| span.to_ns);
    last.min().unwrap_or(0)
}

fn keep_spans(mut recorded: Recorded) -> CallTimes {
    let mut kept = kept();
    let Some(room) = kept.room else {
        recorded.times.doubts.retain(|doubt| !doubt.starts_with(PICTURE_DOUBT));
        return recorded.times;
    };
    let spans: usize = recorded.threads.iter().map(|thread| thread.spans.len()).sum();
    if room == 0 && spans <= SPANS_OF_TIMELINE {
        // Kept for its own timeline alone.
        recorded.threads.clear();
    }
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

/// The kernel's network work while calls were timed, one row a kind and CPU; `None` where it is not known.
pub fn softirq_table(title: String, times: &CallTimes) -> Option<Table> {
    let columns = [
        ("softirq", ""),
        ("CPU", ""),
        ("count", ""),
        ("period p50", "s"),
        ("period mean", "s"),
        ("period p99", "s"),
        ("run p50", "s"),
        ("run mean", "s"),
        ("run p99", "s"),
        ("of wall", "%"),
    ];
    let row = |row: &SoftirqRow| {
        let seconds = |us: Option<f64>| Cell::from(us.map(|us| us / 1e6));
        let mut cells: Vec<Cell> = vec![row.name.as_str().into(), row.cpu.into(), row.count.into()];
        cells.extend([row.period_p50_us, row.period_mean_us, row.period_p99_us].map(seconds));
        cells.extend([row.run_p50_us, row.run_mean_us, row.run_p99_us].map(|us| seconds(Some(us))));
        cells.push((100.0 * row.wall_share).into());
        cells
    };
    let note = "of all programs of this machine; period: from the beginning of one to that of the next";
    (!times.softirqs.is_empty()).then(|| Table {
        rows: times.softirqs.iter().map(row).collect(),
        notes: vec![note.to_owned()],
        ..Table::new(title, &columns)
    })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use sys::clock::monotonic_ns;
    use sys::span::{SpanName, time};

    use super::*;

    static ROUND: SpanName = SpanName::new("round");

    #[test]
    fn timeline_of_more_spans_than_are_kept_has_those_that_are() {
        let recorder = record_for_timeline();
        let joined = recorder.handle().join();
        let start_ns = monotonic_ns();
        // The ring of a thread is emptied every 10 ms.
        for _ in 0..SPANS_OF_TIMELINE / 1000 * 2 {
            for n in 0..1000 {
                black_box(time(&ROUND, || n));
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(joined);
        let end_ns = monotonic_ns();
        let moments = Moments { start_ns, judged_from_ns: start_ns, end_ns };
        let Timed { times, timeline } = finish_between(recorder, "rounds", moments, None);
        assert_eq!(times.doubts, Vec::<String>::new(), "the table is whole, and nobody asked for a picture");
        assert_eq!(times.calls.iter().map(|row| row.count).sum::<u64>(), 2 * SPANS_OF_TIMELINE as u64);
        let figure = timeline.unwrap();
        let to_s = figure.x.to.unwrap();
        assert!(to_s < (end_ns - start_ns) as f64 / 1e9 * 0.6, "{to_s}: only the first half was kept");
        assert!(figure.layers.iter().any(|layer| layer.name == "round"), "{figure:?}");
    }
}
