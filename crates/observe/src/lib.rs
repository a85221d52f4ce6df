//! Floor 2: watching a host while it carries load.

/// Every kind of part of this crate.
pub const PARTS: &[base::part::PartKind] = &[];
