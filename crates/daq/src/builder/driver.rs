//! What all phases of a trial need: polling, beginning events, meeting the other builders.

use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::NetError;

use super::config::BuilderConfig;
use super::control::Control;
use super::event_builder::EventBuilder;
use super::event_loop::EventLoop;
use super::trigger_scheduler::{Barrier, TriggerScheduler};

const MS: u64 = 1_000_000;
/// Interval of asking whether the other builders have reached a barrier.
const BARRIER_POLL_NS: u64 = 5 * MS;
/// How long to wait at a barrier: longer than connecting and searching take, plus so many events that time
/// out.
const BARRIER_TIMEOUT_NS: u64 = 75_000 * MS;
const BARRIER_TIMEOUT_EVENTS: u64 = 24;

/// Why a phase ended early.
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

/// One builder with its sockets.
pub(super) struct Driver {
    pub(super) config: Arc<BuilderConfig>,
    pub(super) control: Arc<Control>,
    pub(super) scheduler: Arc<TriggerScheduler>,
    /// The builder's slot in the scheduler.
    pub(super) slot: usize,
    pub(super) events: EventBuilder,
    pub(super) event_loop: EventLoop,
}

impl Driver {
    /// Binds the builder's ports.
    ///
    /// # Errors
    /// The port is taken; too few file descriptors.
    pub(super) fn new(
        config: BuilderConfig,
        control: Arc<Control>,
        scheduler: Arc<TriggerScheduler>,
        slot: usize,
    ) -> Result<Self, NetError> {
        let config = Arc::new(config);
        let events = EventBuilder::new(config.clone(), control.clone());
        let event_loop = EventLoop::new(config.clone(), control.clone())?;
        Ok(Self { config, control, scheduler, slot, events, event_loop })
    }

    /// Handles sockets and timers once, waiting until `until_ns` at most.
    pub(super) fn poll_until(&mut self, until_ns: u64) -> Phase {
        if self.control.stop_requested() {
            return Err(Early::Stopped);
        }
        Ok(self.event_loop.poll_once(&mut self.events, until_ns)?)
    }

    pub(super) fn begin_event(&mut self, due_ns: u64) {
        let event = self.scheduler.next_event_number(self.slot);
        self.events.begin_event(event, due_ns, self.event_loop.sockets());
    }

    pub(super) fn has_room(&self) -> bool {
        self.events.outstanding() < self.config.window()
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
