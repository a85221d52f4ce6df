//! The server's side of kagiri's own protocol: it leads connections and datagrams to their sessions.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sys::net::{TcpSocket, UdpFlow, UdpPort};

use super::message::SessionOrder;
use super::name::{Role, SessionName};
use super::session::Session;
use crate::transfer::control::{Bell, COOKIE_BYTES, Control, Cookie};
use crate::transfer::report::WayReport;
use crate::transfer::server::greet::{Greeted, Hello};
use crate::transfer::server::{Astray, Natives};

/// So many clients more than are served are told why they are not; those beyond see their connections end.
const TOLD_FULL_MAX: usize = 64;
/// Ended sessions that are kept for whoever asks; older ones are dropped.
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
    /// How long a client may take from its flows' opening to its start: the others of its run get ready meanwhile.
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

/// What a session came to, at the server's end.
#[derive(Debug)]
pub struct SessionEnd {
    /// The client.
    pub peer: SocketAddr,
    /// What it asked for; absent where it did not come to that.
    pub order: Option<SessionOrder>,
    /// This end of its flows, by their way.
    pub ways: Vec<WayReport>,
    /// Why it broke off, where it did.
    pub problem: Option<String>,
}

/// A data connection that came for a session, by its flow's number.
pub(super) enum Arrival {
    Tcp(u32, TcpSocket),
    Udp(u32, UdpFlow),
}

struct Entry {
    /// Where the client is. Datagrams go there and nowhere else: whoever asks for them has to be who receives them.
    peer: IpAddr,
    /// This end's address that the client connected to.
    local: IpAddr,
    bell: Arc<Bell>,
    arrivals: Sender<Arrival>,
    /// Flows that are still expected, by number.
    expected: Vec<bool>,
}

/// The sessions that run.
#[derive(Default)]
pub(super) struct Sessions {
    entries: Mutex<BTreeMap<SessionName, Entry>>,
    ends: Mutex<VecDeque<SessionEnd>>,
    open: AtomicUsize,
}

impl Sessions {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SessionName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on flows of these numbers are expected.
    pub(super) fn expect(&self, name: SessionName, flows: u32) {
        if let Some(entry) = self.entries().get_mut(&name) {
            entry.expected = vec![true; flows as usize];
        }
    }

    fn leave(&self, name: SessionName, end: Option<SessionEnd>) {
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

/// What speaks kagiri's own protocol on a [`Server`](crate::transfer::server::Server)'s port.
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
    fn open_session(&self, name: SessionName, socket: TcpSocket, peer: SocketAddr) -> std::io::Result<()> {
        let failed = |error: sys::net::NetError| error.source;
        if self.open() >= self.settings.sessions_max.saturating_add(TOLD_FULL_MAX) {
            return Ok(());
        }
        let bell = Arc::new(Bell::new().map_err(failed)?);
        let local = socket.local_addr().map_err(failed)?;
        socket.set_silence_limit(super::dress::SILENCE).map_err(failed)?;
        let control = Control::new(socket, peer, bell.clone(), self.settings.step).map_err(failed)?;
        let (arrivals, inbox): (Sender<Arrival>, Receiver<Arrival>) = channel();
        {
            let mut entries = self.sessions.entries();
            if entries.contains_key(&name) {
                return Ok(());
            }
            let (peer, local) = (peer.ip().to_canonical(), local.ip());
            entries.insert(name, Entry { peer, local, bell: bell.clone(), arrivals, expected: Vec::new() });
        }
        let before = self.sessions.open.fetch_add(1, Ordering::AcqRel);
        let is_full = before >= self.settings.sessions_max;
        let (settings, sessions) = (self.settings.clone(), self.sessions.clone());
        let conduct = move || {
            let mut presence = Presence { sessions: sessions.clone(), name, end: None };
            let session = Session::new(name, local, control, bell, inbox, sessions, settings);
            presence.end = Some(session.run(is_full));
        };
        let started = std::thread::Builder::new().name("transfer-session".to_owned()).spawn(conduct);
        if started.is_err() {
            self.sessions.leave(name, None);
        }
        started.map(drop)
    }
}

impl Natives for NativeServer {
    fn greeted(&self, greeted: Greeted) {
        let Hello::Kagiri(cookie) = greeted.hello else { return };
        match SessionName::read(&cookie) {
            Some((name, Role::Control)) => drop(self.open_session(name, greeted.socket, greeted.peer)),
            Some((name, Role::Flow(number))) => {
                let mut entries = self.sessions.entries();
                let Some(entry) = entries.get_mut(&name) else { return };
                if take_place(entry, number) {
                    // If the session has just ended, the connection ends with the channel.
                    let _ = entry.arrivals.send(Arrival::Tcp(number, greeted.socket));
                    entry.bell.ring();
                }
            }
            None => {}
        }
    }

    fn datagram(&self, port: &UdpPort, bytes: &[u8], from: SocketAddr) -> Astray {
        let mut astray = Astray::new();
        let cookie: Option<&[u8; COOKIE_BYTES]> = bytes.try_into().ok();
        let Some((name, Role::Flow(number))) =
            cookie.and_then(Cookie::read).as_ref().and_then(SessionName::read)
        else {
            return astray;
        };
        let mut entries = self.sessions.entries();
        let Some(entry) = entries.get_mut(&name).filter(|entry| entry.peer == from.ip().to_canonical())
        else {
            return astray;
        };
        if take_place(entry, number) {
            let keep = |bytes: &[u8], from| astray.push((bytes.to_owned(), from));
            match port.flow_to(from, Some(entry.local), keep) {
                Ok(flow) => {
                    let _ = entry.arrivals.send(Arrival::Udp(number, flow));
                    entry.bell.ring();
                }
                // The client asks again.
                Err(_) => entry.expected[number as usize] = true,
            }
        }
        astray
    }

    fn open(&self) -> usize {
        self.sessions.open.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.sessions.entries().values().for_each(|entry| entry.bell.stop());
    }
}

/// Takes the place of a flow that is expected.
fn take_place(entry: &mut Entry, number: u32) -> bool {
    let place = entry.expected.get_mut(number as usize);
    place.is_some_and(|expected| std::mem::replace(expected, false))
}

/// Takes a session out however its thread ends, and leaves there what it came to.
struct Presence {
    sessions: Arc<Sessions>,
    name: SessionName,
    end: Option<SessionEnd>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.sessions.leave(self.name, self.end.take());
    }
}
