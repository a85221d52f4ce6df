//! The server of kagiri's own protocol: it passes connections and datagrams to their sessions.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sys::net::{TcpSocket, UdpFlow, UdpPort};

use super::message::SessionOrder;
use super::session::Session;
use super::session_id::{Role, SessionId};
use crate::control::{COOKIE_BYTES, Control, Cookie, StopHandle};
use crate::report::DirectionReport;
use crate::server::protocol_detect::{Identified, PeerProtocol};
use crate::server::{NativeSessions, UnmatchedDatagrams};

/// Clients beyond the limit that still learn the reason of their refusal; further ones are only closed.
const TOLD_FULL_MAX: usize = 64;
/// Results of sessions to keep; older ones are dropped.
const ENDS_MAX: usize = 1024;

/// How the sessions of kagiri's own clients are conducted.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// What an order must carry; every client is served without.
    pub key: Option<String>,
    /// Sessions at once; further clients are refused.
    pub sessions_max: usize,
    /// Flows of one session, both ways together.
    pub flows_max: u32,
    /// How long each step of a session's preparation may take.
    pub step: Duration,
    /// How long a client may take from its flows' opening to its start: the others of its run get ready
    /// meanwhile.
    pub start_within: Duration,
}

impl Default for NativeSettings {
    fn default() -> Self {
        Self {
            key: None,
            sessions_max: 256,
            flows_max: 60_000,
            step: Duration::from_secs(10),
            start_within: Duration::from_secs(600),
        }
    }
}

/// The result of a session at the server.
#[derive(Debug)]
pub struct SessionEnd {
    /// The client.
    pub peer: SocketAddr,
    /// What it asked for; absent where it did not come to that.
    pub order: Option<SessionOrder>,
    /// This end of its flows, by direction.
    pub directions: Vec<DirectionReport>,
    /// Why it broke off, where it did.
    pub problem: Option<String>,
}

/// A data connection that came for a session, by its flow's number.
pub(super) enum Arrival {
    Tcp(u32, TcpSocket),
    Udp(u32, UdpFlow),
}

struct Entry {
    /// The client's address. Datagrams go only there: nobody can direct them at a third host.
    peer: IpAddr,
    /// This end's address that the client connected to.
    local: IpAddr,
    stop_handle: Arc<StopHandle>,
    arrivals: Sender<Arrival>,
    /// Flows that are still expected, by number.
    expected: Vec<bool>,
}

/// The sessions that run.
#[derive(Default)]
pub(super) struct Sessions {
    entries: Mutex<BTreeMap<SessionId, Entry>>,
    ends: Mutex<VecDeque<SessionEnd>>,
    open: AtomicUsize,
}

impl Sessions {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SessionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on flows of these numbers are expected.
    pub(super) fn expect(&self, name: SessionId, flows: u32) {
        if let Some(entry) = self.entries().get_mut(&name) {
            entry.expected = vec![true; flows as usize];
        }
    }

    fn leave(&self, name: SessionId, end: Option<SessionEnd>) {
        self.entries().remove(&name);
        self.open.fetch_sub(1, Ordering::AcqRel);
        let Some(end) = end else { return };
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() >= ENDS_MAX {
            ends.pop_front();
        }
        ends.push_back(end);
    }
}

/// What speaks kagiri's own protocol on a [`Server`](crate::server::Server)'s port.
pub struct NativeServer {
    settings: NativeSettings,
    sessions: Arc<Sessions>,
}

impl NativeServer {
    /// One with these settings.
    pub fn new(settings: NativeSettings) -> Self {
        Self { settings, sessions: Arc::default() }
    }

    /// What sessions came to that ended since the last call; of very many only the latest.
    pub fn take_ends(&self) -> Vec<SessionEnd> {
        self.sessions.ends.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
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
        let (arrivals, inbox): (Sender<Arrival>, Receiver<Arrival>) = channel();
        {
            let mut entries = self.sessions.entries();
            if entries.contains_key(&name) {
                return Ok(());
            }
            let (peer, local) = (peer.ip().to_canonical(), local.ip());
            entries.insert(
                name,
                Entry { peer, local, stop_handle: stop_handle.clone(), arrivals, expected: Vec::new() },
            );
        }
        let before = self.sessions.open.fetch_add(1, Ordering::AcqRel);
        let is_full = before >= self.settings.sessions_max;
        let (settings, sessions) = (self.settings.clone(), self.sessions.clone());
        let conduct = move || {
            let mut presence = Presence { sessions: sessions.clone(), name, end: None };
            let session = Session::new(name, local, control, stop_handle, inbox, sessions, settings);
            presence.end = Some(session.run(is_full));
        };
        let started = std::thread::Builder::new().name("transfer-session".to_owned()).spawn(conduct);
        if started.is_err() {
            self.sessions.leave(name, None);
        }
        started.map(drop)
    }
}

impl NativeSessions for NativeServer {
    fn identified(&self, identified: Identified) {
        let PeerProtocol::Kagiri(cookie) = identified.hello else { return };
        match SessionId::read(&cookie) {
            Some((name, Role::Control)) => drop(self.open_session(name, identified.socket, identified.peer)),
            Some((name, Role::Flow(number))) => {
                let mut entries = self.sessions.entries();
                let Some(entry) = entries.get_mut(&name) else { return };
                if take_place(entry, number) {
                    // If the session has just ended, the connection ends with the channel.
                    let _ = entry.arrivals.send(Arrival::Tcp(number, identified.socket));
                    entry.stop_handle.wake();
                }
            }
            None => {}
        }
    }

    fn datagram(&self, port: &UdpPort, bytes: &[u8], from: SocketAddr) -> UnmatchedDatagrams {
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
        if take_place(entry, number) {
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

    fn open(&self) -> usize {
        self.sessions.open.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.sessions.entries().values().for_each(|entry| entry.stop_handle.stop());
    }
}

/// Marks an expected flow as arrived.
fn take_place(entry: &mut Entry, number: u32) -> bool {
    let place = entry.expected.get_mut(number as usize);
    place.is_some_and(|expected| std::mem::replace(expected, false))
}

/// Removes a session however its thread ends, and stores its result.
struct Presence {
    sessions: Arc<Sessions>,
    name: SessionId,
    end: Option<SessionEnd>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.sessions.leave(self.name, self.end.take());
    }
}
