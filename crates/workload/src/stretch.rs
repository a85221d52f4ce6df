//! The timeline of a stretch of a part's calls: what a report shows beside the table of all of them.

use std::collections::BTreeMap;

use base::format::{plural, quantity};
use base::outcome::{Axis, Figure, Layer, Marks, Tone};
use base::timeline::{CallState, softirq_name};
use sys::span::ThreadSpans;

use crate::softirqs::Softirqs;

/// Spans of a timeline at most: 10 bytes each in a report, 30 in a stored run.
const SPANS_MAX: usize = 600;
/// How long it is at most, ns.
const LENGTH_NS_MAX: u64 = 100_000_000;
/// Threads and CPUs that it shows at most, each.
const LANES_MAX: usize = 16;
/// Stretches begin a power of two of these after the start: both ends of a connection choose the same one.
const STEP_NS: u64 = 1_000_000;
/// The tones of calls that kept their CPU.
const TONES: [Tone; 6] = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth, Tone::Fifth, Tone::Sixth];

/// What is known of a part's calls. Moments are ns of the monotonic clock.
pub(crate) struct Known<'a> {
    pub(crate) threads: &'a [ThreadSpans],
    pub(crate) softirqs: Option<&'a Softirqs>,
    pub(crate) start_ns: u64,
    /// From when on the trial counts.
    pub(crate) judged_from_ns: u64,
    /// Until when all spans are known.
    pub(crate) until_ns: u64,
}

/// A span of a lane.
struct Item {
    lane: usize,
    name: &'static str,
    state: CallState,
    from_ns: u64,
    to_ns: u64,
}

