//! Stored runs: written, read, compared, exported, damaged.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod annotation;
mod common;
mod compare;
mod damage;
mod document;
mod store;
