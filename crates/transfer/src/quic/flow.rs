//! One flow: a stream from its sender to its receiver (RFC 9000, 2).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, WriteError};
use sys::clock::monotonic_ns;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use crate::driver::{BLOCK_BYTES, EndReason, FlowCounters, FlowReport, block};
use crate::flow::{End, FlowSpec, Side};

/// A flow fails after waiting for its peer for this time.
const SILENCE: Duration = Duration::from_secs(15);
/// The most pieces, each of one packet, that are taken at once.
const PIECES: usize = 32;
/// Default congestion control of quinn's senders (RFC 9438).
const CONGESTION: &str = "cubic";

pub(super) struct Flow {
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
    pub(super) fn new(
        order: FlowSpec,
        start_ns: u64,
        counters: Arc<[FlowCounters]>,
        index: usize,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { order, start_ns, counters, index, stopped, bytes: 0, moved_ns: None, first_bytes: 0 }
    }

    /// Opens its stream, or waits for the peer to do so, and carries it from then on.
    pub(super) async fn open(mut self, connection: &Connection) -> Result<JoinHandle<FlowReport>, EndReason> {
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

    /// Waits until the peer has all that was sent: the flow's time is over, but not for what is under way.
    /// However slowly that goes, a connection whose peer is gone ends by itself, and a session has its
    /// limit.
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
                Err(_) => Err(EndReason::Failed(format!(
                    "nothing moved for {} s: is the peer alive, and does a firewall let it through?",
                    SILENCE.as_secs_f64()
                ))),
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
    let told = async { drop(stopped.wait_for(|stop| *stop).await) };
    match end {
        End::AtNs(at_ns) if left(at_ns).is_zero() => EndReason::Done,
        End::AtNs(at_ns) => timeout(left(at_ns), told).await.map_or(EndReason::Done, |()| EndReason::Stopped),
        End::Bytes(_) | End::Peer => {
            told.await;
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
