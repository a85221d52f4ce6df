//! The `transfer` workload: how fast do bytes move, and what holds them back?

pub mod flow;
