//! `kagiri-bench daq`: what building events must reach.

mod causes;
mod cliff;
mod clocks;
mod credit;
mod fixture;
mod iperf3_baseline;
mod loopback;
mod neper;
mod port;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::suite::{Found, Options, Pace};
use fixture::Fixture;

/// Its name on the command line.
const SUITE: &str = "daq";

/// Build events from up to ten thousand sources, over loopback and over the links of labs made for it. Root
/// is needed.
#[derive(Args)]
pub struct DaqArgs {
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// How often each thing is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Fragments of the long case, in thousands
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    thousand_fragments: u64,
    /// neper's tcp_rr, to compare with; without it the rate is measured alone
    #[arg(long, value_name = "FILE")]
    neper: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// 1000 sources of 1 KiB over loopback, against neper's tcp_rr
    Rate,
    /// The same for very many fragments: none may be lost
    Long,
    /// 80 sources, 200 Mbit/s, 64 KiB: push and grant
    Shallow,
    /// 1000 sources, 1 Gbit/s, 64 KiB: grant
    Thousand,
    /// 40 sources of 32 KiB, 200 Mbit/s, 64 KiB: pull
    Large,
    /// How many sources a port of 64 KiB takes, against what arithmetic says
    Cliff,
    /// How far send times may be wrong, idle and loaded
    Clock,
    /// 60 triggers a second at random moments: dead time
    Poisson,
    /// One order in a hundred lost
    Dropped,
    /// 10,000 sources, on one host and on eight
    Many,
    /// The credit that is found by itself, against the best of fixed ones
    Credit,
    /// Whether the cause of a fault that was made is named
    Causes,
    /// iperf3 on the link on which events are built
    Beside,
}

struct Settings {
    repeat: u32,
    seconds: u32,
    thousand_fragments: u64,
    neper: Option<PathBuf>,
    pace: Pace,
}

impl Settings {
    fn times(&self) -> u32 {
        self.pace.full_or(self.repeat, 1)
    }
}

impl Case {
    fn measure(self, fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
        match self {
            Self::Rate => loopback::rate(fixture, settings),
            Self::Long => loopback::long(fixture, settings),
            Self::Dropped => loopback::dropped(fixture, settings),
            Self::Shallow => port::shallow(fixture, settings),
            Self::Thousand => port::thousand(fixture, settings),
            Self::Large => port::large(fixture, settings),
            Self::Poisson => port::poisson(fixture, settings),
            Self::Many => port::many(fixture, settings),
            Self::Cliff => cliff::measure(fixture, settings),
            Self::Clock => clocks::measure(fixture, settings),
            Self::Credit => credit::measure(fixture, settings),
            Self::Causes => causes::measure(fixture, settings),
            Self::Beside => iperf3_baseline::measure(fixture, settings),
        }
    }
}

impl DaqArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let settings = Settings {
            repeat: self.repeat,
            seconds: pace.full_or(self.seconds, 1),
            thousand_fragments: pace.full_or(self.thousand_fragments, 100),
            neper: self.neper.clone(),
            pace,
        };
        let open = || Fixture::open(&self.options.dir(SUITE), self.options.kagiri.clone());
        let counts = |case: &Case| match case {
            Case::Long => format!("--thousand-fragments {}", self.thousand_fragments),
            Case::Rate => format!("--repeat {} --seconds {} --neper FILE", self.repeat, self.seconds),
            _ => format!("--repeat {} --seconds {}", self.repeat, self.seconds),
        };
        self.options
            .perform(SUITE, &self.case, open, counts, |case, fixture| case.measure(fixture, &settings))
    }
}
