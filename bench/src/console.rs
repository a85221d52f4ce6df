//! `kagiri-bench console`: what pages that watch a run cost, and what they do to its result.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base::statistics::median;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sys::child::{Child, Spawn};
use sys::journal::Journal;
use sys::proc::ProcessSet;

use crate::record::Row;
use crate::suite::{Found, Options, Pace, fill};

const WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
const VIEWERS: usize = 100;

/// Runs that are watched, beside runs that nobody watches.
#[derive(Args)]
pub struct ConsoleArgs {
    /// Pairs of each comparison
    #[arg(long, value_name = "N", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Length of a run
    #[arg(long, value_name = "S", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    #[command(flatten)]
    options: Options<Case>,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// 100 viewers of one run, against none
    Viewers,
}

impl ConsoleArgs {
    /// Measures, or prints what was measured.
    pub fn perform(self) -> anyhow::Result<()> {
        let pace = self.options.pace();
        let (pairs, seconds) = (pace.full_or(self.pairs, 1), pace.full_or(self.seconds, 1));
        let counts = |_: &Case| format!("--pairs {} --seconds {}", self.pairs, self.seconds);
        let open = |dir, kagiri| Ok((dir, kagiri));
        self.options.perform("console", open, counts, |case, (dir, kagiri): &(PathBuf, PathBuf)| match case {
            Case::Viewers => viewers(dir, kagiri, pairs, seconds, &pace),
        })
    }
}

/// A closed loop of small messages over loopback: any other work on the machine lengthens a response.
fn viewers(dir: &Path, kagiri: &Path, pairs: u32, seconds: u32, pace: &Pace) -> anyhow::Result<Found> {
    let plan = format!("workload = 'exchange'\n[exchange]\nclients = 1\nsize = '1kB'\ntime = '{seconds}s'\n");
    let server = Server::start(dir, kagiri)?;
    let (mut costs, mut events) = (Vec::new(), Vec::new());
    let rows =
        [Row::new("messages", "1/s"), Row::new("response, median", "ms"), Row::new("response, 99 %", "ms")];
    let rows = fill(rows, pairs, |is_watched| {
        let (found, noise) = pace.measured(|| server.run(&plan, if is_watched { VIEWERS } else { 0 }))?;
        if is_watched {
            costs.push(found.server_percent);
            events.push(found.events as f64 / VIEWERS as f64);
        }
        Ok((found.result, noise))
    })?;
    let [messages, p50, p99] = rows;
    let cost = Row { ours: costs, ..Row::new("CPU time of the server with 100 viewers", "% of a core") };
    let events = median(&events).unwrap_or(f64::NAN);
    Ok(Found::about(format!(
        "`kagiri exchange` (1 client, 1 kB, {seconds} s, loopback) as a job of `kagiri serve`, with \
         {VIEWERS} viewers (ours) and without (peer). Each viewer got {events:.0} events. The viewers are \
         threads of one process on the same machine and take CPU there, unlike browsers elsewhere."
    ))
    .with_rows([
        messages.goal_ratio("0.95 to 1.05"),
        p50.goal_ratio("0.95 to 1.05"),
        p99,
        cost.goal_ours("<= 5 % of a core"),
    ]))
}

struct Server {
    child: Child,
    address: String,
    token: String,
    _journal: Journal,
}

/// What became of one run.
struct Ran {
    /// Messages per second, median and 99th percentile of the response, ms.
    result: [f64; 3],
    /// CPU time of the server meanwhile.
    server_percent: f64,
    /// That all viewers got.
    events: u64,
}

impl Server {
    fn start(dir: &Path, kagiri: &Path) -> anyhow::Result<Self> {
        let journal = Journal::open(&dir.join("journal"))?;
        let serve = Spawn::new(kagiri).args(["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.env("KAGIRI_DATA", dir.join("data")).start(&journal)?;
        let line = child.wait_line(WITHIN, |line| line.contains("/#token="))?;
        let (place, token) = line.trim().split_once("/#token=").context("the server printed no token")?;
        let address = place.strip_prefix("http://").context("the server has no address")?;
        Ok(Self { child, address: address.to_owned(), token: token.to_owned(), _journal: journal })
    }

    /// Measures a plan while so many viewers watch.
    fn run(&self, plan: &str, viewers: usize) -> anyhow::Result<Ran> {
        let mut process = ProcessSet::open(Path::new("/"), &[self.child.pid()])?;
        let job = self.json("POST", "/jobs", &json!({ "toml": plan }).to_string())?;
        let id = job["id"].as_str().context("the job has no id")?;
        let events = Arc::new(AtomicU64::new(0));
        let watch = |_| {
            let (stream, events) = (self.ask("GET", &format!("/jobs/{id}/events"), "")?, Arc::clone(&events));
            Ok(std::thread::spawn(move || watched(stream, &events)))
        };
        let all = (0..viewers).map(watch).collect::<anyhow::Result<Vec<_>>>()?;
        let (began, before) = (Instant::now(), process.read_cpu().cpu_ns);
        let ended = loop {
            let job = self.json("GET", &format!("/jobs/{id}"), "")?;
            if job["ended"].is_string() {
                break job;
            }
            if began.elapsed() > 10 * WITHIN {
                bail!("the run does not end: {job}");
            }
            std::thread::sleep(POLL);
        };
        let cpu_ns = process.read_cpu().cpu_ns - before;
        let server_percent = 100.0 * cpu_ns as f64 / began.elapsed().as_nanos() as f64;
        for viewer in all {
            let is_whole = viewer.join().map_err(|_| anyhow::anyhow!("a viewer has panicked"))?;
            if !is_whole {
                bail!("a viewer did not see the end of the run");
            }
        }
        let run = ended["run"].as_str().with_context(|| format!("the job has no run: {ended}"))?;
        let document = self.json("GET", &format!("/runs/{run}"), "")?;
        let metric = |name: &str| {
            let found = document["trials"][0]["metrics"][name].as_f64();
            found.with_context(|| format!("run {run} has no {name}"))
        };
        let result = [metric("messages_per_s")?, metric("response_p50_ms")?, metric("response_p99_ms")?];
        Ok(Ran { result, server_percent, events: events.load(Ordering::Relaxed) })
    }

    /// A request of HTTP/1.0, whose answer is not chunked and ends with the connection.
    fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(WITHIN))?;
        write!(
            stream,
            "{method} /api/v1{path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )?;
        Ok(BufReader::new(stream))
    }

    fn json(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Value> {
        let mut text = String::new();
        self.ask(method, path, body)?.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("an answer without a body")?;
        serde_json::from_str(body).with_context(|| format!("{method} {path}: {head}"))
    }
}

/// Counts the events up to the last one; whether that came.
fn watched(stream: BufReader<TcpStream>, events: &AtomicU64) -> bool {
    for line in stream.lines() {
        let Ok(line) = line else { return false };
        if let Some(name) = line.strip_prefix("event: ") {
            events.fetch_add(1, Ordering::Relaxed);
            if name == "bye" {
                return true;
            }
        }
    }
    false
}
