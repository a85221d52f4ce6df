//! The parts of the workload: the folder that a variant works in, and the workers of a trial.

pub mod folder;
pub mod workers;
