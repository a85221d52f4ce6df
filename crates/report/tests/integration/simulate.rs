//! Runs built in code: a small deterministic model of a server with a CPU and a disk ceiling, so that figures
//! and tables have the shapes of real ones.

use std::collections::BTreeMap;

use base::doubt::Doubt;
use base::objective::Requirement;
use base::outcome::{
    Capacity, Ceiling, Certainty, Evidence, Limit, Phase, Resource, Run, SCHEMA, Saturation, State, Trial,
    VariantOutcome,
};
use base::series::Series;
use base::statistics::theil_sen;
use base::verdict::Verdict;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const STREAM_BIT_PER_S: f64 = 25e6;

#[derive(Debug, Clone, Copy)]
pub struct Server {
    pub name: &'static str,
    /// CPU per stream and its ceiling, in %.
    pub cpu: (f64, f64),
    pub disk_bit_per_s: f64,
    /// Loads in the order in which they are offered.
    pub loads: &'static [(u32, Phase)],
    pub repetitions: u32,
    pub hold_s: f64,
    pub samples_per_s: f64,
}

pub const RAMP: &[(u32, Phase)] = &[
    (1, Phase::Search),
    (2, Phase::Search),
    (3, Phase::Search),
    (4, Phase::Search),
    (5, Phase::Search),
    (6, Phase::Search),
    (5, Phase::Confirm),
    (5, Phase::Confirm),
    (6, Phase::Confirm),
    (4, Phase::RampDown),
    (3, Phase::RampDown),
    (2, Phase::RampDown),
    (1, Phase::RampDown),
];

pub const CPU_LIMITED: Server = Server {
    name: "default",
    cpu: (14.2, 75.0),
    disk_bit_per_s: 400e6,
    loads: RAMP,
    repetitions: 1,
    hold_s: 10.0,
    samples_per_s: 2.0,
};

/// Noise in -1..1 that is the same in every run of the tests (a linear congruential generator).
#[derive(Debug)]
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }
}

fn start() -> Timestamp {
    "2026-03-02T09:30:00Z".parse().unwrap()
}

const NAMES: [(&str, &str); 8] = [
    ("server_cpu_percent", "%"),
    ("server_memory_bytes", "B"),
    ("socket_memory_bytes", "B"),
    ("page_cache_bytes", "B"),
    ("disk_bit_per_s", "bit/s"),
    ("network_bit_per_s", "bit/s"),
    ("slack_s", "s"),
    ("streams_playing", ""),
];

