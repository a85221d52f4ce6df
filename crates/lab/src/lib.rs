//! Floor 2: the lab. Hosts, switches, links and disks made on one machine, for tests and for published set-ups.

pub mod disk;
pub mod file;
pub mod layout;

mod error;

pub use error::{Error, Result};
