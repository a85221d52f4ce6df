//! The fleet's clocks: how far each agent's monotonic clock is from the coordinator's, with a bound that holds.
//!
//! The agent asks ([`Prober`]), the coordinator answers ([`Responder`]), so that it works through address translation.
//! Both are plain threads that exchange single datagrams over UDP, or over a UNIX socket inside a lab. What a batch of
//! them shows ([`Batch`]) goes to the coordinator, which makes an [`Offset`] of all batches of an agent: before, during
//! and after a run.

mod estimate;
mod prober;
mod responder;
pub mod wire;

pub use estimate::{Batch, Edge, Offset, Probe, RATE_MAX_PPB, Unsynchronised, WANDER_MAX_PPB};
pub use prober::{Ask, Probed, Prober};
pub use responder::{Counts, Responder};
pub use sys::net::DatagramAddress;
pub use wire::Key;

/// Why clocks cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The socket could not be had.
    #[error(
        "cannot open the clock socket {address}: {source}; is it in use, or in a folder that is not yours?"
    )]
    Open {
        /// Where.
        address: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The socket no longer works.
    #[error("the clock socket {address} failed: {source}")]
    Socket {
        /// Where.
        address: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// What the socket is waited for with could not be had.
    #[error(transparent)]
    Wait(#[from] sys::net::NetError),
}
