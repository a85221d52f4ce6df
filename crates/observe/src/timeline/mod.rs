//! Where the time of a program goes: every system call is timed, and calls that waited are counted
//! separately.
//!
//! [`session`] watches a program through the kernel ([`sys::trace`]); the rest is pure: [`assemble`] makes
//! calls of the kernel's events, [`table`] and [`lanes`] collect them, [`sockets`] looks at what waits in
//! sockets, [`pftrace`] writes it all for Perfetto, and [`self_trace`] draws what kagiri's own parts recorded
//! of themselves.

pub mod assemble;
pub mod calls;
pub mod lanes;
pub mod overhead;
pub mod pftrace;
pub mod self_trace;
pub mod session;
pub mod sockets;
pub mod table;