fn trial(server: &Server, number: u32, repetition: u32, (load, phase): (u32, Phase), at_s: f64) -> Trial {
    let mut noise = Noise(u64::from(number) * 7919);
    let demand = f64::from(load) * STREAM_BIT_PER_S;
    let by_cpu = server.cpu.1 / server.cpu.0 * STREAM_BIT_PER_S;
    let carried = demand.min(by_cpu).min(server.disk_bit_per_s);
    let (hold_from_s, length_s) = (5.0, 5.0 + server.hold_s);
    let mut series: Vec<Series> = NAMES.iter().map(|(name, unit)| Series::new(*name, *unit)).collect();
    let (mut slack_s, mut stalls) = (0.0f64, 0.0);
    for i in 1..=(length_s * server.samples_per_s) as u32 {
        let t = f64::from(i) / server.samples_per_s;
        let filling = if t < 2.0 { 1.3 } else { 1.0 };
        let rate = (carried * filling).min(by_cpu.min(server.disk_bit_per_s));
        slack_s = (slack_s
            + 3.0 * (rate / demand * filling - 1.0).clamp(-1.0, 1.0) / server.samples_per_s
            + if t < 2.0 { 1.0 / server.samples_per_s } else { 0.0 })
        .clamp(0.0, 1.94);
        let mut playing = f64::from(load);
        if slack_s == 0.0 && t > 2.0 {
            let still = (playing / 2.0).floor();
            (playing, stalls) = (playing - still, stalls + still);
            slack_s = 0.5;
        }
        let cpu = rate / STREAM_BIT_PER_S * server.cpu.0;
        let values = [
            (cpu + noise.next() * 2.0).max(0.0),
            2.4e6 + 0.1e6 * f64::from(load),
            0.52e6 * f64::from(load) * (1.0 + 0.05 * noise.next()),
            180e6 + rate / 8.0 * t,
            rate * (1.0 + 0.08 * noise.next()),
            rate * (1.06 + 0.02 * noise.next()),
            (slack_s - 0.03 * noise.next().abs()).max(0.0),
            playing,
        ];
        for (series, value) in series.iter_mut().zip(values) {
            series.push(t, Some((value * 100.0).round() / 100.0));
        }
    }
    let failed = stalls > 0.0;
    let mean = |i: usize| series[i].mean(hold_from_s, length_s);
    let mut metrics: BTreeMap<String, Option<f64>> =
        (0..6).map(|i| (NAMES[i].0.to_owned(), mean(i).map(|v| v.round()))).collect();
    metrics.insert("server_cpu_percent".into(), mean(0).map(|v| (v * 10.0).round() / 10.0));
    metrics.insert("slack_min_s".into(), series[6].min(hold_from_s, length_s));
    metrics.insert("stalls".into(), Some(stalls));
    metrics.insert("content_bit_per_s".into(), Some(25e6));
    metrics.insert("startup_max_s".into(), Some(0.9 + 0.02 * f64::from(load)));
    metrics.insert("throttled_percent".into(), Some(if failed { 43.0 } else { 0.0 }));
    Trial {
        number,
        variant: server.name.to_owned(),
        repetition,
        phase,
        load: f64::from(load),
        verdict: if failed { Verdict::Fail } else { Verdict::Pass },
        reasons: if failed { vec![format!("{stalls} stalls in {load} streams")] } else { Vec::new() },
        metrics,
        doubts: Vec::new(),
        started_at: start() + SignedDuration::from_secs_f64(at_s),
        hold_from_s,
        hold_to_s: length_s,
        series,
        account: Default::default(),
    }
}

fn outcome(server: &Server, trials: &[Trial]) -> VariantOutcome {
    let own = || trials.iter().filter(|trial| trial.variant == server.name);
    let best = |verdict| own().filter(move |t| t.verdict == verdict).map(|t| t.load);
    let value = best(Verdict::Pass).max_by(f64::total_cmp);
    let failed = best(Verdict::Fail).fold(f64::INFINITY, f64::min);
    let capacity = Capacity {
        value,
        unit: "streams".into(),
        interval: [value, (failed.is_finite()).then_some(value.unwrap_or(0.0))],
        passes: own().filter(|t| Some(t.load) == value).count() as u32,
        failures_above: best(Verdict::Fail).count() as u32,
    };
    let cpu_first = server.cpu.1 / server.cpu.0 < server.disk_bit_per_s / STREAM_BIT_PER_S;
    let resources = [
        (Resource::Cpu, Some((server.cpu.1, "cgroup quota"))),
        (Resource::Disk, Some((server.disk_bit_per_s, "calibrated"))),
        (Resource::Network, None),
        (Resource::Memory, None),
    ];
    let saturation: BTreeMap<_, _> = resources
        .into_iter()
        .filter_map(|(resource, ceiling)| Some((resource, fit(resource, ceiling, own())?)))
        .collect();
    let predicted = saturation.values().filter_map(|s| s.saturates_at).min_by(f64::total_cmp);
    let resource = if cpu_first { Resource::Cpu } else { Resource::Disk };
    let statement = match cpu_first {
        true => "the server was throttled for 43 % of the judged time at 6 streams",
        false => "the device gave 109 Mbit/s of its 110 Mbit/s at 5 streams, with 38 requests waiting",
    };
    let evidence =
        |statement: &str, inferred| Evidence { inferred, ..Evidence::counted(resource, statement) };
    VariantOutcome {
        name: server.name.to_owned(),
        findings: Vec::new(),
        repetitions: vec![capacity.clone(); server.repetitions as usize],
        capacity,
        limit: Limit {
            resource,
            certainty: Certainty::Confirmed,
            evidence: vec![
                evidence(statement, false),
                evidence("its line meets its ceiling before that of any other resource", true),
            ],
        },
        saturation,
        predicted,
        considerations: vec![
            format!(
                "Every stream costs about {} of the {resource}; the line through the loads that passed \
                 meets the ceiling between the largest load that passed and the next.",
                if cpu_first { "14.2 % of a core" } else { "25 Mbit/s" }
            ),
            "Memory grows with the socket buffers of each stream and is far from any ceiling.".into(),
        ],
        doubts: if server.repetitions == 1 { vec![Doubt::SingleRepetition.into()] } else { Vec::new() },
        account: Default::default(),
        figures: Vec::new(),
    }
}

