//! The flows of one way at one end, all streams of one connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quinn::Connection;
use sys::clock::Deadline;
use sys::thread::thread_cpu_ns;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::flow::Flow;
use crate::driver::{CpuUsage, EndReason, FlowCount, FlowCounters, FlowReport, ThreadReport};
use crate::flow::{FlowSpec, Side};
use crate::report::Waits;

#[derive(Debug, Clone, Default)]
pub(crate) struct QuicReport {
    pub(crate) flows: Vec<FlowReport>,
    /// The thread that drove them, and with them those of the other way.
    pub(crate) threads: Vec<ThreadReport>,
    /// CPU time of the thread that no group has reported yet, ns.
    pub(crate) cpu_ns: u64,
    /// Of senders, how the path was: once, for the connection.
    pub(crate) waits: Vec<Waits>,
}

/// Flows under way. Dropping it stops them.
pub(crate) struct QuicGroup {
    counters: Arc<[FlowCounters]>,
    report: Arc<OnceLock<QuicReport>>,
    stop: watch::Sender<bool>,
}

impl QuicGroup {
    /// Starts flows on the thread of `runtime`.
    pub(super) fn start(
        runtime: &Handle,
        connection: Connection,
        control: Vec<FlowSpec>,
        start_ns: u64,
        told_cpu_ns: Arc<AtomicU64>,
    ) -> Self {
        let counters: Arc<[FlowCounters]> = control.iter().map(|_| FlowCounters::default()).collect();
        let (stop, stopped) = watch::channel(false);
        let report = Arc::new(OnceLock::new());
        let (shared, told) = (counters.clone(), report.clone());
        runtime.spawn(async move {
            let usage = CpuUsage::begin(start_ns);
            // The thread's account begins with its first group.
            let _ = told_cpu_ns.compare_exchange(0, thread_cpu_ns(), Ordering::Relaxed, Ordering::Relaxed);
            let is_sender = control.first().is_some_and(|order| order.side == Side::Sender);
            let flows = control
                .into_iter()
                .enumerate()
                .map(|(index, order)| Flow::new(order, start_ns, shared.clone(), index, stopped.clone()));
            let flows = carry(&connection, flows).await;
            let cpu_ns = thread_cpu_ns();
            let before_ns = told_cpu_ns.swap(cpu_ns, Ordering::Relaxed);
            let waits = is_sender.then(|| waits(&connection));
            // It is set here only.
            let _ = told.set(QuicReport {
                flows,
                threads: vec![usage.end()],
                cpu_ns: cpu_ns.saturating_sub(before_ns),
                waits: waits.into_iter().collect(),
            });
        });
        Self { counters, report, stop }
    }

    /// How far each flow is. Never waits.
    pub(crate) fn counts(&self) -> Vec<FlowCount> {
        self.counters.iter().map(FlowCounters::read).collect()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.report.get().is_some()
    }

    /// Stops all flows. What senders have sent is still delivered while the connection stands.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops what has not ended, waits for it until the deadline, and reports.
    pub(crate) fn finish(self, deadline: Deadline) -> QuicReport {
        self.stop();
        while !self.is_finished() && deadline.pause(Duration::from_millis(1)) {}
        let stuck = |counters: &FlowCounters| FlowReport {
            count: counters.read(),
            ..FlowReport::new(EndReason::Failed("its thread did not end; please report this".into()))
        };
        self.report.get().cloned().unwrap_or_else(|| QuicReport {
            flows: self.counters.iter().map(stuck).collect(),
            ..QuicReport::default()
        })
    }
}

impl Drop for QuicGroup {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Opens the flows' streams one after the other: the order in which they are opened is the flows' own.
async fn carry(connection: &Connection, flows: impl Iterator<Item = Flow>) -> Vec<FlowReport> {
    let mut under_way = Vec::new();
    for flow in flows {
        under_way.push(flow.open(connection).await);
    }
    let mut reports = Vec::with_capacity(under_way.len());
    for flow in under_way {
        reports.push(match flow {
            Ok(task) => {
                task.await.unwrap_or_else(|error| FlowReport::new(EndReason::Failed(error.to_string())))
            }
            Err(ended) => FlowReport::new(ended),
        });
    }
    reports
}

/// How the path was, as QUIC saw it.
fn waits(connection: &Connection) -> Waits {
    let path = connection.stats().path;
    let us = |time: Duration| u64::try_from(time.as_micros()).ok();
    Waits {
        retransmits: Some(path.lost_packets),
        min_rtt_us: us(path.min_rtt),
        rtt_us: us(path.rtt),
        congestion_window_bytes: Some(path.cwnd),
        ..Waits::default()
    }
}
