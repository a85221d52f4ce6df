//! Groups, disks, namespaces, children and their undo journal on the real kernel. `stop.rs` is a process of
//! its own, since signals are the whole process's.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod common;
mod crash;
mod found;
mod journal;
mod machine;
