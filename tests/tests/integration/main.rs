//! Whole-program tests that share the machine: they run side by side, and no verdict hangs on a rate.
//! Those that judge timings, or fill the machine, are in `tests/alone`, `tests/timeline`
//! and `tests/transfer.rs`.

mod ageing;
mod answers;
mod bad_input;
mod broken_pipe;
mod compare;
mod console;
mod content_pool;
mod content_pool_killed;
mod daq;
mod daq_refused;
mod daq_witness;
mod exchange;
mod exchange_serve;
mod exports;
mod files;
mod files_doubts;
mod files_folder;
mod files_network;
mod files_s3;
mod files_tls;
mod fleet;
mod interrupt;
mod json;
mod lab;
mod mounts;
mod packages;
mod program;
mod resume;
mod runs;
mod server_errors;
mod storage_errors;
mod tune;
mod tune_advise;
mod tune_auto;
