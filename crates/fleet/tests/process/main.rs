//! Tests of a whole process: its memory, and the log of zenoh. One test at a time.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::sync::{Mutex, MutexGuard, PoisonError};

#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../integration/common/mod.rs"]
mod common;
mod hostile_answers;
mod hostile_requests;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../integration/identity_common/mod.rs"]
mod identity_common;
mod identity_zenoh;
mod scale;
#[allow(dead_code, reason = "the other binary uses the rest")]
#[path = "../integration/scripted_agent/mod.rs"]
mod scripted_agent;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
