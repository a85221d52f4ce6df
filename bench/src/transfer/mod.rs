//! `kagiri-bench transfer`: what the engines of `transfer` must reach.

mod kagiri_peer;
mod peer;
mod requests;

use std::path::PathBuf;
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
/// The congestion control is the host's own, for all alike: run it in a network namespace of its own
/// (`unshare -n`, then `ip link set lo up` and `sysctl -w net.ipv4.tcp_congestion_control=...`) to choose
/// another.
#[derive(Args)]
pub struct TransferArgs {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// One TCP stream into the receiver's memory, against iperf3
    Copy,
    /// One TCP stream that the receiver's kernel drops, against iperf3
    Discard,
    /// One TCP stream into the receiver's memory, against nuttcp
    Nuttcp,
    /// Eight TCP streams, against iperf3
    Eight,
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
}

struct Fixture {
    kagiri: PathBuf,
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
        let open = |dir, kagiri| Ok(Fixture { kagiri, dir, pairs: self.pairs, seconds, pace });
        self.options.perform("transfer", open, counts, |case, fixture| case.measure(fixture))
    }
}

impl Case {
    fn measure(self, fixture: &Fixture) -> anyhow::Result<Found> {
        let &Fixture { pairs, seconds, ref pace, .. } = fixture;
        let load = Load { flows: 1, is_udp: false, mode: Mode::Copy, seconds };
        let (load, goals) = match self {
            Self::Copy => (load, Goals { rate: 1.25, cpu: Some(0.7) }),
            Self::Discard => (Load { mode: Mode::Discard, ..load }, Goals { rate: 1.8, cpu: Some(0.45) }),
            Self::Nuttcp => (load, Goals { rate: 2.0, cpu: None }),
            Self::Eight => (Load { flows: 8, ..load }, Goals { rate: 1.4, cpu: None }),
            Self::Udp => (Load { is_udp: true, ..load }, Goals { rate: 12.0, cpu: None }),
            Self::Flows => return flows(fixture),
            Self::Blocking => return requests::measure(fixture, Waiting::Block, 0.95),
            Self::Spinning => return requests::measure(fixture, Waiting::Spin, 2.0),
        };
        let peer = if self == Self::Nuttcp { "nuttcp" } else { "iperf3" };
        let one = |is_ours| match is_ours {
            true => kagiri_peer::transfer(fixture, &load),
            false if self == Self::Nuttcp => peer::nuttcp(&load),
            false => peer::iperf3(&load),
        };
        let rows =
            [Row::new("received", "Gbit/s"), Row::new("CPU of both ends", "s/GB"), Row::new("lost", "%")];
        let [rate, cpu, lost] = fill(rows, pairs, |is_ours| pace.measured(|| one(is_ours)))?;
        let mut rows = vec![rate.goal_ratio(&format!("ratio >= {}", goals.rate))];
        rows.push(match goals.cpu {
            Some(most) => cpu.goal_ratio(&format!("ratio <= {most}")),
            None => cpu,
        });
        if load.is_udp {
            rows.push(lost.goal_ratio("ratio <= 1"));
        }
        let what = if load.is_udp { "UDP datagrams of 1,470 bytes" } else { "TCP" };
        let compared = format!(
            "`kagiri transfer` and its server (ours) and {peer} and its server (peer), a process each, move \
             {what} over loopback for {seconds} s, {} flow(s), received bytes end in {}.",
            load.flows,
            if load.mode == Mode::Copy {
                "memory of the receiver"
            } else {
                "the kernel (the peer's in its memory)"
            },
        );
        Ok(Found::about(compared).with_rows(rows).with_versions(&[peer]))
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
