//! The peers: iperf3 on the link on which events are built, and neper's tcp_rr.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use sys::child::{Child, Signal};
use sys::clock::Deadline;

use super::Settings;
use super::fixture::{Fixture, HOSTS, SHALLOW};
use crate::fleet::fixture::Lab;
use crate::record::Row;
use crate::suite::Found;
use crate::tools;
use crate::transfer::{Server, free_port};

const STREAMS: u32 = 80;
const MARGIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

pub fn iperf3_baseline(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let lab = fixture.lab(SHALLOW)?;
    let build = |pattern: &str, sources: u32| -> anyhow::Result<(f64, f64)> {
        let text = format!(
            "sources = {sources}\nsize = '1KiB'\nlink = '200Mbit/s'\npattern = '{pattern}'\ntime = '{}s'",
            settings.seconds
        );
        let trial = fixture.run(Some(&lab), &text, settings.seconds.into(), &settings.pace)?;
        Ok((trial.metric("events_per_s")?, trial.known("goodput_bit_per_s").unwrap_or(0.0) / 1e6))
    };
    let mut found = Found::about(format!(
        "{STREAMS} streams of iperf3 from one host (peer), and events of 1 KiB from sources on {HOSTS} \
             hosts (ours), through the same port of 200 Mbit/s and 64 KiB, for {} s.",
        settings.seconds
    ))
    .with_versions(&["iperf3"]);
    for (pattern, sources) in [("push", 80), ("push", 1000), ("grant", 80), ("grant", 1000)] {
        let mut row = Row::new(format!("{sources} sources, {pattern}: payload"), "Mbit/s");
        let mut events = Vec::new();
        for _ in 0..settings.times() {
            let (per_s, mbit_per_s) = build(pattern, sources)?;
            row.pair(mbit_per_s, iperf3(&lab, settings.seconds)?);
            events.push(per_s);
        }
        let rate = base::statistics::median(&events).unwrap_or(0.0);
        found.rows.push(row.note(format!("{rate:.1} events/s, median")));
    }
    Ok(found)
}

/// What iperf3 says was received, Mbit/s.
fn iperf3(lab: &Lab, seconds: u32) -> anyhow::Result<f64> {
    let program = Path::new("iperf3");
    let mut server = start(lab, "builder", &["-s", "-1"])?;
    let address = lab.address("builder")?;
    let exec = ["lab", "exec", "source-1", "--lab", &lab.state.lab, "--"];
    let client = || {
        let mut command = Command::new(lab.kagiri());
        command.args(exec).arg(program).args(["-c", &address, "-J", "-P", &STREAMS.to_string()]);
        command.args(["-t", &seconds.to_string()]);
        command
    };
    // It listens in a moment: until then it refuses, which its client takes for a success with an error in
    // its JSON.
    let deadline = Deadline::after(MARGIN);
    let mbit_per_s = loop {
        match tools::run(&mut client(), Duration::from_secs(seconds.into()) + MARGIN, &[0, 1])
            .and_then(received)
        {
            Ok(mbit_per_s) => break mbit_per_s,
            Err(error) if !deadline.pause(LOOK) => return Err(error),
            Err(_) => {}
        }
    };
    // It ends with its client, or it must.
    if server.wait(MARGIN).is_err() {
        server.signal(Signal::SIGKILL)?;
    }
    Ok(mbit_per_s)
}

/// What iperf3's client reports as received, Mbit/s.
fn received(ran: tools::Ran) -> anyhow::Result<f64> {
    let results: Value = serde_json::from_str(&ran.stdout).context("iperf3's JSON")?;
    let bit_per_s = results["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bit_per_s.with_context(|| format!("iperf3 did not say what came: {}", results["error"]))? / 1e6)
}

fn start(lab: &Lab, host: &str, arguments: &[&str]) -> anyhow::Result<Child> {
    Ok(lab.on(host, Path::new("iperf3")).args(arguments).start(lab.journal())?)
}

/// Answers a second over `flows` connections on loopback, one thread a side; it writes its logs into `dir`.
pub fn answers_per_s(
    program: &Path,
    dir: &Path,
    flows: u32,
    bytes: u32,
    seconds: u32,
) -> anyhow::Result<f64> {
    let (control, data) = (free_port()?, free_port()?);
    let both = |command: &mut Command| {
        command.current_dir(dir);
        command.args(["-T", "1", "-Q", "1", "-F", &flows.to_string(), "-R", &bytes.to_string()]);
        command.args(["-C", &control.to_string(), "-P", &data.to_string(), "-l", &seconds.to_string()]);
    };
    let mut server = Command::new(program);
    both(&mut server);
    let _server = Server::start(&mut server, control)?;
    let mut client = Command::new(program);
    client.args(["-c", "-H", "127.0.0.1"]);
    both(&mut client);
    // Its server listens for data a moment after it does for control.
    std::thread::sleep(Duration::from_millis(200));
    let ran = tools::run(&mut client, Duration::from_secs(seconds.into()) + MARGIN, &[0])?;
    let rate = ran.stdout.lines().find_map(|line| line.strip_prefix("throughput="));
    rate.context("neper did not say its throughput")?.parse().context("neper's throughput")
}
