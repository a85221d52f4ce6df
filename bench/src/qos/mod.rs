//! `kagiri-bench qos`: response times of a program beside others, with and without a policy.

mod cost;
mod peer;
mod rates;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use base::statistics::quantile;
use clap::{Args, ValueEnum};
use sys::child::Child;
use sys::journal::Journal;

use crate::fleet::fixture::{Fixture, Lab};
use crate::noise::Noise;
use crate::record::Row;
use crate::suite::{self, Found, Options, Pace};
use peer::Peer;

const LAB: &str = "[host.robots]\n[host.base]\n[switch.s]\n[[link]]\nbetween = ['robots', 's']\n\
    delay = '2ms'\n[[link]]\nbetween = ['s', 'base']\nrate = '20Mbit/s'\nbuffer = '256KiB'\n";
const TARGET_MS: f64 = 80.0;
/// Time after the start of iperf3 and of the policy until messages are sent, in seconds.
const SETTLE_S: u64 = 8;
const EVERY_S: f64 = 0.3;
const WITHIN: Duration = Duration::from_secs(60);

const SERVER: &str = include_str!("../../../tests/fixtures/qos/server.py");
const ALARM: &str = include_str!("../../../tests/fixtures/qos/alarm.py");

/// Compare urgent messages beside greedy connections with and without a policy. Root, iperf3 and Python are
/// needed.
#[derive(Args)]
pub struct QosArgs {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// The program of TrafficToll (pip install traffictoll)
    #[arg(long, value_name = "FILE", default_value = "tt")]
    traffictoll: PathBuf,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// The policy gives the capacity of the link
    Given,
    /// The capacity is learned
    Estimate,
    /// With the capacity, against an HTB that was made by hand
    Htb,
    /// With the capacity, against TrafficToll
    Traffictoll,
    /// CPU time with 1000 sockets
    Cost,
    /// How exactly ceilings from 1 to 1000 Mbit/s are enforced
    Rates,
    /// How soon 1000 connections get their values back after `kill -9`
    Killed,
}

struct Settings {
    labs: Fixture,
    pairs: u32,
    pace: Pace,
}

impl QosArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let (pairs, pace, traffictoll) = (self.pairs, self.options.pace(), self.traffictoll);
        let open = |dir: PathBuf, kagiri| Ok(Settings { labs: Fixture::open(dir, kagiri)?, pairs, pace });
        let counts = |_: &Case| format!("--pairs {pairs}");
        self.options.perform("qos", open, counts, |case, settings| match case {
            Case::Given => settings.measure("20Mbit/s", Peer::None),
            Case::Estimate => settings.measure("estimate", Peer::None),
            Case::Htb => settings.measure("20Mbit/s", Peer::Htb),
            Case::Traffictoll => settings.measure("20Mbit/s", Peer::TrafficToll(traffictoll.clone())),
            Case::Cost => cost::measure(settings),
            Case::Rates => rates::measure(settings),
            Case::Killed => rates::measure_killed(settings),
        })
    }
}

impl Settings {
    fn measure(&self, capacity: &str, peer: Peer) -> anyhow::Result<Found> {
        let lab = self.labs.lab("bench-qos", LAB)?;
        let scene = Scene::open(self, &lab, capacity, peer)?;
        let mut rows = [
            Row::new("median response of a message", "ms"),
            Row::new("99th percentile of the response", "ms"),
            Row::new("messages within 80 ms", "%"),
            Row::new("throughput of iperf3", "Mbit/s"),
        ];
        rows = suite::fill(rows, self.pace.full_or(self.pairs, 1), |is_ours| scene.round(is_ours))?;
        let [median, p99, in_time, bulk] = rows;
        let against = scene.peer.name();
        drop(scene);
        let (_, left) = lab.down()?;
        ensure!(left.is_empty(), "the lab left {left:?}");
        let rows = [median, p99, in_time.goal_ours(">= 97"), bulk.goal_ours(">= 14.5: 85 % of what is left")];
        Ok(Found::about(format!(
            "A link of 20 Mbit/s with a buffer of 256 KiB behind 2 ms of delay, four connections of iperf3 \
             (reno), and a Python program that sends 50 kB every 300 ms and waits for a byte: under `kagiri \
             qos run` with capacity = \"{capacity}\" and a target of 80 ms (ours), and {against} (peer). \
             Times from when a message was due, by the program's own clock; {} messages in each round.",
            self.messages()
        ))
        .with_rows(rows)
        .with_versions(&["iperf3"]))
    }

    fn messages(&self) -> u32 {
        self.pace.full_or(50, 5)
    }
}

/// A lab with its servers and a policy.
struct Scene<'a> {
    settings: &'a Settings,
    lab: &'a Lab<'a>,
    peer: Peer,
    interface: String,
    base: String,
    policy: PathBuf,
    server: PathBuf,
    alarm: PathBuf,
}

