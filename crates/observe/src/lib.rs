//! Layer 4: watching a host while it carries load.
//!
//! [`sampler`] reads the kernel's counters ten times a second while a workload runs; [`calibrate`] finds out,
//! before any workload, how much this host has of each resource.

pub mod calibrate;
pub mod sampler;
pub mod timeline;

use base::part::PartKind;

pub const PARTS: &[PartKind] = &[workload::part::kind::<sampler::Sampler>()];
