//! All trials of a search against the load.

use std::collections::BTreeMap;

use base::outcome::{Axis, Figure, Layer, Marks, Tone, Trial};
use base::statistics::median;
use base::verdict::Verdict;

use crate::settings::{DaqSettings, FragmentSizes, Size, Vary};
use crate::theory;

/// The figures of all trials of a variant; of a single load there are none.
pub fn of_trials(settings: &DaqSettings, trials: &[&Trial]) -> Vec<Figure> {
    let Some(search) = &settings.search else { return Vec::new() };
    let counted: Vec<&Trial> =
        trials.iter().filter(|trial| trial.verdict != Verdict::Invalid).copied().collect();
    let figure = match search.vary {
        Vary::Sources => goodput(settings, &counted),
        Vary::Size => by_size(settings, &counted),
        Vary::Rate => dead_time(&counted),
    };
    figure.kept().into_iter().collect()
}

/// A metric of every trial that knows it, times `factor(load)`, against the load.
fn points(trials: &[&Trial], metric: &str, factor: impl Fn(f64) -> f64) -> Vec<[f64; 2]> {
    let known = |trial: &&Trial| trial.metrics.get(metric).copied().flatten();
    trials.iter().filter_map(|trial| Some([trial.load, known(trial)? * factor(trial.load)])).collect()
}

/// The medians of points at the same load, ascending.
fn medians(points: &[[f64; 2]]) -> Vec<(f64, Option<f64>)> {
    let mut by_load: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    points.iter().for_each(|&[load, value]| by_load.entry(load as u64).or_default().push(value));
    by_load.iter().map(|(&load, values)| (load as f64, median(values))).collect()
}

/// Points and the line through their medians; points that missed the objective have another colour.
fn layers(name: &str, tone: Tone, trials: &[&Trial], of: impl Fn(&[&Trial]) -> Vec<[f64; 2]>) -> Vec<Layer> {
    let with = |verdict: Verdict| {
        trials.iter().filter(|trial| trial.verdict == verdict).copied().collect::<Vec<_>>()
    };
    let failed = if tone == Tone::First { "did not hold the objective" } else { "" };
    vec![
        Layer::new("", tone, Marks::Line { at: medians(&of(trials)) }),
        Layer::new(name, tone, Marks::Points { at: of(&with(Verdict::Pass)) }),
        Layer::new(failed, Tone::Second, Marks::Points { at: of(&with(Verdict::Fail)) }),
    ]
}

/// Bytes that a fragment takes on the wire on average; unknown of sizes in a file.
fn fragment_bytes(settings: &DaqSettings, size: &Size) -> Option<f64> {
    let mean = match size {
        Size::File(_) => return None,
        size => FragmentSizes::new(size, 0, "").ok()?.mean_bytes(),
    };
    Some(theory::fragment_wire_bytes(mean as u32, settings.protocol) as f64)
}

/// Goodput against the number of sources, with the predicted cliff.
fn goodput(settings: &DaqSettings, trials: &[&Trial]) -> Figure {
    let mut all =
        layers("payload", Tone::First, trials, |trials| points(trials, "goodput_bit_per_s", |_| 1.0));
    let link = settings.link.map(|link| link.bit_per_s() as f64);
    if let Some(bit_per_s) = link {
        all.push(Layer::new("", Tone::Soft, Marks::Across { y: bit_per_s, label: "link".into() }));
    }
    let skews: Vec<f64> = points(trials, "send_skew_p50_us", |_| 1.0).iter().map(|point| point[1]).collect();
    let cliff = || {
        let buffer = settings.buffer?.bytes();
        let fragment = fragment_bytes(settings, &settings.size)?;
        theory::cliff_sources(buffer, link?, median(&skews)? / 1e6, fragment)
    };
    // A cliff far beyond all loads would squeeze them into a corner.
    let most = trials.iter().map(|trial| trial.load).fold(0.0, f64::max);
    if let Some(sources) = cliff().filter(|&sources| sources <= 2.0 * most) {
        let label = format!("predicted cliff: {sources:.0}");
        all.push(Layer::new("", Tone::Soft, Marks::Down { x: sources, label }));
    }
    Figure {
        title: "Goodput against the number of sources".into(),
        note: "Payload of built events per second; each point is a trial. Beyond the predicted cliff the \
               fragments of an event overflow the buffer of the builder's port, given the skew of the \
               sources."
            .into(),
        x: Axis::of("sources", ""),
        y: Axis::of("goodput", "bit/s"),
        layers: all,
    }
}

