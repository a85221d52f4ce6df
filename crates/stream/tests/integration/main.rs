//! Viewers and the server part over real connections.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod buffer_trend;
mod common;
#[path = "../../../mpegts/tests/integration/common/mod.rs"]
mod content_common;
mod group;
mod hostile;
mod hosts;
mod judge;
mod merge;
mod origin;
mod permissions;
mod player;
