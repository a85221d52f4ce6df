//! Making, indexing and checking transport streams, against what players and ffprobe see.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod check;
mod common;
mod file;
mod players;
mod scan;
mod timing;
