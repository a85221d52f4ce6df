//! The builder: sends the orders, receives the fragments and assembles the events.
//!
//! Each builder is a thread. [`trial`] drives its phases; [`machine`] reads sockets and moves data;
//! [`event_builder`] assembles events, [`order_scheduler`] orders their fragments. Decisions are made by
//! types without I/O: [`trigger_scheduler`], [`credit`], [`credit_search`], [`retransmit_queue`] and
//! [`clocks`].

mod clocks;
mod config;
mod connection;
mod credit;
mod credit_rounds;
mod credit_search;
mod driver;
mod event_builder;
mod machine;
mod order_scheduler;
mod order_sender;
pub mod part;
mod retransmit_queue;
mod sockets;
mod source_registry;
mod trial;
mod trigger_scheduler;
