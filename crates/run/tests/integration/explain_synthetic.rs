//! Systems whose limit is known by construction, measured with noise, over many seeds.

use std::collections::BTreeMap;

use base::outcome::{Ceiling, Certainty, Phase, Resource, Trial};
use base::verdict::Verdict;
use fastrand::Rng;
use run::explain::{Explanation, LoadTable, explain};

use super::explained;

const SEEDS: u64 = 400;
const RIGHT_AT_LEAST: f64 = 0.99;
const USED: [Resource; 4] = [Resource::Cpu, Resource::Disk, Resource::Network, Resource::Memory];

/// A system under test: the usage of every resource is `base + cost * load` until one of them is used up.
struct System {
    limit: Resource,
    capacity: f64,
    /// The load at which the guilty resource is used up, as a real number.
    saturates_at: f64,
    cost: BTreeMap<Resource, f64>,
    base: BTreeMap<Resource, f64>,
    ceilings: BTreeMap<Resource, Ceiling>,
    noise: f64,
    counters: bool,
}

fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

impl System {
    fn drawn(rng: &mut Rng, limit: Resource, noise: f64, counters: bool) -> Self {
        let capacity = f64::from(rng.u32(5..=17));
        let saturates_at = capacity + 0.15 + 0.7 * rng.f64();
        let scales = [
            (Resource::Cpu, 14.0),
            (Resource::Disk, 25e6),
            (Resource::Network, 26e6),
            (Resource::Memory, 2.6e6),
        ];
        let mut system = Self {
            limit,
            capacity,
            saturates_at,
            cost: BTreeMap::new(),
            base: BTreeMap::new(),
            ceilings: BTreeMap::new(),
            noise,
            counters,
        };
        for (resource, scale) in scales {
            let cost = scale * (0.5 + rng.f64());
            let base = cost * 0.2 * rng.f64();
            let ends = if resource == limit { saturates_at } else { saturates_at * (1.6 + 3.0 * rng.f64()) };
            system.cost.insert(resource, cost);
            system.base.insert(resource, base);
            let ceiling = Ceiling { value: base + cost * ends, source: "calibrated".into() };
            system.ceilings.insert(resource, ceiling);
        }
        system
    }

    fn trial(&self, rng: &mut Rng, load: f64) -> Trial {
        let carried = load.min(self.saturates_at);
        let over = load > self.saturates_at;
        let mut metrics = BTreeMap::new();
        for resource in USED {
            let used = self.base[&resource] + self.cost[&resource] * carried;
            let noisy = used * (1.0 + self.noise * normal(rng));
            // A ceiling caps: noise does not lift usage above it by more than the sampling error.
            let cap = if resource == self.limit { self.ceilings[&resource].value * 1.01 } else { f64::MAX };
            metrics.insert(
                resource.metric().expect("every used resource has a metric").to_owned(),
                Some(noisy.min(cap)),
            );
        }
        let player = if self.limit == Resource::Player { 92.0 / self.capacity * load } else { 0.5 * load };
        metrics.insert("player_cpu_percent".to_owned(), Some(player * (1.0 + self.noise * normal(rng))));
        if self.counters {
            let mut set = |name: &str, of: Resource, calm: f64, high: f64| {
                let value = if over && self.limit == of { high } else { calm };
                metrics.insert(name.to_owned(), Some((value * (1.0 + 0.2 * normal(rng))).max(0.0)));
            };
            set("throttled_percent", Resource::Cpu, 0.5, 25.0);
            set("cpu_wait_percent", Resource::Cpu, 3.0, 30.0);
            set("disk_busy_percent", Resource::Disk, 40.0, 99.0);
            set("disk_await_ms", Resource::Disk, 2.0, 30.0);
            set("disk_queue", Resource::Disk, 0.5, 8.0);
            set("network_drops_per_s", Resource::Network, 10.0, 800.0);
            set("sender_limited_percent", Resource::Network, 15.0, 90.0);
            set("pressure_memory_percent", Resource::Memory, 0.0, 40.0);
        }
        let verdict = match (over, self.limit) {
            (false, _) => Verdict::Pass,
            (true, Resource::Player) => Verdict::Invalid,
            (true, _) => Verdict::Fail,
        };
        Trial {
            number: 1,
            variant: "default".into(),
            repetition: 1,
            phase: Phase::Search,
            load,
            verdict,
            reasons: Vec::new(),
            metrics,
            doubts: Vec::new(),
            started_at: jiff::Timestamp::UNIX_EPOCH,
            hold_from_s: 4.0,
            hold_to_s: 14.0,
            series: Vec::new(),
            account: Default::default(),
        }
    }

    /// Ramp up by one to the first failure, confirm it, ramp down.
    fn table(&self, rng: &mut Rng) -> LoadTable {
        let top = self.capacity as u32 + 1;
        let ups = 1..=top;
        let confirms = [top - 1, top, top - 1, top];
        let downs = (1..top).rev();
        let loads: Vec<u32> = ups.chain(confirms).chain(downs).collect();
        let trials: Vec<Trial> = loads.into_iter().map(|load| self.trial(rng, f64::from(load))).collect();
        LoadTable::from_trials(&trials, self.ceilings.clone(), "streams")
    }
}

