//! TCP and datagrams over the kernel's own calls, `epoll`, wake-ups, and pipes for bulk transfers.
//!
//! The calls of the hot path ([`TcpSocket::recv`], [`TcpSocket::recv_discard`], [`TcpSocket::send`],
//! [`TcpSocket::send_file`], [`Epoll::wait`]) never block, and never allocate unless they fail; "not now" is
//! [`Moved::WouldBlock`], not an error.
//!
//! `sendfile(2)` to a connection that the peer has reset raises `SIGPIPE`, which Rust programs ignore from
//! start-up on.

mod congestion_control;
mod epoll;
mod error;
mod pipe;
mod port_reservation;
pub(crate) mod socket_option;
mod tcp;
mod udp;

pub use congestion_control::CongestionControl;
pub use epoll::{Epoll, Event, Events, Interest, Waker};
pub use error::NetError;
pub use pipe::Pipe;
pub use port_reservation::PortReservation;
pub use socket_option::SocketMemory;
pub use tcp::{
    ConnectState, ListenOptions, Listener, Moved, PacketOptions, SocketOptions, TcpInfo, TcpSocket,
};
pub use udp::{
    Arrivals, Arrived, Batch, Datagram, DatagramAddress, DatagramSocket, MulticastReceiver, MulticastSender,
    Stamp, UdpFlow, UdpPort,
};

#[cfg(test)]
mod blocking_io_tests;
#[cfg(test)]
mod tests;
