//! The builder: gives the orders, takes the fragments, puts events together.

mod buckets;
pub mod cause;
pub mod clocks;
pub mod collect;
pub mod grants;
pub mod ladder;
pub mod ordered;
mod samples;
mod slow;
pub mod steer;
mod sum;
pub mod turns;
