//! The picture of kagiri's own parts, from the spans that they recorded themselves ([`sys::span`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use base::timeline::{CallRow, CallSpan, CallState, CallTimes, IN_PROCESS, Picture, ThreadLane, Times};
use sys::span::{Recorded, Span};

use super::session::Watched;

/// The picture of all recordings of the parts of this process, sequential or concurrent, and the table of its
/// spans; `None` without recordings. `target` is the name of the process.
pub fn watched(target: &str, parts: &[Recorded]) -> Option<Watched> {
    let spans = || parts.iter().flat_map(|part| &part.threads).flat_map(|thread| &thread.spans);
    let from_ns = spans().map(|span| span.from_ns).min()?;
    let to_ns = spans().map(|span| span.to_ns).max()?;
    let picture = picture(parts, from_ns, to_ns);
    Some(Watched { times: times(target, parts, &picture), picture: Some(picture) })
}

fn picture(parts: &[Recorded], from_ns: u64, to_ns: u64) -> Picture {
    let threads = || parts.iter().flat_map(|part| &part.threads);
    let names: BTreeSet<&str> = threads().flat_map(|thread| &thread.spans).map(|span| span.name).collect();
    let place_of: BTreeMap<&str, u16> = names.iter().copied().zip(0..).collect();
    let mut lanes = Vec::new();
    for thread in threads() {
        for (depth, spans) in by_depth(&thread.spans).into_iter().enumerate() {
            let name =
                if depth == 0 { thread.name.clone() } else { format!("{} ({depth} deep)", thread.name) };
            let call = |span: &Span| CallSpan {
                from_ns: span.from_ns - from_ns,
                to_ns: span.to_ns - from_ns,
                name: place_of[span.name],
                state: span.state,
                unfinished: false,
                returned: 0,
            };
            let calls = spans.iter().map(call).collect();
            lanes.push(ThreadLane { thread: thread.thread, process: std::process::id(), name, calls });
        }
    }
    Picture {
        length_ns: to_ns - from_ns,
        names: names.into_iter().map(str::to_owned).collect(),
        threads: lanes,
        ..Picture::default()
    }
}

/// The table of what is in the picture.
fn times(target: &str, parts: &[Recorded], picture: &Picture) -> CallTimes {
    let mut of: BTreeMap<(u16, CallState), Times> = BTreeMap::new();
    for span in picture.threads.iter().flat_map(|lane| &lane.calls) {
        of.entry((span.name, span.state)).or_default().add(span.to_ns - span.from_ns);
    }
    let row = |(&(name, state), times): (&(u16, CallState), &Times)| {
        times.row(picture.names[usize::from(name)].clone(), state, picture.length_ns)
    };
    let mut calls: Vec<CallRow> = of.iter().map(row).collect();
    calls.sort_by(|a, b| b.wall_share.total_cmp(&a.wall_share));
    let sum = |of: fn(&CallTimes) -> u64| parts.iter().map(|part| of(&part.times)).sum::<u64>();
    let left_out = sum(|times| times.events) - picture.spans() as u64;
    let is_full = || format!("the picture is full: {left_out} spans are not in it, and not in its table");
    CallTimes {
        target: target.to_owned(),
        ended: None,
        wall_s: picture.length_ns as f64 / 1e9,
        processes: 1,
        threads: sum(|times| times.threads),
        calls,
        softirqs: Vec::new(),
        unfinished: Vec::new(),
        backend: IN_PROCESS.to_owned(),
        backend_because: None,
        events_counted: sum(|times| times.events_counted),
        events: sum(|times| times.events),
        events_lost: sum(|times| times.events_lost),
        calls_lost: sum(|times| times.calls_lost),
        cost_ns_per_call: parts.iter().find_map(|part| part.times.cost_ns_per_call),
        cost: parts.iter().find_map(|part| part.times.cost),
        doubts: (left_out > 0).then(is_full).into_iter().collect(),
    }
}

