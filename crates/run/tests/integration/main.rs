//! What limits a system, explained from tables and trials.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod explain_csv;
mod explain_network;
mod explain_player;
mod explain_reference;
mod explain_synthetic;
