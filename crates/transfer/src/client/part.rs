//! The client of a transfer as a part of a run: kind `transfer.client`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use base::part::{HostContext, Live, PartError, Progress};
use serde::{Deserialize, Serialize};
use sys::clock::{Deadline, monotonic_ns};
use workload::part::{Part, Peers};

use super::{ClientError, Passed, Ready, Task, address};
use crate::SERVER;
use crate::control::StopHandle;
use crate::flow::{Direction, probe};
use crate::report::TransferReport;
use crate::server::part::ServerPart;
use crate::settings::TransferSettings;

/// Interval of checks whether the run is to end while the client gets ready.
const LOOK: Duration = Duration::from_millis(5);
/// Rates of this moment are those over so long.
const LIVE_NS: u64 = 500_000_000;
/// How long a stopped client may take to end.
const LEAVE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientTask {
    /// The transfer, at its trial's load.
    pub transfer: TransferSettings,
    /// Host of the client among several; part of its report.
    pub host: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientEndpoint {
    pub server_address: SocketAddr,
    pub peer: String,
    pub pid: u32,
}

pub struct ClientPart {
    task: ClientTask,
    stop_handle: Option<Arc<StopHandle>>,
    ready: Option<Ready>,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    thread: JoinHandle<TransferReport>,
    passed: Passed,
    began_ns: u64,
    /// What passed at the last look, when that was, and the rates that came of it.
    seen: (u64, [u64; 2]),
    live: Live,
}

/// Does `work`, and stops it by the stop handle if the run is to end.
fn unless_stopped<T: Send>(
    host: &HostContext,
    stop_handle: &StopHandle,
    work: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            if host.stop_requested() {
                stop_handle.stop();
            }
            std::thread::sleep(LOOK);
        }
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl ClientPart {
    fn server(&self, peers: &Peers<'_>) -> Result<(SocketAddr, Option<String>), PartError> {
        let transfer = &self.task.transfer;
        if let Some(host) = &transfer.host {
            let found = address(host, transfer.peer).map_err(|error| match error {
                // The name may be right, and only its resolver out of reach.
                ClientError::HostName { .. } => PartError::new(error),
                _ => PartError::usage(error),
            });
            return Ok((found?, None));
        }
        let server = peers.get::<ServerPart>(SERVER)?;
        Ok((server.address, Some(server.key)))
    }
}

impl Part for ClientPart {
    const KIND: &'static str = "transfer.client";
    type Task = ClientTask;
    type Endpoint = ClientEndpoint;
    type Report = TransferReport;

    fn report_items(task: &ClientTask) -> u64 {
        task.transfer.flows
    }

    fn new(task: ClientTask) -> Result<Self, PartError> {
        Ok(Self { task, stop_handle: None, ready: None, under_way: None })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<ClientEndpoint, PartError> {
        let (server, key) = self.server(peers)?;
        host.permit.peer(server)?;
        let has_requests = self.task.transfer.under_load.is_some();
        if self.task.transfer.direction != Direction::Down || has_requests {
            host.permit.rate(self.task.transfer.rate_max_bit_per_s())?;
        }
        let transfer = &self.task.transfer;
        if transfer.leaves_engine_open() && transfer.direction != Direction::Down {
            // Where there is no loopback to try them over, the usual one does.
            let _ = probe::run();
        }
        let stop_handle = Arc::new(StopHandle::new().map_err(PartError::new)?);
        let task = Task { settings: self.task.transfer.clone(), server, key };
        let ready = unless_stopped(host, &stop_handle, || Ready::prepare(task, stop_handle.clone()));
        let ready = ready.map_err(PartError::new)?;
        let endpoint =
            ClientEndpoint { server_address: server, peer: ready.peer.to_owned(), pid: std::process::id() };
        (self.stop_handle, self.ready) = (Some(stop_handle), Some(ready));
        Ok(endpoint)
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let ready = self
            .ready
            .take()
            .ok_or_else(|| PartError::new("the client was started before it was prepared"))?;
        if monotonic_ns() > at_monotonic_ns {
            return Err(PartError::new("the client's start time has passed"));
        }
        let passed = ready.passed.clone();
        let run = move || ready.run(at_monotonic_ns);
        let thread = std::thread::Builder::new().name("transfer-client".to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| PartError::new(format!("cannot start the client's thread: {error}")))?;
        let (began_ns, seen) = (at_monotonic_ns, (at_monotonic_ns, [0; 2]));
        self.under_way = Some(UnderWay { thread, passed, began_ns, seen, live: Live::new() });
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        let Some(under_way) = &self.under_way else { return Progress::Running { done: Some(0.0) } };
        if under_way.thread.is_finished() {
            return Progress::Finished;
        }
        let transfer = &self.task.transfer;
        let done = match transfer.bytes {
            Some(bytes) => {
                let passed = under_way.passed.iter().map(|bytes| bytes.load(Ordering::Relaxed)).max();
                passed.unwrap_or(0) as f64 / bytes.bytes().max(1) as f64
            }
            None => {
                let whole_s = transfer.idle().s() + transfer.omit.s() + transfer.time.s();
                monotonic_ns().saturating_sub(under_way.began_ns) as f64 / 1e9 / whole_s.max(1e-3)
            }
        };
        Progress::Running { done: Some(done.min(1.0)) }
    }

    fn live(&mut self) -> Live {
        let Some(under_way) = &mut self.under_way else { return Live::new() };
        let now_ns = monotonic_ns();
        let passed = [0, 1].map(|way| under_way.passed[way].load(Ordering::Relaxed));
        // Called many times a second: counters are exact each time, rates need some time.
        let counters = ["passed_up_bytes", "passed_down_bytes"].map(str::to_owned).into_iter();
        let counters = counters.zip(passed.map(|bytes| bytes as f64));
        if now_ns.saturating_sub(under_way.seen.0) < LIVE_NS {
            return under_way.live.clone().into_iter().chain(counters).collect();
        }
        let (then_ns, before) = std::mem::replace(&mut under_way.seen, (now_ns, passed));
        let s = now_ns.saturating_sub(then_ns) as f64 / 1e9;
        let rate = |way: usize| passed[way].saturating_sub(before[way]) as f64 * 8.0 / s.max(1e-9);
        let named = [("goodput_up_bit_per_s", rate(0)), ("goodput_down_bit_per_s", rate(1))];
        let known = named.into_iter().filter(|(_, rate)| *rate > 0.0);
        under_way.live = known.map(|(name, rate)| (name.to_owned(), rate)).collect();
        under_way.live.clone().into_iter().chain(counters).collect()
    }

    fn stop(&mut self) -> Result<TransferReport, PartError> {
        let Some(under_way) = self.under_way.take() else {
            return Err(PartError::new("the client was not started, so there is no report"));
        };
        if !under_way.thread.is_finished()
            && let Some(stop_handle) = &self.stop_handle
        {
            stop_handle.stop();
        }
        let until = Deadline::after(LEAVE);
        while !under_way.thread.is_finished() && until.pause(Duration::from_millis(2)) {}
        if !under_way.thread.is_finished() {
            return Err(PartError::new("the client did not end after its stop; please report this"));
        }
        let report = under_way.thread.join();
        let mut report = report.map_err(|_| PartError::new("the client panicked; please report this"))?;
        for end in report.directions.iter_mut().flat_map(|way| [&mut way.sender, &mut way.receiver]).flatten()
        {
            end.host = end.host.take().or_else(|| self.task.host.clone());
        }
        Ok(report)
    }
}

impl Drop for ClientPart {
    fn drop(&mut self) {
        if let Some(stop_handle) = &self.stop_handle {
            stop_handle.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_host_is_no_usage_error_and_malformed_one_is() {
        for (host, is_usage) in [("no-such-host.invalid", false), ("127.0.0.1:port", true)] {
            let transfer = TransferSettings { host: Some(host.to_owned()), ..TransferSettings::default() };
            let mut part = ClientPart::new(ClientTask { transfer, host: None }).unwrap();
            let here = HostContext::here("/".into(), "/".into(), "/".into());
            let error = part.prepare(&Peers::new(&base::part::Endpoints::default()), &here).unwrap_err();
            assert_eq!(error.usage, is_usage, "{}", error.message);
            assert!(error.message.contains(host), "{}", error.message);
        }
    }
}
