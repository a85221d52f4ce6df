//! Lanes out of a figure that a workload gave as data: its rows have names, and spans of time lie on them.

use base::outcome::{Figure, Marks, Tone};
use serde_json::{Value, json};

use super::data::{Encoded, Timed, pack_all};
use crate::text::plain;

/// Longer is no figure of lanes, s.
const LENGTH_S_MAX: f64 = 1e6;
/// Names of spans at most.
const NAMES_MAX: usize = 1000;
/// The network's softirqs by the numbers of the kernel.
const SOFTIRQS: [(&str, u64); 2] = [("NET_TX", 2), ("NET_RX", 3)];

struct Lane<'a> {
    y: f64,
    label: &'a str,
    spans: Vec<LaneSpan>,
}

/// Times are ns from the figure's beginning.
struct LaneSpan {
    from_ns: u64,
    to_ns: u64,
    name: usize,
    is_blocked: bool,
}

impl Timed for LaneSpan {
    fn ends(&self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }
}

/// Spans in [`Tone::Soft`] are those in which a thread was switched out. `None` for other figures.
pub(super) fn encode(figure: &Figure) -> Option<Encoded> {
    if figure.x.unit != "s" || figure.x.is_log || figure.layers.len() > NAMES_MAX {
        return None;
    }
    let mut lanes = named_rows(figure);
    let [from_s, to_s] = ends(figure)?;
    let names: Vec<String> = figure.layers.iter().map(|layer| plain(&layer.name)).collect();
    for (name, layer) in figure.layers.iter().enumerate() {
        let at = match &layer.marks {
            Marks::Spans { at } => at,
            Marks::Across { .. } => continue,
            _ => return None,
        };
        let is_blocked = layer.tone == Tone::Soft;
        for &[y, from, to] in at {
            let lane = lanes.iter_mut().find(|lane| lane.y == y)?;
            let ns = |at_s: f64| ((at_s.clamp(from_s, to_s) - from_s) * 1e9).round() as u64;
            if from <= to {
                lane.spans.push(LaneSpan { from_ns: ns(from), to_ns: ns(to), name, is_blocked });
            }
        }
    }
    lanes.iter_mut().for_each(Lane::put_in_order);
    let mut spans = Vec::new();
    let heads: Vec<Value> = lanes.iter().map(|lane| lane.pack(&names, &mut spans)).collect();
    let head = json!({
        "length": ((to_s - from_s) * 1e9).round() as u64,
        "names": names,
        "softirqs": SOFTIRQS.map(|(name, _)| name),
        "lanes": heads,
        "counters": [],
        "losses": [],
        "returns": false,
        "states": !names.iter().any(|name| name.ends_with("state unknown")),
    });
    Some(Encoded::new(&head, &spans))
}

/// The rows that have a name, from top to bottom.
fn named_rows(figure: &Figure) -> Vec<Lane<'_>> {
    let named = figure.layers.iter().filter_map(|layer| match &layer.marks {
        Marks::Across { y, label } if !label.is_empty() => Some(Lane { y: *y, label, spans: Vec::new() }),
        _ => None,
    });
    let mut lanes: Vec<Lane> = named.collect();
    lanes.sort_by(|one, other| other.y.total_cmp(&one.y));
    lanes
}

/// Where the figure begins and ends, s; `None` without any span.
fn ends(figure: &Figure) -> Option<[f64; 2]> {
    let spans = figure.layers.iter().filter_map(|layer| match &layer.marks {
        Marks::Spans { at } => Some(at),
        _ => None,
    });
    let times = spans.flatten().flat_map(|[_, from, to]| [*from, *to]);
    let (least, most) =
        times.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), at| (at.min(least), at.max(most)));
    let (from, to) = (figure.x.from.unwrap_or(least), figure.x.to.unwrap_or(most));
    (least <= most && from < to && to - from <= LENGTH_S_MAX).then_some([from, to])
}

