//! The parts of the workload: the folder that a variant works in, and the workers of a trial.

mod disk_watch;
pub mod folder;
mod open_folder;
pub mod workers;
