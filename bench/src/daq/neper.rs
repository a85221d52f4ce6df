//! neper's `tcp_rr`: as many connections as sources, on each of which one byte asks for a fragment's payload.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use sys::clock::Deadline;

use crate::tools;
use crate::transfer::{Server, free_port};

const MARGIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

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
    Deadline::after(LOOK * 20).pause(LOOK * 20);
    let ran = tools::run(&mut client, Duration::from_secs(seconds.into()) + MARGIN, &[0])?;
    let rate = ran.stdout.lines().find_map(|line| line.strip_prefix("throughput="));
    rate.context("neper did not say its throughput")?.parse().context("neper's throughput")
}
