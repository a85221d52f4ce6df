//! `kagiri-bench lab`: what hosts, links and disks made on one machine must reach.

mod disk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::record::{self, Row, Section};
use crate::{noise, render, tools};

/// Compare what a lab makes with what it was asked for. Root is needed.
#[derive(Args)]
pub struct LabArgs {
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// Values of each comparison
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Measure shortly: shows that every case works, not what it comes to
    #[arg(long)]
    smoke: bool,
    /// Wait this long for a quiet machine before each measurement
    #[arg(long, value_name = "S", default_value_t = 10)]
    quiet_wait: u64,
    /// The program under test; the one beside this program without it
    #[arg(long, value_name = "FILE")]
    kagiri: Option<PathBuf>,
    /// Where disks and results are kept; direct I/O must work there
    #[arg(long, value_name = "DIR", default_value = "target/bench/lab")]
    dir: PathBuf,
    /// Print the section for docs/benchmarks.md
    #[arg(long)]
    markdown: bool,
    /// Measure nothing: print the last results of each case
    #[arg(long)]
    stored: bool,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// Modelled disks against what their parameters say
    Disk,
}

/// What a case is given.
struct Settings {
    pairs: u32,
    smoke: bool,
    quiet: Duration,
    kagiri: PathBuf,
    dir: PathBuf,
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
        format!("lab-{self:?}").to_lowercase()
    }

    fn measure(self, settings: &Settings) -> anyhow::Result<Found> {
        match self {
            Self::Disk => disk::measure(settings),
        }
    }
}

impl LabArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let cases = if self.case.is_empty() { Case::value_variants().to_vec() } else { self.case.clone() };
        let results = self.dir.join("results.jsonl");
        if self.stored {
            let stored = record::latest(&results)?;
            let wanted = |section: &&Section| cases.iter().any(|case| case.name() == section.case);
            stored.iter().filter(wanted).for_each(|section| self.print(section));
            return Ok(());
        }
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        let settings = Settings {
            pairs: self.pairs,
            smoke: self.smoke,
            quiet: Duration::from_secs(self.quiet_wait),
            kagiri: tools::kagiri(self.kagiri.clone())?,
            dir: self.dir.canonicalize()?,
        };
        let mut failed = 0;
        for case in cases {
            eprintln!("{} ...", case.name());
            let began = Instant::now();
            match case.measure(&settings) {
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
            command: format!(
                "kagiri-bench lab --case {} --pairs {}",
                case.name().trim_start_matches("lab-"),
                self.pairs
            ),
            versions: BTreeMap::new(),
            rows: found.rows,
            notes: found.notes,
            took_s: began.elapsed().as_secs_f64(),
        }
    }
}