/// Assert that `holds` for nearly all seeds; a failure shows a few of the explanations that were wrong.
fn nearly_always(
    limit: Resource,
    counters: bool,
    blind: bool,
    holds: impl Fn(&System, &Explanation) -> bool,
) {
    let mut wrong = Vec::new();
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let system = System::drawn(&mut rng, limit, 0.02, counters);
        let mut table = system.table(&mut rng);
        if blind {
            table.ceilings.remove(&limit);
        }
        let explanation = explain(&table);
        if !holds(&system, &explanation) {
            wrong.push(format!("seed {seed}: {:?} {:?}", explanation.capacity, explanation.limit));
        }
    }
    let share = 1.0 - wrong.len() as f64 / SEEDS as f64;
    wrong.truncate(3);
    assert!(share >= RIGHT_AT_LEAST, "{limit}: right in {:.1} %\n{}", 100.0 * share, wrong.join("\n"));
}

#[test]
fn limiting_resource_is_named_and_confirmed() {
    for limit in USED {
        nearly_always(limit, true, false, |system, explanation| {
            explanation.capacity.value == Some(system.capacity)
                && explanation.limit.resource == system.limit
                && explanation.limit.certainty == Certainty::Confirmed
        });
    }
}

#[test]
fn usage_and_ceilings_name_the_limit_without_counters() {
    for limit in USED {
        nearly_always(limit, false, false, |system, explanation| explanation.limit.resource == system.limit);
    }
}

#[test]
fn unknown_ceiling_is_inferred_if_counters_indicate_the_resource() {
    for limit in [Resource::Cpu, Resource::Disk, Resource::Network] {
        nearly_always(limit, true, true, |system, explanation| {
            let ceiling = explanation.saturation.get(&limit).and_then(|s| s.ceiling.as_ref());
            let truth = system.ceilings[&limit].value;
            // Below a full step above the capacity nothing flattens visibly: then no ceiling is claimed.
            let sound = ceiling
                .is_none_or(|c| c.source.starts_with("assumed") || (c.value / truth - 1.0).abs() < 0.08);
            explanation.limit.resource == system.limit && sound
        });
    }
}

#[test]
fn players_are_the_limit_if_trials_are_invalid() {
    nearly_always(Resource::Player, true, false, |system, explanation| {
        explanation.capacity.value == Some(system.capacity)
            && explanation.capacity.interval[1].is_none()
            && explanation.limit.resource == Resource::Player
    });
}

#[test]
fn capacity_is_predicted_within_one_from_loads_up_to_two_below_it() {
    for limit in USED {
        nearly_always(limit, true, false, |system, explanation| {
            let forecast = explanation.forecast.expect("a capacity of five or more leaves three loads");
            forecast.loads_up_to == system.capacity - 2.0
                && (forecast.predicted - system.capacity).abs() <= 1.0
        });
    }
}

#[test]
fn unexplained_failure_gives_no_limit() {
    nearly_always(Resource::None, true, false, |_, explanation| {
        explanation.limit.resource == Resource::None && explanation.limit.certainty == Certainty::Unknown
    });
}

#[test]
fn slope_interval_covers_the_true_slope_in_95_percent() {
    let mut held = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let rows = (1..=8).map(|n| format!("{n},{}\n", 5.0 + 10.0 * f64::from(n) + normal(&mut rng)));
        let text = "streams,cpu\n".to_owned() + &rows.collect::<String>();
        let [low, high] = explained(&text, &[]).saturation[&Resource::Cpu].cost_interval.unwrap();
        held += u64::from(low <= 10.0 && 10.0 <= high);
    }
    let share = held as f64 / SEEDS as f64;
    assert!((0.91..=0.99).contains(&share), "{share}");
}

#[test]
fn table_without_verdicts_bends_at_its_limit() {
    for (resource, unit) in [(Resource::Disk, "disk Mbit/s"), (Resource::Network, "network Mbit/s")] {
        let mut rng = Rng::with_seed(7);
        let rows = (1..=12).map(|n| {
            let used = (25.0 * f64::from(n)).min(160.0) * (1.0 + 0.01 * normal(&mut rng));
            format!("{n},{used}\n")
        });
        let text = format!("viewers,{unit}\n") + &rows.collect::<String>();
        let explanation = explained(&text, &[]);
        assert_eq!(explanation.limit.resource, resource);
        assert_eq!(explanation.capacity.value, Some(6.0), "{:?}", explanation.saturation);
        let source = &explanation.saturation[&resource].ceiling.as_ref().unwrap().source;
        assert!(source.starts_with("computed"), "{source}");
    }
}

#[test]
fn bend_of_all_resources_gives_the_capacity_but_no_limit() {
    let rows = (1..=9).map(|n| format!("{n},{},{}\n", 25 * n.min(5) + n % 2, 26 * n.min(5)));
    let text = "clients,disk Mbit/s,net Mbit/s\n".to_owned() + &rows.collect::<String>();
    let explanation = explained(&text, &[]);
    assert_eq!((explanation.capacity.value, explanation.predicted), (Some(5.0), None));
    assert_eq!(explanation.limit.resource, Resource::None);
    assert_eq!(explanation.limit.certainty, Certainty::Unknown);
}
