//! Many connections to one server, opened side by side.

use std::net::SocketAddr;

use sys::clock::Deadline;
use sys::net::{ConnectState, Epoll, Events, Interest, NetError, SocketOptions, TcpSocket};

use super::error::NativeError;
use crate::transfer::control::Bell;

/// So many are opened at once: enough to hide a long path's round trips, few enough for any listener's queue.
const AT_ONCE: usize = 256;
const BELL: u64 = u64::MAX;

/// Opens `count` connections, in their order, and says on each what `greet` says for its number. A server keeps few
/// connections that have not said whose they are: those of a batch speak before the next one is opened.
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
        let start = |_| TcpSocket::connect_start(peer, None, options);
        let batch: Vec<TcpSocket> = (0..batch).map(start).collect::<Result<_, NetError>>()?;
        let connected = await_all(&batch, bell, until)?;
        if connected < batch.len() {
            let there = sockets.len() + connected;
            return Err(NativeError::Flows { peer, there, wanted: count, within });
        }
        for socket in batch {
            greet(sockets.len(), &socket)?;
            sockets.push(socket);
        }
    }
    Ok(sockets)
}

/// Waits until all are connected, or `until`; how many are.
fn await_all(sockets: &[TcpSocket], bell: &Bell, until: Deadline) -> Result<usize, NativeError> {
    let epoll = Epoll::new()?;
    epoll.add(bell, BELL, Interest::READ)?;
    for (index, socket) in sockets.iter().enumerate() {
        epoll.add(socket, index as u64, Interest::WRITE)?;
    }
    let mut connected = 0;
    let mut events = Events::with_capacity(AT_ONCE);
    while connected < sockets.len() && !until.passed() {
        if bell.is_stopped() {
            return Err(NativeError::Stopped);
        }
        epoll.wait(&mut events, Some(until.left()))?;
        for event in events.iter().filter(|event| event.token != BELL) {
            let socket = &sockets[event.token as usize];
            if socket.connect_result()? == ConnectState::Connected {
                epoll.delete(socket)?;
                connected += 1;
            }
        }
    }
    Ok(connected)
}
