//! The course of a session while data flows: the same at both ends.

use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};

use super::error::NativeError;
use super::message::{Sent, SessionOrder};
use super::moving::{Moved, Moving, sent};

/// What is still under way when the senders have ended goes on coming, however slowly: nothing for so long is the end.
const DRAIN: Duration = Duration::from_secs(10);
/// How long all of it may take.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// How long bytes that were asked for may take to move.
const BYTES_WITHIN: Duration = Duration::from_secs(86_400);
/// How often what ends by itself is looked at.
const LOOK_NS: u64 = 2_000_000;

/// One end's flows on their way from start to report.
#[derive(Default)]
pub(super) struct Course {
    senders: Option<Moving>,
    receivers: Option<Moving>,
    moved: Vec<Moved>,
    passed: [u64; 2],
    claimed: Option<Claim>,
}

/// What the other end's senders came to, how much had come at the last look, and until when more must come.
struct Claim {
    sent: Sent,
    came: u64,
    until: Deadline,
}

/// What a look at the flows showed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Looked {
    /// This end's senders have just ended.
    pub(super) sent: Option<Sent>,
    /// When to look again, monotonic ns.
    pub(super) again_ns: u64,
}

impl Course {
    pub(super) fn new(senders: Option<Moving>, receivers: Option<Moving>) -> Self {
        Self { senders, receivers, moved: Vec::new(), passed: [0; 2], claimed: None }
    }

    /// Payload that passed until the last look: what this end sent, and what it received.
    pub(super) fn passed(&self) -> [u64; 2] {
        self.passed
    }

    /// The other end's senders have ended.
    pub(super) fn claim(&mut self, sent: Sent) {
        self.claimed = Some(Claim { sent, came: self.passed[1], until: Deadline::after(DRAIN) });
    }

    /// Ends what is due by now.
    pub(super) fn look(&mut self) -> Looked {
        let now_ns = monotonic_ns();
        let mut looked = Looked { sent: None, again_ns: now_ns + LOOK_NS };
        let mut again_ns = u64::MAX;
        for (moving, passed) in [&mut self.senders, &mut self.receivers].into_iter().zip(&mut self.passed) {
            let Some(moving) = moving else { continue };
            again_ns = again_ns.min(moving.look(now_ns));
            *passed = moving.bytes();
        }
        if let Some(senders) = self.senders.take_if(|senders| senders.is_finished()) {
            let moved = senders.finish(false);
            looked.sent = Some(sent(&moved.end));
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
        // Receivers whose peers all closed in order need no word of the other end; broken ones neither.
        if let Some(receivers) = self.receivers.take_if(|receivers| receivers.is_finished()) {
            self.moved.push(receivers.finish(false));
        }
        looked.again_ns = looked.again_ns.min(again_ns);
        looked
    }

    /// Whether nothing flows at this end any more.
    pub(super) fn is_over(&self) -> bool {
        self.senders.is_none() && self.receivers.is_none()
    }

    /// Tells this end's senders to stop; what they sent is still received.
    pub(super) fn stop_senders(&self) {
        self.senders.iter().for_each(Moving::stop);
    }

    /// Ends everything: what came until now. With `reset`, what is under way is dropped.
    pub(super) fn finish(mut self, reset: bool) -> Vec<Moved> {
        let rest = [self.senders.take(), self.receivers.take()];
        self.moved.extend(rest.into_iter().flatten().map(|moving| moving.finish(reset)));
        self.moved.sort_by_key(|moved| moved.way);
        self.moved
    }
}

/// How long the transfer of an order may take from its start to the last word.
pub(super) fn longest(order: &SessionOrder) -> Duration {
    let moving = match order.bytes {
        Some(_) => BYTES_WITHIN,
        None => Duration::from_nanos(order.omit_ns.saturating_add(order.time_ns)),
    };
    moving.saturating_add(DRAIN_MAX)
}

/// Notices when the other end says nothing any more.
pub(super) struct Patience {
    peer: std::net::SocketAddr,
    within: Duration,
    until: Deadline,
}

impl Patience {
    pub(super) fn new(peer: std::net::SocketAddr, within: Duration) -> Self {
        Self { peer, within, until: Deadline::after(within) }
    }

    /// It said something.
    pub(super) fn heard(&mut self) {
        self.until = Deadline::after(self.within);
    }

    /// Whether it still may be silent.
    pub(super) fn check(&self) -> Result<(), NativeError> {
        match self.until.passed() {
            true => Err(NativeError::Silent { peer: self.peer, within: self.within }),
            false => Ok(()),
        }
    }
}
