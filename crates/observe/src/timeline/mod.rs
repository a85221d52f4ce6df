//! Where the time of a program goes: every system call timed, those that waited apart from those that did
//! not.
//!
//! [`session`] watches a program through the kernel ([`sys::trace`]); the rest is pure: [`assemble`] makes
//! calls of the kernel's events, [`table`] and [`lanes`] collect them, [`sockets`] looks at what waits in
//! sockets, [`pftrace`] writes it all for Perfetto, and [`own`] draws what kagiri's own parts recorded of
//! themselves.

pub mod assemble;
pub mod calls;
pub mod cost;
pub mod lanes;
pub mod own;
pub mod pftrace;
pub mod session;
pub mod sockets;
pub mod table;