fn fit<'a>(
    resource: Resource,
    ceiling: Option<(f64, &str)>,
    trials: impl Iterator<Item = &'a Trial>,
) -> Option<Saturation> {
    let name = resource.metric()?;
    let passed = trials.filter(|trial| trial.verdict == Verdict::Pass);
    let points: Vec<_> = passed.filter_map(|t| Some((t.load, (*t.metrics.get(name)?)?))).collect();
    let line = theil_sen(&points)?;
    let at = |slope: f64, ceiling: f64| (ceiling - line.intercept) / slope;
    let interval = line.slope_interval(0.95);
    Some(Saturation {
        unit: resource.unit().into(),
        cost_per_load: line.slope,
        cost_interval: interval,
        usage_at_zero: line.intercept,
        ceiling: ceiling.map(|(value, source)| Ceiling { value, source: source.into() }),
        saturates_at: ceiling.map(|(value, _)| at(line.slope, value)),
        saturates_interval: ceiling
            .and_then(|(value, _)| interval.map(|[a, b]| [at(b, value), at(a, value)])),
        n: points.len() as u32,
    })
}

/// A complete run of these servers, their repetitions interleaved.
pub fn run(name: &str, servers: &[Server]) -> Run {
    let mut trials = Vec::new();
    let mut at_s = 2.0;
    for repetition in 1..=servers.iter().map(|s| s.repetitions).max().unwrap_or(1) {
        for server in servers.iter().filter(|server| repetition <= server.repetitions) {
            for &load in server.loads {
                let made = trial(server, trials.len() as u32 + 1, repetition, load, at_s);
                at_s += made.hold_to_s + 1.5;
                trials.push(made);
            }
        }
    }
    let variants: Vec<_> = servers.iter().map(|server| outcome(server, &trials)).collect();
    let settings =
        json!({"bitrate": "25Mbit/s", "hold": "10s", "server": {"kind": "embedded", "threads": 1}});
    Run {
        schema: SCHEMA,
        kagiri: "0.1.0".into(),
        run: "20260302-093000-a1b2".into(),
        name: name.into(),
        workload: "stream".into(),
        state: State::Complete,
        failure: None,
        started_at: start(),
        ended_at: Some(start() + SignedDuration::from_secs_f64(at_s)),
        environment: [
            ("kernel", json!("6.18.0")),
            ("cpu", json!({"model": "Example CPU 3000", "cores": 2})),
            ("memory_bytes", json!(8_000_000_000u64)),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into(),
        plan: json!({
            "schema": 1, "name": name, "workload": "stream", "repeats": servers[0].repetitions, "seed": 1,
            "require": ["capacity>=4"],
            "variants": servers.iter().map(|s|
                json!({"name": s.name, "settings": settings})).collect::<Vec<_>>(),
        }),
        capacity: variants[0].capacity.clone(),
        limit: variants[0].limit.clone(),
        saturation: variants[0].saturation.clone(),
        requirements: vec![Requirement {
            requirement: "capacity>=4".into(),
            measured: variants[0].capacity.value,
            held: variants[0].capacity.value.is_some_and(|value| value >= 4.0),
            unknown: None,
        }],
        variants,
        trials,
        doubts: vec![Doubt::NoisyNeighbour { other_cpu_percent: 12.0 }.into()],
    }
}

/// CPU-limited, capacity 5.
pub fn cpu_limited() -> Run {
    run("home content server", &[CPU_LIMITED])
}

/// Two file systems on a slow disk and a faster device, three repetitions each.
pub fn several() -> Run {
    let disk = Server { cpu: (6.0, 200.0), disk_bit_per_s: 110e6, repetitions: 3, ..CPU_LIMITED };
    let mut run = run(
        "ext3 against ext4",
        &[
            Server { name: "ext3", ..disk },
            Server { name: "ext4", disk_bit_per_s: 112e6, ..disk },
            Server { name: "ext4 on flash", disk_bit_per_s: 140e6, ..disk },
        ],
    );
    run.variants[2].repetitions[1].value = Some(4.0);
    run.variants[2].capacity.interval = [Some(4.0), Some(5.0)];
    run
}

pub fn single() -> Run {
    let mut run = run("one look", &[Server { loads: &[(3, Phase::Single)], ..CPU_LIMITED }]);
    run.requirements.clear();
    run.doubts.clear();
    run
}

/// Interrupted on the way up; the server ran elsewhere, so that nothing of it could be read.
pub fn interrupted() -> Run {
    let mut run = run("remote server", &[Server { loads: &RAMP[..3], ..CPU_LIMITED }]);
    run.state = State::Interrupted;
    run.ended_at = None;
    for trial in &mut run.trials {
        for (name, value) in &mut trial.metrics {
            if !["stalls", "slack_min_s", "content_bit_per_s"].contains(&name.as_str()) {
                *value = None;
            }
        }
        for series in &mut trial.series {
            if !matches!(series.name.as_str(), "streams_playing" | "slack_s") {
                series.values.fill(None);
            }
        }
    }
    let variant = &mut run.variants[0];
    variant.capacity =
        Capacity { interval: [Some(3.0), None], passes: 1, failures_above: 0, ..variant.capacity.clone() };
    variant.saturation.clear();
    variant.predicted = None;
    variant.limit = Limit { resource: Resource::None, certainty: Certainty::Unknown, evidence: Vec::new() };
    variant.considerations.clear();
    (run.capacity, run.limit) = (variant.capacity.clone(), variant.limit.clone());
    run.saturation.clear();
    run.requirements = vec![Requirement {
        requirement: "slack_min>=500ms".into(),
        measured: None,
        held: false,
        unknown: None,
    }];
    run.doubts =
        vec![Doubt::ServerNotVisible { server: "192.0.2.7:80".into() }.into(), Doubt::Interrupted.into()];
    run
}

/// The players gave out at the third load.
pub fn player_limited() -> Run {
    let mut run = run("parsing players", &[Server { loads: &RAMP[..3], ..CPU_LIMITED }]);
    let last = &mut run.trials[2];
    last.verdict = Verdict::Invalid;
    last.reasons = vec!["the players' core was busy for 97 % of the judged time".into()];
    let doubt = json!({
        "kind": "generator_near_saturation", "cpu_percent": 97.0,
        "message": "the busiest player thread used 97 % of its core",
        "advice": "use --depth discard, fewer parsing players, or viewers on another host",
    });
    last.doubts = vec![serde_json::from_value(doubt).expect("a doubt")];
    let variant = &mut run.variants[0];
    variant.capacity = Capacity {
        value: Some(2.0),
        unit: "streams".into(),
        interval: [Some(2.0), None],
        passes: 1,
        failures_above: 0,
    };
    variant.limit = Limit {
        resource: Resource::Player,
        certainty: Certainty::Confirmed,
        evidence: vec![Evidence::counted(
            Resource::Player,
            "at 3 streams the busiest player thread used 97 % of its core",
        )],
    };
    variant.doubts = vec![
        Doubt::CapacityIsLowerBound { reason: "at 3 the measuring side gave out".into() }.into(),
        Doubt::SingleRepetition.into(),
    ];
    (run.capacity, run.limit) = (variant.capacity.clone(), variant.limit.clone());
    run
}

pub fn all() -> [(&'static str, Run); 5] {
    [
        ("cpu_limited", cpu_limited()),
        ("several", several()),
        ("single", single()),
        ("interrupted", interrupted()),
        ("player_limited", player_limited()),
    ]
}
