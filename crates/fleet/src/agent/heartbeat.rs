//! Sends the agent's heartbeats: at once when a part changes its state, else every [`INTERVAL`].

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use base::part::Progress;

use super::service::AgentService;
use crate::protocol::Notification;

const INTERVAL: Duration = Duration::from_millis(500);

/// A part's progress without the share done.
type Stage = Discriminant<Progress>;

#[derive(Default)]
pub struct Heartbeats {
    last: Option<(Instant, BTreeMap<String, Stage>, bool)>,
}

impl Heartbeats {
    /// Sends a heartbeat if it is due. Returns whether there is a run.
    pub fn send_if_due(&mut self, service: &AgentService) -> bool {
        let Some(Notification::Heartbeat { run, parts, live, start_late_ns }) = service.heartbeat() else {
            self.last = None;
            return false;
        };
        let stages = parts.iter().map(|(name, progress)| (name.clone(), discriminant(progress)));
        let (stages, has_started) = (stages.collect(), start_late_ns.is_some());
        let is_due = self.last.as_ref().is_none_or(|(at, sent_stages, started)| {
            at.elapsed() >= INTERVAL || *sent_stages != stages || *started != has_started
        });
        if is_due {
            service.notify(&Notification::Heartbeat { run, parts, live, start_late_ns });
            self.last = Some((Instant::now(), stages, has_started));
        }
        true
    }
}
