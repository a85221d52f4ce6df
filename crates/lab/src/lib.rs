//! Floor 2: the lab. Hosts, switches, links and disks made on one machine, for tests and for published set-ups.
//!
//! A lab [`file`] says what there is; [`layout`] gives everything its place. A [`keeper`] process makes it, keeps it and
//! takes it down; [`client`] asks it to. Hosts are network namespaces, switches bridges in a namespace of their own,
//! links veth pairs with token buckets, or delay [`line`]s carried by a program. No address of a lab exists in the
//! machine's own namespace.

pub mod client;
pub mod disk;
pub mod file;
pub mod keeper;
pub mod layout;
pub mod line;
pub mod state;

mod error;

pub use error::{Error, Result};
