//! Ceilings.
