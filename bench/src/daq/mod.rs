//! `kagiri-bench daq`: what building events must reach.

mod causes;
mod fixture;
mod loopback;
mod peers;
mod port;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::suite::{Options, Pace};
use fixture::Fixture;

/// Build events from up to ten thousand sources, over loopback and over the links of labs made for it. Root
/// is needed.
#[derive(Args)]
pub struct Settings {
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
    options: Options<Case>,
    #[arg(skip)]
    pace: Pace,
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

impl Settings {
    fn times(&self) -> u32 {
        self.pace.full_or(self.repeat, 1)
    }

    /// Measures, or prints what was measured.
    pub fn perform(mut self) -> anyhow::Result<()> {
        self.pace = self.options.pace();
        self.seconds = self.pace.full_or(self.seconds, 1);
        self.thousand_fragments = self.pace.full_or(self.thousand_fragments, 100);
        let counts = |case: &Case| match case {
            Case::Long => format!("--thousand-fragments {}", self.thousand_fragments),
            Case::Rate => format!("--repeat {} --seconds {} --neper FILE", self.repeat, self.seconds),
            _ => format!("--repeat {} --seconds {}", self.repeat, self.seconds),
        };
        self.options.perform("daq", Fixture::open, counts, |case, fixture| {
            let measure = match case {
                Case::Rate => loopback::rate,
                Case::Long => loopback::long,
                Case::Dropped => loopback::dropped,
                Case::Shallow => port::shallow,
                Case::Thousand => port::thousand,
                Case::Large => port::large,
                Case::Poisson => port::poisson,
                Case::Many => port::many,
                Case::Cliff => port::cliff,
                Case::Clock => port::clocks,
                Case::Credit => port::credit,
                Case::Causes => causes::measure,
                Case::Beside => peers::iperf3_baseline,
            };
            measure(fixture, &self)
        })
    }
}
