//! Half the capacity for three stream-hours: nothing may fail.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use base::outcome::Run;
use base::verdict::Verdict;

use super::{Fixture, Found, Settings};
use crate::noise::Meter;
use crate::record::Row;
use crate::tools;

/// Half of what one core of players is to carry.
const STREAMS: u32 = 750;
/// Three stream-hours and a little, over the runs.
const RUNS: u32 = 3;
const HOLD_S: u32 = 5;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let (streams, hold_s) = settings.pace.full_or((STREAMS, HOLD_S), (20, 2));
    let mut stalls = Row::new(format!("stalls, {streams} streams, {hold_s} s a run"), "");
    let mut failed = Row::new("verdicts `fail`", "");
    let mut hours = Row::new("stream-hours in all", "h");
    let mut notes = Vec::new();
    let mut total_h = 0.0;
    for run in 0..settings.pace.full_or(RUNS, 1) {
        settings.pace.await_quiet()?;
        let meter = Meter::start(0)?;
        let mut command = Command::new(&fixture.kagiri);
        command.env("KAGIRI_DATA", fixture.dir.join("data")).args(["stream", "--json", "--quiet"]);
        command.args(["--streams", &streams.to_string(), "--hold", &format!("{hold_s}s")]);
        command.args(["--seed", &(run + 1).to_string()]);
        let ran = tools::run(&mut command, Duration::from_secs(180), &[0])?;
        let noise = meter.finish(0)?;
        let outcome: Run = serde_json::from_str(&ran.stdout).context("kagiri printed no run")?;
        let trial = outcome.trials.first().context("the run has no trial")?;
        let metric = |name: &str| trial.metrics.get(name).copied().flatten();
        stalls.ours.push(metric("stalls").context("stalls are not known")?);
        failed.ours.push(f64::from(u8::from(trial.verdict == Verdict::Fail)));
        for row in [&mut stalls, &mut failed] {
            row.noise.push(noise);
        }
        // An invalid trial says nothing, so its hours do not count.
        if trial.verdict != Verdict::Invalid {
            total_h += f64::from(streams) * (trial.hold_to_s - trial.hold_from_s) / 3600.0;
        }
        notes.push(format!(
            "run {}: {}, least slack {} s, latest read {} ms, players' core {} %{}",
            run + 1,
            trial.verdict,
            metric("slack_min_s").map_or("?".into(), crate::render::number),
            metric("tick_late_max_ms").map_or("?".into(), crate::render::number),
            metric("player_cpu_percent").map_or("?".into(), crate::render::number),
            trial.reasons.first().map_or(String::new(), |reason| format!(" ({reason})")),
        ));
    }
    hours.ours.push(total_h);
    if let Some(bound) = base::statistics::rule_of_three_per_h(total_h) {
        notes.push(format!(
            "no stall in {total_h:.2} stream-hours would bound their rate below {bound:.2} per hour (95 %)"
        ));
    }
    Ok(Found::about(
        "`kagiri stream --streams 750`, half of what one core of players is to carry, against its \
             own embedded server, without pinning. There is no peer; the truth is known: nothing limits at \
             this load.",
    )
    .with_rows([stalls.goal_each("0, each"), failed.goal_each("0, each"), hours.goal_ours(">= 3 h")])
    .with_notes(notes))
}
