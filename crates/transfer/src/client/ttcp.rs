//! At a classic `ttcp`.

use std::sync::Arc;

use sys::clock::{monotonic_ns, sleep_until_ns};

use super::{ClientError, Passed, Ready, Task, add_passed, hold_s, report};
use crate::control::StopHandle;
use crate::flow::{Direction, End, FlowCount};
use crate::intervals::Intervals;
use crate::report::{Counted, DirectionReport, EndReport, TransferReport, Waits};
use crate::steal::StealReading;
use crate::ttcp::{Manner, Receiver, SendOrder, TtcpError, TtcpReport, send};

/// Up, the client connects to a `ttcp -r`; down, it waits for a `ttcp -t`.
pub(super) fn prepare(task: Task, stop_handle: Arc<StopHandle>) -> Result<Ready, ClientError> {
    let receiver = match task.settings.direction {
        Direction::Down => {
            // Only where the sender's host reaches this one.
            let towards = sys::net::UdpFlow::connect(task.server, None)?.local_addr()?.ip();
            Some(Receiver::bind((towards, task.server.port()).into(), manner(&task))?)
        }
        _ => None,
    };
    let passed = Passed::default();
    let client = Client { task, stop_handle, receiver, passed: passed.clone() };
    Ok(Ready { peer: "ttcp", passed, run: Box::new(move |at_ns| client.run(at_ns)) })
}

struct Client {
    task: Task,
    stop_handle: Arc<StopHandle>,
    receiver: Option<Receiver>,
    passed: Passed,
}

impl Client {
    fn run(mut self, at_ns: u64) -> TransferReport {
        let mut report = report(&self.task, "ttcp", None);
        sleep_until_ns(at_ns);
        let steal = StealReading::begin();
        let (direction, index) =
            if self.receiver.is_some() { (Direction::Down, 1) } else { (Direction::Up, 0) };
        let mut intervals = Intervals::new(monotonic_ns(), self.task.settings.interval_ns());
        let passed = self.passed.clone();
        let mut bytes = 0;
        let watch = |count: &FlowCount| {
            bytes = count.bytes;
            intervals.look(monotonic_ns(), bytes);
            add_passed(&passed, index, bytes);
        };
        let outcome = match self.receiver.take() {
            Some(mut receiver) => {
                receiver.take(&self.stop_handle, watch).and_then(|report| self.of_the_right_host(report))
            }
            None => send(self.task.server, &self.order(at_ns), &self.stop_handle, watch),
        };
        report.hold_s = hold_s(&self.task.settings, at_ns);
        report.stopped = self.stop_handle.is_stopped();
        match outcome {
            Ok(moved) => {
                report.engine = format!("client: {}; server: ttcp", moved.engine);
                let intervals = intervals.finish(monotonic_ns(), bytes, moved.flow.moved_ns);
                let mut end = end(moved, intervals);
                if direction == Direction::Down {
                    end.counted = Counted::Datagrams;
                }
                end.steal = steal.share();
                report.directions = vec![DirectionReport::of_client(direction, Some(end), None)];
            }
            Err(error) => report.broken = Some(error.to_string()).filter(|_| !report.stopped),
        }
        report
    }

    fn order(&self, at_ns: u64) -> SendOrder {
        let settings = &self.task.settings;
        let time_ns = u64::try_from(settings.time.duration().as_nanos()).unwrap_or(u64::MAX);
        let end = settings
            .bytes
            .map_or(End::AtNs(at_ns.saturating_add(time_ns)), |bytes| End::Bytes(bytes.bytes()));
        SendOrder {
            manner: manner(&self.task),
            end,
            rate_bit_per_s: settings.rate.map(|rate| rate.bit_per_s()),
        }
    }

    /// Any host can connect to an open port.
    fn of_the_right_host(&self, report: TtcpReport) -> Result<TtcpReport, TtcpError> {
        let expected = self.task.server.ip();
        match report.peer.ip().to_canonical() == expected.to_canonical() {
            true => Ok(report),
            false => Err(TtcpError::Stranger { peer: report.peer, expected }),
        }
    }
}

fn manner(task: &Task) -> Manner {
    let mut manner = Manner::new(task.settings.protocol);
    manner.mode = task.settings.mode;
    if let Some(size) = task.settings.size {
        manner.block_bytes = u32::try_from(size.bytes()).unwrap_or(u32::MAX);
    }
    manner
}

fn end(moved: TtcpReport, intervals: Vec<(f64, f64, u64)>) -> EndReport {
    let waits = moved.flow.tcp.as_ref().map(Waits::from);
    let cpu_ns: u64 = moved.threads.iter().map(|thread| thread.cpu_ns).sum();
    EndReport {
        flows: vec![moved.flow],
        waits: waits.into_iter().collect(),
        cpu_s: Some(cpu_ns as f64 / 1e9),
        threads: moved.threads,
        intervals,
        ..EndReport::default()
    }
}
