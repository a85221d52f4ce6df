//! Floor 3: the engine. Places parts, searches for the capacity, judges and explains.

mod alike;
pub mod engine;
pub mod explain;
mod outcome;
mod placed;
pub mod registry;
mod sampled;
pub mod search;
mod trial;
