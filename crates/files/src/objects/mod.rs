//! The same question of an object store: requests to S3 instead of calls on files.
//!
//! [`access`] reaches a store and keeps to a prefix of kagiri's own there. [`load`] makes the objects and
//! runs the workers of one trial: tasks, each with a share of the objects of its own, so that no request
//! meets an object that another worker has just deleted.

pub mod access;
mod checks;
mod content;
pub mod load;
pub mod mix;
mod network;
mod populate;
mod recorder;
mod run;
mod shared;
pub mod size;
mod worker;

pub use run::{ObjectsError, ObjectsRun};
pub use shared::{Answered, ObjectsSettings};
