//! The flows of one direction at one end, all streams of one connection (RFC 9000, 2).

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, WriteError};
use sys::clock::{Deadline, monotonic_ns};
use sys::thread::thread_cpu_ns;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use crate::driver::{
    BLOCK_BYTES, CpuUsage, EndReason, FlowCount, FlowCounters, FlowReport, ThreadReport, block, silent,
};
use crate::flow::{End, FlowSpec, Side};
use crate::report::Waits;

/// A flow fails after waiting for its peer for this time.
const SILENCE: Duration = Duration::from_secs(15);
/// Most chunks, of one packet each, that are taken at once.
const PIECES: usize = 32;
/// Default congestion control of quinn's senders (RFC 9438).
const CONGESTION: &str = "cubic";

struct Flow {
    order: FlowSpec,
    start_ns: u64,
    /// The counts of its group's flows, and which of them are its own.
    counters: Arc<[FlowCounters]>,
    index: usize,
    stopped: watch::Receiver<bool>,
    bytes: u64,
    moved_ns: Option<(u64, u64)>,
    first_bytes: u64,
}

impl Flow {
    fn new(
        order: FlowSpec,
        start_ns: u64,
        counters: Arc<[FlowCounters]>,
        index: usize,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { order, start_ns, counters, index, stopped, bytes: 0, moved_ns: None, first_bytes: 0 }
    }

    /// Opens its stream, or waits for the peer to do so, and carries it from then on.
    async fn open(mut self, connection: &Connection) -> Result<JoinHandle<FlowReport>, EndReason> {
        match self.order.side {
            Side::Sender => {
                let stream = self.step(connection.open_uni()).await?;
                Ok(tokio::spawn(self.send(stream)))
            }
            Side::Receiver => {
                let stream = self.step(connection.accept_uni()).await?;
                Ok(tokio::spawn(self.receive(stream)))
            }
        }
    }

    async fn send(mut self, mut stream: SendStream) -> FlowReport {
        let mut ended = self.write(&mut stream).await;
        // It fails when the stream is broken already.
        let _ = stream.finish();
        if ended == EndReason::Done {
            ended = self.deliver(&stream).await;
        }
        let congestion = Some(CONGESTION.to_owned());
        FlowReport { congestion, ..self.report(ended) }
    }

    /// Waits until the peer has everything that was sent, after the flow's time is over. The wait is bounded:
    /// a connection without a peer ends by itself, and a session has a time limit.
    async fn deliver(&mut self, stream: &SendStream) -> EndReason {
        tokio::select! {
            biased;
            ended = over(&mut self.stopped, End::Peer) => ended,
            done = stream.stopped() => match done {
                Ok(None) => EndReason::Done,
                Ok(Some(code)) => failed(&WriteError::Stopped(code)),
                Err(error) => failed(&error),
            },
        }
    }

    async fn write(&mut self, stream: &mut SendStream) -> EndReason {
        let start = left(self.start_ns);
        let begin = async {
            sleep(start).await;
            Ok::<(), WriteError>(())
        };
        if let Err(ended) = self.step(begin).await {
            return ended;
        }
        let size = (self.order.size_bytes as usize).clamp(1, BLOCK_BYTES);
        loop {
            let size = match self.order.end {
                End::Bytes(bytes) if bytes <= self.bytes => return EndReason::Done,
                End::Bytes(bytes) => size.min(usize::try_from(bytes - self.bytes).unwrap_or(size)),
                End::AtNs(_) | End::Peer => size,
            };
            match self.step(stream.write(&block()[..size])).await {
                Ok(bytes) => self.moved(bytes as u64),
                Err(ended) => return ended,
            }
            // A stream buffers many megabytes; packets must leave meanwhile.
            yield_now().await;
        }
    }

    async fn receive(mut self, mut stream: RecvStream) -> FlowReport {
        let mut pieces: [_; PIECES] = Default::default();
        let ended = loop {
            match self.step(stream.read_chunks(&mut pieces)).await {
                Ok(Some(came)) => self.moved(pieces[..came].iter().map(|piece| piece.len() as u64).sum()),
                Ok(None) => break EndReason::ByPeer,
                Err(ended) => break ended,
            }
        };
        self.report(ended)
    }

