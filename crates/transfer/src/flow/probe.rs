//! Which engine costs this host the least: a short comparison over loopback.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};

use super::engines::probed;
use super::flow::{GroupSetting, start};
use super::flow_spec::{End, FlowSpec, Side, Stamp};
use crate::driver::{Engine, FlowError, FlowSocket, Mode, ProbeReport, Probed};

/// Rounds alternate between the engines, so that a neighbour disturbs both alike.
const ROUNDS: u32 = 3;
const ROUND_NS: u64 = 25_000_000;
/// Beyond a round, the time in which its threads start and end.
const ROUND_WITHIN: Duration = Duration::from_millis(500);

/// The result of [`run`], if it has run.
pub fn known() -> Option<ProbeReport> {
    probed().clone()
}

/// Compares the engines over a connection to this host itself for 0.15 s, once; after that it knows.
pub fn run() -> Result<ProbeReport, FlowError> {
    // Held throughout: two probes at once would disturb each other.
    let mut known = probed();
    if let Some(report) = &*known {
        return Ok(report.clone());
    }
    let tried = [Engine::Write, Engine::Splice];
    let mut sums = [Sum::default(); 2];
    for _ in 0..ROUNDS {
        for (engine, sum) in tried.into_iter().zip(&mut sums) {
            sum.add(round(engine)?);
        }
    }
    let engines: Vec<Probed> = tried.into_iter().zip(sums).filter_map(|(e, sum)| sum.probed(e)).collect();
    let cheapest = engines.iter().min_by(|a, b| a.cpu_s_per_gb.total_cmp(&b.cpu_s_per_gb));
    let chosen = cheapest.ok_or_else(|| FlowError::Probe("nothing came".into()))?.engine;
    let report = ProbeReport { chosen, engines };
    *known = Some(report.clone());
    Ok(report)
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    cpu_ns: u64,
    wall_ns: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
    }

    fn probed(self, engine: Engine) -> Option<Probed> {
        let bytes = self.bytes as f64;
        (self.bytes > 0 && self.wall_ns > 0).then(|| Probed {
            engine,
            cpu_s_per_gb: self.cpu_ns as f64 / bytes,
            bit_per_s: bytes * 8e9 / self.wall_ns as f64,
        })
    }
}

fn round(engine: Engine) -> Result<Sum, FlowError> {
    let (sender, receiver) = connected().map_err(|error| FlowError::Probe(error.to_string()))?;
    let start_ns = monotonic_ns();
    let spec = |side| FlowSpec {
        side,
        mode: Mode::Copy,
        size_bytes: 0,
        end: End::AtNs(start_ns + ROUND_NS),
        rate_bit_per_s: None,
        stamp: Stamp::None,
    };
    let flows = vec![
        (FlowSocket::Tcp(sender.try_into()?), spec(Side::Sender)),
        (FlowSocket::Tcp(receiver.try_into()?), spec(Side::Receiver)),
    ];
    let setting = GroupSetting { engine: Some(engine), ..GroupSetting::default() };
    let report = start(flows, &setting, start_ns)?.finish(Deadline::after(ROUND_WITHIN));
    let cpu_ns = report.threads.iter().map(|thread| thread.cpu_ns).sum();
    let received = &report.flows[1];
    let wall_ns = received.moved_ns.map_or(0, |(first, last)| last - first);
    // Where pipes are not to be had, `splice` writes: it is not on offer then.
    let bytes = if report.engine.sender == Some(engine) { received.count.bytes } else { 0 };
    Ok(Sum { bytes, cpu_ns, wall_ns })
}

fn connected() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect_timeout(&listener.local_addr()?, ROUND_WITHIN)?;
    listener.set_nonblocking(true)?;
    // The connection is in the listener's queue once `connect` has returned.
    let (receiver, peer) = listener.accept()?;
    if peer != sender.local_addr()? {
        return Err(std::io::Error::other("another program connected"));
    }
    Ok((sender, receiver))
}
