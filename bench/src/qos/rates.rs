//! How exactly a ceiling is enforced on iperf3, and how long a killed policy outlives itself.

use std::time::Duration;

use anyhow::{Context, ensure};

use crate::record::Row;
use crate::suite::Found;

use super::{Peer, Scene, Settings, WITHIN, mbit_per_s, text};

/// No link limits here; the rates are the policy's alone.
const LAB: &str = "[host.robots]\n[host.base]\n[[link]]\nbetween = ['robots', 'base']\n";
/// Rate, protocol, and the greatest deviation that is a success, in %.
const RATES: [(u32, &str, &str); 6] = [
    (1, "TCP", "<= 6 %"),
    (10, "TCP", "<= 2 %"),
    (100, "TCP", "<= 2 %"),
    (1000, "TCP", "<= 2 %"),
    (10, "UDP", "<= 3 %"),
    (100, "UDP", "<= 3 %"),
];
/// Payload of a datagram, and the same with the headers that HTB counts: UDP, IPv4, Ethernet.
const DATAGRAM: f64 = 1400.0;
const ON_THE_WIRE: f64 = DATAGRAM + 8.0 + 20.0 + 14.0;
const CONNECTIONS: &str = "1000";
/// `ss` names a largest pacing rate behind a slash. Arguments: the process to kill, the file of its port.
const KILL: &str = "import os, signal, subprocess, sys, time\n\
    def limited():\n    shown = subprocess.run(['ss', '-Htin', 'dport', '=', ':7001'], capture_output=True, \
    text=True).stdout\n    return sum('bps/' in line for line in shown.splitlines())\n\
    end = time.monotonic() + 30\n\
    while limited() < int(sys.argv[2]) and time.monotonic() < end: time.sleep(0.1)\n\
    before = limited()\nos.kill(int(sys.argv[1]), signal.SIGKILL)\nat = time.monotonic()\n\
    while limited() and time.monotonic() < at + 30: pass\n\
    print('restored', before, (time.monotonic() - at) * 1000, limited(), flush=True)\n";

/// The throughput of iperf3 by its receiver under ceilings from 1 to 1000 Mbit/s.
pub fn measure(settings: &Settings) -> anyhow::Result<Found> {
    let lab = settings.labs.lab("bench-qos", LAB)?;
    let mut rows = Vec::new();
    let seconds = settings.pace.full_or(8, 2);
    for (rate, protocol, goal) in RATES {
        let scene = Scene::open(settings, &lab, "10Gbit/s", Peer::None)?;
        let policy = format!(
            "[bottleneck]\ninterface = '{}'\ncapacity = '10Gbit/s'\n[[class]]\nname = 'bulk'\n\
             match = {{ process = 'iperf3' }}\npriority = 5\nceiling = '{rate}Mbit/s'\n",
            scene.interface
        );
        scene.file("policy.toml", &policy)?;
        let mut row = Row::new(format!("{rate} Mbit/s, {protocol}: deviation of the rate"), "%");
        for _ in 0..settings.pace.full_or(settings.pairs, 1) {
            let (found, noise) = settings.pace.measured(|| scene.rate_of_iperf3(rate, protocol, seconds))?;
            row.ours.push(100.0 * (found / f64::from(rate) - 1.0).abs());
            row.noise.push(noise);
        }
        rows.push(row.goal_each(goal));
    }
    lab.down()?;
    Ok(Found::about(format!(
        "A ceiling for one connection or one sender of datagrams (which offers twice as much) of iperf3, on \
         a link without a limit: what iperf3's receiver counts over {seconds} s, begun 3 s after iperf3. \
         A pacing rate is one of payload; HTB counts headers, which are added to the payload of datagrams."
    ))
    .with_rows(rows)
    .with_versions(&["iperf3"]))
}

/// How long 1000 connections keep their rates after `kill -9` of `kagiri qos run`.
pub fn measure_killed(settings: &Settings) -> anyhow::Result<Found> {
    let lab = settings.labs.lab("bench-qos", LAB)?;
    let scene = Scene::open(settings, &lab, "100Mbit/s", Peer::None)?;
    let mut row = Row::new("until no connection has a rate", "ms");
    let kill = scene.file("kill.py", KILL)?;
    let _idle = scene.hold_connections(CONNECTIONS)?;
    for _ in 0..settings.pace.full_or(settings.pairs, 1) {
        let (took_ms, noise) = settings.pace.measured(|| {
            let daemon = scene.enforce(60)?;
            let pid = daemon.pid().to_string();
            let mut killer = scene.start("robots", "python3", &[&text(&kill)?, &pid, CONNECTIONS])?;
            let line = killer.wait_line(WITHIN, |line| line.starts_with("restored "))?;
            let words: Vec<f64> = line.split(' ').skip(1).map(str::parse).collect::<Result<_, _>>()?;
            let [before, took_ms, after] = words[..] else { anyhow::bail!("unexpected: {line}") };
            ensure!(after == 0.0, "{after} connections still have a rate after 30 s");
            ensure!(before.to_string() == CONNECTIONS, "only {before} connections had a rate");
            // The guardian removes what else there is.
            std::thread::sleep(Duration::from_secs(2));
            Ok(took_ms)
        })?;
        row.ours.push(took_ms);
        row.noise.push(noise);
    }
    drop(scene);
    lab.down()?;
    Ok(Found::about(
        "1000 idle connections of a Python program under a policy, whose `kagiri qos run` gets SIGKILL: the \
         time until `ss`, called again and again, shows no connection with a largest pacing rate. One call \
         of it is in this time.",
    )
    .with_rows([row.goal_each("<= 200 ms")]))
}

impl Scene<'_> {
    /// What the receiver of iperf3 gets under the scene's policy, in Mbit/s.
    fn rate_of_iperf3(&self, rate: u32, protocol: &str, seconds: u64) -> anyhow::Result<f64> {
        let mut server = self.start("base", "iperf3", &["-s", "-1", "-B", &self.base, "--forceflush"])?;
        server.wait_line(WITHIN, |line| line.contains("listening"))?;
        let daemon = self.enforce(seconds + 8)?;
        let [length, offered] = [seconds.to_string(), format!("{}M", 2 * rate)];
        // Rates are printed in Mbit/s whatever their size.
        let mut words = vec!["-c", &self.base, "-t", &length, "-O", "3", "-f", "m", "--forceflush"];
        let datagram = DATAGRAM.to_string();
        if protocol == "UDP" {
            words.extend(["-u", "-b", &offered, "-l", &datagram]);
        }
        let mut client = self.start("robots", "iperf3", &words)?;
        let line = client.wait_line(WITHIN, |line| line.contains("receiver"))?;
        daemon.stop(WITHIN).context("kagiri qos run")?;
        let headers = if protocol == "UDP" { ON_THE_WIRE / DATAGRAM } else { 1.0 };
        Ok(mbit_per_s(&line)? * headers)
    }
}
