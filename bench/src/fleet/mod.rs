//! `kagiri-bench fleet`: what many hosts, real or made, must reach.

mod agents;
mod clock;
mod errand;
mod faults;
mod lab;
mod lab200;
mod link;
mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};

use crate::record::{self, Row, Section};
use crate::{noise, render};
use stage::Stage;

/// Join, command, lose and compare the clocks of many agents, in labs made for it. Root is needed.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FleetArgs {
    #[command(subcommand)]
    errand: Option<Errand>,
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// How often each thing is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Agents of the case that has most of them
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=5000))]
    agents: u32,
    /// Measure shortly: shows that every case works, not what it comes to
    #[arg(long)]
    smoke: bool,
    /// Wait this long for a quiet machine before each measurement
    #[arg(long, value_name = "S", default_value_t = 10)]
    quiet_wait: u64,
    /// The program under test; the one beside this program without it
    #[arg(long, value_name = "FILE")]
    kagiri: Option<PathBuf>,
    /// Where labs' files and results are kept
    #[arg(long, value_name = "DIR", default_value = "target/bench/fleet")]
    dir: PathBuf,
    /// Print the section for docs/benchmarks.md
    #[arg(long)]
    markdown: bool,
    /// Measure nothing: print the last results of each case
    #[arg(long)]
    stored: bool,
}

/// What this program starts itself for, on hosts of a lab.
#[derive(Subcommand)]
enum Errand {
    /// Be many agents
    #[command(hide = true)]
    Crowd(errand::Crowd),
    /// Be a coordinator that tells what it sees
    #[command(hide = true)]
    Coordinate(errand::Coordinate),
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// Many agents and one coordinator: joining, asking, idling
    Agents,
    /// A run on 200 hosts of a lab, and a common start of 100
    Lab200,
    /// The clocks' bound between namespaces, idle and loaded
    Clock,
    /// How soon an agent that is killed or cut off is named
    Faults,
    /// A lab of 17 hosts: up, down, killed and undone
    Lab,
    /// Shaped links and delay lines against what was asked for
    Link,
}

/// What a case is given.
struct Settings {
    repeat: u32,
    agents: u32,
    smoke: bool,
    quiet: Duration,
}

impl Settings {
    /// Before each measurement.
    fn await_quiet(&self) -> anyhow::Result<()> {
        noise::await_quiet(self.quiet)
    }

    /// The full value, or the one for a smoke test.
    fn full_or<T>(&self, full: T, smoke: T) -> T {
        if self.smoke { smoke } else { full }
    }
}

/// What a case brings back.
#[derive(Default)]
struct Found {
    compared: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Case {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn measure(self, stage: &Stage, settings: &Settings) -> anyhow::Result<Found> {
        match self {
            Self::Agents => agents::measure(stage, settings),
            Self::Lab200 => lab200::measure(stage, settings),
            Self::Clock => clock::measure(stage, settings),
            Self::Faults => faults::measure(stage, settings),
            Self::Lab => lab::measure(stage, settings),
            Self::Link => link::measure(stage, settings),
        }
    }
}

impl FleetArgs {
    /// Measures, or prints what was measured, or goes on an errand.
    pub fn perform(self) -> anyhow::Result<()> {
        match self.errand {
            Some(Errand::Crowd(crowd)) => return crowd.perform(),
            Some(Errand::Coordinate(coordinate)) => return coordinate.perform(),
            None => {}
        }
        let cases = if self.case.is_empty() { Case::value_variants().to_vec() } else { self.case.clone() };
        let results = self.dir.join("results.jsonl");
        if self.stored {
            let stored = record::latest(&results)?;
            for case in cases {
                let of_case = stored.iter().filter(|section| section.case == case.name());
                of_case.for_each(|section| self.print(section));
            }
            return Ok(());
        }
        let stage = Stage::open(&self.dir, self.kagiri.clone())?;
        let quiet = Duration::from_secs(self.quiet_wait);
        let settings = Settings { repeat: self.repeat, agents: self.agents, smoke: self.smoke, quiet };
        let mut failed = 0;
        for case in cases {
            eprintln!("{} ...", case.name());
            let began = Instant::now();
            match case.measure(&stage, &settings) {
                Ok(found) => {
                    let section = self.section(case, found, began);
                    if !self.smoke {
                        record::append(&results, &section)?;
                    }
                    self.print(&section);
                }
                Err(error) => {
                    failed += 1;
                    eprintln!("{} could not be measured: {error:#}", case.name());
                }
            }
        }
        anyhow::ensure!(failed == 0, "{failed} cases could not be measured");
        Ok(())
    }

    fn print(&self, section: &Section) {
        println!("{}", if self.markdown { render::markdown(section) } else { render::text(section) });
    }

    fn section(&self, case: Case, found: Found, began: Instant) -> Section {
        Section {
            case: case.name(),
            at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            compared: found.compared,
            command: format!("kagiri-bench fleet --case {} --repeat {}", case.name(), self.repeat),
            versions: BTreeMap::new(),
            rows: found.rows,
            notes: found.notes,
            took_s: began.elapsed().as_secs_f64(),
        }
    }
}
