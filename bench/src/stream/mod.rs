//! `kagiri-bench stream`: what the `stream` workload must reach.

mod content;
mod cost;
mod false_failures;
mod fixture;
mod mplayer;
mod play;
mod players;
mod seeds;
mod server;

use clap::{Args, ValueEnum};

use crate::suite::{Found, Options, Pace};
use crate::tools;
use fixture::Fixture;

/// Compare content, virtual players, content server and capacity searches with their peers.
///
/// Root and two CPUs are needed. For numbers worth keeping nothing else should run; what does run is measured
/// and stands beside every pair.
#[derive(Args)]
pub struct Settings {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Searches of each plan
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    searches: u32,
    /// Plans to search, of those under plans/
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "cpu-limited,disk-limited,network-limited,player-limited"
    )]
    plans: Vec<String>,
    #[command(flatten)]
    options: Options<Case>,
    #[arg(skip)]
    pace: Pace,
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
    /// The verdict against mplayer's frame counter over links of known rates
    Mplayer,
    /// What the sampler costs
    Sampler,
    /// How long --help takes
    Help,
}

impl Settings {
    /// Measures, or prints what was measured.
    pub fn perform(mut self) -> anyhow::Result<()> {
        self.pace = self.options.pace();
        let counts = |case: &Case| match case {
            Case::Seeds => format!("--searches {}", self.searches),
            Case::Players | Case::Falsefail | Case::Mplayer => String::new(),
            _ => format!("--pairs {}", self.pairs),
        };
        type Measure = fn(&Fixture, &Settings) -> anyhow::Result<Found>;
        self.options.perform("stream", Fixture::open, counts, |case, fixture| {
            let (measure, peers): (Measure, &[&str]) = match case {
                Case::Content => (content::measure, &["ffmpeg", "mplayer", "cp"]),
                Case::Players => (players::measure, &["nginx"]),
                Case::Server => (server::measure, &["nginx"]),
                Case::Paced => (players::paced, &["nginx"]),
                Case::Seeds => (seeds::measure, &[]),
                Case::Falsefail => (false_failures::measure, &[]),
                Case::Mplayer => (mplayer::measure, &["mplayer"]),
                Case::Sampler => (cost::sampler, &["nginx"]),
                Case::Help => (cost::help, &[]),
            };
            Ok(Found { versions: tools::versions(peers), ..measure(fixture, &self)? })
        })
    }
}
