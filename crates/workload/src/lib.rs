//! Floor 2: what is offered to the system under test, one folder a workload.

pub mod calls;
pub mod daq;
mod reading;
pub mod stream;
pub mod transfer;
mod watch;
