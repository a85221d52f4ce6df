//! iperf3's protocol, as client and as server: so that either end of a transfer may be iperf3 itself.
//!
//! A test has a control connection over TCP and data streams, all to one port. Every TCP connection opens with the
//! test's [`Cookie`](super::control::Cookie); on the control connection the ends then tell each other single bytes ([`State`]) and JSON
//! ([`Parameters`], [`Results`]). Checked against versions 3.12 and 3.21 (<https://github.com/esnet/iperf>).

mod account;
mod client;
mod deadlines;
mod error;
mod failure;
mod flows;
pub mod hello;
pub mod json;
mod link;
mod live;
mod parameters;
mod report;
mod results;
mod session;
mod state;
mod turns;
mod words;

pub use client::{Client, ClientOrder};
pub use deadlines::Deadlines;
pub use error::Iperf3Error;
pub use failure::Failure;
pub use flows::Carrying;
pub use live::Live;
pub use parameters::{Length, Parameters, Refusal, STREAMS_MAX};
pub use report::{StreamReport, TestReport};
pub use results::{Results, ServerOutput, StreamResult, stream_id};
pub use session::{Arrival, Session, SessionSettings};
pub use state::State;
pub use turns::Turns;
