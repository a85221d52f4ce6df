//! What the suites share: their options, and how their cases are run, kept and printed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::record::{self, Row, Section};
use crate::{noise, render};

/// The options of every suite.
#[derive(Args)]
pub struct Options {
    /// Measure shortly: shows that every case works, not what it comes to
    #[arg(long)]
    smoke: bool,
    /// Wait this long for a quiet machine before each measurement
    #[arg(long, value_name = "S", default_value_t = 10)]
    quiet_wait: u64,
    /// The program under test; the one beside this program without it
    #[arg(long, value_name = "FILE")]
    pub kagiri: Option<PathBuf>,
    /// Where what is made and the results are kept [default: target/bench/SUITE]; direct I/O must work there
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the section for docs/benchmarks.md
    #[arg(long)]
    markdown: bool,
    /// Measure nothing: print the last results of each case
    #[arg(long)]
    stored: bool,
}

/// How long and how undisturbed a case measures.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    smoke: bool,
    quiet: Duration,
}

impl Pace {
    /// Before each measurement.
    pub fn await_quiet(&self) -> anyhow::Result<()> {
        noise::await_quiet(self.quiet)
    }

    /// The full value, or the one for a smoke test.
    pub fn full_or<T>(&self, full: T, smoke: T) -> T {
        if self.smoke { smoke } else { full }
    }
}

/// What a case brings back.
#[derive(Default)]
pub struct Found {
    /// What was compared with what, and how.
    pub compared: String,
    /// The peers' versions.
    pub versions: BTreeMap<String, String>,
    /// The lines.
    pub rows: Vec<Row>,
    /// What a reader must know about the whole.
    pub notes: Vec<String>,
}

impl Options {
    /// The pace that they ask for.
    pub fn pace(&self) -> Pace {
        Pace { smoke: self.smoke, quiet: Duration::from_secs(self.quiet_wait) }
    }

    /// Where a suite keeps things.
    pub fn dir(&self, suite: &str) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| PathBuf::from("target/bench").join(suite))
    }

    /// Measures the cases, all if none is named, or prints what was measured. `open` makes what they share,
    /// `counts` says the options that make a case what it is.
    pub fn perform<Case: ValueEnum, Fixture>(
        &self,
        suite: &str,
        cases: &[Case],
        open: impl FnOnce() -> anyhow::Result<Fixture>,
        counts: impl Fn(&Case) -> String,
        measure: impl Fn(&Case, &Fixture) -> anyhow::Result<Found>,
    ) -> anyhow::Result<()> {
        let cases = if cases.is_empty() { Case::value_variants() } else { cases };
        let results = self.dir(suite).join("results.jsonl");
        if self.stored {
            let stored = record::latest(&results)?;
            let title = |case: &Case| format!("{suite}: {}", name(case));
            let of_case = |case| stored.iter().filter(move |section| section.case == title(case));
            cases.iter().flat_map(of_case).for_each(|section| self.print(section));
            return Ok(());
        }
        let fixture = open()?;
        let mut failed = 0;
        for case in cases {
            let name = name(case);
            eprintln!("{suite}: {name} ...");
            let began = Instant::now();
            match measure(case, &fixture) {
                Ok(found) => {
                    let command = format!("kagiri-bench {suite} --case {name} {}", counts(case));
                    let section = section(format!("{suite}: {name}"), command.trim_end(), found, began);
                    if !self.smoke {
                        record::append(&results, &section)?;
                    }
                    self.print(&section);
                }
                Err(error) => {
                    failed += 1;
                    eprintln!("{suite}: {name} could not be measured: {error:#}");
                }
            }
        }
        anyhow::ensure!(failed == 0, "{failed} cases could not be measured");
        Ok(())
    }

    fn print(&self, section: &Section) {
        println!("{}", if self.markdown { render::markdown(section) } else { render::text(section) });
    }
}

/// A case's name on the command line.
fn name(case: &impl ValueEnum) -> String {
    case.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn section(case: String, command: &str, found: Found, began: Instant) -> Section {
    Section {
        case,
        at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        compared: found.compared,
        command: command.to_owned(),
        versions: found.versions,
        rows: found.rows,
        notes: found.notes,
        took_s: began.elapsed().as_secs_f64(),
    }
}
