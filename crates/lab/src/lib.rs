//! The lab: virtual hosts, switches, links, disks and mounts on one machine.
//!
//! A lab [`file`] defines the lab; [`layout`] assigns namespaces, interfaces and addresses. A [`supervisor`]
//! process makes the lab, keeps it and removes it; [`client`] sends it requests. Hosts are network
//! namespaces, switches are bridges in a namespace of their own, links are veth pairs with token buckets or
//! delay [`line`]s in user space. No address of a lab exists in the machine's own namespace.

pub mod client;
pub mod disk;
pub mod file;
pub mod layout;
pub mod line;
pub mod link_steps;
pub mod state;
pub mod supervisor;

mod error;
mod program;

pub use error::{Error, Result};

/// The parts of this crate that a run can place.
pub const PARTS: &[base::part::PartKind] = &[workload::part::kind::<link_steps::LinkSteps>()];
