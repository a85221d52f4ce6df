//! `kagiri-bench lab`: what hosts, links and disks made on one machine must reach.

mod disk;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::suite::{Found, Options, Pace};

/// Compare what a lab makes with what it was asked for. Root is needed.
#[derive(Args)]
pub struct LabArgs {
    /// Values of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    #[command(flatten)]
    options: Options<Case>,
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

impl LabArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let (pairs, pace) = (self.pairs, self.options.pace());
        let open = |dir, kagiri| Ok(Settings { pairs, pace, kagiri, dir });
        let counts = |_: &Case| format!("--pairs {pairs}");
        self.options.perform("lab", open, counts, |case, settings| match case {
            Case::Disk => disk::measure(settings),
        })
    }
}
