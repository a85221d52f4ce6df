//! The figures of requests: the histogram of their response times, and percentiles over time.

use base::format::count;
use base::outcome::{Axis, Figure, Layer, Marks, Tone};
use workload::histogram;

use super::report::{Responses, Slot, TransferReport};
use super::settings::TransferSettings;

const NS_PER_MS: f64 = 1e6;

pub(super) fn of(settings: &TransferSettings, report: &TransferReport) -> Vec<Figure> {
    let Some(responses) = &report.responses else { return Vec::new() };
    let idle = report.idle_responses.as_ref();
    let figures = [distribution(responses, idle), over_time(settings, responses, idle)];
    figures.into_iter().filter_map(Figure::kept).collect()
}

fn distribution(responses: &Responses, idle: Option<&Responses>) -> Figure {
    let name = if idle.is_some() { "under load" } else { "responses" };
    let loaded = histogram::layers(name, Tone::First, &responses.times, NS_PER_MS);
    let idle = idle.and_then(|idle| histogram::layers("idle", Tone::Third, &idle.times, NS_PER_MS));
    Figure {
        title: "Histogram of response times".into(),
        note: format!(
            "Share of the responses in each of ten bins per decade. n = {}.",
            count(responses.answered as f64)
        ),
        x: Axis::log("response time", "ms"),
        y: Axis::of("responses", "%"),
        layers: idle.into_iter().chain(loaded).flatten().collect(),
    }
}

fn over_time(settings: &TransferSettings, responses: &Responses, idle: Option<&Responses>) -> Figure {
    let idle_s = if idle.is_some() { settings.idle().s() } else { 0.0 };
    let begin_s = idle_s + settings.omit.s();
    let slots: Vec<(f64, &Slot)> = idle
        .into_iter()
        .flat_map(|idle| idle.over_time.slots())
        .chain(responses.over_time.slots().map(|(at_s, slot)| (begin_s + at_s, slot)))
        .collect();
    let line = |percent: f64| {
        let ms = |slot: &Slot| slot.percentile_ns(percent).map(|ns| ns as f64 / NS_PER_MS);
        Marks::Line { at: slots.iter().map(|(at_s, slot)| (*at_s, ms(slot))).collect() }
    };
    let longest = slots.iter().map(|(at_s, slot)| [*at_s, slot.max_ns() as f64 / NS_PER_MS]).collect();
    let mut layers = vec![
        Layer::new("longest", Tone::Soft, Marks::Points { at: longest }),
        Layer::new("99th percentile", Tone::Second, line(99.0)),
        Layer::new("median", Tone::First, line(50.0)),
    ];
    if idle.is_some() {
        layers.push(Layer::new("", Tone::Soft, Marks::Down { x: idle_s, label: "load begins".into() }));
    }
    Figure {
        title: "Response times over time".into(),
        note: "By the moment at which a request was meant to be sent. Of fewer than a hundred requests the \
               99th percentile is the longest."
            .into(),
        x: Axis::of("time since the start", "s"),
        y: Axis::log("response time", "ms"),
        layers,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::driver::OverTime;
    use super::*;

    fn responses(ms: u64, number: u64) -> Responses {
        let mut responses = Responses { answered: number, ..Responses::default() };
        responses.over_time = OverTime::new(0, Duration::from_secs(5));
        for at in 0..number {
            responses.times.record_ns(ms * 1_000_000);
            responses.over_time.count(at * 5_000_000, ms * 1_000_000);
        }
        responses
    }

    #[test]
    fn load_begins_after_the_idle_time_in_one_figure() {
        let settings = TransferSettings::read(json!({ "under_load": "2s" })).unwrap();
        let report = TransferReport {
            responses: Some(responses(40, 1000)),
            idle_responses: Some(responses(1, 400)),
            ..TransferReport::default()
        };
        let figures = of(&settings, &report);
        assert_eq!(figures.len(), 2, "{figures:?}");
        let median = figures[1].layers.iter().find(|layer| layer.name == "median").unwrap();
        let Marks::Line { at } = &median.marks else { panic!("{median:?}") };
        for (at_s, ms) in at {
            let expected = if *at_s < 2.0 { 1.0 } else { 40.0 };
            assert!((ms.unwrap() / expected - 1.0).abs() < 0.04, "{at_s} s: {ms:?} ms");
        }
        assert!(at.last().unwrap().0 > 6.9, "{at:?}");
        assert!(figures[1].layers.iter().any(|layer| matches!(layer.marks, Marks::Down { x: 2.0, .. })));
    }

    #[test]
    fn flows_without_requests_have_no_figures() {
        assert_eq!(of(&TransferSettings::default(), &TransferReport::default()), []);
    }
}
