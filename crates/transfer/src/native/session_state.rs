//! The state of a session while data flows: the same at both ends.

use std::time::Duration;

use serde::Serialize;
use sys::clock::{Deadline, monotonic_ns};

use super::NativeError;
use super::control_link::ControlLink;
use super::direction_run::{DirectionResult, DirectionRun, sent};
use super::message::{Sent, SessionOrder};

/// After the senders have ended, receivers end when nothing arrives for this time.
const DRAIN: Duration = Duration::from_secs(10);
/// Limit of that time in all.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// How long bytes that were asked for may take to move.
const BYTES_WITHIN: Duration = Duration::from_secs(86_400);
const BEAT: Duration = Duration::from_millis(500);
/// A peer that is silent for this time is gone.
const SILENT: Duration = Duration::from_secs(10);
/// Interval of checks for ended flows.
const LOOK_NS: u64 = 2_000_000;

/// What both ends do while data flows.
pub(super) const FLOWING: &str = "data flows";

/// The flows of one end from start to report.
#[derive(Default)]
pub(super) struct SessionState {
    senders: Option<DirectionRun>,
    receivers: Option<DirectionRun>,
    moved: Vec<DirectionResult>,
    /// Payload until the last poll: sent, received.
    pub(super) passed: [u64; 2],
    claimed: Option<Claim>,
}

/// What the peer's senders sent, what had arrived at the last poll, and until when more must arrive.
struct Claim {
    sent: Sent,
    came: u64,
    until: Deadline,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Poll {
    /// This end's senders have just ended.
    pub(super) sent: Option<Sent>,
    pub(super) again_ns: u64,
}

impl SessionState {
    pub(super) fn new(senders: Option<DirectionRun>, receivers: Option<DirectionRun>) -> Self {
        Self { senders, receivers, moved: Vec::new(), passed: [0; 2], claimed: None }
    }

    /// The other end's senders have ended.
    pub(super) fn claim(&mut self, sent: Sent) {
        self.claimed = Some(Claim { sent, came: self.passed[1], until: Deadline::after(DRAIN) });
    }

    /// Ends what is due by now.
    pub(super) fn look(&mut self) -> Poll {
        let now_ns = monotonic_ns();
        let mut poll = Poll { sent: None, again_ns: now_ns + LOOK_NS };
        let mut again_ns = u64::MAX;
        for (run, passed) in [&mut self.senders, &mut self.receivers].into_iter().zip(&mut self.passed) {
            let Some(run) = run else { continue };
            again_ns = again_ns.min(run.look(now_ns));
            *passed = run.bytes();
        }
        if let Some(senders) = self.senders.take_if(|senders| senders.is_finished()) {
            let moved = senders.finish(false);
            poll.sent = Some(sent(&moved.end));
            self.moved.push(moved);
        }
        if let Some(claim) = &mut self.claimed {
            if claim.came != self.passed[1] {
                (claim.came, claim.until) = (self.passed[1], Deadline::after(DRAIN));
            }
            if let Some(receivers) = self.receivers.take_if(|receivers| receivers.is_complete(&claim.sent)) {
                self.moved.push(receivers.finish(false));
            } else if let Some(receivers) = self.receivers.take_if(|_| claim.until.passed()) {
                let mut moved = receivers.finish(true);
                moved.cut_off(DRAIN);
                self.moved.push(moved);
            }
        }
        // Receivers whose peers have closed, and broken ones, need no message of the peer.
        if let Some(receivers) = self.receivers.take_if(|receivers| receivers.is_finished()) {
            self.moved.push(receivers.finish(false));
        }
        poll.again_ns = poll.again_ns.min(again_ns);
        poll
    }

    /// Whether nothing flows at this end any more.
    pub(super) fn is_over(&self) -> bool {
        self.senders.is_none() && self.receivers.is_none()
    }

    /// Stops this end's senders; what they sent is still received.
    pub(super) fn stop_senders(&self) {
        self.senders.iter().for_each(DirectionRun::stop);
    }

    /// Ends everything. With `reset`, data in flight is dropped.
    pub(super) fn finish(mut self, reset: bool) -> Vec<DirectionResult> {
        let rest = [self.senders.take(), self.receivers.take()];
        self.moved.extend(rest.into_iter().flatten().map(|run| run.finish(reset)));
        self.moved.sort_by_key(|moved| moved.direction);
        self.moved
    }
}

/// How long the transfer of an order may take from its start to the last word.
pub(super) fn longest(order: &SessionOrder) -> Duration {
    let run = match order.bytes {
        Some(_) => BYTES_WITHIN,
        None => Duration::from_nanos(order.omit_ns.saturating_add(order.time_ns)),
    };
    run.saturating_add(DRAIN_MAX)
}

/// Heartbeats while data flows, and the deadlines of the peer.
pub(super) struct Heartbeat {
    beat: Deadline,
    silent: Deadline,
    limit: Deadline,
    within: Duration,
}

impl Heartbeat {
    /// The transfer may take `within`.
    pub(super) fn new(within: Duration) -> Self {
        let after = Deadline::after;
        Self { beat: after(BEAT), silent: after(SILENT), limit: after(within), within }
    }

    /// Polls the flows, sends what is due, and waits for the peer until the next poll; whether it sent
    /// something.
    pub(super) fn step<M: Serialize>(
        &mut self,
        link: &ControlLink,
        state: &mut SessionState,
        sent: fn(Sent) -> M,
        beat: &M,
    ) -> Result<bool, NativeError> {
        let (peer, during) = (link.peer(), FLOWING);
        let poll = state.look();
        if let Some(counts) = poll.sent {
            link.send(&sent(counts), during)?;
        }
        if self.beat.passed() {
            link.send(beat, during)?;
            self.beat = Deadline::after(BEAT);
        }
        if self.silent.passed() {
            return Err(NativeError::Silent { peer, within: SILENT });
        }
        if self.limit.passed() {
            return Err(NativeError::Endless { peer, within: self.within });
        }
        let left = Duration::from_nanos(poll.again_ns.saturating_sub(monotonic_ns()));
        let woken = link.wait(Deadline::after(left))?;
        if woken.readable {
            self.silent = Deadline::after(SILENT);
        }
        Ok(woken.readable)
    }
}
