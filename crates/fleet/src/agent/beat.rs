//! Beats: what an agent tells of its parts, at once when it changes and now and then when it does not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::part::Progress;

use super::desk::Desk;
use crate::protocol::Tell;

/// The longest time between two beats.
const EVERY: Duration = Duration::from_millis(500);

/// What was told last.
#[derive(Default)]
pub struct Beats {
    last: Option<(Instant, BTreeMap<String, Stage>, bool)>,
}

/// A part's progress without how far it is.
#[derive(PartialEq)]
enum Stage {
    Running,
    Finished,
    Failed,
}

impl Beats {
    /// Tell, if it is time to. Says whether there is a run to tell of.
    pub fn turn(&mut self, desk: &Desk) -> bool {
        let Some(Tell::Beat { run, parts, live, start_late_ns }) = desk.beat() else {
            self.last = None;
            return false;
        };
        let stages = parts.iter().map(|(name, progress)| {
            let stage = match progress {
                Progress::Running { .. } => Stage::Running,
                Progress::Finished => Stage::Finished,
                Progress::Failed(_) => Stage::Failed,
            };
            (name.clone(), stage)
        });
        let (stages, has_started) = (stages.collect(), start_late_ns.is_some());
        let is_news = self.last.as_ref().is_none_or(|(at, told, started)| {
            at.elapsed() >= EVERY || *told != stages || *started != has_started
        });
        if is_news {
            desk.tell(&Tell::Beat { run, parts, live, start_late_ns });
            self.last = Some((Instant::now(), stages, has_started));
        }
        true
    }
}
