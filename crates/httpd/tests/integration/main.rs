//! The content server over real connections.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod server_common;
mod server_get;
mod server_hostile;
mod server_limits;
mod server_parser;
mod server_players;
mod server_pool;
mod server_upload;
