//! What is fitted to the measured loads: lines, the bend of a latency, the universal scalability law.

pub(super) mod fit;
pub(super) mod latency;
pub mod scalability;