/// The timeline of a stretch from the middle of the time that counts; `None` if nothing is known of it.
pub(crate) fn timeline(known: &Known) -> Option<Figure> {
    let judged = Some(known.judged_from_ns).filter(|at_ns| *at_ns < known.until_ns);
    let first_ns = judged.unwrap_or(known.start_ns).max(known.start_ns);
    let begin_ns = first_ns + offset_ns(known.until_ns.checked_sub(first_ns)?);
    let limit_ns = known.until_ns.min(begin_ns + LENGTH_NS_MAX);
    let threads = &known.threads[..known.threads.len().min(LANES_MAX)];
    let softirqs =
        known.softirqs.filter(|softirqs| softirqs.from_ns <= begin_ns && limit_ns <= softirqs.to_ns);
    let mut cpus: Vec<u32> = softirqs.iter().flat_map(|softirqs| &softirqs.all).map(|one| one.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus.truncate(LANES_MAX);
    let calls = threads.iter().enumerate().flat_map(|(lane, thread)| {
        let item = move |span: &sys::span::Span| {
            let (name, state, from_ns, to_ns) = (span.name, span.state, span.from_ns, span.to_ns);
            Item { lane, name, state, from_ns, to_ns }
        };
        thread.spans.iter().map(item)
    });
    let of_cpus = softirqs.iter().flat_map(|softirqs| &softirqs.all).filter_map(|one| {
        let lane = threads.len() + cpus.binary_search(&one.cpu).ok()?;
        let (name, state) = (softirq_name(one.vector), CallState::Ready);
        Some(Item { lane, name, state, from_ns: one.from_ns, to_ns: one.to_ns })
    });
    let is_within = |item: &Item| item.to_ns > begin_ns && item.from_ns < limit_ns;
    let mut items: Vec<Item> = calls.chain(of_cpus).filter(is_within).collect();
    items.sort_by_key(|item| item.from_ns);
    let end_ns = items.get(SPANS_MAX).map_or(limit_ns, |next| next.from_ns);
    items.truncate(SPANS_MAX);
    if end_ns <= begin_ns || items.iter().all(|item| item.lane >= threads.len()) {
        return None;
    }
    let mut labels: Vec<String> =
        threads.iter().map(|thread| format!("{} {}", thread.name, thread.thread)).collect();
    labels.extend(cpus.iter().map(|cpu| format!("CPU {cpu} softirqs")));
    let since_start = |ns: u64| ns.saturating_sub(known.start_ns) as f64 / 1e9;
    let window = [begin_ns, end_ns].map(since_start);
    let calls = items.iter().filter(|item| item.lane < threads.len()).count() as u64;
    let hidden = known.threads.len().saturating_sub(threads.len());
    let hidden = Some(hidden).filter(|hidden| *hidden > 0).map_or_else(String::new, |hidden| {
        format!(" {} more are not shown.", plural(hidden as u64, "thread"))
    });
    Some(Figure {
        title: String::new(),
        note: format!(
            "{} in a stretch of {}, which begins {} after the start; the table has all calls.{hidden}",
            plural(calls, "call"),
            quantity(Some(window[1] - window[0]), "s"),
            quantity(Some(window[0]), "s"),
        ),
        x: Axis::of("time since the start", "s").between(window[0], window[1]),
        y: Axis::of("thread", ""),
        layers: layers(&labels, &items, [begin_ns, end_ns], since_start),
    })
}

/// How long after the beginning of a time of `length_ns` a stretch begins: at most three quarters of it.
fn offset_ns(length_ns: u64) -> u64 {
    let steps = length_ns / 4 * 3 / STEP_NS;
    steps.checked_ilog2().map_or(0, |power| STEP_NS << power)
}

/// A line with a name for each lane, the first on top, and the spans by name and state.
fn layers(
    labels: &[String],
    items: &[Item],
    [begin_ns, end_ns]: [u64; 2],
    since_start: impl Fn(u64) -> f64,
) -> Vec<Layer> {
    let y = |lane: usize| (labels.len() - 1 - lane) as f64;
    let rows = labels
        .iter()
        .enumerate()
        .map(|(lane, label)| Layer::new("", Tone::Soft, Marks::Across { y: y(lane), label: label.clone() }));
    let mut kinds: BTreeMap<(&str, CallState), Vec<[f64; 3]>> = BTreeMap::new();
    for item in items {
        let ends = [item.from_ns.max(begin_ns), item.to_ns.min(end_ns)].map(&since_start);
        kinds.entry((item.name, item.state)).or_default().push([y(item.lane), ends[0], ends[1]]);
    }
    let mut tones = TONES.into_iter().cycle();
    let spans = kinds.into_iter().map(|((name, state), at)| {
        let (name, tone) = match state {
            CallState::Ready => (name.to_owned(), tones.next()),
            CallState::Blocked => (format!("{name}, blocked"), None),
            CallState::Unknown => (format!("{name}, state unknown"), tones.next()),
        };
        Layer::new(&name, tone.unwrap_or(Tone::Soft), Marks::Spans { at })
    });
    rows.chain(spans).collect()
}

#[cfg(test)]
mod tests {
    use sys::span::Span;

    use super::*;
    use crate::softirqs::Softirq;

    const MS: u64 = 1_000_000;

    /// A thread that makes a call of 10 us every 100 us, from 5 s of the clock on.
    fn thread(calls: u64) -> ThreadSpans {
        let call = |n| {
            let (from_ns, state) = (5000 * MS + n * 100_000, [CallState::Ready, CallState::Blocked]);
            Span { name: "recv", from_ns, to_ns: from_ns + 10_000, state: state[n as usize % 2] }
        };
        ThreadSpans { thread: 7, name: "udp".into(), spans: (0..calls).map(call).collect(), lost: 0 }
    }

    fn known<'a>(threads: &'a [ThreadSpans], softirqs: Option<&'a Softirqs>, length_ms: u64) -> Known<'a> {
        let (start_ns, until_ns) = (5000 * MS, (5000 + length_ms) * MS);
        Known { threads, softirqs, start_ns, judged_from_ns: start_ns, until_ns }
    }

    fn spans(figure: &Figure, name: &str) -> Vec<[f64; 3]> {
        let layer = figure.layers.iter().find(|layer| layer.name == name);
        match layer.map(|layer| &layer.marks) {
            Some(Marks::Spans { at }) => at.clone(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn stretch_is_from_the_middle_and_bounded() {
        let threads = [thread(10_000)];
        let figure = timeline(&known(&threads, None, 1000)).unwrap();
        let (ready, blocked) = (spans(&figure, "recv"), spans(&figure, "recv, blocked"));
        assert_eq!((ready.len(), blocked.len()), (SPANS_MAX / 2, SPANS_MAX / 2));
        assert_eq!((figure.x.from, figure.x.to), (Some(0.512), Some(0.572)));
        assert_eq!((ready[0], blocked[0]), ([0.0, 0.512, 0.51201], [0.0, 0.5121, 0.51211]));
        assert!(
            figure.note.starts_with("600 calls in a stretch of 60 ms, which begins 0.512 s"),
            "{}",
            figure.note
        );
        // The other end of the connection may have begun or ended a little earlier.
        assert_eq!(timeline(&known(&threads, None, 990)).unwrap().x.from, Some(0.512));
        assert_eq!(timeline(&known(&threads, None, 1)).unwrap().x.from, Some(0.0));
        assert_eq!(timeline(&known(&[], None, 1000)), None);
    }

    #[test]
    fn softirqs_are_shown_only_if_all_of_them_are_known() {
        let threads = [thread(10_000)];
        let softirq = |n| {
            let from_ns = 5000 * MS + n * MS;
            Softirq { from_ns, to_ns: from_ns + 2000, cpu: 1, vector: 3 }
        };
        let mut softirqs =
            Softirqs { all: (0..1000).map(softirq).collect(), from_ns: 5000 * MS, to_ns: 6000 * MS, lost: 0 };
        let figure = timeline(&known(&threads, Some(&softirqs), 1000)).unwrap();
        let seen = spans(&figure, "NET_RX");
        assert!((50..60).contains(&seen.len()) && seen[0] == [0.0, 0.512, 0.512002], "{seen:?}");
        assert_eq!(spans(&figure, "recv")[0][0], 1.0, "threads are above the CPUs");
        softirqs.to_ns = 5512 * MS;
        let figure = timeline(&known(&threads, Some(&softirqs), 1000)).unwrap();
        assert_eq!(spans(&figure, "NET_RX"), Vec::<[f64; 3]>::new());
    }

    #[test]
    fn stretch_begins_where_spans_are_known() {
        let threads = [thread(500)];
        let mut known = known(&threads, None, 50);
        // The time that counts begins after the spans that were kept.
        known.judged_from_ns = 6000 * MS;
        assert_eq!(timeline(&known).unwrap().x.from, Some(0.032));
        known.judged_from_ns = 5030 * MS;
        assert_eq!(timeline(&known).unwrap().x.from, Some(0.038));
    }
}
