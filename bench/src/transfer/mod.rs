//! `kagiri-bench transfer`: what the engines of `transfer` must reach.

mod kagiri_peer;
mod peer;
mod requests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use transfer::flow::Mode;
use transfer::settings::Waiting;

use crate::record::Row;
use crate::suite::{Found, Options, Pace, fill};

pub use peer::{Server, children_cpu_s, free_port};
pub use requests::sockperf;

/// Compare bulk transfers over loopback with iperf3 and nuttcp, requests and answers with sockperf.
///
/// TCP of iperf3 is compared under reno and bbr. Cases with zerocopy or skipped copies need iperf3 3.17 or
/// later: name one by --iperf3 if the installed one is older.
#[derive(Args)]
pub struct TransferArgs {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// The program iperf3
    #[arg(long, value_name = "FILE", default_value = "iperf3")]
    iperf3: PathBuf,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// One TCP stream into the receiver's memory, against iperf3
    Copy,
    /// The same against iperf3 -Z (sendfile)
    CopyZerocopy,
    /// One TCP stream that the receiver's kernel drops, against iperf3 --skip-rx-copy
    Discard,
    /// The same against iperf3 -Z --skip-rx-copy
    DiscardZerocopy,
    /// One TCP stream into the receiver's memory, against nuttcp
    Nuttcp,
    /// Eight TCP streams, against iperf3 -P 8 (a thread for each)
    Eight,
    /// The same against iperf3 -P 8 -Z
    EightZerocopy,
    /// Datagrams of 1,470 bytes flat out, against iperf3
    Udp,
    /// Ten thousand TCP flows in one process
    Flows,
    /// Requests of 14 bytes over TCP, both ends asleep while they wait, against sockperf
    Blocking,
    /// The same with both ends spinning, against sockperf asleep
    Spinning,
}

/// What one side of a comparison did: Gbit/s received, CPU time of both ends for 10^9 bytes received (s), and
/// datagrams lost (%; 0 of TCP).
type Moved = [f64; 3];

#[derive(Debug, Clone, Copy)]
struct Load {
    flows: usize,
    is_udp: bool,
    mode: Mode,
    seconds: u32,
    /// Of both sides; `None`: the host's.
    congestion_control: Option<&'static str>,
    /// Further options of iperf3.
    iperf3: &'static [&'static str],
}

/// What a congestion control does to a comparison is a part of its answer.
const CONTROLS: [&str; 2] = ["reno", "bbr"];

struct Fixture {
    kagiri: PathBuf,
    iperf3: PathBuf,
    dir: PathBuf,
    pairs: u32,
    seconds: u32,
    pace: Pace,
}

/// The goals of a case: rate and CPU time, as ratios to the peer's.
struct Goals {
    rate: f64,
    cpu: Option<f64>,
}

impl TransferArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let seconds = pace.full_or(self.seconds, 1);
        let counts = |_: &Case| format!("--pairs {} --seconds {}", self.pairs, self.seconds);
        let iperf3 = self.iperf3;
        let open = |dir, kagiri| Ok(Fixture { kagiri, iperf3, dir, pairs: self.pairs, seconds, pace });
        self.options.perform("transfer", open, counts, |case, fixture| case.measure(fixture))
    }
}

