//! Arguments that several commands share.

mod common;
mod workload;

pub use common::{MeasureArgs, existing};
pub use workload::{SETTINGS, WorkloadArgs};

#[cfg(test)]
mod tests;
