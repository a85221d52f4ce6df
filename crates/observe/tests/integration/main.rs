//! The sampler, the calibration and the exported pictures. `timeline` is a separate test binary: tracing a
//! program collects all children of the process that end.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod calibrate;
mod cost;
mod live;
mod network;
mod perfetto;
mod permitted;
mod rates;
mod sources;
