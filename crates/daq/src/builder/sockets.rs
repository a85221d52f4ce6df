//! The sockets of one builder: connections, UDP port and the epoll(7) instance, which is used here alone.

use std::net::SocketAddr;

use sys::clock::sleep_until_ns;
use sys::net::{Epoll, Events, Interest, Listener, NetError, TcpSocket, UdpPort, Waker};

use super::config::BuilderConfig;
use super::connection::{Connection, Identity};
use crate::settings::Carrier;
use crate::theory::packets;

/// Token of the waker.
pub(super) const WAKER: u64 = u64::MAX;
/// Token of all listeners.
pub(super) const LISTENER: u64 = u64::MAX - 1;
/// Token of the UDP port; connections have their index.
pub(super) const UDP: u64 = u64::MAX - 2;
/// Kernel memory of a queued datagram: a page with its bookkeeping.
const DATAGRAM_BYTES: u64 = 4096;
const RECEIVE_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Sockets {
    epoll: Epoll,
    udp: UdpPort,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections without a hello.
    unidentified: usize,
}

/// The receive buffer that holds all datagrams of the events under way.
fn receive_buffer_bytes(config: &BuilderConfig) -> u64 {
    let datagrams = packets(config.mean_fragment_bytes(), Carrier::Udp) * u64::from(config.sources());
    (datagrams * u64::from(config.window()) * DATAGRAM_BYTES).clamp(1 << 20, RECEIVE_BYTES_MAX)
}

impl Sockets {
    /// # Errors
    /// The port is taken; too few file descriptors.
    pub(super) fn new(config: &BuilderConfig, waker: &Waker) -> Result<Self, NetError> {
        let udp = UdpPort::bind(config.address)?;
        if config.settings.protocol == Carrier::Udp {
            // With a smaller buffer datagrams are dropped, and the report counts them.
            let _ = udp.set_receive_buffer(receive_buffer_bytes(config));
        }
        let epoll = Epoll::new()?;
        epoll.add(waker, WAKER, Interest::READ)?;
        epoll.add(&udp, UDP, Interest::READ)?;
        Ok(Self { epoll, udp, connections: Vec::new(), free: Vec::new(), unidentified: 0 })
    }

    pub(super) fn watch_listener(&self, listener: &Listener) -> Result<(), NetError> {
        self.epoll.add(listener, LISTENER, Interest::READ)
    }

    pub(super) fn ignore_listener(&self, listener: &Listener) {
        let _ = self.epoll.delete(listener);
    }

    /// Waits until `until_ns`; first sleeps until `sleep_until`, if set, without looking for events.
    pub(super) fn wait(
        &self,
        ready: &mut Events,
        sleep_until: Option<u64>,
        until_ns: u64,
    ) -> Result<usize, NetError> {
        if let Some(sleep_ns) = sleep_until {
            sleep_until_ns(sleep_ns);
            let found = self.epoll.wait_until(ready, sleep_ns)?;
            if found > 0 {
                return Ok(found);
            }
        }
        self.epoll.wait_until(ready, until_ns)
    }

    /// Adds an accepted connection.
    pub(super) fn insert(&mut self, socket: TcpSocket, peer: SocketAddr, now_ns: u64) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        // Edge-triggered: level-triggered events of bytes that were read already would cost a sixth of all
        // CPU time.
        if self.epoll.add(&socket, at as u64, Interest::READ | Interest::EDGE).is_err() {
            return self.free.push(at);
        }
        self.connections[at] = Some(Connection::new(socket, peer, now_ns));
        self.unidentified += 1;
    }

    pub(super) fn connection(&self, at: usize) -> Option<&Connection> {
        self.connections.get(at)?.as_ref()
    }

    pub(super) fn connection_mut(&mut self, at: usize) -> Option<&mut Connection> {
        self.connections.get_mut(at)?.as_mut()
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, at: usize) -> Option<Connection> {
        let connection = self.connections.get_mut(at).and_then(Option::take)?;
        self.free.push(at);
        self.unidentified -= usize::from(connection.identity().is_none());
        Some(connection)
    }

    /// The connection's hello was accepted.
    pub(super) fn identify(&mut self, at: usize, identity: Identity) {
        if let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) {
            self.unidentified -= usize::from(connection.identity().is_none());
            connection.set_identity(identity);
        }
    }

    pub(super) const fn unidentified(&self) -> usize {
        self.unidentified
    }

    /// Connections that were accepted before `before_ns` and have not sent a hello.
    pub(super) fn idle_handshakes(&self, before_ns: u64) -> Vec<usize> {
        let is_idle =
            |connection: &Connection| connection.identity().is_none() && connection.accepted_ns() < before_ns;
        let all = self.connections.iter().enumerate();
        all.filter(|(_, one)| one.as_ref().is_some_and(is_idle)).map(|(at, _)| at).collect()
    }

    /// Sends over a connection; what finds no room is queued.
    pub(super) fn send(&mut self, at: usize, bytes: &[u8]) {
        if let Some(connection) = self.connection_mut(at) {
            connection.send(bytes);
            if connection.has_queued() {
                self.flush(at);
            }
        }
    }

    /// Sends what a connection has queued.
    pub(super) fn flush(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) else { return };
        let Some(is_watched) = connection.flush() else { return };
        let interest = if is_watched { Interest::READ | Interest::WRITE } else { Interest::READ };
        if self.epoll.modify(connection.socket(), at as u64, interest | Interest::EDGE).is_ok() {
            connection.set_write_watched(is_watched);
        }
    }

    /// Sends the last bytes over all connections.
    pub(super) fn send_last(&mut self, bytes: &[u8]) {
        for connection in self.connections.iter_mut().flatten() {
            connection.send(bytes);
            let _ = connection.flush();
            let _ = connection.socket().shutdown_send();
        }
    }

    pub(super) fn receive_datagram(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.udp.receive(buffer).ok().flatten()
    }

    /// Sends a datagram; errors count as loss.
    pub(super) fn send_datagram(&self, bytes: &[u8], to: SocketAddr) {
        let _ = self.udp.send_to(bytes, to);
    }

    /// Datagrams that the kernel dropped, if it tells.
    pub(super) fn datagrams_dropped(&self) -> Option<u64> {
        self.udp.dropped().ok().map(u64::from)
    }
}
