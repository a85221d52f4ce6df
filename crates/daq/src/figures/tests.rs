//! Figures show what reports say, and of empty or broken reports nothing.

use base::outcome::{Figure, Marks};

use super::of_trial;
use crate::report::{
    Arrival, BuilderReport, CreditTrial, EventCounts, EventPicture, GroupClock, Interval, SourceSeen,
    SourcesReport, Steered,
};

fn report() -> BuilderReport {
    let mut report = BuilderReport { sources: 3, ..BuilderReport::default() };
    for ns in [1_000_000, 2_000_000, 250_000_000] {
        report.completion.record_ns(ns);
        report.first_fragment.record_ns(ns / 10);
    }
    report.skew.record_ns_times(40_000, 3);
    report.skew.record_ns(400_000);
    report.skews = vec![(0, 40_000), (5, 60_000)];
    let clock = |bound_ns| GroupClock { bound_ns, ..GroupClock::default() };
    report.clocks = vec![clock(Some(8_000)), clock(None), clock(Some(12_000))];
    let seen = |source| SourceSeen { source, delay_mean_us: Some(900.0), ..SourceSeen::default() };
    report.sources_seen = vec![seen(0), seen(1), seen(2)];
    let arrival = |source| Arrival { source, sent_ns: -1_000, arrived_ns: 1_000_000 };
    let picture = |event, took_ns, complete| EventPicture {
        event,
        took_ns,
        complete,
        arrivals: vec![arrival(0), arrival(2)],
    };
    report.pictures = vec![picture(9, 250_000_000, false), picture(4, 2_000_000, true)];
    report.heat = vec![(4, vec![Some(900), Some(950), Some(1000)]), (9, vec![Some(900)])];
    let interval =
        |end_s, vetoed| Interval { end_s, length_s: 0.5, complete: 10, vetoed, ..Interval::default() };
    report.intervals = vec![interval(1.0, 0), interval(1.5, 30)];
    report.events = EventCounts { vetoed: 30, ..EventCounts::default() };
    let tried =
        |credit, stalled| CreditTrial { credit, events_per_s: 100.0, stalled, ..CreditTrial::default() };
    report.steered =
        Some(Steered { credit: 48, tried: vec![tried(48, 0), tried(96, 2)], ..Steered::default() });
    report
}

fn figure<'a>(all: &'a [Figure], title: &str) -> &'a Figure {
    all.iter()
        .find(|figure| figure.title.starts_with(title))
        .unwrap_or_else(|| panic!("no figure {title}: {all:#?}"))
}

#[test]
fn figures_show_what_builders_saw() {
    let (one, mut other) = (report(), report());
    other.builder = 1;
    let all = of_trial(&[&one, &other], &[SourcesReport::default()]);
    let skew = figure(&all, "Difference of send times");
    assert_eq!(skew.layers[0].marks, Marks::Band { at: vec![[0.0, 0.0, 20.0], [5.0, 0.0, 20.0]] });
    assert_eq!(skew.layers[1].name, "difference, builder 0");
    assert_eq!(skew.layers[1].marks, Marks::Points { at: vec![[0.0, 40.0], [5.0, 60.0]] });
    let histogram = figure(&all, "Histogram of the differences");
    let Marks::Steps { at } = &histogram.layers[1].marks else { panic!("{histogram:?}") };
    let known: Vec<_> = at.iter().filter(|(_, share)| *share > Some(0.0)).collect();
    assert_eq!(known.iter().map(|(_, share)| share.unwrap()).collect::<Vec<_>>(), [75.0, 25.0]);
    assert!((39.0..40.0).contains(&known[0].0) && (390.0..400.0).contains(&known[1].0), "{known:?}");
    assert_eq!(histogram.layers[2].marks, Marks::Down { x: 20.0, label: "clock error".into() });
    let Marks::Line { at } = &figure(&all, "How long").layers[0].marks else { panic!() };
    let shares: Vec<f64> = at.iter().filter_map(|point| point.1).collect();
    assert!(shares[0] == 1.0 && shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
    assert!(at.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{at:?}");
    let events = figure(&all, "Events over time");
    let names: Vec<_> = events.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["vetoed", "complete"], "nothing was given up");
    let steps = vec![(0.5, Some(40.0)), (1.0, Some(40.0)), (1.5, Some(40.0))];
    assert_eq!(events.layers[1].marks, Marks::Steps { at: steps }, "both builders together");
    let Marks::Steps { at } = &figure(&all, "Dead time").layers[0].marks else { panic!() };
    assert_eq!(at[..], [(0.5, Some(0.0)), (1.0, Some(75.0)), (1.5, Some(75.0))]);
    figure(&all, "Credit search");
    figure(&all, "Delay by source and event");
}

#[test]
fn slowest_event_is_drawn_after_a_typical_one() {
    let all = of_trial(&[&report()], &[]);
    let titles: Vec<_> = all.iter().map(|figure| figure.title.as_str()).collect();
    let events: Vec<_> = titles.into_iter().filter(|title| title.starts_with("Event ")).collect();
    assert_eq!(events, ["Event 4, typical: 2 ms", "Event 9, given up: 0.25 s"]);
    let waterfall = figure(&all, "Event 4");
    assert_eq!(waterfall.layers[0].marks, Marks::Spans { at: vec![[0.0, -0.001, 1.0], [2.0, -0.001, 1.0]] });
}

#[test]
fn empty_and_invalid_reports_give_no_figures() {
    assert_eq!(of_trial(&[], &[]), []);
    assert_eq!(of_trial(&[&BuilderReport::default()], &[SourcesReport::default()]), []);
    let mut broken = report();
    broken.sources_seen[0].delay_mean_us = Some(f64::NAN);
    broken.intervals[0].length_s = 0.0;
    broken.intervals[1].end_s = f64::INFINITY;
    let all = of_trial(&[&broken], &[]);
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Figure>>(&text).unwrap(), all);
}
