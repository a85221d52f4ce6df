//! What the cases share: labs with a builder behind a port, plans, and results of their runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use base::statistics::median;
use serde_json::Value;

use crate::fleet::fixture::{Fixture as Labs, Lab};
use crate::noise::Noise;
use crate::record::Row;
use crate::suite::Pace;
use crate::tools;

/// Hosts that stand for the sources.
pub const HOSTS: u32 = 8;
/// How long a run may take beyond the time in which it measures: agents, connections, finding the credit.
const MARGIN: Duration = Duration::from_secs(180);
const CAUSES: &str = "Why events took long";

pub struct Fixture {
    labs: Labs,
}

#[derive(Clone, Copy)]
pub struct Port {
    /// As a lab's file says it: `200Mbit/s`; unshaped without it.
    pub rate: Option<&'static str>,
    /// As a lab's file says it: `64KiB`.
    pub buffer: &'static str,
    /// More of its link, and more of the builder's host, as a lab's file says it.
    pub link: &'static str,
    /// See `link`.
    pub host: &'static str,
    /// How many hosts the sources are on: a single one is linked to the builder's directly, several by a
    /// switch.
    pub hosts: u32,
}

/// The port at which bursts of TCP break down.
pub const SHALLOW: Port = Port { rate: Some("200Mbit/s"), buffer: "64KiB", link: "", host: "", hosts: HOSTS };

/// One trial as kagiri reports it.
pub struct MeasuredTrial {
    trial: Value,
    /// What else the machine did.
    pub noise: Noise,
}

impl Port {
    pub fn lab(&self) -> String {
        let Self { rate, buffer, link, host, hosts } = self;
        let shape =
            rate.map(|rate| format!("rate = \"{rate}\"\nbuffer = \"{buffer}\"\n")).unwrap_or_default();
        let (switch, to) = match hosts {
            1 => ("", "source-1"),
            _ => ("[switch.tor]\n[[link]]\nbetween = [\"source-*\", \"tor\"]\n", "tor"),
        };
        let sources: String = (1..=*hosts).map(|host| format!("[host.source-{host}]\n")).collect();
        format!(
            "{sources}[host.builder]\n{host}\n{switch}[[link]]\nfrom = \"builder\"\nto = \
             \"{to}\"\n{shape}{link}\n"
        )
    }
}

impl Fixture {
    pub fn open(dir: PathBuf, kagiri: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { labs: Labs::open(dir, kagiri)? })
    }

    /// Brings up a builder behind the port, and hosts of sources whose own links are no limit.
    pub fn lab(&self, port: Port) -> anyhow::Result<Lab<'_>> {
        self.labs.lab("bench-daq", &port.lab())
    }

    pub fn dir(&self) -> &Path {
        &self.labs.dir
    }

    pub fn file(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.labs.dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A program of ours, storing where this suite does.
    fn kagiri(&self) -> Command {
        let mut command = Command::new(&self.labs.kagiri);
        command.env("KAGIRI_DATA", self.labs.dir.join("data"));
        command
    }

    /// One trial with these settings (lines of a plan's table), on a lab or within one process; `seconds` is
    /// what it measures.
    pub fn run(
        &self,
        lab: Option<&Lab>,
        settings: &str,
        seconds: u64,
        pace: &Pace,
    ) -> anyhow::Result<MeasuredTrial> {
        let plan = self.file("plan.toml", &plan_text(lab.is_some(), settings))?;
        let mut command = self.kagiri();
        command.arg("run").arg(&plan).args(["--json", "--quiet"]);
        if let Some(lab) = lab {
            command.args(["--lab", &lab.state.lab]);
        }
        // Whether the objective held is not what is asked here.
        let within = Duration::from_secs(seconds) + MARGIN;
        let (ran, noise) = pace.measured(|| tools::run(&mut command, within, &[0, 1, 3, 4]))?;
        let run = serde_json::from_str::<Value>(&ran.stdout);
        let mut run = run.with_context(|| format!("no JSON document: {}", ran.stderr))?;
        let trial = run["trials"][0].take();
        ensure!(trial.is_object(), "no trial was made: {} {}", run["failure"], ran.stderr);
        let broke_off = &trial["account"]["broke_off"];
        ensure!(broke_off.is_null(), "the trial broke off: {broke_off} ({settings})");
        Ok(MeasuredTrial { trial, noise })
    }
}

impl MeasuredTrial {
    pub fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let value = self.known(name);
        value.with_context(|| format!("kagiri reported no {name}: {}", self.trial["reasons"]))
    }

    /// A metric's value, if there is one.
    pub fn known(&self, name: &str) -> Option<f64> {
        self.trial["metrics"][name].as_f64()
    }

    /// Slow events by cause, in the words of the account.
    pub fn causes(&self) -> Vec<(String, u64)> {
        let tables = self.trial["account"]["tables"].as_array();
        let rows = tables.into_iter().flatten().filter(|table| table["title"] == CAUSES);
        let rows = rows.filter_map(|table| table["rows"].as_array()).flatten();
        rows.filter_map(|row| Some((row[0].as_str()?.to_owned(), count(row[1].as_str()?)?))).collect()
    }
}

pub fn plan_text(on_lab: bool, settings: &str) -> String {
    let place = match on_lab {
        true => "[place]\nbuilder = 'builder'\nsources = 'source-*'\n",
        false => "",
    };
    format!("schema = 1\nworkload = 'daq'\n{place}[daq]\n{settings}\n")
}

/// A count as a table has it, perhaps in groups of digits.
fn count(text: &str) -> Option<u64> {
    text.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// A row of one metric over several runs; runs that do not know it are left out.
pub fn row(what: &str, unit: &str, trials: &[MeasuredTrial], metric: &str, factor: f64) -> Row {
    let mut row = Row::new(what, unit);
    row.ours = trials.iter().filter_map(|trial| Some(trial.known(metric)? * factor)).collect();
    row.noise = trials.iter().map(|trial| trial.noise).collect();
    row
}

/// A row that must be 0 in every run, and known.
pub fn none(what: &str, trials: &[MeasuredTrial], metric: &str) -> Row {
    row(what, "", trials, metric, 1.0).goal_each("0, each")
}

pub fn middle(trials: &[MeasuredTrial], metric: &str) -> Option<f64> {
    median(&trials.iter().filter_map(|trial| trial.known(metric)).collect::<Vec<_>>())
}
