//! The messages of iperf3's protocol (<https://github.com/esnet/iperf>), checked against versions
//! 3.12 and 3.21.
//!
//! A test has a control connection over TCP and data streams, all to one port. Every TCP connection opens
//! with the test's [`Cookie`]; a UDP stream opens with a datagram ([`udp_connect`]). On the control
//! connection the ends exchange single bytes ([`State`], after which [`ServerError`] may follow) and JSON
//! with its length in front ([`frame`], [`length`]): [`Parameters`] and [`Results`]. Nothing that a peer
//! sends makes reading panic.

mod cookie;
mod frame;
pub mod json;
mod parameters;
mod results;
mod server_error;
mod state;
pub mod udp_connect;

pub use cookie::{COOKIE_BYTES, Cookie};
pub use frame::{WrongLength, frame, length};
pub use parameters::{Direction, Length, Parameters, Protocol, Refusal, STREAMS_MAX};
pub use results::{Results, ServerOutput, StreamResult, stream_id};
pub use server_error::ServerError;
pub use state::State;
