//! What the suites share: their options, and how their cases are run, kept and printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::noise::{self, Meter, Noise};
use crate::record::{self, Row, Section};
use crate::{render, tools};

/// The options of every suite.
#[derive(Args)]
pub struct Options<Case: ValueEnum + Send + Sync + 'static> {
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// Measure shortly: shows that every case works, not what it comes to
    #[arg(long)]
    smoke: bool,
    /// Wait this long for a quiet machine before each measurement
    #[arg(long, value_name = "S", default_value_t = 10)]
    quiet_wait: u64,
    /// The program under test; the one beside this program without it
    #[arg(long, value_name = "FILE")]
    kagiri: Option<PathBuf>,
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
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    smoke: bool,
    quiet: Duration,
}

impl Pace {
    pub fn await_quiet(&self) -> anyhow::Result<()> {
        noise::await_quiet(self.quiet)
    }

    pub fn full_or<T>(&self, full: T, smoke: T) -> T {
        if self.smoke { smoke } else { full }
    }

    /// What `one` finds on a quiet machine, and what else the machine did meanwhile.
    pub fn measured<T>(&self, one: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Noise)> {
        self.await_quiet()?;
        let meter = Meter::start(0)?;
        let found = one()?;
        Ok((found, meter.finish(0)?))
    }
}

/// Measures ours (`true`) and the peer in the order ours, peer, peer, ours, ...: a drift of the machine then
/// hits both alike.
pub fn pair<T>(number: u32, mut one: impl FnMut(bool) -> anyhow::Result<T>) -> anyhow::Result<(T, T)> {
    let ours_first = number.is_multiple_of(2);
    let (first, second) = (one(ours_first)?, one(!ours_first)?);
    Ok(if ours_first { (first, second) } else { (second, first) })
}

/// Fills rows from pairs; `one` finds a value for each of them.
pub fn fill<const N: usize>(
    mut rows: [Row; N],
    pairs: u32,
    mut one: impl FnMut(bool) -> anyhow::Result<([f64; N], Noise)>,
) -> anyhow::Result<[Row; N]> {
    for number in 0..pairs {
        let (ours, peer) = pair(number, &mut one)?;
        for ((row, ours_value), peer_value) in rows.iter_mut().zip(ours.0).zip(peer.0) {
            row.pair(ours_value, peer_value);
            row.noise.extend([ours.1, peer.1]);
        }
    }
    Ok(rows)
}

/// What a case brings back.
#[derive(Default)]
pub struct Found {
    pub compared: String,
    pub versions: BTreeMap<String, String>,
    pub rows: Vec<Row>,
    /// What a reader must know about the whole.
    pub notes: Vec<String>,
}

impl Found {
    pub fn about(compared: impl Into<String>) -> Self {
        Self { compared: compared.into(), ..Self::default() }
    }

    pub fn with_rows(self, rows: impl IntoIterator<Item = Row>) -> Self {
        Self { rows: rows.into_iter().collect(), ..self }
    }

    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// Adds the versions of the programs that it is compared with.
    pub fn with_versions(self, programs: &[&str]) -> Self {
        Self { versions: tools::versions(programs), ..self }
    }

    /// The version of one program that is not installed under its own name.
    pub fn with_version_of(self, (name, program): (&str, &Path)) -> Self {
        let found = tools::version(program).map(|version| (name.to_owned(), version));
        Self { versions: found.into_iter().collect(), ..self }
    }
}

impl<Case: ValueEnum + Send + Sync + 'static> Options<Case> {
    pub fn pace(&self) -> Pace {
        Pace { smoke: self.smoke, quiet: Duration::from_secs(self.quiet_wait) }
    }

    /// Measures the cases, all if none is named, or prints what was measured. `open` makes what they share
    /// of the directory and the program under test, `counts` says the options that make a case what it is.
    pub fn perform<Fixture>(
        &self,
        suite: &str,
        open: impl FnOnce(PathBuf, PathBuf) -> anyhow::Result<Fixture>,
        counts: impl Fn(&Case) -> String,
        measure: impl Fn(&Case, &Fixture) -> anyhow::Result<Found>,
    ) -> anyhow::Result<()> {
        let cases = if self.case.is_empty() { Case::value_variants() } else { &self.case };
        let dir = self.dir.clone().unwrap_or_else(|| PathBuf::from("target/bench").join(suite));
        let results = dir.join("results.jsonl");
        if self.stored {
            let stored = record::latest(&results)?;
            let title = |case: &Case| format!("{suite}: {}", name(case));
            let of_case = |case| stored.iter().filter(move |section| section.case == title(case));
            cases.iter().flat_map(of_case).for_each(|section| self.print(section));
            return Ok(());
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let fixture = open(dir.canonicalize()?, tools::kagiri(self.kagiri.clone())?)?;
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
