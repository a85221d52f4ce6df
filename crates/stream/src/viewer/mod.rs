//! Virtual players: what viewers of a content server would see.
//!
//! - [`part`] runs a [`group`] of players as a part of a trial, by its [`part_settings`].
//! - A group's [`worker`] threads carry many [`stream`]s, each with its [`player`], [`connection`], [`sink`]
//!   and [`throughput_check`].
//! - [`content`] holds the frames to play, [`http`] requests and parses.
//! - [`report`] is what a group measured; [`metrics`] and [`judge`] turn it into numbers and a verdict.

pub mod connection;
pub mod content;
pub mod group;
pub mod http;
pub mod judge;
pub mod metrics;
pub mod part;
pub mod part_settings;
pub mod player;
pub mod report;
pub mod sink;
pub mod stream;
pub mod throughput_check;
pub mod worker;
