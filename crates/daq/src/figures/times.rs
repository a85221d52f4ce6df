//! Events over time, and the credit search.

use base::outcome::{Axis, Figure, Layer, Marks, Tone};

use super::{NS_PER_MS, name, tone};
use crate::report::{BuilderReport, CreditTrial, Interval};
use crate::series::whole;

/// What is counted of an interval.
type Count = fn(&Interval) -> u64;

/// Values over time, each held from the beginning of its interval; all builders together.
fn over_time(
    builders: &[&BuilderReport],
    of: impl Fn(&[&Interval]) -> Option<f64>,
) -> Vec<(f64, Option<f64>)> {
    // All builders of a trial have the same intervals, but for the last.
    let all: Vec<&[Interval]> = builders.iter().map(|builder| whole(&builder.intervals)).collect();
    let longest = all.iter().copied().max_by_key(|intervals| intervals.len()).unwrap_or_default();
    let alike = |at: usize| all.iter().filter_map(|intervals| intervals.get(at)).collect::<Vec<_>>();
    let mut way: Vec<_> = longest
        .iter()
        .enumerate()
        .map(|(at, interval)| (interval.end_s - interval.length_s, of(&alike(at))))
        .collect();
    // The last value holds to the end of its interval.
    way.extend(longest.last().zip(way.last().copied()).map(|(last, (_, value))| (last.end_s, value)));
    way
}

/// A count a second over all builders.
fn rate(count: impl Fn(&Interval) -> u64) -> impl Fn(&[&Interval]) -> Option<f64> {
    move |alike| {
        let per_s = |interval: &&Interval| {
            (interval.length_s > 0.0).then(|| count(interval) as f64 / interval.length_s)
        };
        let rates: Vec<f64> = alike.iter().filter_map(per_s).collect();
        (!rates.is_empty()).then(|| rates.iter().sum())
    }
}

pub(super) fn events(builders: &[&BuilderReport]) -> Option<Figure> {
    let any = |count: Count| {
        builders.iter().flat_map(|builder| &builder.intervals).any(|interval| count(interval) > 0)
    };
    let kinds: [(&str, Tone, Count); 3] = [
        ("vetoed", Tone::Fourth, |interval| interval.vetoed),
        ("given up", Tone::Second, |interval| interval.incomplete),
        ("complete", Tone::First, |interval| interval.complete),
    ];
    // What never happened would be a line along the bottom.
    let drawn = kinds.into_iter().filter(|&(name, _, count)| name == "complete" || any(count));
    let layer = |(name, tone, count): (&str, Tone, Count)| {
        Layer::new(name, tone, Marks::Steps { at: over_time(builders, rate(count)) })
    };
    Some(Figure {
        title: "Events over time".into(),
        note: "Events a second in each interval of the judged time.".into(),
        x: in_hold(builders),
        y: Axis::of("events", "/s"),
        layers: drawn.map(layer).collect(),
    })
}

pub(super) fn dead(builders: &[&BuilderReport]) -> Option<Figure> {
    builders.iter().any(|builder| builder.events.vetoed > 0).then(|| {
        let share = |alike: &[&Interval]| {
            let vetoed: u64 = alike.iter().map(|interval| interval.vetoed).sum();
            let ended: u64 = alike.iter().map(|interval| interval.complete + interval.incomplete).sum();
            (vetoed + ended > 0).then(|| 100.0 * vetoed as f64 / (vetoed + ended) as f64)
        };
        Figure {
            title: "Dead time".into(),
            note: "Share of the due triggers that were vetoed, in each interval of the judged time.".into(),
            x: in_hold(builders),
            y: Axis::of("dead time", "%").between(0.0, 100.0),
            layers: vec![Layer::new("", Tone::Fourth, Marks::Steps { at: over_time(builders, share) })],
        }
    })
}

pub(super) fn slowest(builders: &[&BuilderReport]) -> Option<Figure> {
    let most = |alike: &[&Interval]| {
        let known = alike.iter().map(|interval| interval.completion_max_ns).filter(|&ns| ns > 0);
        known.max().map(|ns| ns as f64 / NS_PER_MS)
    };
    Some(Figure {
        title: "Slowest event over time".into(),
        note: "The longest completion that ended in each interval of the judged time.".into(),
        x: in_hold(builders),
        y: Axis::of("completion", "ms"),
        layers: vec![Layer::new("", Tone::First, Marks::Steps { at: over_time(builders, most) })],
    })
}

/// The axis of time: the hold.
fn in_hold(builders: &[&BuilderReport]) -> Axis {
    let intervals = || builders.iter().flat_map(|builder| whole(&builder.intervals));
    let from = intervals().map(|interval| interval.end_s - interval.length_s).min_by(f64::total_cmp);
    let to = intervals().map(|interval| interval.end_s).max_by(f64::total_cmp);
    Axis { from, to, ..Axis::of("time", "s") }
}

pub(super) fn credits(builders: &[&BuilderReport]) -> Option<Figure> {
    let mut layers = Vec::new();
    for (at, builder) in builders.iter().enumerate() {
        let Some(steered) = &builder.steered else { continue };
        let point = |trial: &CreditTrial| [f64::from(trial.credit), trial.events_per_s];
        let stalled =
            |stalled: bool| steered.tried.iter().filter(move |trial| (trial.stalled > 0) == stalled);
        let layer =
            |what: &str, tone, at| Layer::new(&name(builders, builder, what), tone, Marks::Points { at });
        layers.push(layer("without a stall", tone(at), stalled(false).map(point).collect()));
        layers.push(layer("with stalls", Tone::Second, stalled(true).map(point).collect()));
        let label = format!("in use: {}", steered.credit);
        layers.push(Layer::new("", Tone::Soft, Marks::Down { x: f64::from(steered.credit), label }));
    }
    (!layers.is_empty()).then(|| Figure {
        title: "Credit search".into(),
        note: "Events per second with each credit that was tried before the judged time.".into(),
        x: Axis::of("credit", "fragments"),
        y: Axis::of("events", "/s"),
        layers,
    })
}