impl Case {
    fn measure(self, fixture: &Fixture) -> anyhow::Result<Found> {
        let &Fixture { pairs, seconds, ref pace, .. } = fixture;
        let load = Load {
            flows: 1,
            is_udp: false,
            mode: Mode::Copy,
            seconds,
            congestion_control: None,
            iperf3: &[],
        };
        let (discard, eight) = (Load { mode: Mode::Discard, ..load }, Load { flows: 8, ..load });
        let zerocopy: &[&str] = &["-Z"];
        let (load, goals) = match self {
            Self::Copy => (load, Goals { rate: 1.25, cpu: Some(0.7) }),
            Self::CopyZerocopy => (Load { iperf3: zerocopy, ..load }, Goals { rate: 1.0, cpu: None }),
            Self::Discard => {
                let load = Load { iperf3: &["--skip-rx-copy"], ..discard };
                (load, Goals { rate: 1.0, cpu: None })
            }
            Self::DiscardZerocopy => {
                let load = Load { iperf3: &["-Z", "--skip-rx-copy"], ..discard };
                (load, Goals { rate: 1.0, cpu: None })
            }
            Self::Nuttcp => (load, Goals { rate: 2.0, cpu: None }),
            Self::Eight => (eight, Goals { rate: 1.0, cpu: None }),
            Self::EightZerocopy => (Load { iperf3: zerocopy, ..eight }, Goals { rate: 1.0, cpu: None }),
            Self::Udp => (Load { is_udp: true, ..load }, Goals { rate: 12.0, cpu: None }),
            Self::Flows => return flows(fixture),
            Self::Blocking => return requests::measure(fixture, Waiting::Block, 0.95),
            Self::Spinning => return requests::measure(fixture, Waiting::Spin, 2.0),
        };
        let controls: &[Option<&str>] =
            if load.is_udp || self == Self::Nuttcp { &[None] } else { &CONTROLS.map(Some) };
        let mut rows = Vec::new();
        for control in controls {
            let load = Load { congestion_control: *control, ..load };
            let one = |is_ours| match is_ours {
                true => kagiri_peer::transfer(fixture, &load),
                false if self == Self::Nuttcp => peer::nuttcp(&load),
                false => peer::iperf3(fixture, &load),
            };
            let named = |what: &str| control.map_or(what.to_owned(), |control| format!("{what}, {control}"));
            let new = [
                Row::new(named("received"), "Gbit/s"),
                Row::new(named("CPU of both ends"), "s/GB"),
                Row::new(named("lost"), "%"),
            ];
            let [rate, cpu, lost] = fill(new, pairs, |is_ours| pace.measured(|| one(is_ours)))?;
            rows.push(rate.goal_ratio(&format!("ratio >= {}", goals.rate)));
            rows.push(match goals.cpu {
                Some(most) => cpu.goal_ratio(&format!("ratio <= {most}")),
                None => cpu,
            });
            if load.is_udp {
                rows.push(lost.goal_ratio("ratio <= 1"));
            }
        }
        Ok(Found::about(self.compared(&load)).with_rows(rows).with_version_of(self.peer(fixture)))
    }

    /// The peer's name and program.
    fn peer(self, fixture: &Fixture) -> (&'static str, &Path) {
        match self {
            Self::Nuttcp => ("nuttcp", Path::new("nuttcp")),
            _ => ("iperf3", &fixture.iperf3),
        }
    }

    fn compared(self, load: &Load) -> String {
        let peer = match self {
            Self::Nuttcp => "nuttcp".to_owned(),
            _ => [&["iperf3"], load.iperf3].concat().join(" "),
        };
        format!(
            "`kagiri transfer` and its server (ours) and {peer} and its server (peer), a process each, move \
             {} over loopback for {} s, {} flow(s), received bytes end in {}.",
            if load.is_udp { "UDP datagrams of 1,470 bytes" } else { "TCP" },
            load.seconds,
            load.flows,
            if load.mode == Mode::Copy { "memory of the receiver" } else { "the kernel" },
        )
    }
}

/// A client and a server, a process each: both in one would need more open files than a limit of 20,000
/// allows.
fn flows(fixture: &Fixture) -> anyhow::Result<Found> {
    const FLOWS: u32 = 10_000;
    let seconds = fixture.seconds;
    let (measured, noise) =
        fixture.pace.measured(|| kagiri_peer::measure(fixture, &["--flows", &FLOWS.to_string()], seconds))?;
    let row =
        |what: &str, unit: &str, value: f64| Row { noise: vec![noise], ..Row::single(what, unit, value) };
    let least = row("slowest flow", "kbit/s", measured.metric("flow_least_bit_per_s")? / 1e3);
    Ok(Found::about(format!(
        "`kagiri transfer --flows {FLOWS}` and `kagiri transfer --serve`, a process each, over loopback: \
             all flows send flat out for {seconds} s."
    ))
    .with_rows([
        least.goal_each("> 0: every flow moved"),
        row("received", "Gbit/s", measured.metric("goodput_bit_per_s")? / 1e9),
        row("CPU of both ends", "s/GB", measured.metric("cpu_s_per_gb")?),
    ]))
}

/// How long a peer may take beyond the time in which it sends.
const MARGIN: Duration = Duration::from_secs(15);
