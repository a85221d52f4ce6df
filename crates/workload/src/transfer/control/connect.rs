//! Connections that this end opens.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use sys::clock::Deadline;
use sys::net::{ConnectState, Epoll, Events, Interest, NetError, SocketOptions, TcpSocket};

use super::{Bell, ControlError};

/// Connects to `peer`, waiting until `until` at most.
///
/// # Errors
/// [`ControlError`]: nobody listens there, no answer in time, an option that the kernel refuses.
pub(in crate::transfer) fn connect(
    peer: SocketAddr,
    options: &SocketOptions,
    bell: &Bell,
    until: Deadline,
) -> Result<TcpSocket, ControlError> {
    let within = until.left();
    let socket = TcpSocket::connect_start(peer, None, options)?;
    let during = "being connected to";
    await_socket(&socket, Interest::WRITE, bell, until, || ControlError::Silent { peer, during, within })?;
    // The kernel knows only the descriptor.
    let failed = |error: NetError| NetError { action: "connect to", target: peer.to_string(), ..error };
    match socket.connect_result().map_err(failed)? {
        ConnectState::Connected => Ok(socket),
        ConnectState::InProgress => Err(ControlError::Silent { peer, during, within }),
    }
}

/// Waits until `socket` is ready, at most until `until`; what was late then, `late` says.
///
/// # Errors
/// [`ControlError`]: late, or this end was told to stop.
pub(in crate::transfer) fn await_socket(
    socket: &impl AsFd,
    interest: Interest,
    bell: &Bell,
    until: Deadline,
    late: impl Fn() -> ControlError,
) -> Result<(), ControlError> {
    let epoll = Epoll::new()?;
    epoll.add(socket, 0, interest)?;
    epoll.add(bell, 1, Interest::READ)?;
    let mut events = Events::with_capacity(2);
    loop {
        if bell.is_stopped() {
            return Err(ControlError::Stopped);
        }
        if until.passed() {
            return Err(late());
        }
        epoll.wait(&mut events, Some(until.left()))?;
        if events.iter().any(|event| event.token == 0) {
            return Ok(());
        }
        bell.hush();
    }
}
