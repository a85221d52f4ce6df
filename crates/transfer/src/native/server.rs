//! The server of kagiri's own protocol: it passes connections and datagrams to their sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;

use sys::net::{TcpSocket, UdpPort};

use super::control_link::ControlLink;
use super::session::Session;
use super::session_id::{Role, SessionId};
use super::sessions::{Arrival, Entry, NativeSettings, SessionEnd, Sessions};
use crate::control::{COOKIE_BYTES, Control, Cookie, StopHandle};

/// Datagrams that arrived at the socket of another peer, with their senders.
pub type UnmatchedDatagrams = Vec<(Vec<u8>, SocketAddr)>;

/// Clients beyond the limit that still learn the reason of their refusal; further ones are only closed.
const TOLD_FULL_MAX: usize = 64;
/// What speaks kagiri's own protocol on a server's port. The acceptor's thread calls its methods: they must
/// not wait.
pub struct NativeServer {
    settings: NativeSettings,
    sessions: Arc<Sessions>,
}

impl NativeServer {
    pub fn new(settings: NativeSettings) -> Self {
        Self { settings, sessions: Arc::default() }
    }

    /// What sessions came to that ended since the last call; of very many only the latest.
    pub fn take_ends(&self) -> Vec<SessionEnd> {
        self.sessions.take_reports()
    }

    /// Opens a session. Without descriptors or threads the client sees its connection end.
    fn open_session(&self, name: SessionId, socket: TcpSocket, peer: SocketAddr) -> std::io::Result<()> {
        let failed = |error: sys::net::NetError| error.source;
        if self.open() >= self.settings.sessions_max.saturating_add(TOLD_FULL_MAX) {
            return Ok(());
        }
        let stop_handle = Arc::new(StopHandle::new().map_err(failed)?);
        let local = socket.local_addr().map_err(failed)?;
        socket.set_silence_limit(super::socket_setup::SILENCE).map_err(failed)?;
        let control = Control::new(socket, peer, stop_handle.clone(), self.settings.step).map_err(failed)?;
        let (arrivals, inbox) = channel();
        let is_full = {
            let mut entries = self.sessions.entries();
            if entries.contains_key(&name) {
                return Ok(());
            }
            let (peer, local, stop_handle) = (peer.ip().to_canonical(), local.ip(), stop_handle.clone());
            let is_full = entries.len() >= self.settings.sessions_max;
            entries.insert(name, Entry { peer, local, stop_handle, arrivals, expected: Vec::new() });
            is_full
        };
        let session = Session {
            name,
            local,
            link: ControlLink { control },
            stop_handle,
            arrivals: inbox,
            sessions: self.sessions.clone(),
            settings: self.settings.clone(),
            quic: None,
        };
        self.sessions.spawn(name, move || session.run(is_full))
    }

    /// Takes a connection that opened with a cookie of kagiri's.
    pub(crate) fn accept(&self, cookie: &Cookie, socket: TcpSocket, peer: SocketAddr) {
        match SessionId::read(cookie) {
            Some((name, Role::Control)) => drop(self.open_session(name, socket, peer)),
            Some((name, Role::Flow(number))) => {
                let mut entries = self.sessions.entries();
                let Some(entry) = entries.get_mut(&name) else { return };
                if entry.take_place(number) {
                    // If the session has just ended, the connection ends with the channel.
                    let _ = entry.arrivals.send(Arrival::Tcp(number, socket));
                    entry.stop_handle.wake();
                }
            }
            None => {}
        }
    }

    /// Takes a datagram that is not iperf3's. Returns the datagrams of other peers that a new socket of the
    /// peer's ([`UdpPort::flow_to`]) had received.
    pub(crate) fn datagram(&self, port: &UdpPort, bytes: &[u8], from: SocketAddr) -> UnmatchedDatagrams {
        let mut unmatched = UnmatchedDatagrams::new();
        let cookie: Option<&[u8; COOKIE_BYTES]> = bytes.try_into().ok();
        let Some((name, Role::Flow(number))) =
            cookie.and_then(Cookie::read).as_ref().and_then(SessionId::read)
        else {
            return unmatched;
        };
        let mut entries = self.sessions.entries();
        let Some(entry) = entries.get_mut(&name).filter(|entry| entry.peer == from.ip().to_canonical())
        else {
            return unmatched;
        };
        if entry.take_place(number) {
            let keep = |bytes: &[u8], from| unmatched.push((bytes.to_owned(), from));
            match port.flow_to(from, Some(entry.local), keep) {
                Ok(flow) => {
                    let _ = entry.arrivals.send(Arrival::Udp(number, flow));
                    entry.stop_handle.wake();
                }
                // The client asks again.
                Err(_) => entry.expected[number as usize] = true,
            }
        }
        unmatched
    }

    pub(crate) fn open(&self) -> usize {
        self.sessions.len()
    }

    /// Ends all sessions; each informs its client.
    pub(crate) fn stop(&self) {
        self.sessions.entries().values().for_each(|entry| entry.stop_handle.stop());
    }
}
