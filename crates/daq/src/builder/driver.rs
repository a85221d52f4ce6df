//! What all phases of a trial need: polling, beginning events, meeting the other builders.

use std::sync::Arc;

use reactor::{EventLoop, StopHandle};
use sys::clock::{monotonic_ns, sleep_until_ns};
use sys::net::NetError;

use super::config::{BuilderConfig, BuilderProgress};
use super::machine::BuilderMachine;
use crate::scheduling::{Barrier, TriggerScheduler};

const MS: u64 = 1_000_000;
const READY_MAX: usize = 512;
/// Upper bound of a wait, and while events are under way: a wait that ends late shows that the thread had no
/// CPU.
const WAIT_NS: u64 = 100 * MS;
const WAIT_BUSY_NS: u64 = 5 * MS;
/// While at least this number of fragments is awaited, the thread sleeps for half of the time that they took
/// last, within these bounds. Otherwise each would wake it up, which takes the CPU of a sender on the same
/// machine longer than sending.
const MODERATION_FRAGMENTS_MIN: u64 = 12;
const MODERATION_NS: (u64, u64) = (20_000, 50_000);
/// Interval of asking whether the other builders have reached a barrier.
const BARRIER_POLL_NS: u64 = 5 * MS;
/// How long to wait at a barrier: longer than connecting and searching take, plus [`BARRIER_TIMEOUT_EVENTS`]
/// events that time out.
const BARRIER_TIMEOUT_NS: u64 = 75_000 * MS;
const BARRIER_TIMEOUT_EVENTS: u64 = 24;

pub(super) enum Early {
    /// The part wants the report now.
    Stopped,
    Failed(String),
}

impl From<NetError> for Early {
    fn from(error: NetError) -> Self {
        Self::Failed(error.to_string())
    }
}

pub(super) type Phase = Result<(), Early>;

/// Until when to sleep without looking at sockets (interrupt moderation): `expected` fragments, one each
/// `gap_ns`.
fn moderation_until_ns((expected, gap_ns): (u64, u64), now_ns: u64, until_ns: u64) -> Option<u64> {
    let sleep_ns = (expected * gap_ns / 2).min(MODERATION_NS.1);
    let is_worth_it = expected >= MODERATION_FRAGMENTS_MIN && sleep_ns >= MODERATION_NS.0;
    (is_worth_it && now_ns + sleep_ns < until_ns).then_some(now_ns + sleep_ns)
}

pub(super) struct Driver {
    pub(super) config: Arc<BuilderConfig>,
    pub(super) progress: Arc<BuilderProgress>,
    pub(super) scheduler: Arc<TriggerScheduler>,
    pub(super) slot: usize,
    pub(super) machine: BuilderMachine,
    event_loop: EventLoop,
    stop: Arc<StopHandle>,
}

impl Driver {
    /// Binds the builder's ports.
    pub(super) fn new(
        config: BuilderConfig,
        progress: Arc<BuilderProgress>,
        scheduler: Arc<TriggerScheduler>,
        slot: usize,
        stop: Arc<StopHandle>,
    ) -> Result<Self, NetError> {
        let config = Arc::new(config);
        let mut event_loop = EventLoop::new(stop.clone(), READY_MAX)?;
        let machine = BuilderMachine::new(config.clone(), progress.clone(), event_loop.reactor())?;
        Ok(Self { config, progress, scheduler, slot, machine, event_loop, stop })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    /// Handles sockets and timers once, waiting until `until_ns` at most.
    pub(super) fn poll_until(&mut self, until_ns: u64) -> Phase {
        if self.is_stopped() {
            return Err(Early::Stopped);
        }
        Ok(self.poll_stopped(until_ns)?)
    }

    /// The same, also after a stop.
    pub(super) fn poll_stopped(&mut self, until_ns: u64) -> Result<(), NetError> {
        let Self { machine, event_loop, .. } = self;
        let now_ns = monotonic_ns();
        let wait_ns = match machine.events.outstanding() {
            _ if event_loop.reactor().has_resumes() => 0,
            0 => WAIT_NS,
            _ => WAIT_BUSY_NS,
        };
        let dues = [machine.events.next_due_ns(), machine.sockets.next_handshake_timeout_ns()];
        let until_ns = dues.into_iter().flatten().fold(until_ns.min(now_ns + wait_ns), u64::min);
        if let Some(sleep_ns) = moderation_until_ns(machine.events.expected(), now_ns, until_ns) {
            sleep_until_ns(sleep_ns);
        }
        machine.wait_until_ns = until_ns.max(now_ns);
        event_loop.poll_once(machine, until_ns)?;
        Ok(())
    }

    pub(super) fn begin_event(&mut self, due_ns: u64) {
        let event = self.scheduler.next_event_number(self.slot);
        self.machine.events.begin_event(event, due_ns, &mut self.machine.sockets);
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.machine.events.outstanding()
    }

    pub(super) fn has_room(&self) -> bool {
        self.outstanding() < self.config.window()
    }

    /// Waits for the other builders of the process; returns the common time, which is now. `None`: one did
    /// not arrive.
    pub(super) fn wait_at_barrier(&mut self, barrier: Barrier) -> Result<Option<u64>, Early> {
        let events_ns = self.config.settings.timeout.ns().saturating_mul(BARRIER_TIMEOUT_EVENTS);
        let until_ns = monotonic_ns().saturating_add(BARRIER_TIMEOUT_NS).saturating_add(events_ns);
        loop {
            let now_ns = monotonic_ns();
            match self.scheduler.arrive(self.slot, barrier, now_ns) {
                Some(open_ns) if open_ns <= now_ns => return Ok(Some(open_ns)),
                Some(open_ns) => self.poll_until(open_ns)?,
                None if now_ns >= until_ns => return Ok(None),
                None => self.poll_until(now_ns + BARRIER_POLL_NS)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moderation_sleeps_half_of_the_expected_time_within_bounds() {
        for (expected, gap_ns, until_ns, sleep_until) in [
            (12, 5_000, u64::MAX, Some(30_100)),
            (1000, 5_000, u64::MAX, Some(50_100)),
            (11, 5_000, u64::MAX, None),
            (12, 3_000, u64::MAX, None),
            (12, 5_000, 30_100, None),
        ] {
            let found = moderation_until_ns((expected, gap_ns), 100, until_ns);
            assert_eq!(found, sleep_until, "{expected} {gap_ns} {until_ns}");
        }
    }
}
