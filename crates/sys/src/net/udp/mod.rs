//! Datagram sockets.

mod arrivals;
mod datagram;
mod flow;
mod multicast;
mod port;
mod timestamps;

pub use arrivals::{Arrivals, Stamp};
pub use datagram::{Datagram, DatagramAddress, DatagramSocket};
pub use flow::{Arrived, Batch, UdpFlow};
pub use multicast::{MulticastReceiver, MulticastSender};
pub use port::UdpPort;
