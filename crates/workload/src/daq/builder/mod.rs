//! The builder: gives the orders, takes the fragments, puts events together.

mod assembly;
mod buckets;
pub mod cause;
pub mod clocks;
pub mod collect;
mod connection;
mod doors;
mod events;
pub mod grants;
mod groups;
pub mod ladder;
mod ledger;
mod memory;
pub mod ordered;
pub mod part;
mod phases;
mod samples;
mod shared;
mod slow;
pub mod steer;
pub mod stream;
mod sum;
mod table;
mod told;
pub mod turns;
mod udp;
mod worker;
