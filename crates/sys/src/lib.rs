//! Floor 1: the kernel. Sockets, clocks, threads, `/proc`, cgroups, mounts, namespaces and the undo journal.
//!
//! The only crate with `unsafe` code; every block says why it is sound.

pub mod net;
