//! Opens many connections to one server concurrently.

use std::net::SocketAddr;

use sys::clock::Deadline;
use sys::net::{ConnectState, Epoll, Events, Interest, NetError, SocketOptions, TcpSocket};

use super::error::NativeError;
use crate::control::StopHandle;

/// Concurrent handshakes: enough to hide the round trips of a long path, few enough for any listen backlog.
const AT_ONCE: usize = 256;
const WAKER: u64 = u64::MAX;

/// Opens `count` connections and calls `greet` with the number of each as soon as it is open: a server keeps
/// few unidentified connections.
///
/// # Errors
/// [`NativeError`]: refused, not all open by `until`, stopped.
pub(super) fn connect_all(
    peer: SocketAddr,
    count: usize,
    options: &SocketOptions,
    stop_handle: &StopHandle,
    until: Deadline,
    greet: impl Fn(usize, &TcpSocket) -> Result<(), NativeError>,
) -> Result<Vec<TcpSocket>, NativeError> {
    let within = until.left();
    let mut sockets: Vec<TcpSocket> = Vec::with_capacity(count);
    while sockets.len() < count {
        let batch = AT_ONCE.min(count - sockets.len());
        let mut pending = Vec::new();
        for index in sockets.len()..sockets.len() + batch {
            let socket = TcpSocket::connect_start(peer, None, options)?;
            // On the same host it is open at once.
            match state(&socket, peer)? {
                ConnectState::Connected => greet(index, &socket)?,
                ConnectState::InProgress => pending.push(index),
            }
            sockets.push(socket);
        }
        let is_there = |index: usize| match state(&sockets[index], peer)? {
            ConnectState::Connected => greet(index, &sockets[index]).map(|()| true),
            ConnectState::InProgress => Ok(false),
        };
        let missing = await_all(&sockets, pending, stop_handle, until, is_there)?;
        if missing > 0 {
            let there = sockets.len() - missing;
            return Err(NativeError::Flows { peer, there, wanted: count, within });
        }
    }
    Ok(sockets)
}

/// The state of a connection; names the peer in errors, where the kernel knows only the descriptor.
fn state(socket: &TcpSocket, peer: SocketAddr) -> Result<ConnectState, NetError> {
    let failed = |error: NetError| NetError { action: "connect to", target: peer.to_string(), ..error };
    socket.connect_result().map_err(failed)
}

/// Waits for these connections until `until`; the number of missing ones.
fn await_all(
    sockets: &[TcpSocket],
    pending: Vec<usize>,
    stop_handle: &StopHandle,
    until: Deadline,
    is_there: impl Fn(usize) -> Result<bool, NativeError>,
) -> Result<usize, NativeError> {
    let epoll = Epoll::new()?;
    epoll.add(stop_handle, WAKER, Interest::READ)?;
    for index in &pending {
        epoll.add(&sockets[*index], *index as u64, Interest::WRITE)?;
    }
    let mut missing = pending.len();
    let mut events = Events::with_capacity(AT_ONCE);
    while missing > 0 && !until.passed() {
        if stop_handle.is_stopped() {
            return Err(NativeError::Stopped);
        }
        epoll.wait(&mut events, Some(until.left()))?;
        for event in events.iter().filter(|event| event.token != WAKER) {
            let index = event.token as usize;
            if is_there(index)? {
                epoll.delete(&sockets[index])?;
                missing -= 1;
            }
        }
    }
    Ok(missing)
}
