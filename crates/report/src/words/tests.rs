//! Sentences, and numbers in them.

use super::*;
use base::outcome::{Evidence, Saturation};

#[test]
fn loads_are_counted_in_their_unit() {
    assert_eq!(load(1.0, "streams"), "1 stream");
    assert_eq!(load(5.0, "streams"), "5 streams");
    assert_eq!(load(110e6, "bit/s"), "110 Mbit/s");
    assert_eq!([1.0, 10.0].map(|n| load(n, "load")), ["1 unit of load", "10 units of load"]);
    assert_eq!(["streams", "Mbit/s", ""].map(singular), ["stream", "Mbit/s", "unit of load"]);
}

#[test]
fn slope_with_zero_in_interval_is_no_cost() {
    let fit = |ends, zero| Saturation {
        unit: "B".into(),
        cost_per_load: 769.0,
        cost_interval: Some(ends),
        usage_at_zero: zero,
        ceiling: None,
        saturates_at: None,
        saturates_interval: None,
        n: 9,
    };
    assert_eq!(cost(&fit([-700.0, 2240.0], 7e6)), "no measurable cost");
    assert_eq!(cost(&fit([700.0, 840.0], 7e6)), "769 B");
    assert_eq!([7e6, -29e6].map(|zero| at_no_load(&fit([0.0; 2], zero))), ["7 MB", "about 0"]);
}

#[test]
fn limit_by_neighbour_differs_from_limit_by_player() {
    let limit = |certainty| limited(&Limit { resource: Resource::Player, certainty, evidence: Vec::new() });
    assert!(limit(Certainty::Confirmed).ends_with("not by the target (confirmed)"));
    assert!(limit(Certainty::Unknown).contains("or by other programs"));
}

#[test]
fn limit_by_the_cpu_names_who_else_used_it() {
    let evidence = |counters: &[(&str, f64)]| {
        let of = |(name, value): &(&str, f64)| Evidence::counted(Resource::Cpu, "x").with(*name, *value);
        counters.iter().map(of).collect()
    };
    let said = |resource, certainty, counters: &[(&str, f64)]| {
        limited(&Limit { resource, certainty, evidence: evidence(counters) })
    };
    let busy = [("used_percent", 99.0), ("other_cpu_percent", 85.0)];
    let cpu = |certainty, counters: &[(&str, f64)]| said(Resource::Cpu, certainty, counters);
    assert_eq!(
        cpu(Certainty::Confirmed, &busy),
        "Limited by cpu, of which other programs used 85 % of a core (confirmed)"
    );
    assert_eq!(
        cpu(Certainty::Unknown, &[("steal_percent", 20.0), ("other_cpu_percent", 120.0)]),
        "Possibly limited by cpu, of which other programs used 120 % of a core and the hypervisor took \
         20 % of a core (not confirmed)"
    );
    assert_eq!(cpu(Certainty::Confirmed, &busy[..1]), "Limited by cpu (confirmed)");
    // Of another limit the counter says something else.
    assert_eq!(said(Resource::Disk, Certainty::Confirmed, &busy), "Limited by disk (confirmed)");
}

#[test]
fn unconfirmed_capacity_is_marked_first() {
    let text = include_str!("../../../../tests/fixtures/run.json");
    let mut run: Run = serde_json::from_str(text).unwrap();
    run.trials.retain(|trial| trial.load <= 4.0 && trial.phase == Phase::Search);
    run.state = State::Interrupted;
    let mut variant = run.variants[0].clone();
    variant.capacity.value = Some(4.0);
    variant.capacity.interval = [Some(4.0), None];
    variant.doubts = vec![Doubt::CapacityUnconfirmed { passed: 0, wanted: 3 }.into()];
    let expected = "Not confirmed: carries at least 4 streams of 25 Mbit/s; interrupted before a larger \
                    load was measured.";
    assert_eq!(carries(&run, &variant), expected);
    variant.doubts = vec![Doubt::CapacityUnconfirmed { passed: 1, wanted: 3 }.into()];
    assert!(carries(&run, &variant).starts_with("Confirmed only 1 of 3 times: carries at least 4"));
    // A load that the players spoiled comes before one that failed beyond it.
    run.trials[3].verdict = Verdict::Fail;
    run.trials[2].verdict = Verdict::Invalid;
    variant.capacity.value = Some(2.0);
    assert!(carries(&run, &variant).ends_with("; 3 streams could not be judged."));
}

#[test]
fn open_interval_is_printed_as_open() {
    let capacity = |interval| Capacity {
        value: Some(5.0),
        unit: "streams".into(),
        interval,
        passes: 3,
        failures_above: 0,
    };
    assert_eq!(interval(&capacity([Some(5.0), None])), "5 or more");
    assert_eq!(interval(&capacity([Some(4.0), Some(5.0)])), "4 to 5");
    assert_eq!(interval(&capacity([Some(5.0), Some(5.0)])), "5");
    assert_eq!(interval(&capacity([None, None])), UNKNOWN);
}
