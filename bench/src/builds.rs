//! `kagiri-bench builds`: hot paths before and after a change, measured by two builds of kagiri.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::record::Row;
use crate::suite::{Found, Options, fill};
use crate::tools;

/// Start-up, warm-up and end of a trial, beyond what is measured.
const MARGIN: Duration = Duration::from_secs(90);

/// Compare two builds of kagiri: an older one (`--before`) and the program under test.
#[derive(Args)]
pub struct BuildsArgs {
    /// The program as it was before the change
    #[arg(long, value_name = "FILE", required_unless_present = "stored")]
    before: Option<PathBuf>,
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Case {
    /// One TCP flow
    Tcp,
    /// Sixteen TCP flows
    Flows,
    /// 200 TCP flows: threads with an event loop each
    ManyFlows,
    /// Datagrams at 1 Gbit/s
    Udp,
    /// One QUIC connection
    Quic,
    /// Requests of 64 bytes, one after the other
    Requests,
    /// The same on 200 connections
    ManyRequests,
    /// 400 viewers in a single trial
    Stream,
    /// 1,000 sources that send 1 KiB each, pushed
    Daq,
    /// The same by grants
    Grant,
    /// The same by datagrams
    Datagrams,
}

/// A number of a trial: what it is, its unit, the metric's name, and the metric's unit in this one.
type Measure = (&'static str, &'static str, &'static str, f64);

struct Fixture {
    after: PathBuf,
    before: PathBuf,
    dir: PathBuf,
}

impl BuildsArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let (pairs, seconds) = (pace.full_or(self.pairs, 1), pace.full_or(self.seconds, 1));
        let counts = |_: &Case| format!("--before OLD --pairs {pairs} --seconds {seconds}");
        let open = |dir, after| {
            let before = tools::kagiri(Some(self.before.clone().context("--before names no program")?))?;
            Ok(Fixture { after, before, dir })
        };
        self.options.perform("builds", open, counts, |case, fixture| {
            let (words, measures) = case.spec();
            let rows = measures.map(|(what, unit, ..)| Row::new(what, unit));
            let one = |is_after| {
                let program = if is_after { &fixture.after } else { &fixture.before };
                pace.measured(|| measure(program, &fixture.dir, words, seconds, &measures))
            };
            let compared =
                format!("`kagiri {words}` of the build after (ours) and before the change (peer).");
            Ok(Found::about(compared).with_rows(fill(rows, pairs, one)?))
        })
    }
}

impl Case {
    /// The command in spellings that every version knows, its length left out, and what is read from it.
    fn spec(self) -> (&'static str, [Measure; 2]) {
        let moved = [
            ("received", "Gbit/s", "goodput_bit_per_s", 1e-9),
            ("CPU of both ends", "s/GB", "cpu_s_per_gb", 1.0),
        ];
        let answered = [
            ("transactions", "1/s", "transactions_per_s", 1.0),
            ("p50 of the response time", "us", "response_p50_us", 1.0),
        ];
        let built = [
            ("events", "1/s", "events_per_s", 1.0),
            ("CPU of the builder per fragment", "us", "builder_cpu_us_per_fragment", 1.0),
        ];
        match self {
            Self::Tcp => ("transfer --omit 500ms --time", moved),
            Self::Flows => ("transfer --omit 500ms --flows 16 --time", moved),
            Self::ManyFlows => ("transfer --omit 500ms --flows 200 --time", moved),
            Self::Udp => ("transfer --omit 500ms --proto udp --rate 1Gbit/s --time", moved),
            Self::Quic => ("transfer --omit 500ms --proto quic --time", moved),
            Self::Requests => ("transfer --omit 500ms --rr 64B --time", answered),
            Self::ManyRequests => ("transfer --omit 500ms --rr 64B --flows 200 --time", answered),
            Self::Stream => (
                "stream --streams 400 --duration 30s --hold",
                [
                    ("CPU of the server", "% of a core", "server_cpu_percent", 1.0),
                    ("CPU of the players", "% of a core", "player_cpu_percent", 1.0),
                ],
            ),
            Self::Daq => ("daq --sources 1000 --time", built),
            Self::Grant => ("daq --sources 1000 --pattern grant --time", built),
            Self::Datagrams => ("daq --sources 1000 --proto udp --time", built),
        }
    }
}

fn measure(
    program: &Path,
    dir: &Path,
    words: &str,
    seconds: u32,
    measures: &[Measure; 2],
) -> anyhow::Result<[f64; 2]> {
    let mut command = Command::new(program);
    command.args(words.split(' ')).arg(format!("{seconds}s")).args(["--json", "--quiet"]);
    command.env("KAGIRI_DATA", dir.join("data"));
    let ran = tools::run(&mut command, Duration::from_secs(seconds.into()) + MARGIN, &[0])?;
    let run: Value = serde_json::from_str(&ran.stdout).context("kagiri printed no run")?;
    let trial = &run["trials"][0];
    ensure!(trial["verdict"] == "pass", "the trial did not pass: {}", trial["reasons"]);
    let mut values = [0.0; 2];
    for (value, (.., name, factor)) in values.iter_mut().zip(measures) {
        *value = trial["metrics"][*name].as_f64().with_context(|| format!("{name} is unknown"))? * factor;
    }
    Ok(values)
}
