//! The handlers, one file per topic.

pub mod assets;
pub mod compare;
pub mod console;
pub mod events;
pub mod hosts;
pub mod job_events;
pub mod jobs;
pub mod metrics;
pub mod plans;
pub mod qos;
pub mod runs;
pub mod session;
pub mod settings;
