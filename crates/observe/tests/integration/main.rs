//! The sampler, the calibration and the exported pictures. `timeline` is a process of its own: who traces a
//! program takes note of all children of this process that end.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod calibrate;
mod cost;
mod live;
mod network;
mod perfetto;
mod permitted;
mod rates;
mod sources;
