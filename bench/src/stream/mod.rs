//! `kagiri-bench stream`: what the `stream` workload must reach.

mod content;
mod false_failures;
mod fixture;
mod help;
mod load_client;
mod mplayer;
mod paced;
mod play;
mod players;
mod sampler;
mod seeds;
mod server;

use clap::{Args, ValueEnum};

use crate::suite::{Found, Options, Pace};
use crate::tools;
use fixture::Fixture;

/// Its name on the command line.
const SUITE: &str = "stream";

/// Compare content, virtual players, content server and capacity searches with their peers.
///
/// Root and two CPUs are needed. For numbers worth keeping nothing else should run; what does run is measured
/// and stands beside every pair.
#[derive(Args)]
pub struct StreamArgs {
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
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
    options: Options,
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

struct Settings {
    pairs: u32,
    searches: u32,
    plans: Vec<String>,
    pace: Pace,
}

impl StreamArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let settings = Settings {
            pairs: self.pairs,
            searches: self.searches,
            plans: self.plans.clone(),
            pace: self.options.pace(),
        };
        let counts = |case: &Case| match case {
            Case::Seeds => format!("--searches {}", self.searches),
            Case::Players | Case::Falsefail | Case::Mplayer => String::new(),
            _ => format!("--pairs {}", self.pairs),
        };
        let open = || Fixture::open(&self.options.dir(SUITE), self.options.kagiri.clone());
        self.options
            .perform(SUITE, &self.case, open, counts, |case, fixture| case.measure(fixture, &settings))
    }
}

impl Case {
    fn measure(self, fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
        let (mut found, peers): (Found, &[&str]) = match self {
            Self::Content => (content::measure(fixture, settings)?, &["ffmpeg", "mplayer", "cp"]),
            Self::Players => (players::measure(fixture, settings)?, &["nginx"]),
            Self::Server => (server::measure(fixture, settings)?, &["nginx"]),
            Self::Paced => (paced::measure(fixture, settings)?, &["nginx"]),
            Self::Seeds => (seeds::measure(fixture, settings)?, &[]),
            Self::Falsefail => (false_failures::measure(fixture, settings)?, &[]),
            Self::Mplayer => (mplayer::measure(fixture, settings)?, &["mplayer", "nginx"]),
            Self::Sampler => (sampler::measure(fixture, settings)?, &["nginx"]),
            Self::Help => (help::measure(fixture, settings)?, &[]),
        };
        found.versions = tools::versions(peers);
        Ok(found)
    }
}
