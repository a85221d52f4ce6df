//! A test as others may look at it while it runs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};

use super::flows::Flows;
use super::report::Finished;
use super::{Iperf3Error, Length, Parameters, Results};
use crate::flow::{FlowCount, Side};
use ::iperf3::{Direction, Protocol};

/// The state of a running test for other threads: no method waits for the network.
#[derive(Default)]
pub struct SessionStatus {
    state: RwLock<Inner>,
    /// How many data connections are still expected.
    places: AtomicU32,
}

#[derive(Default)]
struct Inner {
    parameters: Option<Parameters>,
    flows: Option<Flows>,
    /// What the flows had counted when they ended.
    last: Vec<(Side, FlowCount)>,
}

impl SessionStatus {
    fn look(&self) -> RwLockReadGuard<'_, Inner> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Inner> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parameters, once they are known.
    pub fn parameters(&self) -> Option<Parameters> {
        self.look().parameters.clone()
    }

    /// When data began to flow, monotonic ns; absent before and after.
    pub fn started_ns(&self) -> Option<u64> {
        self.look().flows.as_ref().map(|flows| flows.started_ns)
    }

    /// The counts of all streams in the order of their numbers, the omitted time included; empty before they
    /// begin.
    pub fn counts(&self) -> Vec<(Side, FlowCount)> {
        let inner = self.look();
        inner.flows.as_ref().map_or_else(|| inner.last.clone(), Flows::sided_counts)
    }

    pub(super) fn open_places(&self, streams: u32) {
        self.places.store(streams, Ordering::Release);
    }

    /// Claims an expected data connection; `false` if none is expected.
    pub fn take_place(&self) -> bool {
        self.places.fetch_update(Ordering::AcqRel, Ordering::Acquire, |places| places.checked_sub(1)).is_ok()
    }

    pub(super) fn agree(&self, parameters: &Parameters) {
        self.change().parameters = Some(parameters.clone());
    }

    pub(super) fn begin(&self, flows: Flows) {
        self.change().flows = Some(flows);
    }

    pub(super) fn ask<T>(&self, question: impl FnOnce(&Flows) -> T) -> Option<T> {
        self.look().flows.as_ref().map(question)
    }

    pub(super) fn change_flows(&self, change: impl FnOnce(&mut Flows)) {
        if let Some(flows) = &mut self.change().flows {
            change(flows);
        }
    }

    /// The flows, for what waits for their threads: the lock is not held meanwhile, and readers see the last
    /// counts.
    fn take(&self) -> Option<Flows> {
        let mut inner = self.change();
        let flows = inner.flows.take()?;
        inner.last = flows.sided_counts();
        Some(flows)
    }

    /// Stops the senders, if there are any; see [`Flows::end`].
    pub(super) fn end(&self, hang_up: bool) {
        if let Some(mut flows) = self.take() {
            flows.end(hang_up);
            self.begin(flows);
        }
    }

    /// Ends the flows, if there are any; `broke` if the test did not come to its end.
    pub(super) fn finish(&self, broke: bool) -> Option<Finished> {
        self.take().map(|flows| flows.finish(broke))
    }
}

/// The deadlines of a running test.
pub(super) struct Progress {
    parameters: Parameters,
    started_ns: u64,
    omit_until_ns: Option<u64>,
    /// The byte count at the last progress, and the deadline of the next progress.
    moved: (u64, Deadline),
    stall: Duration,
}

/// The state of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progressed {
    Going,
    /// All requested bytes have passed, or all flows have ended.
    Done,
}

impl Progress {
    /// Watches flows: something must move within `stall`.
    pub(super) fn new(parameters: &Parameters, started_ns: u64, stall: Duration) -> Self {
        let omit_ns = u64::from(parameters.omit_s) * 1_000_000_000;
        Self {
            parameters: parameters.clone(),
            started_ns,
            omit_until_ns: (omit_ns > 0).then(|| started_ns.saturating_add(omit_ns)),
            moved: (0, Deadline::after(stall)),
            stall,
        }
    }

    /// The moment at which the test is over by its time, monotonic ns.
    pub(super) fn end_ns(&self) -> Option<u64> {
        match self.parameters.length {
            Length::Seconds(seconds) => {
                let all_s = u64::from(seconds) + u64::from(self.parameters.omit_s);
                Some(self.started_ns.saturating_add(all_s * 1_000_000_000))
            }
            _ => None,
        }
    }

    /// How long to wait before the next check.
    pub(super) fn pause(&self) -> Duration {
        let counted = self.parameters.bytes_asked().is_some() || self.omit_until_ns.is_some();
        Duration::from_millis(if counted { 5 } else { 50 })
    }

    pub(super) fn look(
        &mut self,
        status: &SessionStatus,
        peer: SocketAddr,
    ) -> Result<Progressed, Iperf3Error> {
        if self.omit_until_ns.is_some_and(|until_ns| monotonic_ns() >= until_ns) {
            self.omit_until_ns = None;
            status.change_flows(Flows::end_omitted);
        }
        let Some((counts, bytes, finished)) =
            status.ask(|flows| (flows.counts(), flows.bytes(), flows.is_finished()))
        else {
            return Ok(Progressed::Done);
        };
        // Datagrams leave without a receiver too: with both directions, only received bytes prove progress.
        let tells_little = self.parameters.protocol == Protocol::Udp
            && self.parameters.direction == Direction::Bidirectional;
        let all = || counts.iter().map(|count| count.bytes).fold(0, u64::saturating_add);
        let sum = if tells_little { bytes.1 } else { all() };
        if sum != self.moved.0 {
            self.moved = (sum, Deadline::after(self.stall));
        }
        if self.moved.1.passed() {
            return Err(Iperf3Error::Stalled { peer, within: self.stall });
        }
        let enough = |asked| self.omit_until_ns.is_none() && (bytes.0 >= asked || bytes.1 >= asked);
        let done = finished || self.parameters.bytes_asked().is_some_and(enough);
        Ok(if done { Progressed::Done } else { Progressed::Going })
    }
}

/// Combines the other end's results with this end's counts.
///
/// A receiver cannot see that the last datagrams are missing; the sender's count shows it.
pub(super) fn compare(finished: &mut Finished, remote: &Results) {
    for stream in &mut finished.streams {
        stream.remote = remote.stream(stream.id).cloned();
        let sent = stream.remote.as_ref().and_then(|remote| remote.packets);
        if stream.side == Side::Receiver
            && let (Some(sent), Some(seen)) = (sent, stream.own.packets)
            && sent > seen
        {
            stream.own.packets = Some(sent);
            stream.own.errors = stream.own.errors.map(|lost| lost.saturating_add(sent - seen));
        }
    }
    finished.results.streams = finished.streams.iter().map(|stream| stream.own.clone()).collect();
}
