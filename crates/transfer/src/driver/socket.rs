//! The socket of a flow.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use sys::net::{NetError, TcpSocket, UdpFlow};

use super::{EndReason, FlowCounters, FlowReport};

#[derive(Debug)]
pub enum FlowSocket {
    Tcp(TcpSocket),
    Udp(UdpFlow),
}

impl AsFd for FlowSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

impl FlowSocket {
    pub(crate) fn set_wait(&self, wait: Option<Duration>) -> Result<(), NetError> {
        match self {
            Self::Tcp(socket) => socket.set_wait(wait),
            Self::Udp(socket) => socket.set_wait(wait),
        }
    }

    /// Closing it drops what the kernel has still to send.
    pub(crate) fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            // It is closed anyhow, if perhaps later.
            let _ = socket.reset_on_close();
        }
    }

    /// What the socket and the counters show, without the flow's thread.
    pub(crate) fn report(&self, counters: &FlowCounters, reason: EndReason) -> FlowReport {
        let (tcp, path_mtu) = match self {
            Self::Tcp(socket) => (Some(socket), socket.path_mtu()),
            Self::Udp(socket) => (None, socket.path_mtu()),
        };
        FlowReport {
            count: counters.read(),
            tcp: tcp.and_then(|tcp| tcp.info().ok()),
            congestion: tcp.and_then(|tcp| tcp.congestion().ok()),
            path_mtu_bytes: path_mtu.ok(),
            ..FlowReport::new(reason)
        }
    }
}

/// The end of a flow whose socket failed after `bytes` bytes.
pub(crate) fn broken(error: &NetError, bytes: u64) -> EndReason {
    use ErrorKind as K;
    let what = match error.kind() {
        K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted => "the peer closed the connection",
        K::TimedOut => "the peer no longer answers",
        K::ConnectionRefused => "nobody listens at the peer any more",
        _ => "the flow broke",
    };
    EndReason::Failed(format!("{what} after {bytes} bytes: {error}"))
}
