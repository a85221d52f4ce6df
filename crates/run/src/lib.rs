//! The engine: places parts, searches for the capacity, judges and explains.

mod alike;
pub mod companions;
pub mod engine;
pub mod explain;
pub mod order;
mod outcome;
mod placed;
pub mod recover;
pub mod registry;
pub mod resume;
mod run_error;
mod sampled;
pub mod search;
mod start;
mod time_budget;
mod trial;
pub mod tuning;
