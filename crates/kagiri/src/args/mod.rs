//! Arguments that several commands share.

mod common;
mod workload;

pub use common::{CEILING, MeasureArgs, existing, require_help, time};
pub use workload::{SETTINGS, WorkloadArgs};

#[cfg(test)]
mod tests;
