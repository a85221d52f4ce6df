//! Every output of the crate from runs built in code.
#![allow(clippy::unwrap_used, reason = "a test may fail this way, in its helpers too")]

mod drawn;
mod export;
mod hostile;
mod moved;
mod page;
mod simulate;
mod sweep;
mod terminal;
