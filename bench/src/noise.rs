//! What else the machine did while something was measured.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};
use sys::clock::{Deadline, monotonic_ns};
use sys::proc::HostCpu;

/// Others using less than this of one core is quiet.
const QUIET_PERCENT: f64 = 25.0;
/// How long the machine is watched before it is called quiet.
const LOOK: Duration = Duration::from_millis(1000);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU used by programs that have nothing to do with the measurement, in % of one core. The kernel's
    /// counter of the host has steps of 10 ms, so short measurements are off by a few percent, also
    /// below zero.
    pub other_cpu_percent: f64,
    /// CPU that the hypervisor gave to others, in % of one core; `None` where the kernel does not say.
    pub steal_percent: Option<f64>,
}

/// Watches the host from its making to [`Meter::finish`].
pub struct Meter {
    cpu: HostCpu,
    began: Reading,
}

#[derive(Clone, Copy)]
struct Reading {
    at_ns: u64,
    busy_ns: u64,
    steal_ns: Option<u64>,
    own_ns: u64,
}

impl Meter {
    /// Begins. `live_ns`: CPU time so far of the processes under measurement that are still running.
    pub fn start(live_ns: u64) -> anyhow::Result<Self> {
        let mut cpu = HostCpu::open(Path::new("/")).context("cannot read the host's CPU time")?;
        let began = read(&mut cpu, live_ns)?;
        Ok(Self { cpu, began })
    }

    pub fn finish(mut self, live_ns: u64) -> anyhow::Result<Noise> {
        let now = read(&mut self.cpu, live_ns)?;
        let began = self.began;
        let wall_ns = now.at_ns.saturating_sub(began.at_ns).max(1) as f64;
        let busy_ns = now.busy_ns as f64 - began.busy_ns as f64;
        let own_ns = now.own_ns as f64 - began.own_ns as f64;
        let steal = now
            .steal_ns
            .zip(began.steal_ns)
            .map(|(to, from)| 100.0 * to.saturating_sub(from) as f64 / wall_ns);
        Ok(Noise { other_cpu_percent: 100.0 * (busy_ns - own_ns) / wall_ns, steal_percent: steal })
    }
}

fn read(cpu: &mut HostCpu, live_ns: u64) -> anyhow::Result<Reading> {
    let total = cpu.read().context("cannot read the host's CPU time")?.total;
    let ended = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the CPU time of ended children")?;
    let ended_us = ended.user_time().num_microseconds() + ended.system_time().num_microseconds();
    let ended_ns = u64::try_from(ended_us).unwrap_or(0) * 1000;
    let own_ns = sys::thread::process_cpu_ns() + ended_ns + live_ns;
    Ok(Reading { at_ns: monotonic_ns(), busy_ns: total.busy_ns(), steal_ns: total.steal_ns, own_ns })
}

/// Waits until others leave the machine alone, at most `within`. Whether they did stands with the
/// measurement's noise.
pub fn await_quiet(within: Duration) -> anyhow::Result<()> {
    let deadline = Deadline::after(within);
    let mut has_warned = false;
    while !deadline.passed() {
        let meter = Meter::start(0)?;
        std::thread::sleep(LOOK.min(deadline.left()));
        if meter.finish(0)?.other_cpu_percent < QUIET_PERCENT {
            return Ok(());
        }
        if !has_warned {
            eprintln!("  other programs use this machine; waiting up to {} s for quiet", within.as_secs());
            has_warned = true;
        }
    }
    Ok(())
}
