//! Statistics of a trial as a builder sees it.

mod event_summary;
mod log_histogram;
mod order_times;
mod samples;
mod slow_event_cause;
mod slow_events;
mod throughput_window;
mod trial_recorder;

pub(crate) use event_summary::{ArrivedFragment, EndedEvent};
pub(crate) use order_times::OrderTimes;
pub(crate) use slow_event_cause::{STALL_NS, refine_cause};
pub(crate) use trial_recorder::{EventTimes, RecorderPlan, TrialRecorder};
