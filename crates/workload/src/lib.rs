//! What every workload shares: its trait and its parts' trait, settings, timing calls, histograms as figures,
//! a witness of pauses, what the sampler watches.

pub mod address;
pub mod calls;
pub mod histogram;
pub mod part;
pub mod pauses;
pub mod program_text;
pub mod settings;
pub mod softirqs;
mod stretch;
pub mod watch;
mod workload;

pub use workload::{AnyWorkload, ConfiguredWorkload, Workload};
