//! Compares the fleet's clocks: the offset of each agent's monotonic clock to the coordinator's, with a
//! guaranteed bound.
//!
//! The agent sends requests ([`Prober`]) and the coordinator answers ([`Responder`]), which works through
//! address translation. Single datagrams travel over UDP, or over a UNIX socket inside a lab. The
//! coordinator computes an [`Offset`] from all batches ([`Batch`]) of an agent: before, during and after a
//! run.

mod prober;
mod responder;
pub mod wire;

pub use base::clock::{Batch, Edge, Offset, Probe, RATE_MAX_PPB, Unsynchronised, WANDER_MAX_PPB};
pub use prober::{BatchRequest, BatchResult, Prober};
pub use responder::{Counts, Responder};
pub use sys::net::DatagramAddress;
pub use wire::Key;

#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    #[error(
        "cannot listen at {place}: it is in use by another kagiri run or another program; wait for it to \
         end, or {or}"
    )]
    Taken { place: String, or: &'static str },
    #[error(
        "cannot open the clock socket {address}: {source}; is the address on this machine, or the folder \
         yours?"
    )]
    Open { address: String, source: std::io::Error },
    #[error("the clock socket {address} failed: {source}")]
    Socket { address: String, source: std::io::Error },
    #[error(transparent)]
    Wait(#[from] sys::net::NetError),
}

impl ClockError {
    fn of_opening(address: &DatagramAddress, source: std::io::Error) -> Self {
        match (address, source.kind()) {
            (DatagramAddress::Udp(place), std::io::ErrorKind::AddrInUse) => {
                Self::Taken { place: place.to_string(), or: "give --listen another port" }
            }
            (DatagramAddress::Unix(path), std::io::ErrorKind::AddrInUse) => {
                Self::Taken { place: path.display().to_string(), or: "choose another socket" }
            }
            _ => Self::Open { address: address.to_string(), source },
        }
    }
}