fn by_size(settings: &DaqSettings, trials: &[&Trial]) -> Figure {
    let share = 1.0 / settings.sources.max(1) as f64;
    let mut all =
        layers("on the wire", Tone::Third, trials, |trials| points(trials, "wire_bit_per_s", |_| share));
    all.extend(layers("payload", Tone::First, trials, |trials| {
        points(trials, "goodput_bit_per_s", |_| share)
    }));
    Figure {
        title: "Throughput of a source against the size of its fragments".into(),
        note:
            "Mean over the sources; each point is a trial. With small fragments most bytes on the wire are \
               headers."
                .into(),
        x: Axis::log("payload of a fragment", "B"),
        y: Axis::of("throughput of a source", "bit/s"),
        layers: all,
    }
}

fn dead_time(trials: &[&Trial]) -> Figure {
    Figure {
        title: "Dead time against the rate of triggers".into(),
        note: "Share of the due triggers that were vetoed; each point is a trial.".into(),
        x: Axis::of("triggers", "/s"),
        y: Axis::of("dead time", "%"),
        layers: layers("vetoed triggers", Tone::First, trials, |trials| {
            points(trials, "dead_time_percent", |_| 1.0)
        }),
    }
}

#[cfg(test)]
mod tests {
    use base::units::{BitRate, ByteSize};
    use serde_json::json;

    use super::*;
    use crate::settings::DaqSearch;

    fn trial(load: f64, verdict: Verdict, metrics: &[(&str, f64)]) -> Trial {
        let mut trial: Trial = serde_json::from_value(json!({
            "number": 1, "variant": "a", "repetition": 1, "phase": "search", "load": load, "verdict": "pass",
            "reasons": [], "metrics": {}, "doubts": [], "started_at": "2026-01-01T00:00:00Z",
            "hold_from_s": 0.0, "hold_to_s": 1.0,
        }))
        .unwrap();
        trial.verdict = verdict;
        trial.metrics = metrics.iter().map(|&(name, value)| (name.to_owned(), Some(value))).collect();
        trial
    }

    fn searching(vary: Vary) -> DaqSettings {
        DaqSettings { search: Some(DaqSearch { vary, ..DaqSearch::default() }), ..DaqSettings::default() }
    }

    #[test]
    fn goodput_figure_shows_the_predicted_cliff() {
        let link = Some("200Mbit/s".parse::<BitRate>().unwrap());
        let buffer = Some(ByteSize::from_bytes(64 << 10));
        let settings = DaqSettings { link, buffer, ..searching(Vary::Sources) };
        let metrics = |rate| [("goodput_bit_per_s", rate), ("send_skew_p50_us", 100.0)];
        let trials = [
            trial(80.0, Verdict::Fail, &metrics(7e6)),
            trial(40.0, Verdict::Pass, &metrics(179e6)),
            trial(40.0, Verdict::Pass, &metrics(177e6)),
            trial(60.0, Verdict::Invalid, &metrics(1e6)),
        ];
        let figures = of_trials(&settings, &trials.iter().collect::<Vec<_>>());
        let [figure] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!(figure.layers[0].marks, Marks::Line { at: vec![(40.0, Some(178e6)), (80.0, Some(7e6))] });
        assert_eq!(figure.layers[2].marks, Marks::Points { at: vec![[80.0, 7e6]] });
        let drop = figure.layers.iter().find_map(|layer| match &layer.marks {
            Marks::Down { label, .. } => Some(label.as_str()),
            _ => None,
        });
        // (65,536 B + 100 us of 200 Mbit/s) / 1154 B.
        assert_eq!(drop, Some("predicted cliff: 59"));
    }

    #[test]
    fn throughput_by_size_is_per_source() {
        let trials =
            [trial(1024.0, Verdict::Pass, &[("goodput_bit_per_s", 100e6), ("wire_bit_per_s", 113e6)])];
        let figures = of_trials(&searching(Vary::Size), &[&trials[0]]);
        assert_eq!(figures[0].layers[1].marks, Marks::Points { at: vec![[1024.0, 1.13e6]] });
    }

    #[test]
    fn single_load_or_missing_metrics_give_no_figure() {
        let trials = [trial(60.0, Verdict::Pass, &[("dead_time_percent", 2.0)])];
        assert_eq!(of_trials(&DaqSettings::default(), &[&trials[0]]), []);
        assert_eq!(of_trials(&searching(Vary::Sources), &[&trials[0]]), []);
        assert_eq!(of_trials(&searching(Vary::Rate), &[&trials[0]]).len(), 1);
        assert_eq!(of_trials(&searching(Vary::Rate), &[]), []);
    }
}
