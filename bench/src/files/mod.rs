//! `kagiri-bench files`: file workloads against filebench, from the same program text on the same tree.

mod limits;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::Value;

use crate::noise::Noise;
use crate::record::Row;
use crate::suite::{Found, Options, Pace, fill};
use crate::tools;

/// Beyond what is measured: making the files and removing them.
const MARGIN: Duration = Duration::from_secs(120);

/// Compare file workloads with filebench's.
#[derive(Args)]
pub struct FilesArgs {
    /// Pairs of each comparison; of the limits, runs of each program
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,
    /// The folders to measure in, one after the other
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    on: Vec<PathBuf>,
    /// filebench 1.5, to compare with
    #[arg(long, value_name = "FILE")]
    filebench: Option<PathBuf>,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// The file server's program, as kagiri runs it
    Fileserver,
    /// The same with filebench's counting
    Strict,
    /// The mail server's program: small files and fsync
    Varmail,
    /// Threads that read small files in turn
    Webserver,
    /// How often the limit that was injected is named: in a lab, by programs of its own
    Limits,
}

impl Case {
    const fn personality(self) -> &'static str {
        match self {
            Self::Fileserver | Self::Strict | Self::Limits => "fileserver",
            Self::Varmail => "varmail",
            Self::Webserver => "webserver",
        }
    }
}

struct Settings {
    pairs: u32,
    seconds: u32,
    on: Vec<PathBuf>,
    filebench: Option<PathBuf>,
    pace: Pace,
    kagiri: PathBuf,
    dir: PathBuf,
}

impl FilesArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let (pairs, seconds) = (pace.full_or(self.pairs, 1), pace.full_or(self.seconds, 1));
        let open = |dir, kagiri| {
            let (on, filebench) = (self.on.clone(), self.filebench.clone());
            Ok(Settings { pairs, seconds, on, filebench, pace, kagiri, dir })
        };
        let counts = |case: &Case| match case {
            Case::Limits => format!("--pairs {pairs} --seconds {seconds}"),
            _ => format!("--pairs {pairs} --seconds {seconds} --filebench FILE"),
        };
        self.options.perform("files", open, counts, |case, settings| measure(*case, settings))
    }
}

/// What one run of either program comes to.
struct Run {
    ops_per_s: f64,
    /// CPU time outside the kernel for an operation; the peer's includes the time for making the files.
    user_us_per_op: f64,
    mib_per_s: f64,
}

fn measure(case: Case, settings: &Settings) -> anyhow::Result<Found> {
    if case == Case::Limits {
        return limits::measure(settings);
    }
    let text = personality(case, settings)?;
    let is_goal = case == Case::Fileserver;
    let mut rows = Vec::new();
    for on in &settings.on {
        let words = |what: &str| format!("{}: {what}", on.display());
        let [ops, user, rate] = fill(
            [
                Row::new(words("operations"), "1/s"),
                Row::new(words("CPU outside the kernel for an operation"), "us"),
                Row::new(words("bytes read and written"), "MiB/s"),
            ],
            settings.pairs,
            |is_ours| {
                let one = || if is_ours { ours(case, settings, on) } else { peer(settings, on, &text) };
                let (run, noise): (Run, Noise) = settings.pace.measured(one)?;
                Ok(([run.ops_per_s, run.user_us_per_op, run.mib_per_s], noise))
            },
        )?;
        let (ops, user) = match is_goal {
            true => (ops.goal_ratio("ratio >= 1.7"), user.goal_ours("<= 0.4")),
            false => (ops, user),
        };
        rows.extend([ops, user, rate]);
    }
    let strict = if case == Case::Strict { " with --strict" } else { "" };
    Ok(Found::about(format!(
        "`kagiri files DIR --personality {}`{strict} and filebench with the same program text, {} s of \
         measurement each. filebench runs without address randomisation, with which it hangs. Its CPU time \
         includes making the files.",
        case.personality(),
        settings.seconds
    ))
    .with_rows(rows))
}

fn patience(settings: &Settings) -> Duration {
    MARGIN + Duration::from_secs(u64::from(settings.seconds))
}

/// The text of the program, without its folder and its time.
fn personality(case: Case, settings: &Settings) -> anyhow::Result<String> {
    let mut print = Command::new(&settings.kagiri);
    print.args(["files", "--personality", case.personality(), "--print"]);
    let text = tools::run(&mut print, MARGIN, &[0])?.stdout;
    let lines = text.lines().filter(|line| !line.starts_with("set $dir=") && !line.starts_with("run "));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

fn ours(case: Case, settings: &Settings, on: &Path) -> anyhow::Result<Run> {
    let mut command = Command::new(&settings.kagiri);
    command.arg("files").arg(on).args(["--personality", case.personality(), "--json", "--quiet"]);
    command.args(["--time", &format!("{}s", settings.seconds)]);
    if case == Case::Strict {
        command.arg("--strict");
    }
    command.env("KAGIRI_DATA", settings.dir.join("data"));
    let document: Value = serde_json::from_str(&tools::run(&mut command, patience(settings), &[0])?.stdout)?;
    let metric = |name: &str| {
        let value = document["trials"][0]["metrics"][name].as_f64();
        value.with_context(|| format!("kagiri files said no {name}"))
    };
    Ok(Run {
        ops_per_s: metric("ops_per_s")?,
        user_us_per_op: metric("cpu_user_us_per_op")?,
        mib_per_s: metric("mb_per_s")?,
    })
}

/// filebench in a folder of its own.
fn peer(settings: &Settings, on: &Path, text: &str) -> anyhow::Result<Run> {
    let folder = on.join(format!("filebench-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let run = filebench(settings, &folder, text);
    std::fs::remove_dir_all(&folder)?;
    run
}

fn filebench(settings: &Settings, folder: &Path, text: &str) -> anyhow::Result<Run> {
    let program = settings.dir.join("program.f");
    std::fs::write(&program, format!("set $dir={}\n{text}run {}\n", folder.display(), settings.seconds))?;
    let before = children_user_us()?;
    let mut command = Command::new("setarch");
    let filebench = settings.filebench.as_ref().context("--filebench names no program")?;
    command.arg("-R").arg(filebench).arg("-f").arg(&program);
    let said = tools::run(&mut command, patience(settings), &[0])?.stdout;
    let user_us = children_user_us()? - before;
    // IO Summary: 261046 ops 26102.231 ops/s 2373/4746 rd/wr 621.6mb/s 1.2ms/op
    let summary = said.lines().find_map(|line| Some(line.split_once("IO Summary:")?.1));
    let words: Vec<&str> = summary.context("filebench said no summary")?.split_whitespace().collect();
    let number = |at: usize, unit: &str| -> anyhow::Result<f64> {
        let word = words.get(at).copied().unwrap_or_default();
        word.trim_end_matches(unit).parse().with_context(|| format!("filebench said '{word}'"))
    };
    let ops = number(0, "")?;
    ensure!(ops > 0.0, "filebench did nothing");
    let mb_at = words.iter().position(|word| word.ends_with("mb/s")).context("filebench said no mb/s")?;
    Ok(Run { ops_per_s: number(2, "")?, user_us_per_op: user_us / ops, mib_per_s: number(mb_at, "mb/s")? })
}

/// CPU time outside the kernel of the programs that were run and have ended, us.
fn children_user_us() -> anyhow::Result<f64> {
    Ok(getrusage(UsageWho::RUSAGE_CHILDREN)?.user_time().num_microseconds() as f64)
}
