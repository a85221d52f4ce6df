//! The `transfer` workload: how fast do bytes move, and what holds them back?

pub mod flow;
pub mod iperf3;
pub mod judge;
pub mod limit;
pub mod metrics;
pub mod native;
pub mod report;
mod series;
pub mod server;
pub mod settings;
pub mod theory;
pub mod ttcp;
