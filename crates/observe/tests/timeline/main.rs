//! The timeline against the real kernel. What needs the right to trace is skipped where there is none.

mod common;
mod counts;
mod follow;
mod refused;
mod states;
