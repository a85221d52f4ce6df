//! Groups, disks, namespaces, children and their undo journal on the real kernel. `stop.rs` is a process of
//! its own, since signals are the whole process's.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod common;
mod cost;
mod crash;
mod extents;
mod foreign_sockets;
mod found;
mod guardian;
mod htb;
mod journal;
mod machine;
#[cfg(has_bpf)]
mod new_sockets;
mod rates;
