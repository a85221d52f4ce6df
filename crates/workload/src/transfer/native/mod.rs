//! kagiri's own protocol between the two ends of a transfer.
//!
//! It shares its port with iperf3's: every connection begins with 37 bytes, from which the server knows whose they are
//! ([`name`]). Then the server says its version, the client orders, the server makes ready, the client opens the flows,
//! says `go` at the moment at which all is to begin, and both say that they are there until the senders have ended, the
//! receivers have what came, and the server has reported ([`message`]).

mod carrier;
mod client;
mod clocks;
mod course;
mod dial;
mod dress;
mod error;
mod link;
pub mod message;
mod moving;
pub mod name;
mod server;
mod session;

pub use client::{Client, ClientEnd, ClientOrder};
pub use error::NativeError;
pub use server::{NativeServer, NativeSettings, SessionEnd};

/// This program, as it names itself to the other end.
pub(super) const PROGRAM: &str = concat!("kagiri ", env!("CARGO_PKG_VERSION"));

/// The server's first byte on a control connection, which tells it from iperf3's states.
pub(super) const GREETING: u8 = b'k';