    /// Runs `step`, unless the flow is over before: stopped, at its end time, or after silence.
    async fn step<T, E: Error>(&mut self, step: impl Future<Output = Result<T, E>>) -> Result<T, EndReason> {
        // Nothing is expected to move before the common start.
        let patience = SILENCE + left(self.start_ns);
        tokio::select! {
            biased;
            ended = over(&mut self.stopped, self.order.end) => Err(ended),
            done = timeout(patience, step) => match done {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(error)) => Err(failed(&error)),
                Err(_) => Err(silent(SILENCE)),
            },
        }
    }

    fn moved(&mut self, bytes: u64) {
        let now_ns = monotonic_ns();
        match &mut self.moved_ns {
            Some((_, last_ns)) => *last_ns = now_ns,
            None => (self.moved_ns, self.first_bytes) = (Some((now_ns, now_ns)), bytes),
        }
        self.bytes += bytes;
        self.counters[self.index].set_bytes(self.bytes);
    }

    fn report(&self, ended: EndReason) -> FlowReport {
        FlowReport {
            count: self.counters[self.index].read(),
            moved_ns: self.moved_ns,
            first_bytes: self.first_bytes,
            ..FlowReport::new(ended)
        }
    }
}

/// Ends when the flow is stopped, or its time is over.
async fn over(stopped: &mut watch::Receiver<bool>, end: End) -> EndReason {
    // A dropped group stops its flows too.
    let stop_request = async { drop(stopped.wait_for(|stop| *stop).await) };
    match end {
        End::AtNs(at_ns) if left(at_ns).is_zero() => EndReason::Done,
        End::AtNs(at_ns) => {
            timeout(left(at_ns), stop_request).await.map_or(EndReason::Done, |()| EndReason::Stopped)
        }
        End::Bytes(_) | End::Peer => {
            stop_request.await;
            EndReason::Stopped
        }
    }
}

/// Time left until a moment of the monotonic clock.
fn left(at_ns: u64) -> Duration {
    Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()))
}

fn failed(error: &dyn Error) -> EndReason {
    EndReason::Failed(match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    })
}

#[derive(Debug, Clone, Default)]
pub(crate) struct QuicReport {
    pub(crate) flows: Vec<FlowReport>,
    /// The thread that served them and the flows of the other direction.
    pub(crate) threads: Vec<ThreadReport>,
    /// CPU time of the thread that no group has reported yet, ns.
    pub(crate) cpu_ns: u64,
    /// Statistics of the path, from the sending end, once for the connection.
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
        reported_cpu_ns: Arc<AtomicU64>,
    ) -> Self {
        let counters: Arc<[FlowCounters]> = control.iter().map(|_| FlowCounters::default()).collect();
        let (stop, stopped) = watch::channel(false);
        let report = Arc::new(OnceLock::new());
        let (shared, report_cell) = (counters.clone(), report.clone());
        runtime.spawn(async move {
            let usage = CpuUsage::begin(start_ns);
            // The thread's account begins with its first group.
            let _ =
                reported_cpu_ns.compare_exchange(0, thread_cpu_ns(), Ordering::Relaxed, Ordering::Relaxed);
            let is_sender = control.first().is_some_and(|order| order.side == Side::Sender);
            let flows = control
                .into_iter()
                .enumerate()
                .map(|(index, order)| Flow::new(order, start_ns, shared.clone(), index, stopped.clone()));
            let flows = carry(&connection, flows).await;
            let cpu_ns = thread_cpu_ns();
            let before_ns = reported_cpu_ns.swap(cpu_ns, Ordering::Relaxed);
            let waits = is_sender.then(|| waits(&connection));
            // It is set here only.
            let _ = report_cell.set(QuicReport {
                flows,
                threads: vec![usage.end()],
                cpu_ns: cpu_ns.saturating_sub(before_ns),
                waits: waits.into_iter().collect(),
            });
        });
        Self { counters, report, stop }
    }

    /// The progress of each flow. Never waits.
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

/// Opens the flows' streams one after the other: their order is the order of the flows.
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

/// QUIC's statistics of the path.
fn waits(connection: &Connection) -> Waits {
    let path = connection.stats().path;
    let us = |time: Duration| u64::try_from(time.as_micros()).ok();
    Waits {
        retransmits: Some(path.lost_packets),
        is_quic: true,
        min_rtt_us: us(path.min_rtt),
        rtt_us: us(path.rtt),
        congestion_window_bytes: Some(path.cwnd),
        ..Waits::default()
    }
}
