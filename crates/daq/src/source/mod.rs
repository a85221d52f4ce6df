//! Sources: many in one process, each with a connection to each builder; they send their fragments when an
//! order arrives.
//!
//! Each thread runs a [`worker`] with a group of sources, which share a multicast receiver per builder, a UDP
//! socket and a clock. Its [`builder_link`] to a builder tracks which source has sent which event
//! ([`event_tracker`]): no order makes a source send twice, and a lost order is caught up with.

mod builder_link;
mod config;
mod connection;
mod connector;
mod context;
mod counters;
mod event_tracker;
mod order_handler;
pub mod part;
mod payload;
mod sender;
mod tcp_info_sampler;
mod worker;
