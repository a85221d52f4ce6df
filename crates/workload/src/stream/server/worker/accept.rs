//! Connections coming in: to whom they go, and who makes room for them.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use sys::net::{Interest, TcpSocket};

use super::super::connection::{Connection, Next};
use super::super::deadlines::Kind;
use super::super::stats::add;
use super::{Slot, TOKEN_LISTENER, Worker};

/// Connections accepted before the established ones have their turn again.
const ACCEPTS_MAX: usize = 64;
/// How long accepting pauses when the descriptors are used up.
const ACCEPT_PAUSE_NS: u64 = 50_000_000;

impl Worker {
    pub(super) fn accept(&mut self) {
        let Some(listener) = self.listener.clone() else { return };
        for _ in 0..ACCEPTS_MAX {
            match listener.accept() {
                Ok(None) => return,
                Ok(Some((socket, peer))) => {
                    self.shared.accepted.fetch_add(1, Ordering::Relaxed);
                    self.place(socket, peer);
                }
                Err(e) if e.is_out_of_resources() && self.evict() => {}
                Err(_) => {
                    // Out of descriptors (or worse): the queue keeps the newcomers; try again soon.
                    let _ = self.epoll.delete(&*listener);
                    self.accept_paused_until_ns = Some(self.now_ns + ACCEPT_PAUSE_NS);
                    return;
                }
            }
        }
    }

    pub(super) fn resume_accepting(&mut self) {
        let Some(listener) = self.listener.clone() else { return };
        let added = self.epoll.add(&*listener, TOKEN_LISTENER, Interest::READ);
        self.accept_paused_until_ns = added.is_err().then_some(self.now_ns + ACCEPT_PAUSE_NS);
    }

    /// Gives a new connection to the worker that has fewest.
    pub(super) fn place(&mut self, socket: TcpSocket, peer: SocketAddr) {
        if !self.shared.admit(peer.ip()) {
            self.turn_away(&socket, peer, "too many connections of this peer");
            return;
        }
        let desks = &self.shared.desks;
        let load = |i: &usize| (desks[*i].connections.load(Ordering::Relaxed), *i != self.index);
        let chosen = (0..desks.len()).min_by_key(load).unwrap_or(self.index);
        desks[chosen].connections.fetch_add(1, Ordering::Relaxed);
        if chosen == self.index {
            self.adopt(socket, peer);
        } else if let Err(socket) = desks[chosen].hand_over(socket, peer) {
            desks[chosen].connections.fetch_sub(1, Ordering::Relaxed);
            self.shared.release(peer.ip());
            self.turn_away(&socket, peer, "a worker is too far behind");
        }
    }

    /// Takes a connection into the table, at the cost of another if it is full.
    pub(super) fn adopt(&mut self, socket: TcpSocket, peer: SocketAddr) {
        if self.slots.len() - self.free.len() >= self.connections_max && !self.evict() {
            self.forget(peer);
            self.turn_away(&socket, peer, "all connections are being served");
            return;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let token = u64::from(slot.generation) << 32 | u64::from(index);
        if self.epoll.add(&socket, token, Interest::READ | Interest::WRITE | Interest::EDGE).is_err() {
            self.free.push(index);
            self.forget(peer);
            self.turn_away(&socket, peer, "the kernel watches no more sockets");
            return;
        }
        slot.connection = Some(Box::new(Connection::new(socket, peer, self.now_ns)));
        self.deadlines.set(index, Kind::Head, self.now_ns);
        self.enqueue(index);
    }

    pub(super) fn forget(&self, peer: SocketAddr) {
        self.desk().connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.release(peer.ip());
    }

    /// Drops the oldest connection without a complete request, or else the one idle longest.
    pub(super) fn evict(&mut self) -> bool {
        let victim = self.deadlines.oldest(Kind::Head).or_else(|| self.deadlines.oldest(Kind::Idle));
        let Some(index) = victim else { return false };
        add(&self.desk().counters.evicted, 1);
        self.turn(index, |connection, bench| {
            connection.log_unfinished(bench, 503, "dropped for a newer connection: the table is full");
            let _ = connection.socket().reset_on_close();
            Next::Wait
        });
        self.close(index, None);
        true
    }

    /// Refuses a connection that was not taken in. The answer is one short send into an empty socket buffer.
    pub(super) fn turn_away(&mut self, socket: &TcpSocket, peer: SocketAddr, reason: &'static str) {
        const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: kagiri\r\nContent-Length: 0\r\n\
            Retry-After: 1\r\nConnection: close\r\n\r\n";
        add(&self.desk().counters.refused, 1);
        let _ = socket.send(ANSWER, false);
        super::super::log::turned_away(&self.log, peer.ip(), ANSWER.len() as u64, reason);
    }
}
