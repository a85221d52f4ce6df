//! Many connections to one server, opened side by side.

use std::net::SocketAddr;

use sys::clock::Deadline;
use sys::net::{ConnectState, Epoll, Events, Interest, NetError, SocketOptions, TcpSocket};

use super::error::NativeError;
use crate::transfer::control::Bell;

/// So many are opened at once: enough to hide a long path's round trips, few enough for any listener's queue.
const AT_ONCE: usize = 256;
const BELL: u64 = u64::MAX;

/// Opens `count` connections, in their order, and says on each what `greet` says for its number, as soon as it is open: a
/// server keeps few connections that have not said whose they are, and there are other clients.
///
/// # Errors
/// [`NativeError`]: refused, not all there by `until`, told to stop.
pub(super) fn dial(
    peer: SocketAddr,
    count: usize,
    options: &SocketOptions,
    bell: &Bell,
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
            // To this host itself it is there at once.
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
        let missing = await_all(&sockets, pending, bell, until, is_there)?;
        if missing > 0 {
            let there = sockets.len() - missing;
            return Err(NativeError::Flows { peer, there, wanted: count, within });
        }
    }
    Ok(sockets)
}

/// How far a connection is. The kernel knows only the descriptor.
fn state(socket: &TcpSocket, peer: SocketAddr) -> Result<ConnectState, NetError> {
    let failed = |error: NetError| NetError { action: "connect to", target: peer.to_string(), ..error };
    socket.connect_result().map_err(failed)
}

/// Waits until those of these numbers are there, or `until`; how many are not.
fn await_all(
    sockets: &[TcpSocket],
    pending: Vec<usize>,
    bell: &Bell,
    until: Deadline,
    is_there: impl Fn(usize) -> Result<bool, NativeError>,
) -> Result<usize, NativeError> {
    let epoll = Epoll::new()?;
    epoll.add(bell, BELL, Interest::READ)?;
    for index in &pending {
        epoll.add(&sockets[*index], *index as u64, Interest::WRITE)?;
    }
    let mut missing = pending.len();
    let mut events = Events::with_capacity(AT_ONCE);
    while missing > 0 && !until.passed() {
        if bell.is_stopped() {
            return Err(NativeError::Stopped);
        }
        epoll.wait(&mut events, Some(until.left()))?;
        for event in events.iter().filter(|event| event.token != BELL) {
            let index = event.token as usize;
            if is_there(index)? {
                epoll.delete(&sockets[index])?;
                missing -= 1;
            }
        }
    }
    Ok(missing)
}
