//! The `daq` workload: can this network build events from a thousand sources at once?
//!
//! A *port* ([`port`]) stands on each builder's host and says where builders listen. For each trial *builders*
//! ([`builder`]) give orders and put events together, *sources* ([`source`]) send their fragments of each event at the same
//! instant, as [`wire`] lays down. [`judge`] makes numbers and a verdict of what both report.

pub mod builder;
pub mod figures;
pub mod report;
pub mod settings;
pub mod source;
pub mod task;
pub mod theory;
pub mod wire;