impl<'a> Scene<'a> {
    fn open(settings: &'a Settings, lab: &'a Lab<'a>, capacity: &str, peer: Peer) -> anyhow::Result<Self> {
        let file = |name: &str, text: &str| file(settings, name, text);
        let interface = &lab.host("robots")?.interfaces.first().context("it has no interface")?.device;
        let policy = format!(
            "[bottleneck]\ninterface = '{interface}'\ncapacity = '{capacity}'\n[[class]]\nname = 'alarm'\n\
             match = {{ command = 'alarm.py' }}\npriority = 1\ntarget = '{TARGET_MS}ms'\n[[class]]\n\
             name = 'bulk'\nmatch = {{ process = 'iperf3' }}\npriority = 5\n[[class]]\nname = 'idle'\n\
             match = {{ command = 'connect.py' }}\npriority = 5\n"
        );
        Ok(Self {
            settings,
            lab,
            peer,
            interface: interface.clone(),
            base: lab.address("base")?,
            policy: file("policy.toml", &policy)?,
            server: file("server.py", SERVER)?,
            alarm: file("alarm.py", ALARM)?,
        })
    }

    /// Median and 99th percentile in ms, messages in time in %, throughput of iperf3 in Mbit/s.
    fn round(&self, is_ours: bool) -> anyhow::Result<([f64; 4], Noise)> {
        self.settings.pace.measured(|| {
            let messages = self.settings.messages();
            let measured_s = (f64::from(messages) * EVERY_S).ceil() as u64;
            let all_s = SETTLE_S + measured_s + 2;
            let mut server = self.start("base", "python3", &[&text(&self.server)?, &self.base])?;
            server.wait_line(WITHIN, |line| line == "ready")?;
            let mut iperf3 = self.start("base", "iperf3", &["-s", "-1", "-B", &self.base, "--forceflush"])?;
            iperf3.wait_line(WITHIN, |line| line.contains("listening"))?;
            let (length, settle) = ((all_s - SETTLE_S).to_string(), SETTLE_S.to_string());
            let words =
                ["-c", &self.base, "-P", "4", "-C", "reno", "-t", &length, "-O", &settle, "--forceflush"];
            let mut bulk = self.start("robots", "iperf3", &words)?;
            let mut policy = if is_ours { Some(self.enforce(all_s)?) } else { None };
            let peer = if is_ours { None } else { self.peer.start(self)? };
            std::thread::sleep(Duration::from_secs(SETTLE_S));
            let (count, every) = (messages.to_string(), EVERY_S.to_string());
            let program = text(&self.alarm)?;
            let words = [program.as_str(), &self.base, &count, &every];
            let mut alarm = self.start("robots", "python3", &words)?;
            let line = alarm.wait_line(WITHIN, |line| line.starts_with("times "))?;
            let sum = bulk.wait_line(WITHIN, |line| line.contains("SUM") && line.contains("receiver"))?;
            if let Some(policy) = &mut policy {
                ensure!(policy.wait(WITHIN)?.success(), "kagiri qos run: {}", policy.output_tail());
            }
            peer::remove(self, peer)?;
            let times: Vec<f64> = line.split(' ').skip(1).map(str::parse).collect::<Result<_, _>>()?;
            ensure!(times.len() == messages as usize, "{} of {messages} messages", times.len());
            let q = |q| quantile(&times, q).context("no message");
            let in_time = times.iter().filter(|ms| **ms <= TARGET_MS).count();
            Ok([q(0.5)?, q(0.99)?, 100.0 * in_time as f64 / times.len() as f64, mbit_per_s(&sum)?])
        })
    }

    fn file(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        file(self.settings, name, text)
    }

    fn enforce(&self, seconds: u64) -> anyhow::Result<Child> {
        let length = format!("{seconds}s");
        let kagiri = text(self.lab.kagiri())?;
        let mut daemon =
            self.start("robots", &kagiri, &["qos", "run", &text(&self.policy)?, "--for", &length])?;
        daemon.wait_line(WITHIN, |line| line.contains("is in force"))?;
        Ok(daemon)
    }

    fn start(&self, host: &str, program: &str, words: &[&str]) -> anyhow::Result<Child> {
        let journal: &Journal = self.lab.journal();
        Ok(self.lab.on(host, Path::new(program)).args(words).start(journal)?)
    }
}

fn file(settings: &Settings, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = settings.labs.dir.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(path.to_str().context("a path in UTF-8")?.to_owned())
}

/// Of a line such as `[SUM] 0.00-17.00 sec 35.1 MBytes 17.3 Mbits/sec receiver`.
fn mbit_per_s(line: &str) -> anyhow::Result<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Mbits/sec").context("no rate in Mbits/sec")?;
    Ok(words[at - 1].parse()?)
}
