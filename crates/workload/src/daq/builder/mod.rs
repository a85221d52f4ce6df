//! The builder: gives the orders, takes the fragments, puts events together.

pub mod cause;
pub mod clocks;
pub mod grants;
pub mod ladder;
pub mod steer;
pub mod turns;
