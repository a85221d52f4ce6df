//! `kagiri-bench timeline`: what watching costs the program that is watched.

mod page;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use base::statistics::median;
use clap::{Args, ValueEnum};
use sys::span::{self, Recorder, SpanName};
use sys::thread::thread_cpu_ns;

use crate::noise::Meter;
use crate::record::Row;
use crate::suite::{Found, Options, Pace};
use crate::tools;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Compare what watching costs with perf trace and strace.
#[derive(Args)]
pub struct TimelineArgs {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Thousands of calls that the watched program makes
    #[arg(long, value_name = "N", default_value_t = 400)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    kilocalls: u32,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// The table alone, by BPF, against perf trace -s
    Table,
    /// The table and the picture, by BPF, against perf trace
    Picture,
    /// The table by perf's rings, against perf trace -s
    Rings,
    /// The table alone, by BPF, against strace -c
    Strace,
    /// A span of a program's own
    Span,
    /// The page with a million spans, in a browser
    Page,
}

impl TimelineArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let kilocalls = pace.full_or(self.kilocalls, 20);
        let counts = |_: &Case| format!("--pairs {} --kilocalls {}", self.pairs, self.kilocalls);
        let open = |dir, kagiri| Ok(Bench { kagiri, dir, kilocalls });
        self.options.perform("timeline", open, counts, |case, bench| match case {
            Case::Span => span_cost(&pace),
            Case::Page => page::measure(&bench.dir, &pace),
            _ => bench.compare(*case, self.pairs, &pace),
        })
    }
}

#[derive(Clone, Copy)]
struct Took {
    cpu_ns: f64,
    wall_ns: f64,
}

struct Bench {
    kagiri: PathBuf,
    dir: PathBuf,
    kilocalls: u32,
}

impl Bench {
    /// What the watched program takes for a call: of its reads and writes of one byte, with what the watcher
    /// does at each of them.
    fn watched(&self, watcher: &[&str]) -> anyhow::Result<Took> {
        let blocks = u64::from(self.kilocalls) * 500;
        // The shell prints the program's times, traced or not.
        let lines = format!(
            "TIMEFORMAT='took %3R %3U %3S'; time dd if=/dev/zero of=/dev/null bs=1 count={blocks} status=none"
        );
        let words: Vec<&str> = watcher.iter().copied().chain(["bash", "-c", &lines]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.dir).env("LC_ALL", "C");
        let ran = tools::run(&mut command, PATIENCE, &[0])?;
        let times = ran.stderr.lines().find_map(|line| line.strip_prefix("took "));
        let times = times.with_context(|| format!("{}: no times in {}", words[0], ran.stderr))?;
        let seconds: Vec<f64> = times.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [wall, user, system] = seconds[..] else { bail!("{}: these are no times: {times}", words[0]) };
        let of_call = |seconds: f64| seconds * 1e9 / (2 * blocks) as f64;
        Ok(Took { cpu_ns: of_call(user + system), wall_ns: of_call(wall) })
    }

    fn compare(&self, case: Case, pairs: u32, pace: &Pace) -> anyhow::Result<Found> {
        let kagiri = self.kagiri.to_str().context("the program's path is not text")?;
        let ours: Vec<&str> = match case {
            Case::Picture => {
                vec![kagiri, "timeline", "-q", "--backend", "bpf", "--pftrace", "it.pftrace", "--"]
            }
            Case::Rings => vec![kagiri, "timeline", "-q", "--backend", "perf", "--"],
            _ => vec![kagiri, "timeline", "-q", "--backend", "bpf", "--"],
        };
        let (peer, most_ns): (&[&str], f64) = match case {
            Case::Strace => (&["strace", "-f", "-c", "-o", "peer.txt"], 300.0),
            Case::Picture => (&["perf", "trace", "-o", "peer.txt", "--"], 700.0),
            Case::Rings => (&["perf", "trace", "-s", "-o", "peer.txt", "--"], 1150.0),
            _ => (&["perf", "trace", "-s", "-o", "peer.txt", "--"], 300.0),
        };
        let mut added = Row::new("CPU time added to a call", "ns");
        let mut longer = Row::new("time added to a call", "ns");
        let mut alone = Row::new("CPU time of a call alone", "ns");
        for pair in 0..pairs {
            pace.await_quiet()?;
            let meter = Meter::start(0)?;
            // Alone between the two, which take turns in being first: a drift of the machine hits both alike.
            let (first, second) = if pair.is_multiple_of(2) { (&ours[..], peer) } else { (peer, &ours[..]) };
            let before = self.watched(first)?;
            let unwatched = self.watched(&[])?;
            let after = self.watched(second)?;
            let (own, its) = if pair.is_multiple_of(2) { (before, after) } else { (after, before) };
            added.pair(own.cpu_ns - unwatched.cpu_ns, its.cpu_ns - unwatched.cpu_ns);
            longer.pair(own.wall_ns - unwatched.wall_ns, its.wall_ns - unwatched.wall_ns);
            alone.ours.push(unwatched.cpu_ns);
            let noise = meter.finish(0)?;
            for row in [&mut added, &mut longer, &mut alone] {
                row.noise.push(noise);
            }
        }
        let mut each = Row::new("the same, ours alone", "ns");
        each.ours.clone_from(&added.ours);
        each.noise.clone_from(&added.noise);
        let goal = format!("<= {most_ns:.0}");
        Ok(Found::about(format!(
            "`dd` reads and writes {} thousand single bytes, watched by `{}` (ours) and `{}` (peer); its \
                 own times, less those of the same unwatched between the two.",
            self.kilocalls / 2,
            ours[1..].join(" "),
            peer.join(" ")
        ))
        .with_rows([
            match case {
                // The same way into the kernel as the peer's; the first choice is the other one.
                Case::Rings => added,
                _ => added.goal_ratio("ratio <= 0.125"),
            },
            each.goal_ours(&goal),
            longer,
            alone,
        ])
        .with_versions(&[peer[0]]))
    }
}

/// Empty spans, by this thread's own CPU time.
fn span_cost(pace: &Pace) -> anyhow::Result<Found> {
    const SPANS: u32 = 10_000;
    static NOTHING: SpanName = SpanName::new("nothing");
    pace.await_quiet()?;
    let meter = Meter::start(0)?;
    let batch = || {
        let before_ns = thread_cpu_ns();
        for _ in 0..SPANS {
            span::time(&NOTHING, || std::hint::black_box(()));
        }
        (thread_cpu_ns() - before_ns) as f64 / f64::from(SPANS)
    };
    let off: Vec<f64> = (0..200).map(|_| batch()).collect();
    let recorder = Recorder::start(0);
    let joined = recorder.handle().join();
    let mut on = Vec::new();
    for _ in 0..200 {
        on.push(batch());
        // Longer than it takes to empty the ring: a full one would cost less.
        std::thread::sleep(Duration::from_millis(12));
    }
    drop(joined);
    let times = recorder.finish("bench").times;
    let noise = meter.finish(0)?;
    let row = |what: &str, of: &[f64]| {
        let mut row = Row::new(what, "ns");
        row.ours.extend(median(of));
        row.noise.push(noise);
        row
    };
    let states: Vec<&str> = times.calls.iter().map(|row| row.state.name()).collect();
    Ok(Found::about(format!(
        "Spans of nothing on one thread (clock: {:?}; distinguished states: {}), {} lost; the medians of 200 \
             batches of {SPANS}.",
        span::clock(),
        states.join(", "),
        times.events_lost
    ))
    .with_rows([row("a span, recorded", &on).goal_ours("<= 60"), row("a span, not recorded", &off)]))
}
