//! Runs for the tests of this crate: one that is built by hand, and any number of arbitrary ones.

pub mod arbitrary;

use std::collections::BTreeMap;

use base::doubt::{Doubt, DoubtNote};
use base::outcome::{
    Capacity, Certainty, Evidence, Limit, Phase, Resource, Run, SCHEMA, Saturation, State, Trial,
    VariantOutcome,
};
use base::series::Series;
use base::verdict::Verdict;
use serde_json::json;

/// A trial with a few numbers, some of them unknown.
pub fn trial(number: u32, load: f64) -> Trial {
    let mut cpu = Series::new("server_cpu_percent", "%");
    for second in 0..4 {
        cpu.push(f64::from(second), (second != 2).then(|| load * 20.0 + 0.1 * f64::from(second)));
    }
    Trial {
        number,
        variant: "default".into(),
        repetition: 1,
        phase: Phase::Search,
        load,
        verdict: if load > 5.0 { Verdict::Fail } else { Verdict::Pass },
        reasons: if load > 5.0 { vec!["1 stall of 0.4 s".into()] } else { Vec::new() },
        metrics: BTreeMap::from([
            ("stalls".into(), Some(f64::from(u8::from(load > 5.0)))),
            ("server_cpu_percent".into(), Some(load * 20.0 + 0.1)),
            ("disk_bit_per_s".into(), None),
        ]),
        doubts: vec![hold_too_short()],
        started_at: "2026-11-21T14:30:12.000000001Z".parse().unwrap(),
        hold_from_s: 2.0,
        hold_to_s: 12.0,
        series: vec![cpu],
        account: Default::default(),
    }
}

/// A workload's doubt, as a stored run has it.
fn hold_too_short() -> DoubtNote {
    let note = json!({
        "kind": "hold_too_short", "hold_s": 10.0, "resolves_load": 2.5,
        "message": "judged by stalls alone, a hold of 10 s resolves loads to 2.5 streams",
        "advice": "use a longer --time",
    });
    serde_json::from_value(note).expect("a doubt")
}

pub fn capacity(value: f64) -> Capacity {
    Capacity {
        value: Some(value),
        unit: "streams".into(),
        interval: [Some(value), Some(value + 1.0)],
        passes: 3,
        failures_above: 2,
    }
}

pub fn variant(name: &str, capacities: &[f64]) -> VariantOutcome {
    let limit = Limit {
        resource: Resource::Cpu,
        certainty: Certainty::Confirmed,
        evidence: vec![Evidence::counted(Resource::Cpu, "the quota was used up for 31 % of the hold")],
    };
    let saturation = Saturation {
        unit: "%".into(),
        cost_per_load: 20.0,
        cost_interval: Some([19.5, 20.5]),
        usage_at_zero: 0.1,
        ceiling: Some(base::outcome::Ceiling { value: 100.0, source: "cgroup quota".into() }),
        saturates_at: Some(4.995),
        saturates_interval: None,
        n: 6,
    };
    VariantOutcome {
        name: name.into(),
        capacity: capacity(base::statistics::median(capacities).unwrap()),
        findings: Vec::new(),
        repetitions: capacities.iter().map(|&value| capacity(value)).collect(),
        limit,
        saturation: BTreeMap::from([(Resource::Cpu, saturation)]),
        predicted: Some(4.995),
        considerations: vec!["The CPU is the limit.".into()],
        doubts: vec![Doubt::SingleRepetition.into()],
        account: Default::default(),
        figures: Vec::new(),
    }
}

/// A complete run with six trials.
pub fn run(id: &str) -> Run {
    let outcome = variant("default", &[5.0]);
    Run {
        schema: SCHEMA,
        kagiri: "0.1.0".into(),
        run: id.into(),
        name: "seed of truth".into(),
        workload: "stream".into(),
        state: State::Complete,
        failure: None,
        started_at: "2026-11-21T14:30:12Z".parse().unwrap(),
        ended_at: Some("2026-11-21T14:32:00.5Z".parse().unwrap()),
        environment: BTreeMap::from([
            ("kernel".into(), json!("6.18.0")),
            ("cpu".into(), json!({"model": "test", "cores": 2})),
        ]),
        plan: json!({
            "schema": 1, "name": "seed of truth", "workload": "stream", "repeats": 1, "seed": 1,
                "require": [],
            "variants": [{"name": "default",
                "settings": {"bitrate": "25Mbit/s", "server": {"kind": "embedded"}}}],
        }),
        trials: (1..=6).map(|number| trial(number, f64::from(number))).collect(),
        capacity: outcome.capacity.clone(),
        limit: outcome.limit.clone(),
        saturation: outcome.saturation.clone(),
        variants: vec![outcome],
        requirements: vec![base::objective::Requirement {
            requirement: "capacity>=4".into(),
            measured: Some(5.0),
            held: true,
            unknown: None,
        }],
        doubts: vec![Doubt::NoisyNeighbour { other_cpu_percent: 12.0 }.into()],
    }
}

/// The same run as it looks when it begins.
pub fn begun(id: &str) -> Run {
    let unknown =
        Capacity { value: None, interval: [None, None], passes: 0, failures_above: 0, ..capacity(0.0) };
    Run {
        state: State::Running,
        ended_at: None,
        trials: Vec::new(),
        capacity: unknown,
        limit: Limit { resource: Resource::None, certainty: Certainty::Unknown, evidence: Vec::new() },
        saturation: BTreeMap::new(),
        variants: Vec::new(),
        requirements: Vec::new(),
        doubts: Vec::new(),
        ..run(id)
    }
}