impl Lane<'_> {
    /// Spans in order of time; one that begins within another begins at its end.
    fn put_in_order(&mut self) {
        self.spans.sort_by_key(|span| (span.from_ns, span.to_ns));
        let mut last_ns = 0;
        for span in &mut self.spans {
            span.from_ns = span.from_ns.max(last_ns);
            span.to_ns = span.to_ns.max(span.from_ns);
            last_ns = span.to_ns;
        }
    }

    fn pack(&self, names: &[String], into: &mut Vec<u8>) -> Value {
        let vector_of = |span: &LaneSpan| SOFTIRQS.into_iter().find(|(name, _)| *name == names[span.name]);
        let are_softirqs = self.spans.iter().all(|span| vector_of(span).is_some());
        pack_all(into, &self.spans, |span| match vector_of(span) {
            Some((_, vector)) if are_softirqs => [vector << 2, 0],
            _ => [(span.name as u64) << 2 | u64::from(span.is_blocked), 0],
        });
        let kind = if are_softirqs { "softirq" } else { "thread" };
        json!({ "kind": kind, "label": plain(self.label), "count": self.spans.len() })
    }
}

#[cfg(test)]
mod tests {
    use base::outcome::{Axis, Layer};

    use super::*;

    fn spans(name: &str, tone: Tone, at: Vec<[f64; 3]>) -> Layer {
        Layer::new(name, tone, Marks::Spans { at })
    }

    fn figure(layers: Vec<Layer>) -> Figure {
        let row = |y, label: &str| Layer::new("", Tone::Soft, Marks::Across { y, label: label.into() });
        let rows = [row(1.0, "sender 7"), row(0.0, "CPU 0 softirqs")];
        Figure {
            x: Axis::of("time", "s").between(0.064, 0.065),
            layers: rows.into_iter().chain(layers).collect(),
            ..Figure::default()
        }
    }

    #[test]
    fn lanes_have_their_spans_in_order_of_time() {
        let encoded = encode(&figure(vec![
            spans("send", Tone::First, vec![[1.0, 0.0642, 0.0643], [1.0, 0.06405, 0.0641]]),
            spans("send, blocked", Tone::Soft, vec![[1.0, 0.0641, 0.0642]]),
            spans("NET_RX", Tone::Second, vec![[0.0, 0.0641, 0.06411]]),
        ]))
        .unwrap();
        let head: Value = serde_json::from_str(&encoded.head).unwrap();
        assert_eq!(head["length"], 1_000_000);
        let lanes = head["lanes"].as_array().unwrap();
        let facts = |at: usize| {
            (lanes[at]["label"].as_str(), lanes[at]["kind"].as_str(), lanes[at]["count"].as_u64())
        };
        assert_eq!(facts(0), (Some("sender 7"), Some("thread"), Some(3)));
        assert_eq!(facts(1), (Some("CPU 0 softirqs"), Some("softirq"), Some(1)));
        let mut expected = Vec::new();
        let lane = |at: &[(u64, u64, usize, bool)]| -> Vec<LaneSpan> {
            let span = |&(from_ns, to_ns, name, is_blocked)| LaneSpan { from_ns, to_ns, name, is_blocked };
            at.iter().map(span).collect()
        };
        let sender =
            lane(&[(50_000, 100_000, 2, false), (100_000, 200_000, 3, true), (200_000, 300_000, 2, false)]);
        pack_all(&mut expected, &sender, |span| [(span.name as u64) << 2 | u64::from(span.is_blocked), 0]);
        pack_all(&mut expected, &lane(&[(100_000, 110_000, 4, false)]), |_| [3 << 2, 0]);
        assert_eq!(encoded.spans, Encoded::new(&json!({}), &expected).spans);
    }

    #[test]
    fn other_figures_are_no_lanes() {
        let nameless =
            Figure { layers: vec![spans("a", Tone::First, vec![[0.0, 0.0, 1.0]])], ..figure(Vec::new()) };
        assert!(encode(&nameless).is_none(), "a row without a name");
        assert!(encode(&figure(Vec::new())).is_none(), "no span");
        let line = Layer::new("a", Tone::First, Marks::Line { at: vec![(0.0, Some(1.0))] });
        let span = || spans("a", Tone::First, vec![[0.0, 0.064, 0.065]]);
        assert!(encode(&figure(vec![span(), line])).is_none(), "a line is no span");
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX] {
            let mut odd = figure(vec![span(), spans("b", Tone::First, vec![[0.0, bad, bad]])]);
            encode(&odd);
            odd.x = Axis { unit: "s".into(), ..Axis::default() };
            encode(&odd);
        }
    }
}
