//! `kagiri-bench lab`: what hosts, links and disks made on one machine must reach.

mod disk;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::suite::{Found, Options, Pace};
use crate::tools;

/// Its name on the command line.
const SUITE: &str = "lab";

/// Compare what a lab makes with what it was asked for. Root is needed.
#[derive(Args)]
pub struct LabArgs {
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// Values of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    #[command(flatten)]
    options: Options,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// Modelled disks against what their parameters say
    Disk,
}

struct Settings {
    pairs: u32,
    pace: Pace,
    kagiri: PathBuf,
    dir: PathBuf,
}

impl Case {
    fn measure(self, settings: &Settings) -> anyhow::Result<Found> {
        match self {
            Self::Disk => disk::measure(settings),
        }
    }
}

impl LabArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let open = || {
            let dir = self.options.dir(SUITE);
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let (kagiri, dir) = (tools::kagiri(self.options.kagiri.clone())?, dir.canonicalize()?);
            Ok(Settings { pairs: self.pairs, pace: self.options.pace(), kagiri, dir })
        };
        let counts = |_: &Case| format!("--pairs {}", self.pairs);
        self.options.perform(SUITE, &self.case, open, counts, |case, settings| case.measure(settings))
    }
}
