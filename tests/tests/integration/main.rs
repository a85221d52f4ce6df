//! Whole-program tests that share the machine: they run side by side, and no verdict hangs on a rate.
//! Those that judge timings, or fill the machine, are in `tests/alone`, `tests/timeline`
//! and `tests/transfer.rs`.

mod bad_input;
mod broken_pipe;
mod daq;
mod daq_refused;
mod daq_witness;
mod exports;
mod files;
mod fleet;
mod interrupt;
mod json;
mod lab;
mod program;
mod runs;
mod server_errors;
mod storage_errors;
