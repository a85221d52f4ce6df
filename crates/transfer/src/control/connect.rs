//! Connecting with a deadline, until stopped.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use sys::clock::Deadline;
use sys::net::{ConnectState, Epoll, Events, Interest, NetError, SocketOptions, TcpSocket};

use super::{ControlError, StopHandle};

/// Connects to `peer` until `until`.
///
/// # Errors
/// [`ControlError`]: nobody listens there, no answer in time, an option that the kernel refuses.
pub(crate) fn connect(
    peer: SocketAddr,
    options: &SocketOptions,
    stop_handle: &StopHandle,
    until: Deadline,
) -> Result<TcpSocket, ControlError> {
    let within = until.left();
    let socket = TcpSocket::connect_start(peer, None, options)?;
    let during = "being connected to";
    wait_until_ready(&socket, Interest::WRITE, stop_handle, until, || ControlError::Silent {
        peer,
        during,
        within,
    })?;
    // The kernel's error names only the descriptor.
    let failed = |error: NetError| NetError { action: "connect to", target: peer.to_string(), ..error };
    match socket.connect_result().map_err(failed)? {
        ConnectState::Connected => Ok(socket),
        ConnectState::InProgress => Err(ControlError::Silent { peer, during, within }),
    }
}

/// Waits until `socket` is ready, at most until `until`; `late` makes the error of a timeout.
///
/// # Errors
/// [`ControlError`]: the timeout, or a stop of this end.
pub(crate) fn wait_until_ready(
    socket: &impl AsFd,
    interest: Interest,
    stop_handle: &StopHandle,
    until: Deadline,
    late: impl Fn() -> ControlError,
) -> Result<(), ControlError> {
    let epoll = Epoll::new()?;
    epoll.add(socket, 0, interest)?;
    epoll.add(stop_handle, 1, Interest::READ)?;
    let mut events = Events::with_capacity(2);
    loop {
        if stop_handle.is_stopped() {
            return Err(ControlError::Stopped);
        }
        if until.passed() {
            return Err(late());
        }
        epoll.wait(&mut events, Some(until.left()))?;
        if events.iter().any(|event| event.token == 0) {
            return Ok(());
        }
        stop_handle.clear();
    }
}
