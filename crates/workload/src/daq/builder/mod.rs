//! The builder: gives the orders, takes the fragments, puts events together.

pub mod grants;
pub mod ladder;
pub mod turns;
