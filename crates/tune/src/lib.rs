//! Layer 4: settings of the kernel's network. What they mean and may be ([`catalogue`]), what the counters of
//! this host show of them ([`observe`], [`advise`]), and whether a change makes a difference ([`statistics`],
//! [`trials`]).
//!
//! [`observe`], [`kernel`] and [`part`] read the kernel; all else is functions of data.

pub mod advise;
pub mod candidates;
pub mod catalogue;
pub mod export;
pub mod kernel;
pub mod observe;
pub mod part;
pub mod setting;
pub mod statistics;
pub mod trials;

/// The parts of this crate that a run can place.
pub const PARTS: &[base::part::PartKind] =
    &[workload::part::kind::<part::SettingsPart>(), workload::part::kind::<part::WatchPart>()];
