//! The peers: a server and a client process each, over loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::Value;
use sys::clock::Deadline;

use super::{Fixture, Load, MARGIN, Moved};
use crate::tools;

const READY_WITHIN: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

/// A server for one client; ended when dropped.
pub struct Server(Child);

impl Server {
    /// Starts it and waits until it listens on the TCP port. It is not connected to: that would be its one
    /// client.
    pub fn start(command: &mut Command, port: u16) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(quiet.spawn().with_context(|| format!("cannot start {name}; is it installed?"))?);
        let deadline = Deadline::after(READY_WITHIN);
        while !is_listening(port)? {
            ensure!(deadline.pause(LOOK), "{name} does not listen on port {port}");
        }
        Ok(server)
    }

    /// Waits for its end, which its client has brought about.
    fn end(&mut self) -> anyhow::Result<()> {
        let deadline = Deadline::after(MARGIN);
        while self.0.try_wait()?.is_none() {
            ensure!(deadline.pause(LOOK), "the server did not end with its client");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, or it must.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a TCP socket listens on the port (state 0A in /proc/net/tcp, proc(5)).
fn is_listening(port: u16) -> anyhow::Result<bool> {
    let mark = format!(":{port:04X} ");
    let of = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let tables = of("/proc/net/tcp") + &of("/proc/net/tcp6");
    Ok(tables.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && format!("{} ", words[1]).ends_with(&mark) && words[3] == "0A"
    }))
}

/// A port of loopback that is free now.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// CPU time of children that have ended, s.
pub fn children_cpu_s() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

/// iperf3 with its defaults, but for the load's options.
pub fn iperf3(fixture: &Fixture, load: &Load) -> anyhow::Result<Moved> {
    let port = free_port()?;
    let before_s = children_cpu_s()?;
    let mut server =
        Server::start(Command::new(&fixture.iperf3).args(["-s", "-1", "-p", &port.to_string()]), port)?;
    let mut client = Command::new(&fixture.iperf3);
    client.args(["-c", "127.0.0.1", "-J", "-p", &port.to_string(), "-t", &load.seconds.to_string()]);
    client.args(["-P", &load.flows.to_string()]).args(load.iperf3);
    if let Some(control) = load.congestion_control {
        client.args(["-C", control]);
    }
    if load.is_udp {
        client.args(["-u", "-b", "0", "-l", "1470"]);
    }
    let within = Duration::from_secs(load.seconds.into()) + MARGIN;
    let ran = tools::run(&mut client, within, &[0])?;
    server.end()?;
    let cpu_s = children_cpu_s()? - before_s;
    let result: Value = serde_json::from_str(&ran.stdout).context("iperf3's JSON")?;
    let end = &result["end"];
    let number = |value: &Value| value.as_f64().context("iperf3 did not say");
    let (bit_per_s, lost_percent) = if load.is_udp {
        let lost = number(&end["sum"]["lost_percent"])?;
        (number(&end["sum"]["bits_per_second"])? * (1.0 - lost / 100.0), lost)
    } else {
        (number(&end["sum_received"]["bits_per_second"])?, 0.0)
    };
    Ok(moved(bit_per_s, load, cpu_s, lost_percent))
}

/// nuttcp with its defaults; TCP, one stream.
pub fn nuttcp(load: &Load) -> anyhow::Result<Moved> {
    let (control, data) = (free_port()?.to_string(), free_port()?.to_string());
    let before_s = children_cpu_s()?;
    let ports = ["-P", control.as_str(), "-p", data.as_str()];
    let mut server =
        Server::start(Command::new("nuttcp").args(["-1", "--nofork"]).args(ports), control.parse()?)?;
    let mut client = Command::new("nuttcp");
    client.args(["-fparse", &format!("-T{}", load.seconds)]).args(ports).arg("127.0.0.1");
    let within = Duration::from_secs(load.seconds.into()) + MARGIN;
    let ran = tools::run(&mut client, within, &[0])?;
    server.end()?;
    let cpu_s = children_cpu_s()? - before_s;
    let rate = ran.stdout.split_whitespace().find_map(|word| word.strip_prefix("rate_Mbps="));
    let mbit_per_s: f64 = rate.context("nuttcp did not say its rate")?.parse()?;
    Ok(moved(mbit_per_s * 1e6, load, cpu_s, 0.0))
}

pub(super) fn moved(bit_per_s: f64, load: &Load, cpu_s: f64, lost_percent: f64) -> Moved {
    let gb = bit_per_s * f64::from(load.seconds) / 8e9;
    [bit_per_s / 1e9, cpu_s / gb, lost_percent]
}
