//! Layer 1: the kernel. Sockets, clocks, threads, `/proc`, cgroups, mounts, namespaces and the undo journal.
//!
//! The only crate with `unsafe` code; every block says why it is sound.
//!
//! Readers of `/proc` and `/sys` take a root path, so tests feed them files. What changes the system
//! ([`cgroup`], [`disk`], [`netns`]) is written to the [`journal`] first, so that a crash can be undone.

pub mod cgroup;
pub mod child;
pub mod clock;
pub mod disk;
pub mod environment;
pub mod file;
pub mod journal;
pub mod memory;
pub mod net;
pub mod netlink;
pub mod netns;
pub mod proc;
pub mod process;
pub mod random;
pub mod seq_packet;
pub mod shaping;
pub mod span;
pub mod stop;
pub mod tap;
pub mod thread;
pub mod trace;
pub mod tree;

mod error;
mod held_folder;

pub use error::{Error, Result};
