//! `kagiri transfer`, its client and its server, a process each.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::peer::{Server, children_cpu_s, free_port, moved};
use super::{Fixture, Load, MARGIN, Moved};
use crate::tools;
use transfer::flow::Mode;

/// One trial as kagiri reports it.
pub(super) struct Measured {
    trial: Value,
    /// CPU time of both programs from their start to their end: what they find out before they begin is part
    /// of it.
    pub(super) cpu_s: f64,
}

impl Measured {
    pub(super) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        self.trial["metrics"][name].as_f64().with_context(|| format!("kagiri reported no {name}"))
    }
}

/// Has a server and a client of ours measure with these options for so long.
pub(super) fn measure(fixture: &Fixture, options: &[&str], seconds: u32) -> anyhow::Result<Measured> {
    let before_s = children_cpu_s()?;
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let kagiri = || {
        let mut command = Command::new(&fixture.kagiri);
        command.arg("transfer").env("KAGIRI_DATA", &fixture.dir);
        command
    };
    let server = Server::start(kagiri().args(["--serve", "--listen", &address]), port)?;
    let mut client = kagiri();
    client.args([&address, "--time", &format!("{seconds}s"), "--json"]).args(options);
    let ran = tools::run(&mut client, Duration::from_secs(seconds.into()) + 4 * MARGIN, &[0])?;
    drop(server);
    let mut run: Value = serde_json::from_str(&ran.stdout).context("kagiri printed no run")?;
    let trial = run["trials"][0].take();
    ensure!(trial["verdict"] == "pass", "the trial did not pass: {trial}");
    Ok(Measured { trial, cpu_s: children_cpu_s()? - before_s })
}

pub(super) fn transfer(fixture: &Fixture, load: &Load) -> anyhow::Result<Moved> {
    let flows = load.flows.to_string();
    let mut options = vec!["--flows", flows.as_str()];
    if load.is_udp {
        options.extend(["--proto", "udp", "--size", "1470B"]);
    }
    if load.mode == Mode::Discard {
        options.extend(["--mode", "discard"]);
    }
    if let Some(control) = load.congestion_control {
        options.extend(["--congestion-control", control]);
    }
    let measured = measure(fixture, &options, load.seconds)?;
    let lost_percent = if load.is_udp { 100.0 * measured.metric("loss_ratio")? } else { 0.0 };
    Ok(moved(measured.metric("goodput_bit_per_s")?, load, measured.cpu_s, lost_percent))
}
