//! The picture of kagiri's own parts, from the spans that they recorded themselves ([`sys::span`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::timeline::{CallSpan, Picture, ThreadLane};
use sys::span::{Span, ThreadSpans};

/// The picture from `from_ns` to `to_ns` (monotonic clock). Spans within spans stand in lanes below each other, so that
/// those of a lane never overlap.
pub fn picture(threads: &[ThreadSpans], process: u32, from_ns: u64, to_ns: u64) -> Picture {
    let mut names: BTreeMap<&'static str, u16> = BTreeMap::new();
    for span in threads.iter().flat_map(|thread| &thread.spans) {
        let next = u16::try_from(names.len()).unwrap_or(u16::MAX);
        names.entry(span.name).or_insert(next);
    }
    let mut lanes = Vec::new();
    for thread in threads {
        for (depth, spans) in by_depth(&thread.spans).into_iter().enumerate() {
            let name =
                if depth == 0 { thread.name.clone() } else { format!("{} ({depth} deep)", thread.name) };
            let call = |span: &Span| CallSpan {
                from_ns: span.from_ns.clamp(from_ns, to_ns) - from_ns,
                to_ns: span.to_ns.clamp(from_ns, to_ns) - from_ns,
                name: names[span.name],
                state: span.state,
                unfinished: false,
                returned: 0,
            };
            let calls = spans.iter().filter(|span| span.to_ns >= from_ns && span.from_ns <= to_ns).map(call);
            lanes.push(ThreadLane { thread: thread.thread, process, name, calls: calls.collect() });
        }
    }
    let mut by_number: Vec<(u16, &str)> = names.into_iter().map(|(name, number)| (number, name)).collect();
    by_number.sort_unstable();
    Picture {
        length_ns: to_ns.saturating_sub(from_ns),
        names: by_number.into_iter().map(|(_, name)| name.to_owned()).collect(),
        threads: lanes,
        ..Picture::default()
    }
}

/// Spans in order of time, by how many others they lie within. A span that ends after the one it began in is cut there.
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
    use base::timeline::CallState;

    use super::*;

    fn span(name: &'static str, from_ns: u64, to_ns: u64) -> Span {
        Span { name, from_ns, to_ns, state: CallState::Ready }
    }

    #[test]
    fn spans_within_spans_have_lanes_of_their_own() {
        // In the order in which they ended.
        let spans = vec![
            span("send", 110, 120),
            span("send", 130, 140),
            span("round", 100, 200),
            span("round", 200, 260),
        ];
        let threads = [ThreadSpans { thread: 7, name: "sender".into(), spans, lost: 0 }];
        let picture = picture(&threads, 5, 100, 250);
        let lanes: Vec<_> =
            picture.threads.iter().map(|lane| (lane.name.as_str(), lane.calls.len())).collect();
        assert_eq!(lanes, [("sender", 2), ("sender (1 deep)", 2)]);
        let name_of = |call: &CallSpan| picture.names[usize::from(call.name)].as_str();
        assert!(picture.threads[0].calls.iter().all(|call| name_of(call) == "round"));
        assert!(picture.threads[1].calls.iter().all(|call| name_of(call) == "send"));
        assert_eq!((picture.threads[0].calls[1].from_ns, picture.threads[0].calls[1].to_ns), (100, 150));
    }
}
