//! Requests and answers: ours, and sockperf's ping-pong.

use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use transfer::settings::Waiting;

use super::peer::{Server, free_port};
use super::{Fixture, MARGIN, kagiri_peer};
use crate::record::Row;
use crate::suite::{Found, fill};
use crate::tools;

/// The least that sockperf sends.
const BYTES: u32 = 14;
/// sockperf leaves the first 400 ms out, and so do we: threads find their CPUs.
const OMIT: &str = "400ms";

/// What one side of a comparison did: transactions per second, and p50 and p99 in us.
pub type Answered = [f64; 3];

/// Pairs of ours, waiting so, and sockperf's, asleep while it waits; the ratio of the rates is to be at least
/// `goal`.
pub(super) fn measure(fixture: &Fixture, waiting: Waiting, goal: f64) -> anyhow::Result<Found> {
    let Fixture { pairs, seconds, pace, .. } = fixture;
    let one = |is_ours| if is_ours { ours(fixture, waiting) } else { sockperf(*seconds, BYTES) };
    let rows = [Row::new("transactions", "1/s"), Row::new("p50", "us"), Row::new("p99", "us")];
    let [rate, p50, p99] = fill(rows, *pairs, |is_ours| pace.measured(|| one(is_ours)))?;
    let how = if waiting == Waiting::Spin { "spinning" } else { "asleep while they wait" };
    Ok(Found::about(format!(
        "`kagiri transfer --rr` and its server (ours, {how}), and sockperf ping-pong and its server \
             (peer, asleep while they wait), a process each, send {BYTES} bytes to and fro over one TCP \
             connection on loopback for {seconds} s, the first 0.4 s left out."
    ))
    .with_rows([rate.goal_ratio(&format!("ratio >= {goal}")), p50, p99])
    .with_versions(&["sockperf"]))
}

fn ours(fixture: &Fixture, waiting: Waiting) -> anyhow::Result<Answered> {
    let bytes = format!("{BYTES}B");
    let mut options = vec!["--rr", bytes.as_str(), "--omit", OMIT];
    if waiting == Waiting::Spin {
        options.push("--spin");
    }
    let measured = kagiri_peer::measure(fixture, &options, fixture.seconds)?;
    Ok([
        measured.metric("transactions_per_s")?,
        measured.metric("response_p50_us")?,
        measured.metric("response_p99_us")?,
    ])
}

/// sockperf sends messages of `bytes` bytes and waits for each reply, for a time.
pub fn sockperf(seconds: u32, bytes: u32) -> anyhow::Result<Answered> {
    let port = free_port()?;
    let (port_word, seconds_word, bytes) = (port.to_string(), seconds.to_string(), bytes.to_string());
    let ends = ["--tcp", "-i", "127.0.0.1", "-p", port_word.as_str()];
    // It would serve for ever: dropped, it ends.
    let _server = Server::start(Command::new("sockperf").arg("server").args(ends), port)?;
    let mut client = Command::new("sockperf");
    client.arg("ping-pong").args(ends).args(["-t", &seconds_word, "-m", &bytes]);
    let ran = tools::run(&mut client, Duration::from_secs(seconds.into()) + MARGIN, &[0])?;
    let text = ran.stdout + &ran.stderr;
    let after = |mark: &str| -> anyhow::Result<f64> {
        let rest = text.split_once(mark).with_context(|| format!("sockperf did not say {mark:?}"))?.1;
        let word = rest.trim_start_matches([' ', '=']).split([' ', ';', '\n']).next().unwrap_or_default();
        word.parse().with_context(|| format!("sockperf said {mark}{word}"))
    };
    let rest = text.split_once("[Valid Duration]").context("sockperf did not say what was valid")?.1;
    let received = rest.split_once("ReceivedMessages=").context("sockperf did not say what came")?.1;
    let received: f64 = received.split_whitespace().next().unwrap_or_default().parse()?;
    // What it calls latency is half of the way there and back.
    Ok([
        received / after("[Valid Duration] RunTime=")?,
        2.0 * after("percentile 50.000")?,
        2.0 * after("percentile 99.000")?,
    ])
}