/// Spans in order of time, with their nesting depth. A span that ends after its enclosing span is cut at that
/// end.
fn by_depth(spans: &[Span]) -> Vec<Vec<Span>> {
    let mut sorted = spans.to_vec();
    sorted.sort_by_key(|span| (span.from_ns, Reverse(span.to_ns)));
    let mut lanes: Vec<Vec<Span>> = Vec::new();
    let mut within: Vec<u64> = Vec::new();
    for mut span in sorted {
        while within.last().is_some_and(|end_ns| *end_ns <= span.from_ns) {
            within.pop();
        }
        if let Some(end_ns) = within.last() {
            span.to_ns = span.to_ns.min(*end_ns);
        }
        let depth = within.len();
        if lanes.len() == depth {
            lanes.push(Vec::new());
        }
        lanes[depth].push(span);
        within.push(span.to_ns);
    }
    lanes
}

#[cfg(test)]
mod tests {
    use sys::span::{Recorder, SpanName, ThreadSpans, time};

    use super::*;

    static ROUND: SpanName = SpanName::new("round");

    fn span(name: &'static str, from_ns: u64, to_ns: u64) -> Span {
        Span { name, from_ns, to_ns, state: CallState::Ready }
    }

    /// A recording of one thread with these spans, and `left_out` further ones.
    fn recorded(spans: Vec<Span>, left_out: u64) -> Recorded {
        let mut recorded = Recorder::start(0).finish("part");
        recorded.times.events = spans.len() as u64 + left_out;
        recorded.threads = vec![ThreadSpans { thread: 7, name: "sender".into(), spans, lost: 0 }];
        recorded
    }

    #[test]
    fn nested_spans_get_their_own_lanes() {
        // In the order in which they ended.
        let spans = vec![
            span("send", 110, 120),
            span("send", 130, 140),
            span("round", 100, 200),
            span("round", 200, 260),
        ];
        let Watched { times, picture } = watched("it", &[recorded(spans, 0)]).unwrap();
        let picture = picture.unwrap();
        let lanes: Vec<_> =
            picture.threads.iter().map(|lane| (lane.name.as_str(), lane.calls.len())).collect();
        assert_eq!(lanes, [("sender", 2), ("sender (1 deep)", 2)]);
        let name_of = |call: &CallSpan| picture.names[usize::from(call.name)].as_str();
        assert!(picture.threads[0].calls.iter().all(|call| name_of(call) == "round"));
        assert!(picture.threads[1].calls.iter().all(|call| name_of(call) == "send"));
        assert_eq!((picture.threads[0].calls[1].from_ns, picture.threads[0].calls[1].to_ns), (100, 160));
        let rows: Vec<_> = times.calls.iter().map(|row| (row.name.as_str(), row.count)).collect();
        assert_eq!(rows, [("round", 2), ("send", 2)]);
        assert_eq!((times.calls[0].wall_share, times.doubts.len()), (1.0, 0));
    }

    #[test]
    fn parts_share_one_picture_and_omissions_are_reported() {
        let parts =
            [recorded(vec![span("send", 1000, 1100)], 5), recorded(vec![span("recv", 1300, 1500)], 0)];
        let Watched { times, picture } = watched("it", &parts).unwrap();
        assert_eq!(picture.map(|picture| (picture.length_ns, picture.threads.len())), Some((500, 2)));
        assert_eq!(times.calls[0].name, "recv");
        assert!(times.doubts[0].contains("5 spans are not in it"), "{:?}", times.doubts);
        assert!(watched("nothing", &[]).is_none());
    }

    #[test]
    fn recorded_spans_are_drawn() {
        let recorder = Recorder::start(10);
        let joined = recorder.handle().join();
        (0..3).for_each(|_| time(&ROUND, || ()));
        drop(joined);
        let Watched { times, picture } = watched("own", &[recorder.finish("own")]).unwrap();
        assert_eq!((times.calls.iter().map(|row| row.count).sum::<u64>(), times.threads), (3, 1));
        assert_eq!(picture.map(|picture| picture.spans()), Some(3));
    }
}
