//! Virtual players: what viewers of a content server would see.
//!
//! - [`part`] runs a [`group`] of players as a part of a trial, by its [`part_settings`].
//! - A group's [`worker`] threads carry many [`stream`]s, each with its [`player`], [`connection`], [`sink`]
//!   and [`throughput_check`].
//! - A group's threads share a task and the hold's limits ([`shared`]).
//! - [`report_builder`] turns a group's records into its report.

mod connection;
mod group;
pub mod part;
pub mod part_settings;
pub mod player;
mod report_builder;
mod shared;
mod sink;
mod stream;
pub mod throughput_check;
mod worker;
