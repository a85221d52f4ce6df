//! Who comes and who goes.

use std::net::SocketAddr;

use sys::clock::monotonic_ns;
use sys::net::{Interest, ListenOptions, Listener, NetError, SocketOptions, TcpSocket};

use super::assembly::Said;
use super::connection::Connection;
use super::told::Told;
use super::worker::{LISTENER, Worker};
use crate::daq::wire::{Hello, Piece, WHOEVER_LISTENS};

/// Connections that have not said hello, at most.
const STRANGERS_MAX: usize = 4096;
/// Who says nothing for so long has to go: longer than TCP takes to say twice again what was lost while thousands came.
const SILENCE_NS: u64 = 5_000_000_000;
/// How long nobody is accepted when there are no descriptors left.
const PAUSE_NS: u64 = 100_000_000;
/// How long nobody is accepted when too many have not said hello.
const CROWDED_NS: u64 = 5_000_000;
/// Connections accepted before others have their turn.
const ACCEPTS_AT_ONCE: usize = 256;

/// Sources whose connections one door takes if they all come at once, unevenly as they choose it.
const SOURCES_A_DOOR: u32 = 2500;
const DOORS_MAX: u32 = 16;

/// The doors of a builder.
///
/// # Errors
/// The port is taken, no descriptors.
pub(super) fn doors(told: &Told) -> Result<Vec<Listener>, NetError> {
    let listen = ListenOptions {
        reuse_port: true,
        backlog: 4096,
        socket: SocketOptions { nodelay: Some(true), ..SocketOptions::default() },
    };
    let doors = told.sources().div_ceil(SOURCES_A_DOOR).clamp(1, DOORS_MAX);
    (0..doors).map(|_| Listener::bind(told.address, &listen)).collect()
}

impl Worker {
    /// Lets in who waits at the door.
    pub(super) fn accept(&mut self, now_ns: u64) {
        for door in 0..self.listeners.len() {
            self.accept_at(door, now_ns);
        }
    }

    /// Listens again after there were no descriptors.
    pub(super) fn open_the_doors(&self) {
        for listener in &self.listeners {
            let _ = self.epoll.add(listener, LISTENER, Interest::READ);
        }
    }

    fn accept_at(&mut self, door: usize, now_ns: u64) {
        for _ in 0..ACCEPTS_AT_ONCE {
            if self.strangers >= STRANGERS_MAX {
                // Nobody is sent away for coming together with many others.
                return self.close_the_doors(now_ns + CROWDED_NS);
            }
            match self.listeners[door].accept() {
                Ok(Some((socket, peer))) => self.let_in(socket, peer, now_ns),
                Ok(None) => return,
                Err(error) if error.is_out_of_resources() => {
                    return self.close_the_doors(now_ns + PAUSE_NS);
                }
                // That one is gone already.
                Err(_) => {}
            }
        }
    }

    /// Listens no more until then; whoever comes waits in the backlog.
    fn close_the_doors(&mut self, until_ns: u64) {
        self.accept_again_ns = Some(until_ns);
        self.listeners.iter().for_each(|listener| drop(self.epoll.delete(listener)));
    }

