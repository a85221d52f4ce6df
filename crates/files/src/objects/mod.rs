//! The same question of an object store: requests to S3 instead of calls on files.
//!
//! [`prefix`] owns a prefix of kagiri's own below the one that the user names, for as long as a variant is
//! measured, and deletes what was made below it. [`load`] makes the objects and runs the workers of one
//! trial: tasks, each with a share of the objects of its own, so that no request meets an object that another
//! worker has just deleted.

pub mod address;
mod authorities;
mod checks;
pub mod client;
mod content;
pub(crate) mod failure;
mod guard;
pub mod keys;
pub mod leftover;
mod listing;
pub mod load;
pub mod mix;
mod network;
mod populate;
pub mod prefix;
mod recorder;
mod run;
mod shared;
pub mod size;
mod worker;

pub use run::{ObjectsError, ObjectsRun};
pub use shared::{Answered, ObjectsSettings};
