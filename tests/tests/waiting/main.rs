//! Whole-program tests that judge times while the CPUs are idle: a slow link, a slow disk or a server that
//! died is waited for. A binary of their own, so that they run beside each other and nothing else.

mod auto_tuning;
mod daq_limits;
mod ground_truth;
mod objects;
