//! Searches of the plans of known capacity, each with several seeds: how often they are right.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use base::outcome::{Resource, Run, VariantOutcome};
use run::explain::{LoadTable, explain};

use super::{Fixture, Found, Settings};
use crate::noise::{Meter, Noise};
use crate::record::Row;
use crate::tools;

/// Timeout of a search.
const SEARCH_WITHIN: Duration = Duration::from_secs(1500);

struct Truth {
    plan: &'static str,
    capacity: Option<f64>,
    limit: Resource,
}

const TRUTHS: [Truth; 4] = [
    Truth { plan: "cpu-limited", capacity: Some(5.0), limit: Resource::Cpu },
    Truth { plan: "disk-limited", capacity: Some(4.0), limit: Resource::Disk },
    Truth { plan: "network-limited", capacity: Some(4.0), limit: Resource::Network },
    // How much the players carry depends on the machine; that they are the limit does not.
    Truth { plan: "player-limited", capacity: None, limit: Resource::Player },
];

/// The lines of one variant of one plan.
struct Rows {
    right: Row,
    capacity: Row,
    minutes: Row,
    forecast: Row,
}

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let mut rows: BTreeMap<String, (usize, Rows)> = BTreeMap::new();
    let mut notes = Vec::new();
    // Search by search over all plans, so that a bad hour of the machine does not hit one plan alone.
    for search in 0..settings.pace.full_or(settings.searches, 1) {
        for truth in TRUTHS.iter().filter(|truth| settings.plans.iter().any(|plan| plan == truth.plan)) {
            settings.pace.await_quiet()?;
            let (outcome, took_s, noise) = one(fixture, truth.plan, search + 1)?;
            let each_s = took_s / outcome.variants.len().max(1) as f64;
            for variant in &outcome.variants {
                let name = format!("{}, {}", truth.plan, variant.name);
                let place = rows.len();
                let (_, rows) = rows.entry(name.clone()).or_insert_with(|| (place, Rows::of(&name, truth)));
                notes.push(rows.add(truth, variant, &outcome, each_s / 60.0, noise));
                eprintln!("  {}", notes.last().map_or("", String::as_str));
            }
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|(place, _)| *place);
    let rows = rows.into_iter().flat_map(|(_, rows)| rows.finish());
    Ok(Found::about(
        "`kagiri run plans/NAME.toml --repeat 1`, each search with another seed, against the truth \
             that the plan builds: what the search finds, what it names as the limit, how long it takes, and \
             what the explanation would have forecast from loads up to the capacity less two. A plan of two \
             variants counts half its time for each.",
    )
    .with_rows(rows)
    .with_notes(notes))
}

fn one(fixture: &Fixture, plan: &str, seed: u32) -> anyhow::Result<(Run, f64, Noise)> {
    let file = Path::new("plans").join(format!("{plan}.toml"));
    let meter = Meter::start(0)?;
    let mut command = Command::new(&fixture.kagiri);
    command.env("KAGIRI_DATA", fixture.dir.join("data")).arg("run").arg(&file);
    command.args(["--json", "--quiet", "--repeat", "1", "--seed", &seed.to_string()]);
    // 3: what the plan requires did not hold; that is a result.
    let ran = tools::run(&mut command, SEARCH_WITHIN, &[0, 3])?;
    let outcome = serde_json::from_str(&ran.stdout).context("kagiri printed no run")?;
    Ok((outcome, ran.took_s, meter.finish(0)?))
}

impl Rows {
    fn of(name: &str, truth: &Truth) -> Self {
        let expected = truth.capacity.map_or("as a lower bound".to_owned(), |capacity| format!("{capacity}"));
        Self {
            right: Row::new(format!("{name}: found capacity {expected} and limit {}", truth.limit), "of n"),
            capacity: Row::new(format!("{name}: capacity"), "streams"),
            minutes: Row::new(format!("{name}: search"), "min"),
            forecast: Row::new(format!("{name}: forecast less capacity"), "streams"),
        }
    }

    fn add(
        &mut self,
        truth: &Truth,
        variant: &VariantOutcome,
        run: &Run,
        minutes: f64,
        noise: Noise,
    ) -> String {
        let capacity = variant.capacity.value;
        let is_right = variant.limit.resource == truth.limit
            && match truth.capacity {
                Some(expected) => capacity == Some(expected),
                // A lower bound has no upper end.
                None => variant.capacity.interval[1].is_none(),
            };
        self.right.ours.push(f64::from(u8::from(is_right)));
        self.capacity.ours.extend(capacity);
        self.minutes.ours.push(minutes);
        let forecast = forecast(run, variant);
        self.forecast.ours.extend(forecast.zip(capacity).map(|(forecast, capacity)| forecast - capacity));
        self.right.noise.push(noise);
        let text = |value: Option<f64>| value.map_or("unknown".to_owned(), crate::render::number);
        format!(
            "{}, {}: capacity {}, limit {} ({:?}), forecast from lower loads {}, {minutes:.1} min, \
             other programs used {:.0} % CPU{}",
            truth.plan,
            variant.name,
            text(capacity),
            variant.limit.resource,
            variant.limit.certainty,
            text(forecast),
            noise.other_cpu_percent,
            variant
                .limit
                .evidence
                .first()
                .map_or(String::new(), |evidence| format!(": {}", evidence.statement)),
        )
    }

    fn finish(self) -> [Row; 4] {
        let n = self.right.ours.len();
        let right: f64 = self.right.ours.iter().sum();
        let mut sum = Row { ours: vec![right], ..self.right };
        sum.unit = format!("of {n}");
        let is_known = !self.forecast.ours.is_empty();
        [
            sum.goal_ours(&format!("{n} of {n}")),
            self.capacity,
            self.minutes.goal_each("<= 5 min, each"),
            if is_known { self.forecast.goal_each("within 1, each") } else { self.forecast },
        ]
    }
}

/// What the explanation would have predicted from the loads up to the capacity less two.
fn forecast(run: &Run, variant: &VariantOutcome) -> Option<f64> {
    let ceilings = run.environment.get("ceilings").and_then(|all| all.get(&variant.name));
    let ceilings = ceilings.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default();
    let table = LoadTable::from_trials(run.trials_of(&variant.name), ceilings, &variant.capacity.unit);
    Some(explain(&table).forecast?.predicted)
}
