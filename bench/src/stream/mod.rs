//! `kagiri-bench stream`: what the `stream` workload must reach.

mod content;
mod falsefail;
mod help;
mod mplayer;
mod paced;
mod play;
mod players;
mod pull;
mod sampler;
mod seeds;
mod server;
mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::record::{self, Row, Section};
use crate::{noise, render, tools};
use stage::Stage;

/// Compare content, virtual players, content server and capacity searches with their peers.
///
/// Root and two CPUs are needed. For numbers worth keeping nothing else should run; what does run is measured and
/// stands beside every pair.
#[derive(Args)]
pub struct StreamArgs {
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Searches of each plan
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    searches: u32,
    /// Plans to search, of those under plans/
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "cpu-limited,disk-limited,network-limited,player-limited"
    )]
    plans: Vec<String>,
    /// Measure shortly: shows that every case works, not what it comes to
    #[arg(long)]
    smoke: bool,
    /// Wait this long for a quiet machine before each measurement
    #[arg(long, value_name = "S", default_value_t = 10)]
    quiet_wait: u64,
    /// The program under test; the one beside this program without it
    #[arg(long, value_name = "FILE")]
    kagiri: Option<PathBuf>,
    /// Where content and results are kept
    #[arg(long, value_name = "DIR", default_value = "target/bench/stream")]
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
    /// Making ten minutes of content, against ffmpeg's copying and cp
    Content,
    /// Virtual players that one core carries
    Players,
    /// The embedded server against nginx, as fast as possible
    Server,
    /// The embedded server against nginx, paced streams
    Paced,
    /// The ready plans whose capacity is known
    Seeds,
    /// Half the capacity for three stream-hours: nothing may fail
    Falsefail,
    /// The verdict against mplayer's frame counter at limited rates
    Mplayer,
    /// What the sampler costs
    Sampler,
    /// How long --help takes
    Help,
}

/// What a case is given.
struct Settings {
    pairs: u32,
    searches: u32,
    plans: Vec<String>,
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
    versions: BTreeMap<String, String>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl StreamArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let all = Case::value_variants();
        let cases = if self.case.is_empty() { all.to_vec() } else { self.case.clone() };
        let results = self.dir.join("results.jsonl");
        if self.stored {
            let stored = record::latest(&results)?;
            for case in cases {
                stored
                    .iter()
                    .filter(|section| section.case == name(case))
                    .for_each(|found| self.print(found));
            }
            return Ok(());
        }
        let stage = Stage::open(&self.dir, self.kagiri.clone())?;
        let settings = Settings {
            pairs: self.pairs,
            searches: self.searches,
            plans: self.plans.clone(),
            smoke: self.smoke,
            quiet: Duration::from_secs(self.quiet_wait),
        };
        let mut failed = 0;
        for case in cases {
            eprintln!("{} ...", name(case));
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
                    eprintln!("{} could not be measured: {error:#}", name(case));
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
        let count = match case {
            Case::Seeds => format!(" --searches {}", self.searches),
            Case::Players | Case::Falsefail | Case::Mplayer => String::new(),
            _ => format!(" --pairs {}", self.pairs),
        };
        Section {
            case: name(case),
            at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            compared: found.compared,
            command: format!("kagiri-bench stream --case {}{count}", name(case)),
            versions: found.versions,
            rows: found.rows,
            notes: found.notes,
            took_s: began.elapsed().as_secs_f64(),
        }
    }
}

fn name(case: Case) -> String {
    format!("{case:?}").to_lowercase()
}

impl Case {
    fn measure(self, stage: &Stage, settings: &Settings) -> anyhow::Result<Found> {
        let (mut found, peers): (Found, &[&str]) = match self {
            Self::Content => (content::measure(stage, settings)?, &["ffmpeg", "mplayer", "cp"]),
            Self::Players => (players::measure(stage, settings)?, &["nginx"]),
            Self::Server => (server::measure(stage, settings)?, &["nginx"]),
            Self::Paced => (paced::measure(stage, settings)?, &["nginx"]),
            Self::Seeds => (seeds::measure(stage, settings)?, &[]),
            Self::Falsefail => (falsefail::measure(stage, settings)?, &[]),
            Self::Mplayer => (mplayer::measure(stage, settings)?, &["mplayer", "nginx"]),
            Self::Sampler => (sampler::measure(stage, settings)?, &["nginx"]),
            Self::Help => (help::measure(stage, settings)?, &[]),
        };
        found.versions = tools::versions(peers);
        Ok(found)
    }
}
