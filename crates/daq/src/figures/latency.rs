//! How long events and fragments took.

use base::format::count;
use base::histogram::Histogram;
use base::outcome::{Axis, Figure, Layer, Marks, Tone};
use workload::histogram;

use super::{NS_PER_MS, NS_PER_US, name, tone};
use crate::report::{BuilderReport, SourcesReport};

/// Points of a curve for each tenfold of its share.
const POINTS_PER_DECADE: u32 = 16;

/// Which share of all took longer than a time.
pub(super) fn completion(builders: &[&BuilderReport], sources: &[SourcesReport]) -> Option<Figure> {
    let merged = |all: &mut dyn Iterator<Item = &Histogram>| {
        let mut sum = Histogram::default();
        all.for_each(|one| sum.merge(one));
        sum
    };
    let kinds = [
        ("event complete", Tone::First, merged(&mut builders.iter().map(|b| &b.completion))),
        ("first fragment arrived", Tone::Third, merged(&mut builders.iter().map(|b| &b.first_fragment))),
        ("order to send, with warm-up", Tone::Soft, merged(&mut sources.iter().map(|s| &s.own_delay))),
    ];
    let layer = |(what, tone, times): &(&str, Tone, Histogram)| {
        Layer::new(what, *tone, Marks::Line { at: slower(times) })
    };
    Some(Figure {
        title: "How long events took".into(),
        note: "The share of events that took longer than the time below; the time counts from the trigger's \
               due time. Waits for lost fragments make a plateau near 200 ms."
            .into(),
        x: Axis::log("time", "ms"),
        y: Axis::log("share that took longer", ""),
        layers: kinds.iter().map(layer).collect(),
    })
}

/// Time in ms and the share that took longer, down to one of all.
fn slower(times: &Histogram) -> Vec<(f64, Option<f64>)> {
    let decades = (times.count().max(1) as f64).log10().ceil() as u32;
    let share = |step: u32| 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_DECADE));
    let point = |share: f64| {
        let ns = times.percentile_ns(100.0 * (1.0 - share))?;
        // A logarithmic axis has no place for what took no time.
        Some((ns.max(1) as f64 / NS_PER_MS, Some(share)))
    };
    let least = 1.0 / times.count().max(1) as f64;
    (0..=decades * POINTS_PER_DECADE)
        .map(share)
        .filter(|&share| share >= least)
        .chain([least])
        .filter_map(point)
        .collect()
}

pub(super) fn by_source(builders: &[&BuilderReport]) -> Option<Figure> {
    let seen = || builders.iter().flat_map(|builder| &builder.sources_seen);
    let of = |us: Option<f64>, source: u32| us.map(|us| [f64::from(source), us / 1e3]);
    let p99 = seen().filter_map(|seen| of(seen.delay_p99_us, seen.source)).collect();
    let mean = seen().filter_map(|seen| of(seen.delay_mean_us, seen.source)).collect();
    Some(Figure {
        title: "Delay by source".into(),
        note: "From the trigger to the arrival of the source's fragment. If the delay rises with the source \
               number, sources wait for each other; a single high point is a slow source."
            .into(),
        x: Axis::of("source", ""),
        y: Axis::of("delay", "ms"),
        layers: vec![
            Layer::new("99th percentile", Tone::Second, Marks::Points { at: p99 }),
            Layer::new("mean", Tone::First, Marks::Points { at: mean }),
        ],
    })
}

/// The difference of send times against the number of events, with the clocks' error.
pub(super) fn skew(builders: &[&BuilderReport]) -> Option<Figure> {
    let points = |(at, builder): (usize, &&BuilderReport)| {
        let us = |&(event, ns): &(u64, u64)| [event as f64, ns as f64 / NS_PER_US];
        let at_us = builder.skews.iter().map(us).collect();
        Layer::new(&name(builders, builder, "difference"), tone(at), Marks::Points { at: at_us })
    };
    let mut layers: Vec<Layer> = builders.iter().enumerate().map(points).collect();
    let events = || builders.iter().flat_map(|builder| &builder.skews).map(|&(event, _)| event as f64);
    let ends = events().min_by(f64::total_cmp).zip(events().max_by(f64::total_cmp));
    let bound_us =
        builders.iter().filter_map(|builder| bound_ns(builder)).max().map(|ns| ns as f64 / NS_PER_US);
    if let (Some((from, to)), Some(us)) = (ends, bound_us) {
        let at = vec![[from, 0.0, us], [to, 0.0, us]];
        layers.insert(0, Layer::new("clock error", Tone::Soft, Marks::Band { at }));
    }
    Some(Figure {
        title: "Difference of send times".into(),
        note:
            "Time from the first send time of an event to the last. Differences within the shaded band are \
               smaller than the clock error."
                .into(),
        x: Axis { from: ends.map(|ends| ends.0), to: ends.map(|ends| ends.1), ..Axis::of("event", "") },
        y: Axis::of("difference of send times", "us"),
        layers,
    })
}

/// How often which difference of send times occurred: all events, not only those that are kept as points.
pub(super) fn skew_histogram(builders: &[&BuilderReport]) -> Option<Figure> {
    let mut all = Histogram::default();
    builders.iter().for_each(|builder| all.merge(&builder.skew));
    let mut layers = Vec::from(histogram::layers("", Tone::First, &all, NS_PER_US)?);
    let bound_us =
        builders.iter().filter_map(|builder| bound_ns(builder)).max().map(|ns| ns as f64 / NS_PER_US);
    // A bound far below all differences would squeeze them into a corner.
    let least_us = all.percentile_ns(0.0).map_or(0.0, |ns| ns as f64 / NS_PER_US);
    if let Some(us) = bound_us.filter(|us| *us * 10.0 > least_us) {
        layers.push(Layer::new("", Tone::Soft, Marks::Down { x: us, label: "clock error".into() }));
    }
    Some(Figure {
        title: "Histogram of the differences of send times".into(),
        note: format!(
            "Share of the events in each of ten bins per decade: time from the first send time of an event \
             to the last. n = {}.",
            count(all.count() as f64)
        ),
        x: Axis::log("difference of send times", "us"),
        y: Axis::of("events", "%"),
        layers,
    })
}

/// How far the send times of two sources may seem apart: those of one group have one clock, those of two have
/// two.
fn bound_ns(builder: &BuilderReport) -> Option<u64> {
    let mut bounds: Vec<u64> = builder.clocks.iter().filter_map(|clock| clock.bound_ns).collect();
    bounds.sort_unstable();
    match bounds[..] {
        [.., second, first] => Some(first + second),
        _ => None,
    }
}
