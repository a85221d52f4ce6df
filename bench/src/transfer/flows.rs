//! Ten thousand flows in one process.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::peer::{Server, free_port};
use super::{MARGIN, Stage};
use crate::noise::Meter;
use crate::record::Row;
use crate::suite::Found;
use crate::tools;

const FLOWS: u32 = 10_000;

/// A client and a server, a process each: both in one would need more open files than a limit of 20,000 allows.
pub(super) fn measure(stage: &Stage) -> anyhow::Result<Found> {
    let Stage { dir, seconds, .. } = stage;
    let kagiri = tools::kagiri(stage.kagiri.clone())?;
    stage.pace.await_quiet()?;
    let meter = Meter::start(0)?;
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let _server = Server::start(
        Command::new(&kagiri).args(["transfer", "--serve", "--listen", &address]).env("KAGIRI_DATA", dir),
        port,
    )?;
    let (flows, time) = (FLOWS.to_string(), format!("{seconds}s"));
    let mut client = Command::new(&kagiri);
    client.args(["transfer", &address, "--flows", &flows, "--time", &time, "--json"]).env("KAGIRI_DATA", dir);
    let ran = tools::run(&mut client, Duration::from_secs((*seconds).into()) + 4 * MARGIN, &[0])?;
    let noise = meter.finish(0)?;
    let run: Value = serde_json::from_str(&ran.stdout).context("kagiri printed no run")?;
    let trial = &run["trials"][0];
    ensure!(trial["verdict"] == "pass", "the trial did not pass: {trial}");
    let metric =
        |name: &str| trial["metrics"][name].as_f64().with_context(|| format!("kagiri told no {name}"));
    let row = |what: &str, unit: &str, value: f64| {
        let mut row = Row::new(what, unit);
        row.ours.push(value);
        row.noise.push(noise);
        row
    };
    let least = row("slowest flow", "kbit/s", metric("flow_least_bit_per_s")? / 1e3);
    Ok(Found {
        compared: format!(
            "`kagiri transfer --flows {FLOWS}` and `kagiri transfer --serve`, a process each, over loopback: all flows send \
             flat out for {seconds} s."
        ),
        rows: vec![
            least.goal_each("> 0: every flow moved", |kbit_per_s| kbit_per_s > 0.0),
            row("received", "Gbit/s", metric("goodput_bit_per_s")? / 1e9),
            row("CPU of both ends", "s/GB", metric("cpu_s_per_gb")?),
        ],
        ..Found::default()
    })
}
