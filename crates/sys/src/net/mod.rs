//! TCP and datagrams over the kernel's own calls: listeners, sockets, `sendfile`, `epoll`, wake-ups, `TCP_INFO`,
//! stamps of arrival; and, for bulk transfers, pipes that refer to memory and UDP sockets that move many datagrams a call.
//!
//! Thin and typed. The calls of the hot path ([`TcpSocket::recv`], [`TcpSocket::recv_discard`],
//! [`TcpSocket::send`], [`TcpSocket::send_file`], [`Epoll::wait`]) never block and never allocate unless they
//! fail; "not now" is [`Moved::WouldBlock`], not an error.
//!
//! A write to a connection the peer has reset raises `SIGPIPE` in `sendfile(2)`. Rust programs ignore that
//! signal from start-up on, and so does every program of this house.

mod bulk;
mod datagram;
mod epoll;
mod error;
mod info;
mod listener;
mod marks;
mod multicast;
mod option;
mod options;
mod pipe;
mod reserved;
mod socket;
mod stamp;
mod udp_flow;
mod udp_port;
mod waker;

pub use datagram::{Datagram, DatagramAddress, DatagramSocket};
pub use epoll::{Epoll, Event, Events, Interest};
pub use error::NetError;
pub use info::TcpInfo;
pub use listener::{ListenOptions, Listener};
pub use marks::PacketMarks;
pub use multicast::{MulticastReceiver, MulticastSender};
pub use options::SocketOptions;
pub use pipe::Pipe;
pub use reserved::Reserved;
pub use socket::{ConnectState, Moved, TcpSocket};
pub use udp_flow::{Arrived, Batch, UdpFlow};
pub use udp_port::UdpPort;
pub use waker::Waker;

#[cfg(test)]
mod bulk_tests;
#[cfg(test)]
mod tests;
