//! The sources: many in one process, each with a connection to each builder, that send their fragments of an event when
//! they are told to.
//!
//! Each thread carries a *group* of sources ([`group`]): they share an ear for each builder's orders, a UDP port for
//! questions, and a clock. Towards one builder ([`lane`]) a group knows which of its sources have sent what ([`events`]),
//! so that no order makes a source send twice and no lost order makes it send nothing.

mod account;
mod connection;
mod crew;
mod dial;
mod events;
mod group;
mod lane;
mod memory;
mod orders;
pub mod part;
mod payload;
mod send;
mod stalls;
mod told;
mod udp;
