//! The builder: sends the orders, receives the fragments and assembles the events.
//!
//! Each builder is a thread. [`trial`] drives its phases, [`driver`] its event loop; [`machine`] reads the
//! sockets, [`event_builder`] assembles events, [`order_scheduler`] orders their fragments. Types without I/O
//! make the decisions: [`crate::scheduling`] and [`clocks`].

mod clocks;
mod config;
mod credit_rounds;
mod driver;
mod event_builder;
mod machine;
mod order_scheduler;
mod order_sender;
pub mod part;
mod sockets;
mod source_registry;
mod trial;
