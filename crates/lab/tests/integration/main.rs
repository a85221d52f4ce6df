//! Labs, their links and disks on the real kernel. The tests call this program again as the supervisor, a
//! delay line or a disk server.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod common;
mod crash;
mod disk;
mod disk_model;
mod file;
mod links;
mod steps;
mod up;

/// What this program does when a supervisor or a client of a lab calls it; nothing in an ordinary run.
#[test]
fn program() {
    common::program();
}