    fn let_in(&mut self, socket: TcpSocket, peer: SocketAddr, now_ns: u64) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        // Told once of what comes: to be told again of what was read already would cost a sixth of the work.
        if self.epoll.add(&socket, at as u64, Interest::READ | Interest::EDGE).is_err() {
            return self.free.push(at);
        }
        self.connections[at] = Some(Connection::new(socket, peer, now_ns));
        self.strangers += 1;
    }

    /// Ends connections that have said nothing for too long.
    pub(super) fn turn_away_the_silent(&mut self, now_ns: u64) {
        let is_silent = |connection: &Option<Connection>| {
            connection.as_ref().is_some_and(|connection| {
                connection.source.is_none() && now_ns.saturating_sub(connection.since_ns) > SILENCE_NS
            })
        };
        for at in 0..self.connections.len() {
            if is_silent(&self.connections[at]) {
                self.close(at, None);
            }
        }
    }

    /// Looks at what a connection said beside fragments.
    pub(super) fn hear(&mut self, at: usize) {
        let said = std::mem::take(&mut self.assembly.said);
        for one in &said {
            match one {
                Said::Answer(answer) => self.take_answer(answer, self.assembly.now_ns),
                Said::Hello(hello, payload) => {
                    if let Err(name) = self.greet(at, hello, payload) {
                        self.close(at, Some(name));
                    }
                }
            }
        }
        // The room is used again.
        self.assembly.said = said;
        self.assembly.said.clear();
    }

    /// Takes a source in, or says under which name it is refused.
    fn greet(&mut self, at: usize, hello: &Piece, payload: &[u8]) -> Result<(), &'static str> {
        let source = hello.source;
        if hello.run != self.told.run {
            return Err("wrong_run");
        }
        if hello.builder != self.told.builder && hello.builder != WHOEVER_LISTENS {
            return Err("wrong_builder");
        }
        let said = Hello::decode(payload).map_err(|_| "bad_header")?;
        if !hello.vouches_for(payload) {
            return Err("payload_checksum");
        }
        if source >= self.told.sources() || said.group == 0 {
            return Err("unknown_source");
        }
        if said.configuration != 0 && said.configuration != self.configuration {
            return Err("configuration");
        }
        let is_known =
            self.connections.get(at).and_then(Option::as_ref).is_some_and(|one| one.source.is_some());
        if is_known {
            return Err("duplicate_source");
        }
        if let Some(old) = self.of_source[source as usize] {
            if self.is_alive(old as usize) {
                return Err("duplicate_source");
            }
            // What it said before it ended still counts.
            self.read(old as usize, self.assembly.now_ns, true);
            if self.of_source[source as usize] == Some(old) {
                self.close(old as usize, None);
            }
        }
        let Some(Some(connection)) = self.connections.get_mut(at) else { return Ok(()) };
        self.strangers = self.strangers.saturating_sub(1);
        let is_same_kernel = self.boot != [0; 16] && said.boot == self.boot;
        let (group, is_new) = self.clocks.join(said.group, source, is_same_kernel, monotonic_ns());
        (connection.source, connection.group) = (Some(source), group);
        connection.congestion_control = Some(said.congestion_control).filter(|name| !name.is_empty());
        let udp = (said.udp_port > 0).then(|| SocketAddr::new(connection.peer.ip(), said.udp_port));
        let was_here = self.group_of[source as usize] != u32::MAX;
        self.of_source[source as usize] = Some(at as u32);
        self.here += 1;
        self.group_of[source as usize] = group;
        self.assembly.connected.insert(source);
        self.assembly.speaker = Some(source);
        self.ladder.join(source, group);
        self.join_group(group, source, udp, is_new);
        if was_here {
            self.assembly.ledger.reconnected += 1;
            if let Some(grants) = &mut self.grants {
                grants.came_again(source);
            }
        } else {
            self.were_here += 1;
        }
        self.note_connected();
        Ok(())
    }

    /// Whether somebody is still at the other end, as far as the kernel knows.
    fn is_alive(&mut self, at: usize) -> bool {
        let Some(Some(connection)) = self.connections.get(at) else { return false };
        // ESTABLISHED, in the kernel's numbers (tcp_states.h).
        connection.socket.info().is_ok_and(|info| info.state == Some(1))
    }

    /// Ends a connection; `refused` is the name under which it is counted.
    pub(super) fn close(&mut self, at: usize, refused: Option<&'static str>) {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::take) else { return };
        self.free.push(at);
        let Some(source) = connection.source else {
            self.strangers = self.strangers.saturating_sub(1);
            refused.into_iter().for_each(|name| self.assembly.ledger.turn_away(name));
            return;
        };
        refused.into_iter().for_each(|name| self.assembly.ledger.refuse(name));
        if self.of_source[source as usize] == Some(at as u32) {
            self.of_source[source as usize] = None;
            self.here = self.here.saturating_sub(1);
            self.assembly.connected.remove(source);
            self.ladder.leave(source);
            self.clocks.leave(connection.group);
            let (told, grants) = (&self.told, &mut self.grants);
            if let Some(grants) = grants {
                let protocol = told.settings.protocol;
                grants.gone(source, |event, source| {
                    crate::daq::theory::fragment_wire_bytes(told.sizes.bytes(event, source), protocol)
                });
            }
        }
        if !self.is_over {
            self.assembly.ledger.broken_connections += 1;
            self.note_connected();
        }
    }

    /// Tells all that the run is over, and that nothing more will be said.
    pub(super) fn say_goodbye(&mut self, bytes: &[u8]) {
        for at in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[at] {
                connection.say(bytes);
                connection.flush();
                let _ = connection.socket.shutdown_send();
            }
        }
    }

    /// Whether a connection is left.
    pub(super) fn is_anybody_here(&self) -> bool {
        self.here > 0
    }
}
