//! Timing of the calls of one direction at one end, and of the network's softirqs meanwhile.

use std::sync::Arc;

use base::outcome::Figure;
use base::timeline::CallTimes;
use sys::span::{Handle, Recorder};
use workload::calls::{self, Moments, Timed};
use workload::softirqs::SoftirqWatch;

use super::message::SessionOrder;

pub(super) struct CallTiming {
    recorder: Recorder,
    /// The watch, or why there is none.
    softirqs: Result<Arc<SoftirqWatch>, String>,
}

/// What an order of timed calls needs from the preparation on: it takes a while to begin.
pub(super) fn prepared(order: &SessionOrder) -> Option<Arc<SoftirqWatch>> {
    order.calls.then(SoftirqWatch::start)?.ok()
}

impl CallTiming {
    /// `None` if the order does not want it.
    pub(super) fn of(order: &SessionOrder) -> Option<Self> {
        let timing = || Self { recorder: calls::record_for_timeline(), softirqs: SoftirqWatch::start() };
        order.calls.then(timing)
    }

    /// Threads join with it.
    pub(super) fn handle(&self) -> Handle {
        self.recorder.handle()
    }

    pub(super) fn finish(self, target: &str, moments: Moments) -> (CallTimes, Option<Figure>) {
        let softirqs = self.softirqs.map(|watch| watch.between(moments.start_ns, moments.end_ns));
        let known = softirqs.as_ref().ok();
        let Timed { mut times, timeline } = calls::finish_between(self.recorder, target, moments, known);
        times.doubts.extend(match &softirqs {
            Err(why) => Some(format!("the network's softirqs are not known: {why}")),
            Ok(seen) if seen.lost > 0 => {
                Some(format!("{} events of the network's softirqs were lost", seen.lost))
            }
            Ok(seen) if seen.to_ns < moments.end_ns => {
                let s = seen.to_ns.saturating_sub(seen.from_ns) as f64 / 1e9;
                Some(format!(
                    "the network's softirqs are those of {s:.1} s; further ones were too many to keep"
                ))
            }
            Ok(_) => None,
        });
        (times, timeline)
    }
}
