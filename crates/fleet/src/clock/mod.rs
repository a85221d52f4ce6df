//! The fleet's clocks: how far each agent's monotonic clock is from the coordinator's, with a bound that holds.
//!
//! The agent asks ([`Prober`]), the coordinator answers ([`Responder`]), so that it works through address translation.
//! Both are plain threads that exchange single datagrams over UDP, or over a UNIX socket inside a lab. What a batch of
//! them shows ([`Batch`]) goes to the coordinator, which makes an [`Offset`] of all batches of an agent: before, during
//! and after a run.

mod prober;
mod responder;
pub mod wire;

pub use base::clock::{Batch, Edge, Offset, Probe, RATE_MAX_PPB, Unsynchronised, WANDER_MAX_PPB};
pub use prober::{Ask, Probed, Prober};
pub use responder::{Counts, Responder};
pub use sys::net::DatagramAddress;
pub use wire::Key;

/// Why clocks cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// Somebody is there already: clocks are compared where the bus listens.
    #[error(
        "cannot listen at {place}: it is in use, by another kagiri run or another program; wait for its end, or {or}"
    )]
    Taken {
        /// Where.
        place: String,
        /// What can be done besides.
        or: &'static str,
    },
    /// The socket could not be had.
    #[error(
        "cannot open the clock socket {address}: {source}; is it on this machine, and in a folder that is yours?"
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

impl ClockError {
    /// Why a socket for answers could not be had.
    fn of_opening(address: &DatagramAddress, source: std::io::Error) -> Self {
        match (address, source.kind()) {
            (DatagramAddress::Udp(place), std::io::ErrorKind::AddrInUse) => {
                Self::Taken { place: place.to_string(), or: "give --listen another port" }
            }
            (DatagramAddress::Unix(path), std::io::ErrorKind::AddrInUse) => {
                Self::Taken { place: path.display().to_string(), or: "meet at another socket" }
            }
            _ => Self::Open { address: address.to_string(), source },
        }
    }
}
