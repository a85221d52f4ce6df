//! The timeline against the real kernel. Tests that need the permission to trace are skipped without it.

mod common;
mod counts;
mod follow;
mod refused;
mod states;
